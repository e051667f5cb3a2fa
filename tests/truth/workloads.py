"""The workloads of scripts/truth: real programs, and what brings them."""

import dataclasses
import hashlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
from typing import Callable

FILES = pathlib.Path(__file__).resolve().parent / "programs"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "gpu-track-tests"
NOBODY = 65534
# The system's programs, not those of a version manager, whose wrappers are processes of their own.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:" + os.environ.get("PATH", "")

# Sources from Debian's pool, by the checksums of its source index.
SOURCES = {
    "hello": ("hello_2.10.orig.tar.gz", "31e066137a962676e89f69d1b65382de95a7ef7d914b8cb956f41ea72e0f516b"),
    "lua5.4": ("lua5.4_5.4.4.orig.tar.gz", "164c7849653b80ae67bec4b7473b884bf5cc8d2dca05653475ec2ed27b9ebf61"),
}


@dataclasses.dataclass
class Workload:
    """A command, and what it needs."""

    name: str
    # Shell code, run in a directory of its own.
    command: str
    # A program and the Debian package that brings it.
    needs: tuple[tuple[str, str], ...] = ()
    # Run before, in the same directory, unmeasured.
    prepare: Callable[[pathlib.Path], None] | str = ""
    # The part that --quick runs.
    quick: bool = True
    # Whether it can be run without root's rights.
    any_user: bool = True
    # Whether gpu-track-run waits for what the command leaves behind.
    wait_all: bool = True
    # Whether fork children may take memory of their own before they exec.
    may_grow_before_exec: bool = False
    # Whether it may end in any way; else only well.
    any_end: bool = False


def source(package):
    """Unpacks an upstream source into the directory."""

    def unpack(directory):
        subprocess.run(["tar", "xf", archive(package), "--strip-components=1"], cwd=directory, check=True)

    return unpack


def archive(package):
    """The source's archive, if it was fetched."""
    name, sha256 = SOURCES[package]
    path = CACHE / name
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise Missing(f"the source of {package} is not there: scripts/truth --install fetches it")
    return path


class Missing(Exception):
    """Why a workload can't be run."""


