"""The layer check finds what the fixtures have, and nothing in the clean one."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
import unittest
from pathlib import Path

from gpu_track_scripts.checks import layers
from gpu_track_scripts.checks.cycles import rings
from gpu_track_scripts.checks.imports import edges_of, read

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/layers"


def check(fixture: str) -> tuple[int, str]:
    """Status and output of the check on the clean workspace with a fixture's files laid over it."""
    output = io.StringIO()
    with tempfile.TemporaryDirectory() as directory:
        shutil.copytree(FIXTURES / "clean", directory, dirs_exist_ok=True)
        shutil.copytree(FIXTURES / fixture, directory, dirs_exist_ok=True)
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = layers.main(["--root", directory, "--rules", str(FIXTURES / "layers.ini")])
    return status, output.getvalue()


class Fixtures(unittest.TestCase):
    def test_clean_tree_passes(self) -> None:
        status, output = check("clean")
        self.assertEqual((status, output.count("\n")), (0, 1), output)
        # The files were read, and their imports seen.
        self.assertIn("9 files, 6 imports", output)

    def test_back_edges_are_reported_with_line_and_rule(self) -> None:
        status, output = check("back_edge")
        self.assertEqual(status, 1)
        for expected in (
            "include/src/lib.rs:3: include -> collector (fixture_collector::Start): rule: include may know none",
            "collector: model -> run: rule: model may know none of the others",
            "    collector/src/model/ids.rs:2: Tree of collector/src/run/tree.rs",
            "    collector/src/model/ids.rs:3: Usage of collector/src/run/usage.rs",
            "collector: model -> session: rule: model may know none of the others",
            "    collector/src/model/report.rs:1: start of collector/src/session.rs",
            "collector: run -> session: rule: run may know model",
            "    collector/src/run/usage.rs:4: start of collector/src/session.rs",
            "module extra has no entry",
        ):
            self.assertIn(expected, output)

    def test_cycles_are_reported_with_their_names(self) -> None:
        status, output = check("cycle")
        self.assertEqual(status, 1)
        run, session = "collector/src/run", "collector/src/session"
        for expected in (
            f"files import each other: {run}/tree.rs -> {run}/usage.rs -> {run}/tree.rs",
            f"{run}/usage.rs:1: Tree of {run}/tree.rs",
            f"{session}/first.rs -> {session}/second.rs -> {session}/third.rs -> {session}/first.rs",
            f"{session}/second.rs:3: three of {session}/third.rs",
            "modules import each other: session::left -> session::right -> session::left",
        ):
            self.assertIn(expected, output)
        self.assertIn(" 3 against the rules", output)

    def test_io_in_the_core_is_reported(self) -> None:
        status, output = check("core_io")
        self.assertEqual(status, 1)
        for expected in (
            "usage.rs:1: names std::fs: ",
            "usage.rs:1: names std::fs::File",
            "usage.rs:8: names std::fs::read",
            "usage.rs:9: names std::time::Instant::now",
            "usage.rs:11: names libc::kill",
        ):
            self.assertIn(expected, output)
        self.assertNotIn("SIGKILL", output)
        self.assertNotIn("Duration", output)

    def test_missing_workspace_is_an_error(self) -> None:
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(layers.main(["--root", directory]), 2)


