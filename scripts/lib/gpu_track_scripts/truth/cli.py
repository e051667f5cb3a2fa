"""The command line of scripts/truth."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import pathlib
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence

import trees
from gpu_track_scripts.commands import AS_TESTS, cargo_build, output
from gpu_track_scripts.tools import Unavailable
from gpu_track_scripts.truth.compare import Row
from gpu_track_scripts.truth.runner import Runner, why_no_truth
from gpu_track_scripts.truth.table import print_table
from workloads import NOBODY, WORKLOADS, Workload, install, installed

DESCRIPTION = """\
Compares gpu-track-run's figures of real workloads with the kernel's own, and prints a table.

Each workload runs bare and under gpu-track-run, both under tests/truth's recorder. The recorder knows from the kernel
which processes there were (process connector), their peak RSS (taskstats) and the CPU time of the tree (a cgroup).
Needs root. A workload whose programs are missing is skipped, with the reason; --install installs the Debian packages.

The status is 0 if every workload keeps the rules: the same processes as the kernel's, CPU time within 1%, and each
peak RSS that can be compared within the kernel's own error. It is 77, with the reason, where the kernel can't be asked:
without root, or in a container.
"""
# The status where the kernel can't be asked.
CANT_TELL = 77

# How `--below` starts the random trees: through tests/programs/init.c, which lies in the directory {}.
BELOW = {
    "init": "{unshare} {{}}/init",
    "static-init": "{unshare} {{}}/init-static",
    "subreaper": "{{}}/init -s",
    "static-subreaper": "{{}}/init-static -s",
}


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line; ends with status 2 where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="truth", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("workload", nargs="*", help="run only the workloads whose name contains one of these words")
    add("--command", action="append", default=[], help="run this shell code instead of the table's workloads")
    add("--trees", type=int, help="run so many random trees of processes instead of the table's workloads")
    add("--seed", type=int, default=0, help="the seed of the first of those trees")
    add("--all-kinds", action="store_true", help="with raw clones and static programs in those trees")
    add("--below", choices=list(BELOW), help="those trees in a pid namespace below its init, or below a subreaper")
    add("--install", action="store_true", help="install missing programs with apt, and end")
    add("--list", action="store_true", help="print the names of the workloads, and end")
    add("--quick", action="store_true", help="only the workloads that together take less than three minutes")
    add("--as-user", action="store_true", help=f"run gpu-track-run as user {NOBODY}, without capabilities")
    add("--layers", help="the layers of discovery that gpu-track-run may use")
    add("--run-option", action="append", default=[], help="a further option for gpu-track-run")
    add("--runs", type=int, default=1, help="how often each workload runs; the table shows the worst run")
    add("--profile", default="release", help="the cargo profile of the programs")
    add("--tracker", type=lambda path: pathlib.Path(path).resolve(), help="a gpu-track-run that is built already")
    add("--keep", type=pathlib.Path, help="keep records and reports in this directory")
    return parser.parse_args(arguments)


def selected(options: argparse.Namespace) -> list[Workload]:
    """The workloads that the options name, without random trees."""
    if options.command:
        return [Workload(command, command) for command in options.command]
    workloads = [workload for workload in WORKLOADS if workload.quick or not options.quick]
    if options.workload:
        return [workload for workload in workloads if any(word in workload.name for word in options.workload)]
    return workloads


def random_trees(options: argparse.Namespace, temporary: pathlib.Path) -> list[Workload]:
    """The workloads of --trees."""
    through = ""
    if options.below:
        # A user namespace lets an ordinary user make a pid namespace.
        unshare = "unshare -Ufp" if options.as_user else "unshare -fp"
        through = BELOW[options.below].format(unshare=unshare)
    makers = trees.ALL_MAKERS if options.all_kinds else trees.MAKERS
    return trees.workloads(range(options.seed, options.seed + options.trees), makers, temporary, through)


def os_name(os_release: str) -> str:
    """PRETTY_NAME of /etc/os-release, whose values are quoted as in a shell."""
    for line in os_release.splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return " ".join(shlex.split(value))
    return "?"


def environment(tracker: pathlib.Path) -> str:
    """On what the figures depend."""
    version = output([tracker, "--version"]).strip()
    release = os_name(pathlib.Path("/etc/os-release").read_text(encoding="utf-8"))
    now = datetime.datetime.now(datetime.timezone.utc)
    system = f"Linux {platform.release()}, {release}, glibc {platform.libc_ver()[1]}, {os.cpu_count()} cores"
    return f"{now:%Y-%m-%d %H:%M} UTC, {version}, {system}"


def require_installed(workload: Workload, as_user: bool) -> None:
    """Fails with the reason if the workload can't run here."""
    for program, package in workload.needs:
        if not installed(program):
            raise Unavailable(f"{program} is missing (package {package})")
    if as_user and not workload.any_user:
        raise Unavailable("needs root's rights itself")


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds the programs, runs the workloads and prints the table."""
    options = parse_arguments(arguments)
    workloads = selected(options)
    if options.list:
        print("\n".join(workload.name for workload in workloads))
        return 0
    if os.geteuid() != 0:
        print("scripts/truth: skipped: needs root (process connector, taskstats, cgroup)", file=sys.stderr)
        return CANT_TELL
    if options.install:
        install(workloads)
        return 0
    packages = AS_TESTS if options.profile == "dev" else ("-p", "gpu-track-run", "-p", "gpu-track-truth")
    built = cargo_build(options.profile, *packages)
    recorder, tracker = built["gpu-track-truth"], options.tracker or built["gpu-track-run"]
    with contextlib.ExitStack() as stack:
        temporary = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-track-truth.")))
        temporary.chmod(0o755)
        if reason := why_no_truth(recorder, temporary):
            print(f"scripts/truth: skipped: {reason}", file=sys.stderr)
            return CANT_TELL
        if options.as_user:
            # Another user may not be allowed to enter the target directory.
            recorder, tracker = (pathlib.Path(shutil.copy(path, temporary)) for path in (recorder, tracker))
        if options.trees:
            workloads = random_trees(options, temporary)
        tracker_options = [*options.run_option, *(["--layers", options.layers] if options.layers else [])]
        runner = Runner(recorder, tracker, tracker_options, options.as_user, options.keep, temporary)

        def compare(workload: Workload) -> Row:
            require_installed(workload, options.as_user)
            return runner.compare(workload, options.runs)

        shown = " ".join(["scripts/truth", *(sys.argv[1:] if arguments is None else arguments)])
        print(f"{shown}: {environment(tracker)}\n")
        return print_table(workloads, compare, only_broken=bool(options.trees)).status()
