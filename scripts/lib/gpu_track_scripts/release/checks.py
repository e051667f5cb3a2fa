"""Checks a release: what the program needs, what is in the packages, and that it runs where they are installed.

A check gives a line that says what was found. It raises `Wrong` if it fails, and `Unavailable` where it can't be made.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from gpu_track_scripts.commands import Word, output, words
from gpu_track_scripts.paths import ROOT
from gpu_track_scripts.release.build import OLDEST_GLIBC, PROGRAMS, Build, renamed_paths
from gpu_track_scripts.release.documents import PLACE
from gpu_track_scripts.release.documents import faults as faults_of_documents
from gpu_track_scripts.release.old_system import System, clean_system
from gpu_track_scripts.release.packages import shared_files
from gpu_track_scripts.release.symbols import faults
from gpu_track_scripts.tools import Unavailable, checked, python_with

# How the name of gpu-check's package starts, and gpu-check's status without a GPU.
GPU_CHECK = "gpu-check-"
NO_GPU = 77
# The databases of package managers, below a root directory.
PACKAGERS = ("var/lib/dpkg/", "var/lib/rpm/", "usr/lib/sysimage/rpm/", "root/.rpmdb/")
TWINE = "twine==7.0.0"
# What the program may weigh, bytes. Its pages are most of the memory that a run needs, and all ranks of a node load it.
MOST_BYTES = 9_350_000


class Wrong(Exception):
    """A check failed; the message says what was found."""


# Requirement: HOST-3
def check_symbols(built: Build) -> str:
    """The program needs glibc alone, and none newer than `OLDEST_GLIBC`."""
    found = faults(built.program, OLDEST_GLIBC)
    if found:
        raise Wrong("; ".join(found))
    return f"no symbol newer than GLIBC_{OLDEST_GLIBC}"


# Requirement: HOST-7
def check_size(built: Build) -> str:
    """The program has at most `MOST_BYTES`."""
    size = built.program.stat().st_size
    if size > MOST_BYTES:
        raise Wrong(f"it has {size:,} bytes, {size - MOST_BYTES:,} more than it may have")
    return f"{size:,} bytes of at most {MOST_BYTES:,}"


def check_shim(built: Build) -> str:
    """The shim that the program contains keeps the rules of scripts/check-shim."""
    done = subprocess.run([ROOT / "scripts" / "check-shim", built.shim()], stdout=subprocess.PIPE, text=True)
    lines = done.stdout.splitlines()
    if done.returncode:
        raise Wrong("; ".join(line for line in lines if not line.startswith("ok")))
    return f"{len(lines)} checks"


def check_paths(built: Build) -> str:
    """No path of the machine that built the program is in it."""
    content = built.program.read_bytes()
    found = [path for path, _ in renamed_paths() if os.fsencode(path) in content]
    if found:
        raise Wrong(f"it contains {', '.join(found)}")
    return "none of this machine"


# Requirement: HOST-3, HOST-5
def check_package(built: Build, package: pathlib.Path, old: pathlib.Path | None) -> str:
    """The package contains this program, which runs in an old system, or on this machine's where there is none.

    Its documents are whole, and nothing of it is left when it is removed.
    """
    with clean_system(old) as system:
        before = files_below(system.root)
        program = unpack(package, system)
        if (system.root / program).read_bytes() != built.program.read_bytes():
            raise Wrong("it contains another program")
        if package.name.startswith(GPU_CHECK):
            check_gpu_check(built, system, program.with_name("gpu-check"))
        else:
            check_documents(system.root / program.parent.parent)
        found = f"{package.name} {tracks(built, system.command(program))} in {system.name}"
        return found + removed(package, system, before)


def check_documents(prefix: pathlib.Path) -> None:
    """The pages below a prefix are all there, their links hold, and the man page is beside them."""
    found = faults_of_documents(prefix / PLACE)
    for called in PROGRAMS:
        if not list((prefix / "share" / "man" / "man1").glob(f"{called}.1*")):
            found.append(f"no man page of {called}")
    if found:
        raise Wrong("; ".join(found))


def check_gpu_check(built: Build, system: System, program: pathlib.PurePath) -> None:
    """gpu-check starts where glibc is as old as `OLDEST_GLIBC`, and says in one line that there is no GPU."""
    found = faults(system.root / program, OLDEST_GLIBC)
    if found:
        raise Wrong(f"gpu-check: {'; '.join(found)}")
    # This machine's own system may have a GPU.
    if built.runs_here and system.is_whole:
        done = subprocess.run(system.command(program), capture_output=True, text=True)
        if done.returncode != NO_GPU or not done.stdout.startswith("no GPU here (") or done.stdout.count("\n") != 1:
            raise Wrong(f"gpu-check without a GPU: status {done.returncode}: {done.stdout}{done.stderr.strip()}")


def unpack(package: pathlib.Path, system: System) -> pathlib.PurePath:
    """Installs a package below a root directory. Gives the place of the program."""
    root = system.root
    if package.name.startswith(GPU_CHECK):
        prefix = root / "opt"
        prefix.mkdir(exist_ok=True)
        install(["tar", "-xzf", package, "-C", prefix])
        return pathlib.PurePath("opt") / package.name.replace(".tar.gz", "") / "gpu-track-run"
    if package.suffix == ".gz":
        prefix = root / "usr" / "local"
        prefix.mkdir(parents=True, exist_ok=True)
        install(["tar", "-xzf", package, "--strip-components=1", "-C", prefix])
        return pathlib.PurePath("usr/local/bin/gpu-track-run")
    if package.suffix == ".deb":
        install([*dpkg(root), "--install", package] if has_packager(system) else ["dpkg-deb", "-x", package, root])
    else:
        if os.geteuid() != 0:
            raise Unavailable(f"{package.name} is not checked: rpm installs into another root directory for root only")
        # rpm knows nothing of the packages of the root directory, which are Debian's.
        install(["rpm", "--root", root, "--nodeps", "--install", package])
    return pathlib.PurePath("usr/bin/gpu-track-run")


def has_packager(system: System) -> bool:
    """Whether a package can be removed there as users do it: its scripts need the root directory's own shell."""
    return os.geteuid() == 0 and system.is_whole


