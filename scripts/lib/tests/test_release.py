"""Tests of scripts/release and of what installs its tools."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import sys
import tarfile
import tempfile
import unittest
import zipfile
from unittest import mock

from gpu_track_scripts import tools
from gpu_track_scripts.paths import ROOT
from gpu_track_scripts.release import cli, documents, old_system, packages, symbols, wheel
from gpu_track_scripts.release.build import DOCUMENTS, PROGRAMS, Build
from gpu_track_scripts.release.checks import MOST_BYTES, Wrong, check_documents, check_size, unpack
from gpu_track_scripts.release.old_system import System

VERSION_INFO = """\
Version needs section '.gnu.version_r' contains 2 entries:
 Addr: 0x000000000001e8f0  Offset: 0x01e8f0  Link: 6 (.dynstr)
  000000: Version: 1  File: libc.so.6  Cnt: 3
  0x0010:   Name: GLIBC_2.17  Flags: none  Version: 9
  0x0020:   Name: GLIBC_2.2.5  Flags: none  Version: 2
  0x0030:   Name: GLIBC_2.9  Flags: none  Version: 4
  0x0040: Version: 1  File: libgcc_s.so.1  Cnt: 1
  0x0050:   Name: GCC_3.0  Flags: none  Version: 3
"""
DYNAMIC = """\
 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x000000000000001e (FLAGS)              BIND_NOW