class Sources(unittest.TestCase):
    """Small crates, each made of the text of its files."""

    def edges(self, **files: str) -> set[tuple[str, str, str]]:
        """All imports between the files of a crate: from, to, name."""
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory, "src")
            source.mkdir()
            for name, text in files.items():
                file = source / (name.replace("__", "/") + ".rs")
                file.parent.mkdir(exist_ok=True)
                file.write_text(text, encoding="utf-8")
            found, self.outside = edges_of(read("crate", Path(directory), "krate"))
            return {(edge.source.stem, edge.target.stem, name) for edge in found for _, name in edge.ties}

    def test_reexport_that_the_parent_uses_itself_is_an_edge(self) -> None:
        child = "pub struct Child;"
        self.assertEqual(self.edges(lib="mod child; pub use child::Child;", child=child), set())
        used = "mod child; pub use child::Child; pub struct Parent(Child);"
        self.assertEqual(self.edges(lib=used, child=child), {("lib", "child", "Child")})

    def test_glob_ties_to_the_files_of_the_names_that_are_used(self) -> None:
        lib = "mod a; mod b; mod c; use b::B; pub struct Root;"
        edges = self.edges(lib=lib, a="use super::*; pub fn f(_: B) {}", b="pub struct B;", c="")
        self.assertEqual(edges, {("lib", "b", "B"), ("a", "b", "B")})

    def test_path_through_an_imported_module_names_its_file(self) -> None:
        edges = self.edges(
            lib="mod a; mod dir;",
            a="use crate::dir::{self as other, deep}; fn f() { other::deep::g(); deep::g(); }",
            dir__mod="pub mod deep;",
            dir__deep="pub fn g() {}",
        )
        self.assertEqual(edges, {("a", "deep", "g")})

    def test_inline_modules_and_nested_functions_are_read(self) -> None:
        edges = self.edges(
            lib="mod a; mod b { mod inner { fn f() { use crate::a::A; let _ = super::super::a::B; } } }",
            a="pub struct A; pub struct B;",
        )
        self.assertEqual(edges, {("lib", "a", "A"), ("lib", "a", "B")})

    def test_test_code_is_left_out(self) -> None:
        edges = self.edges(
            lib="mod a; #[cfg(test)] mod tests; #[cfg(all(test, unix))] use a::A; #[test] fn t() { a::f(); }\n"
            "impl X { #[cfg(test)] fn t() { a::f(); } fn u() { crate::a::g() } }",
            a="pub fn f() {} pub fn g() {}",
        )
        self.assertEqual(edges, {("lib", "a", "g")})

    def test_attributes_generics_and_lifetimes_do_not_confuse_the_reader(self) -> None:
        edges = self.edges(
            lib="mod a; mod b;",
            a="#[repr(C)] pub(in crate::a) struct S<'a, const N: usize>(&'a [u8; N]);\n"
            "pub const C: u8 = { b'\"' }; static mut M: u8 = if C > 0 { 1 } else { 2 };\n"
            'unsafe extern "C" { pub fn call(x: u8); }\n'
            "macro_rules! m { ($x:ident) => { $crate::b::made($x) } }",
            b="use crate::a::{C, M, call}; pub fn made(_: u8) {} /* /* */ use crate::a::S; */",
        )
        self.assertEqual(edges, {("a", "b", "made"), ("b", "a", "C"), ("b", "a", "M"), ("b", "a", "call")})

    def test_path_attribute_names_the_file(self) -> None:
        lib = 'mod one;\n#[path = "elsewhere.rs"]\nmod two;\nfn f() { two::g() }'
        self.assertEqual(self.edges(lib=lib, one="", elsewhere="pub fn g() {}"), {("lib", "elsewhere", "g")})

    def test_paths_out_of_the_crate_are_followed_through_imports(self) -> None:
        self.edges(lib="use std::time as t; use libc; fn f() { t::Instant::now(); libc::kill(1, 2); u64::max(1, 2); }")
        found = {"::".join(use.path) for use in self.outside}
        self.assertEqual(found, {"std::time", "libc", "std::time::Instant::now", "libc::kill"})

    def test_missing_file_is_an_error(self) -> None:
        with self.assertRaisesRegex(ValueError, "no file for `mod gone`"):
            self.edges(lib="mod gone;")


class Rules(unittest.TestCase):
    def test_glob_that_can_hide_a_clock_is_forbidden(self) -> None:
        rule = layers.WithoutIo({"run"}, [("std", "time", "Instant"), ("std", "fs")], [])
        self.assertTrue(rule.forbids(("std", "time", "*")))
        self.assertTrue(rule.forbids(("std", "fs", "*")))
        self.assertFalse(rule.forbids(("std", "collections", "*")))
        self.assertFalse(rule.forbids(("std", "time", "Duration")))

    def test_every_ring_is_found(self) -> None:
        graph = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"b"}, "e": {"a"}}
        self.assertEqual(sorted(sorted(ring) for ring in rings(graph)), [["a", "b"], ["b", "c", "d"]])
        self.assertEqual(rings({"a": {"b", "c"}, "b": {"c"}, "c": set()}), [])

    def test_rules_of_this_repository_are_read(self) -> None:
        rules = layers.read_rules(FIXTURES.parents[1] / "layers.ini")
        self.assertEqual(rules.modules["collector"]["run"], {"model"})
        self.assertEqual(rules.modules["collector"]["session"], {"*"})
        self.assertEqual(rules.without_io["collector"].modules, {"model", "run"})


if __name__ == "__main__":
    unittest.main()
