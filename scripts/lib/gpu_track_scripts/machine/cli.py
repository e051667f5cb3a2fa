"""The command line of scripts/machine, and the run of QEMU."""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from gpu_track_scripts.commands import words
from gpu_track_scripts.machine.image import debian_kernel, make_image
from gpu_track_scripts.tools import Unavailable

DESCRIPTION = """\
Runs COMMAND as root in a virtual machine with cgroup v2 (memory, cpu, io, pids), in this directory, with these
environment variables. The machine has this machine's files and programs, but /tmp and /run are empty; what it writes is
gone afterwards. It has 2 cores, 4 GB of memory, and no network. Its kernel is Debian's, which is fetched once; nothing
is installed.

Needs qemu-system-x86 and apt. Without KVM the machine is emulated, which takes 10 to 50 times as long. The status is
that of COMMAND, 77 where there can be no machine, and 125 if the machine ended before COMMAND did."""
EXAMPLES = """\
examples:
  scripts/machine -- target/debug/deps/e2e-XXXX --test-threads 2 limits
  scripts/machine -- scripts/truth --quick"""

SKIPPED = 77
# As timeout(1) and env(1) say that they themselves failed.
BROKEN = 125
# The largest size of the machine's disk, which holds what is written. Its file grows as it fills.
DISK_BYTES = 32 << 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program, and gives its exit status."""
    parser = argparse.ArgumentParser(
        prog="scripts/machine",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    help_of_kernel = "another kernel, vmlinuz-VERSION; its modules are in ../lib/modules/VERSION"
    parser.add_argument("--kernel", type=pathlib.Path, metavar="VMLINUZ", help=help_of_kernel)
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="the command and its arguments, after --")
    options = parser.parse_args(arguments)
    # So that the machine ends and its files are removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        return run(options.kernel, options.command)
    except Unavailable as reason:
        print(f"scripts/machine: {reason}", file=sys.stderr)
        return SKIPPED


def run(kernel: pathlib.Path | None, command: Sequence[str]) -> int:
    """Boots the machine, runs the command in it, and gives the command's status."""
    if platform.machine() != "x86_64" or shutil.which("qemu-system-x86_64") is None:
        raise Unavailable("needs an x86-64 machine and Debian's qemu-system-x86")
    with tempfile.TemporaryDirectory(prefix="machine.") as name:
        work = pathlib.Path(name)
        if kernel:
            make_image(kernel, work / "image")
        image = work / "image" if kernel else debian_kernel()
        (work / "script").write_text(script(command), encoding="utf-8")
        boot(image, work)
        status = (work / "status").read_text(encoding="utf-8").strip()
        if status:
            return int(status)
        last = (work / "console").read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
    print(*last, "scripts/machine: the machine ended before the command", sep="\n", file=sys.stderr)
    return BROKEN


def boot(image: pathlib.Path, work: pathlib.Path) -> None:
    """Runs the machine until it ends. What it writes to its serial lines is in `work` afterwards."""
    for line in ("console", "status"):
        (work / line).touch()
    with (work / "disk").open("wb") as disk:
        disk.truncate(DISK_BYTES)
    subprocess.run(["/sbin/mkfs.ext4", "-q", "-F", work / "disk"], check=True)
    # setpriv: if this process is killed, so is the machine.
    machine = words(["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", *qemu_options(image, work)])
    with subprocess.Popen(machine, stdin=subprocess.DEVNULL) as qemu:
        try:
            qemu.wait()
        finally:
            qemu.kill()


def script(command: Sequence[str]) -> str:
    """What the machine's first process runs once its files are there: the command, and the end of the machine.

    stty waits until a line has sent everything. sysrq's `b` resets the machine at once, which ends QEMU.
    """
    names = (name for name in os.environ if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name))
    variables = [f"export {name}={shlex.quote(os.environ[name])}" for name in names]
    return "\n".join(
        [
            *variables,
            f"cd {shlex.quote(os.getcwd())} && {shlex.join(command)} </dev/null >/dev/ttyS1 2>&1",
            "echo $? >/dev/ttyS2",
            "for line in ttyS1 ttyS2; do stty -F /dev/$line 115200; done",
            "echo b >/proc/sysrq-trigger",
            "",
        ]
    )


def qemu_options(image: pathlib.Path, work: pathlib.Path) -> list[str]:
    """The machine: our files, read-only, and an empty disk; its output is ours, its status a file in `work`."""
    # `init` reads `work` and `host`.
    command_line = f"console=ttyS0 panic=-1 work={work} host={socket.gethostname()}"
    options = {
        "accel": accelerator(),
        "cpu": "max",
        "smp": "2",
        "m": "4G",
        "kernel": f"{image}/vmlinuz",
        "initrd": f"{image}/initramfs",
        "append": command_line,
        "display": "none",
        "monitor": "none",
        "nic": "none",
        "virtfs": "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap",
        "drive": f"file={work}/disk,format=raw,if=virtio,cache=unsafe,discard=unmap",
    }
    # ttyS0 to ttyS2: the kernel's messages, the command's output, its status.
    lines = ["-serial", f"file:{work}/console", "-serial", "chardev:output", "-serial", f"file:{work}/status"]
    output = ["-chardev", "stdio,id=output,signal=off"]
    named = [word for name, value in options.items() for word in (f"-{name}", value)]
    return ["-no-reboot", *named, *output, *lines]


def accelerator() -> str:
    """What runs the machine's code: the processor, or QEMU's emulator, with which it takes 10 to 50 times as long.

    The file of KVM is not enough. Without vmx or svm it is a KVM (PVM) that runs only kernels that were built for it.
    """
    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    runs_any_kernel = re.search(r"^flags\b.*\b(vmx|svm)\b", flags, re.MULTILINE)
    return "kvm" if runs_any_kernel and os.access("/dev/kvm", os.R_OK | os.W_OK) else "tcg"
