"""What the machine boots: a kernel, and an initramfs of busybox, `init` and the modules that `init` needs."""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import subprocess
import tempfile

from gpu_track_scripts.commands import output, words
from gpu_track_scripts.tools import Unavailable, cache, checked

# A bus, a disk, file systems; crc32c is what ext4 asks the kernel for by name. fuse is for tests.
MODULES = ("virtio_pci", "virtio_blk", "9pnet_virtio", "9p", "crc32c_generic", "ext4", "overlay", "fuse")

# The first process of the machine.
INIT = pathlib.Path(__file__).parent / "init"


def debian_kernel() -> pathlib.Path:
    """The directory with `vmlinuz` and `initramfs` of Debian's kernel, which are made once for each version."""
    # The first line names the package; the next one what it depends on: the kernel of today.
    depends = output(["apt-cache", "depends", "linux-image-amd64"]).split() if shutil.which("apt-cache") else []
    package = next((word for word in depends if word.startswith("linux-image-") and word != "linux-image-amd64"), None)
    if package is None:
        raise Unavailable("apt knows no linux-image-amd64: give a kernel with --kernel")
    place = cache() / f"{package}-{hashlib.sha256(INIT.read_bytes()).hexdigest()[:8]}"
    if not place.is_dir():
        with tempfile.TemporaryDirectory(prefix="kernel.", dir=cache()) as name:
            unpacked, made = pathlib.Path(name, "unpacked"), pathlib.Path(name, "made")
            unpack_package(package, unpacked)
            make_image(next(unpacked.glob("boot/vmlinuz-*")), made)
            made.rename(place)
    return place


def make_image(kernel: pathlib.Path, place: pathlib.Path) -> None:
    """Makes the directory `place` with `vmlinuz` and `initramfs` of a kernel.

    Its file is vmlinuz-VERSION, and its modules are in ../lib/modules/VERSION, as a package of Debian has them.
    """
    version = kernel.name.removeprefix("vmlinuz-")
    base = kernel.absolute().parent.parent
    if not kernel.is_file() or not (base / "lib" / "modules" / version).is_dir():
        raise Unavailable(f"{kernel}: no kernel vmlinuz-VERSION with its modules in ../lib/modules/VERSION")
    place.mkdir()
    shutil.copyfile(kernel, place / "vmlinuz")
    with tempfile.TemporaryDirectory(prefix="initramfs.", dir=place.parent) as name:
        package, tree = pathlib.Path(name, "package"), pathlib.Path(name, "tree")
        unpack_package("busybox-static", package)
        busybox = package / "bin" / "busybox"
        (tree / "bin").mkdir(parents=True)
        shutil.copy2(busybox, tree / "bin")
        shutil.copy2(INIT, tree)
        (tree / "modules").write_text(" ".join(MODULES), encoding="utf-8")
        copy_modules(
            output([busybox, "depmod", "-n", "-b", base, version]), base, tree, pathlib.Path("lib/modules", version)
        )
        files = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
        with (place / "initramfs").open("wb") as archive:
            pack = words([busybox, "cpio", "-o", "-H", "newc"])
            subprocess.run(pack, cwd=tree, input=files.encode(), stdout=archive, stderr=subprocess.DEVNULL, check=True)


def copy_modules(depmod: str, base: pathlib.Path, tree: pathlib.Path, directory: pathlib.Path) -> None:
    """Copies `MODULES` and what they depend on, with the lines of `depmod`, its output, that modprobe reads."""
    chosen = []
    for line in depmod.splitlines():
        module, colon, others = line.partition(":")
        if colon and module.startswith("kernel/") and pathlib.Path(module).name.split(".")[0] in MODULES:
            chosen.append(line)
            for file in [module, *others.split()]:
                (tree / directory / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(base / directory / file, tree / directory / file)
    (tree / directory / "modules.dep").write_text("\n".join([*chosen, ""]), encoding="utf-8")


def unpack_package(package: str, directory: pathlib.Path) -> None:
    """Fetches a package of Debian, and unpacks it without installing it."""
    with tempfile.TemporaryDirectory(prefix="package.", dir=cache()) as name:
        checked(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package], cwd=pathlib.Path(name))
        checked(["dpkg-deb", "-x", *pathlib.Path(name).glob("*.deb"), directory])