def dpkg(root: pathlib.Path) -> list[Word]:
    """dpkg for a root directory, which it knows no packages of."""
    for directory in ("info", "updates", "triggers"):
        (root / "var/lib/dpkg" / directory).mkdir(parents=True, exist_ok=True)
    (root / "var/lib/dpkg/status").touch()
    return ["dpkg", f"--root={root}", "--force-depends", "--force-bad-path", f"--log={root}/var/lib/dpkg/log"]


def removed(package: pathlib.Path, system: System, before: set[str]) -> str:
    """Removes a package, and looks for what is left. Says so, for the line of the check."""
    if package.suffix == ".gz" or not has_packager(system):
        return ""
    remove = [*dpkg(system.root), "--purge"] if package.suffix == ".deb" else ["rpm", "--root", system.root, "--erase"]
    install([*remove, "gpu-track"])
    left = sorted(files_below(system.root) - before)
    if left:
        raise Wrong(f"when it is removed, this is left: {' '.join(left)}")
    return ", and leaves nothing"


def files_below(root: pathlib.Path) -> set[str]:
    """All files of a root directory, without the package managers' own."""
    found = (file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_symlink() or not file.is_dir())
    return {file for file in found if not file.startswith(PACKAGERS)}


def install(command: Sequence[Word]) -> None:
    """Runs a program that installs a package. Raises `Unavailable` if there is no such program."""
    if not shutil.which(words(command)[0]):
        raise Unavailable(f"needs {command[0]}")
    try:
        checked(command)
    except Unavailable as reason:
        raise Wrong(f"can't be installed: {reason}") from reason