"""


class Symbols(unittest.TestCase):
    def test_versions_are_compared_as_numbers(self) -> None:
        self.assertEqual(symbols.needed_versions(VERSION_INFO), [(2, 2, 5), (2, 9), (2, 17)])

    def test_needed_libraries_are_listed(self) -> None:
        self.assertEqual(symbols.needed_libraries(DYNAMIC), ["libgcc_s.so.1", "libc.so.6"])

    def found(self, newest: str) -> list[str]:
        with mock.patch.object(symbols, "output", side_effect=[VERSION_INFO, DYNAMIC]):
            return symbols.faults(pathlib.Path("program"), newest)

    def test_what_is_as_old_as_allowed_is_no_fault(self) -> None:
        self.assertEqual(self.found("2.17"), ["it needs libgcc_s.so.1"])

    def test_newer_versions_are_faults(self) -> None:
        self.assertEqual(self.found("2.9"), ["it needs GLIBC_2.17", "it needs libgcc_s.so.1"])

    def test_a_file_without_versions_is_a_fault(self) -> None:
        with mock.patch.object(symbols, "output", return_value="No version information found in this file.\n"):
            self.assertEqual(symbols.faults(pathlib.Path("program"), "2.17"), ["it names no version of glibc"])

    def test_glibc_is_libraries_of_several_names(self) -> None:
        for name in ("libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"):
            self.assertRegex(name, symbols.GLIBC_LIBRARIES)
        self.assertIsNone(symbols.GLIBC_LIBRARIES.fullmatch("libcrypt.so.1"))


class Packages(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        target = "x86_64-unknown-linux-gnu"
        self.built = Build("1.2.3", target, self.directory / "target", self.directory / "a.whl")
        self.built.documents.mkdir(parents=True)
        self.built.program.write_bytes(b"the program")
        self.built.companion.write_bytes(b"the companion")
        for name in (name.format(program) for program in PROGRAMS for name in DOCUMENTS):
            (self.built.documents / name).write_text(name)

    def test_a_tarball_is_the_same_whenever_it_is_made(self) -> None:
        first = packages.tarball(self.built, self.directory).read_bytes()
        os.utime(self.built.program, (0, 0))
        self.assertEqual(packages.tarball(self.built, self.directory).read_bytes(), first)

    def test_a_tarball_has_one_directory_that_is_a_prefix(self) -> None:
        with tarfile.open(packages.tarball(self.built, self.directory)) as archive:
            members = {member.name: member for member in archive.getmembers()}
        top = "gpu-track-1.2.3-x86_64-unknown-linux-gnu/"
        self.assertEqual({name.split("/")[1] for name in members}, {"bin", "share"})
        for program in PROGRAMS:
            self.assertEqual(members[top + f"bin/{program}"].mode, 0o755)
            self.assertEqual(members[top + f"share/man/man1/{program}.1"].mode, 0o644)
        self.assertIn(top + "share/doc/gpu-track/LICENSE-MIT", members)
        self.assertTrue(all(member.isfile() and member.uid == 0 for member in members.values()))

    def test_an_unpacked_tarball_has_the_program(self) -> None:
        root = self.directory / "root"
        root.mkdir()
        program = unpack(packages.tarball(self.built, self.directory), System(root, is_whole=False))
        self.assertEqual((root / program).read_bytes(), b"the program")

    def test_gpu_check_has_the_program_beside_it(self) -> None:
        gpu_check = self.directory / "built" / "gpu-check"
        gpu_check.parent.mkdir()
        gpu_check.write_bytes(b"the check")
        package = packages.pack_gpu_check(self.built, gpu_check, self.directory)
        self.assertEqual(package.name, "gpu-check-x86_64.tar.gz")
        root = self.directory / "root"
        root.mkdir()
        program = root / unpack(package, System(root, is_whole=False))
        self.assertEqual(program.read_bytes(), b"the program")
        self.assertEqual(program.with_name("gpu-check").read_bytes(), b"the check")
        self.assertTrue(all(os.access(file, os.X_OK) for file in (program, program.with_name("gpu-check"))))
        self.assertTrue(program.with_name("LICENSE-MIT").is_file())

    # Requirement: HOST-7
    def test_a_program_that_is_too_large_is_wrong(self) -> None:
        os.truncate(self.built.program, MOST_BYTES)
        self.assertEqual(check_size(self.built), "9,350,000 bytes of at most 9,350,000")
        os.truncate(self.built.program, MOST_BYTES + 1)
        with self.assertRaisesRegex(Wrong, "^it has 9,350,001 bytes, 1 more than it may have$"):
            check_size(self.built)

    def test_a_package_that_is_damaged_is_wrong_not_skipped(self) -> None:
        package = self.directory / "a.tar.gz"
        package.write_bytes(b"no archive")
        with self.assertRaisesRegex(Wrong, "^can't be installed: tar: "):
            unpack(package, System(self.directory, is_whole=False))

    def test_recipes_name_the_tarball_and_its_checksum(self) -> None:
        archive = packages.tarball(self.built, self.directory)
        for recipe in packages.recipes(self.built, archive, self.directory):
            text = recipe.read_text()
            compile(text, str(recipe), "exec")
            self.assertIn(archive.name, text)
            self.assertIn(packages.sha256(archive), text)
            self.assertNotRegex(text, r"@[A-Z0-9]+@")

    def test_the_debian_and_rpm_packages_contain_what_the_tarball_does(self) -> None:
        manifest = (ROOT / "launcher" / "Cargo.toml").read_text()
        for program in PROGRAMS:
            self.assertEqual(manifest.count(f'"target/release/{program}"'), 2, program)
            for document in DOCUMENTS:
                # A manual page is compressed.
                name = document.format(program) + (".gz" if document.endswith(".1") else "")
                self.assertEqual(manifest.count(f'"target/release/documents/{name}"'), 2, name)
        for pattern in documents.PAGES:
            self.assertEqual(manifest.count(f'"../{pattern}"'), 2, pattern)

    def test_the_pages_of_a_tarball_lead_nowhere_else(self) -> None:
        root = self.directory / "root"
        root.mkdir()
        prefix = root / unpack(packages.tarball(self.built, self.directory), System(root, is_whole=False)).parent.parent
        check_documents(prefix)
        pages = prefix / documents.PLACE
        (pages / "docs" / "GUIDE.md").unlink()
        with (pages / "README.md").open("a") as readme:
            readme.write("[a](nowhere.md) [b](https://somewhere)")
        with self.assertRaises(Wrong) as raised:
            check_documents(prefix)
        self.assertIn("no docs/GUIDE.md; ", str(raised.exception))
        self.assertIn("README.md links to nowhere.md", str(raised.exception))
        self.assertNotIn("somewhere", str(raised.exception))


class Wheel(unittest.TestCase):
    def test_files_and_description_are_added_and_recorded(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            file = pathlib.Path(name, "a-1-py3-none-any.whl")
            with zipfile.ZipFile(file, "w") as archive:
                program = zipfile.ZipInfo("a-1.data/scripts/a")
                program.external_attr = 0o100755 << 16
                archive.writestr(program, "program")
                archive.writestr("a-1.dist-info/METADATA", "Name: a\nVersion: 1\n")
                archive.writestr("a-1.dist-info/RECORD", "")
            page = pathlib.Path(name, "a.1")
            page.write_text("page")
            wheel.complete(file, [("share/man/man1/a.1", page)])
            with zipfile.ZipFile(file) as archive:
                members = {info.filename: archive.read(info) for info in archive.infolist()}
                self.assertEqual(archive.getinfo("a-1.data/scripts/a").external_attr >> 16, 0o100755)
        self.assertEqual(members["a-1.data/data/share/man/man1/a.1"], b"page")
        self.assertNotIn("gpu_track_tests", " ".join(members))
        about, description = members["a-1.dist-info/METADATA"].decode().split("\n\n", 1)
        self.assertIn("Version: 1\nDescription-Content-Type: text/markdown", about)
        self.assertTrue(description.startswith("# gpu-track\n"))
        record = members["a-1.dist-info/RECORD"].decode().splitlines()
        self.assertIn("a-1.data/scripts/a,sha256=ExDKLIky29EYZovZdEJVij4fVGteFcaWmd-9YCT1SNg,7", record)
        self.assertEqual(len(record), len(members))

    def test_the_description_has_no_link_to_a_file(self) -> None:
        page = "[guide](docs/GUIDE.md#a), [below](#b) and [site](https://c)"
        expected = "guide (`share/doc/gpu-track/docs/GUIDE.md`), below and [site](https://c)"
        self.assertEqual(documents.without_links(page), expected)


class OldSystem(unittest.TestCase):
    def test_without_an_old_system_programs_run_on_this_one(self) -> None:
        with old_system.clean_system(None) as system:
            self.assertEqual(system.command(pathlib.PurePath("usr/bin/x")), [f"{system.root}/usr/bin/x"])

    def test_a_copy_of_the_old_system_is_changed_not_the_system(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            old = pathlib.Path(name)
            library = old / "lib" / "x86_64-linux-gnu" / "libc.so.6"
            library.parent.mkdir(parents=True)
            library.symlink_to("libc-2.31.so")
            library.with_name("libc-2.31.so").touch()
            with old_system.clean_system(old) as system:
                (system.root / "new").touch()
                self.assertEqual(system.name, "a Debian with glibc 2.31")
                self.assertEqual(system.command(pathlib.PurePath("bin/x"))[-1], "/bin/x")
            self.assertFalse((old / "new").exists())

    def test_only_debians_main_archive_is_a_source(self) -> None:
        listed = "Debian main http://a/debian/\nDebian-Security main http://a/security/\nnodistro main http://b/\n"
        with mock.patch.object(old_system, "output", return_value=listed):
            self.assertEqual(old_system.sources(), ["http://a/debian/"])


class Tools(unittest.TestCase):
    def test_a_failed_command_gives_the_last_line_as_the_reason(self) -> None:
        with self.assertRaisesRegex(tools.Unavailable, "^sh: no network$"):
            tools.checked(["sh", "-c", "echo first; echo no network >&2; exit 1"])

    def test_a_missing_program_is_a_reason(self) -> None:
        with self.assertRaisesRegex(tools.Unavailable, "^no-such-program: No such file"):
            tools.checked(["no-such-program"])

    def test_what_is_installed_is_used_again(self) -> None:
        with tempfile.TemporaryDirectory() as name, mock.patch.dict(os.environ, XDG_CACHE_HOME=name):
            place = tools.cache() / f"python-{sys.version_info[0]}.{sys.version_info[1]}-a==1"
            python = place / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.symlink_to(sys.executable)
            self.assertEqual(tools.python_with("a==1"), python)

    def test_an_installation_that_fails_leaves_nothing_behind(self) -> None:
        with tempfile.TemporaryDirectory() as name, mock.patch.dict(os.environ, XDG_CACHE_HOME=name):
            with mock.patch.object(tools, "checked", side_effect=tools.Unavailable("no pip")):
                self.assertRaises(tools.Unavailable, tools.python_with, "a==1")
                self.assertRaises(tools.Unavailable, tools.crate_program, "a", "1")
            self.assertEqual(list(tools.cache().iterdir()), [])


class CommandLine(unittest.TestCase):
    def refused(self, *arguments: str) -> str:
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit):
            cli.parse_arguments(arguments)
        return errors.getvalue()

    def test_a_quick_build_is_not_to_be_released(self) -> None:
        self.assertIn("leave out --output", self.refused("--quick", "--output", "dist"))

    def test_an_output_directory_that_is_not_empty_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            pathlib.Path(name, "old.deb").touch()
            self.assertIn("is not empty", self.refused("--output", name))

    def test_an_unknown_package_is_refused(self) -> None:
        self.assertIn("'snap'; choose from tarball, deb, rpm, gpu-check", self.refused("--quick", "snap"))

    def test_what_fails_makes_the_status(self) -> None:
        progress = cli.Progress()
        lines = io.StringIO()
        with contextlib.redirect_stdout(lines):
            progress.step("a", mock.Mock(return_value="fine"))
            progress.step("b", mock.Mock(side_effect=tools.Unavailable("no dpkg-deb")))
            self.assertFalse(progress.failed)
            progress.step("c", mock.Mock(side_effect=Wrong("it needs GLIBC_2.34")))
        self.assertTrue(progress.failed)
        expected = "ok      a: fine\nSKIPPED b: no dpkg-deb\nFAILED  c: it needs GLIBC_2.34\n"
        self.assertEqual(lines.getvalue(), expected)
