"""The workloads of scripts/truth: real programs, and what each of them needs."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Union

import sources
from sources import unpacked

FILES = pathlib.Path(__file__).resolve().parent / "programs"
NOBODY = 65534
# The system's directories come first: the wrappers of a version manager would add processes of their own.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:" + os.environ.get("PATH", "")

# Shell code, or a function of the workload's directory.
Preparation = Union[Callable[[pathlib.Path], None], str]


@dataclasses.dataclass
class Workload:
    """A command, and what it needs."""

    name: str
    # Shell code, run in a directory of its own.
    command: str
    # Pairs of a program and the Debian package that contains it.
    needs: tuple[tuple[str, str], ...] = ()
    # Runs before the command in the same directory, unmeasured.
    prepare: Preparation = ""
    # Whether --quick includes it.
    quick: bool = True
    # Whether it also runs without root's rights.
    any_user: bool = True
    # Whether gpu-track-run waits for processes that outlive the command.
    wait_all: bool = True
    # Whether a fork child may allocate memory before it executes a program.
    may_grow_before_exec: bool = False
    # Whether the command may fail.
    any_end: bool = False


def genome(directory: pathlib.Path) -> None:
    """Writes a random genome of 200,000 bases, its index, and reads of it."""
    bases = "".join(random.Random(1).choices("ACGT", k=200_000))
    lines = [">chr1", *(bases[i : i + 80] for i in range(0, len(bases), 80))]
    (directory / "ref.fa").write_text("\n".join(lines) + "\n", encoding="ascii")
    script = "bwa index ref.fa && wgsim -S 7 -N 20000 ref.fa r1.fq r2.fq"
    quiet = subprocess.DEVNULL
    subprocess.run(["sh", "-c", script], cwd=directory, check=True, stdout=quiet, stderr=quiet)


SHELL = "for i in $(seq 20); do seq 2000 | sort -rn | tail -n 1; (exit 0); done"
GO = "GOCACHE=$PWD/cache GOPATH=$PWD/path GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0"
GO_PACKAGE = (("go", "golang-go"),)
MPIRUN = (("mpirun.openmpi", "openmpi-bin"), ("hpcc", "hpcc"))
AS_ROOT = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"

WORKLOADS = [
    Workload(
        "hello: configure, make",
        "./configure && make",
        (("make", "make"), ("cc", "gcc")),
        unpacked("hello"),
        quick=False,
    ),
    Workload("lua: make -j4", "make -j4 linux", (("make", "make"), ("cc", "gcc")), unpacked("lua5.4")),
    Workload(
        "parallel: 200 pipelines",
        "seq 200 | parallel 'seq {} | sort -rn | head -n 3 | wc -c'",
        (("parallel", "parallel"),),
    ),
    Workload(
        "bwa, samtools",
        "bwa mem -t 2 ref.fa r1.fq r2.fq | samtools sort -@ 2 -o out.bam - "
        "&& samtools index out.bam && samtools flagstat out.bam",
        (("bwa", "bwa"), ("samtools", "samtools")),
        genome,
    ),
    Workload(
        "snakemake: 8 samples",
        "HOME=$PWD snakemake -j 2",
        (("snakemake", "snakemake"),),
        "cp $FILES/Snakefile .",
        quick=False,
    ),
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
    Workload(
        "musl, static",
        "./children 20",
        (("musl-gcc", "musl-tools"),),
        "musl-gcc -static -O1 -o children $FILES/children.c",
    ),
    Workload(
        "musl, dynamic", "./children 20", (("musl-gcc", "musl-tools"),), "musl-gcc -O1 -o children $FILES/children.c"
    ),
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
    Workload("sudo to another user", f"sudo -n -u \"#{NOBODY}\" sh -c '{SHELL}'", (("sudo", "sudo"),), any_user=False),
    Workload("setpriv to another user", f"setpriv --reuid {NOBODY} --clear-groups sh -c '{SHELL}'", any_user=False),
    Workload("unshare -fp", f"unshare -fp --mount-proc sh -c '{SHELL}'", any_user=False),
    Workload(
        "timeout -s KILL",
        "timeout -s KILL 1 sh -c 'seq 100000 | sort -rn | tail -n 1; while :; do :; done'; test $? -eq 137",
    ),
    Workload(
        "daemons, waited for",
        "for i in 1 2 3; do "
        "setsid sh -c 'for i in 1 2 3; do seq 20000 | sort -rn; sleep 0.3; done' >/dev/null 2>&1 & done",
    ),
    Workload(
        "daemons, left behind",
        # The daemons are idle when the command ends, because the recorder reads CPU time a moment after the report.
        "mkfifo idle end; exec 3<>idle; for i in 1 2 3; do setsid sh -c "
        "'seq 50000 | sort -rn | tail -n 1; echo idle >&3; read x <>end' >/dev/null 2>&1 & done; "
        "read x <&3; read x <&3; read x <&3",
        wait_all=False,
    ),
    Workload("xargs -P 4", "seq 300 | xargs -P 4 -n 1 sh -c 'expr $0 + 1; true'"),
    Workload(
        "perl: system, backticks, open",
        """perl -e 'for (1..40) { system("seq 100 >/dev/null"); `seq 100 | sort -rn`; """
        """open(my $f, "-|", "seq", 5) or die; 1 while <$f>; close $f }'""",
        (("perl", "perl"),),
    ),
    Workload(
        "git: 30 commits, gc",
        "export GIT_CONFIG_GLOBAL=/dev/null; "
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a; "
        "git init && for i in $(seq 30); do seq $i $((i * 1000)) >file; git add file; git commit -m $i; done "
        "&& git gc && git log -p | wc -l",
        (("git", "git"),),
    ),
]


def installed(program: str) -> bool:
    """Whether a program is in PATH; of an absolute path, whether the file exists."""
    return os.path.exists(program) if program.startswith("/") else shutil.which(program, path=PATH) is not None


def install(workloads: Sequence[Workload]) -> None:
    """Installs what the workloads need and what is missing."""
    needed = {need for workload in workloads for need in workload.needs}
    sources.install(sorted({package for program, package in needed if not installed(program)}))