# Requirement: HOST-4, HOST-64
def check_wheel(built: Build) -> str:
    """pip installs the program and the module into a clean environment, and nothing else, and both run there."""
    if not built.runs_here:
        raise Unavailable(f"this machine is no {built.machine}")
    if "musllinux" in built.wheel.name or "manylinux" not in built.wheel.name:
        raise Wrong("pip would install it where there is no glibc")
    with tempfile.TemporaryDirectory(prefix="gpu-track-release.") as name:
        environment = pathlib.Path(name, "environment")
        checked([sys.executable, "-m", "venv", environment])
        before = files_below(environment)
        pip: list[Word] = [environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        install([*pip, "install", "--quiet", "--no-index", built.wheel])
        program = environment / "bin" / "gpu-track-run"
        # Beside a program in Python that is an example, pip puts its bytecode.
        made = ("/site-packages/", "/__pycache__/")
        added = {file for file in files_below(environment) - before if not any(part in file for part in made)}
        wanted = {*(f"bin/{called}" for called in PROGRAMS), *(place for place, _ in shared_files(built))}
        listed = output([*pip, "show", "--files", "gpu-track"]).split("Files:\n")[1].split()
        others = [file for file in listed if not file.startswith("..") and ".dist-info/" not in file]
        python = {file for file in others if not file.endswith(".pyc")}
        unexpected = (added ^ wanted) | (python ^ module_files())
        if unexpected:
            raise Wrong(f"it installs other files: {' '.join(sorted(unexpected))}")
        if program.read_bytes() != built.program.read_bytes():
            raise Wrong("it contains another program")
        check_documents(environment)
        found = f"{built.wheel.name} {tracks(built, [os.fspath(program)])} in a new environment"
        check_module(environment / "bin" / "python")
        install([*pip, "uninstall", "--quiet", "--yes", "gpu-track"])
        left = {file for file in files_below(environment) - before if not file.endswith(".pyc")}
        if left:
            raise Wrong(f"when it is removed, this is left: {' '.join(sorted(left))}")
        return f"{found}, and leaves nothing"


def module_files() -> set[str]:
    """The files of the module gpu_track, by their places in the wheel."""
    module = ROOT / "include" / "python" / "gpu_track"
    found = (file for file in module.rglob("*") if file.suffix in (".py", ".typed"))
    return {file.relative_to(module.parent).as_posix() for file in found}


# Requirement: PY-9
def check_module(python: pathlib.Path) -> None:
    """The module finds the program of its environment, which is not on PATH, and tracks with it."""
    code = """
import subprocess, gpu_track
with gpu_track.Tracker() as tracker:
    subprocess.run(["sleep", "0.01"], check=True)
print(gpu_track.__version__, tracker.reports[0]["coverage"]["layers"]["preload"])
"""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "GPU_TRACK_RUN")}
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, env=variables)
    version, exact = done.stdout.split() or ("", "")
    if done.returncode or version == "unknown" or exact != "1":
        raise Wrong(f"the module does not track: {done.stdout}{done.stderr}".strip())


# Requirement: HOST-4
def check_metadata(built: Build) -> str:
    """A package index takes the wheel and shows its description."""
    python = python_with(TWINE)
    done = subprocess.run(
        [python, "-m", "twine", "--no-color", "check", "--strict", built.wheel],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise Wrong(done.stdout.strip())
    return f"{TWINE} has nothing to say"


# Requirement: HOST-6
def check_lintian(package: pathlib.Path) -> str:
    """Debian's own checks of a package find no error."""
    if not shutil.which("lintian"):
        raise Unavailable("needs lintian")
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error", "--tag-display-limit", "0", package],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise Wrong(done.stdout.strip())
    return f"{package.name} has no error, {done.stdout.count('W: ')} warnings"


def tracks(built: Build, command: Sequence[str]) -> str:
    """Runs gpu-track-run, called by `command`, and looks at its report."""
    if not built.runs_here:
        return "is right; not run, because this machine is another one,"
    whole = [*command, "-f", "json", "-o", "/dev/stdout", "--", "true"]
    done = subprocess.run(whole, capture_output=True, text=True)
    if done.returncode:
        raise Wrong(f"gpu-track-run -- true: status {done.returncode}: {done.stderr.strip()}")
    coverage = json.loads(done.stdout)["coverage"]
    found = [coverage["processes"], coverage["exact"], coverage["layers"]["preload"]]
    if found != [1, 1, 1]:
        raise Wrong("of one process, {} were counted, {} exact, {} by the shim".format(*found))
    return "tracks a command"