def genome(directory):
    """A random genome of 200,000 bases, its index, and reads of it."""
    bases = "".join(random.Random(1).choices("ACGT", k=200_000))
    (directory / "ref.fa").write_text(">chr1\n" + "\n".join(bases[i : i + 80] for i in range(0, len(bases), 80)) + "\n")
    script = "bwa index ref.fa && wgsim -S 7 -N 20000 ref.fa r1.fq r2.fq"
    subprocess.run(["sh", "-c", script], cwd=directory, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


SHELL = "for i in $(seq 20); do seq 2000 | sort -rn | tail -n 1; (exit 0); done"
GO = "GOCACHE=$PWD/cache GOPATH=$PWD/path GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0"
GO_PACKAGE = (("go", "golang-go"),)
MPIRUN = (("mpirun.openmpi", "openmpi-bin"), ("hpcc", "hpcc"))
AS_ROOT = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"

WORKLOADS = [
    Workload("hello: configure, make", "./configure && make", (("make", "make"), ("cc", "gcc")), source("hello"), quick=False),
    Workload("lua: make -j4", "make -j4 linux", (("make", "make"), ("cc", "gcc")), source("lua5.4")),
    Workload("parallel: 200 pipelines", "seq 200 | parallel 'seq {} | sort -rn | head -n 3 | wc -c'", (("parallel", "parallel"),)),
    Workload(
        "bwa, samtools",
        "bwa mem -t 2 ref.fa r1.fq r2.fq | samtools sort -@ 2 -o out.bam - && samtools index out.bam && samtools flagstat out.bam",
        (("bwa", "bwa"), ("samtools", "samtools")),
        genome,
    ),
    Workload("snakemake: 8 samples", "HOME=$PWD snakemake -j 2", (("snakemake", "snakemake"),), "cp $FILES/Snakefile .", quick=False),
    Workload("Python multiprocessing", "python3 $FILES/multiprocessing_pools.py", (("python3", "python3"),)),
    Workload(
        "joblib, concurrent.futures",
        "python3 $FILES/joblib_futures.py",
        (("python3", "python3"), ("/usr/lib/python3/dist-packages/joblib", "python3-joblib")),
    ),
    Workload("R mclapply, makeCluster", "Rscript $FILES/clusters.R", (("Rscript", "r-base-core"),), quick=False),
    Workload(
        "go build",
        f"{GO} go build -o pipelines pipelines.go",
        GO_PACKAGE,
        "cp $FILES/pipelines.go .",
        quick=False,
    ),
    Workload(
        "static Go: 20 pipelines",
        "./pipelines",
        GO_PACKAGE,
        f"cp $FILES/pipelines.go . && {GO} go build -o pipelines pipelines.go && chmod -R u+w cache && rm -r cache",
    ),
    Workload("busybox-static sh", "busybox sh $FILES/busybox.sh", (("busybox", "busybox-static"),)),
    Workload("musl, static", "./children 20", (("musl-gcc", "musl-tools"),), "musl-gcc -static -O1 -o children $FILES/children.c"),
    Workload("musl, dynamic", "./children 20", (("musl-gcc", "musl-tools"),), "musl-gcc -O1 -o children $FILES/children.c"),
    Workload("glibc, static", "./children 20", (("cc", "gcc"),), "cc -static -O1 -o children $FILES/children.c"),
    Workload("glibc, dynamic", "./children 20", (("cc", "gcc"),), "cc -O1 -o children $FILES/children.c"),
    Workload(
        "Java ProcessBuilder",
        "java Children",
        (("java", "default-jdk-headless"), ("javac", "default-jdk-headless")),
        "javac -d . $FILES/Children.java",
    ),
    Workload("node child_process", "node $FILES/children.js", (("node", "nodejs"),)),
    Workload(
        "hpcc, mpirun -n 2",
        f"{AS_ROOT} mpirun.openmpi --oversubscribe -n 2 hpcc",
        MPIRUN,
        "cp $FILES/hpccinf.txt .",
        quick=False,
    ),
    Workload("sudo to another user", f'sudo -n -u "#{NOBODY}" sh -c \'{SHELL}\'', (("sudo", "sudo"),), any_user=False),
    Workload("setpriv to another user", f"setpriv --reuid {NOBODY} --clear-groups sh -c '{SHELL}'", any_user=False),
    Workload("unshare -fp", f"unshare -fp --mount-proc sh -c '{SHELL}'", any_user=False),
    Workload(
        "timeout -s KILL",
        "timeout -s KILL 1 sh -c 'seq 100000 | sort -rn | tail -n 1; while :; do :; done'; test $? -eq 137",
    ),
    Workload(
        "daemons, waited for",
        "for i in 1 2 3; do setsid sh -c 'for i in 1 2 3; do seq 20000 | sort -rn; sleep 0.3; done' >/dev/null 2>&1 & done",
    ),
    Workload(
        "daemons, left behind",
        # They are idle when the command ends: the kernel's sum is read a moment after ours.
        "mkfifo idle end; exec 3<>idle; for i in 1 2 3; do setsid sh -c "
        "'seq 50000 | sort -rn | tail -n 1; echo idle >&3; read x <>end' >/dev/null 2>&1 & done; "
        "read x <&3; read x <&3; read x <&3",
        wait_all=False,
    ),
    Workload("xargs -P 4", "seq 300 | xargs -P 4 -n 1 sh -c 'expr $0 + 1; true'"),
    Workload(
        "perl: system, backticks, open",
        """perl -e 'for (1..40) { system("seq 100 >/dev/null"); `seq 100 | sort -rn`; open(my $f, "-|", "seq", 5) or die; 1 while <$f>; close $f }'""",
        (("perl", "perl"),),
    ),
    Workload(
        "git: 30 commits, gc",
        "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a; "
        "git init && for i in $(seq 30); do seq $i $((i * 1000)) >file; git add file; git commit -m $i; done && git gc && git log -p | wc -l",
        (("git", "git"),),
    ),
]


def installed(program):
    return os.path.exists(program) if program.startswith("/") else shutil.which(program, path=PATH) is not None


def install(workloads):
    """The packages of what is missing, and the sources."""
    packages = sorted({package for w in workloads for program, package in w.needs if not installed(program)})
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-q", "-y"]
    subprocess.run([*apt, "update"], env=environment, check=True)
    if packages:
        subprocess.run([*apt, "install", "--no-install-recommends", *packages], env=environment, check=True)
    with tempfile.TemporaryDirectory() as temporary:
        fetch(pathlib.Path(temporary))


def fetch(work):
    """The machine's own package sources, asked for source packages, with lists of our own."""
    (work / "parts").mkdir()
    (work / "lists" / "partial").mkdir(parents=True)
    etc = pathlib.Path("/etc/apt")
    lists = [path for path in [etc / "sources.list", *(etc / "sources.list.d").glob("*")] if path.is_file()]
    for path in lists:
        text = path.read_text()
        if path.suffix == ".list":
            text = "".join("deb-src" + line[3:] + "\n" for line in text.splitlines() if line.startswith("deb "))
        elif path.suffix == ".sources":
            text = "\n".join("Types: deb-src" if line.startswith("Types:") else line for line in text.splitlines()) + "\n"
        else:
            continue
        (work / "parts" / path.name).write_text(text)
    options = [f"Dir::Etc::sourceparts={work}/parts", "Dir::Etc::sourcelist=/dev/null", f"Dir::State::lists={work}/lists"]
    options += [f"Dir::Cache={work}", "APT::Sandbox::User=root"]
    apt = ["apt-get", "-q", *(word for option in options for word in ("-o", option))]
    CACHE.mkdir(parents=True, exist_ok=True)
    subprocess.run([*apt, "update"], check=True)
    for package, (name, _) in SOURCES.items():
        subprocess.run([*apt, "source", "--download-only", package], cwd=work, check=True)
        if not (work / name).is_file():
            print(f"scripts/truth: the machine's package source has another version of {package} than {name}", file=sys.stderr)
            continue
        shutil.copy(work / name, CACHE / name)
