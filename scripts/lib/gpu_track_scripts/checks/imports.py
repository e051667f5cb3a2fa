"""Which file of a crate knows which other one, and by what names: `use` declarations and paths, resolved."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from .rust_modules import Module, Use, read_crate

Names = tuple[str, ...]
PRIMITIVES = re.compile(r"bool|char|str|[iu](8|16|32|64|128|size)|f(32|64)")


@dataclass
class Crate:
    """One crate of the workspace, as read."""

    # The crate's directory in the workspace, which is its name in the declared layers.
    name: str
    # The name that other crates import it by.
    identifier: str
    # `lib.rs` and `main.rs`, as far as it has them.
    roots: list[Module]

    @property
    def files(self) -> set[Path]:
        """All files of production code."""
        return {module.file for root in self.roots for module in root.all()}

    def modules_of_file(self) -> dict[Path, Names]:
        """The path of the module that each file holds."""
        found: dict[Path, Names] = {}
        for root in self.roots:
            for module in root.all():
                if module.file not in found or len(module.path) < len(found[module.file]):
                    found[module.file] = module.path
        return found


@dataclass
class Edge:
    """One file that imports from another one of its crate."""

    source: Path
    target: Path
    # Line in the importing file, and the name that is imported.
    ties: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Outside:
    """A path that leads out of the crate: the standard library, a dependency, another crate of the workspace."""

    file: Path
    line: int
    path: Names


def read(name: str, directory: Path, identifier: str) -> Crate:
    """Reads a crate of the workspace; its sources are in `src`."""
    roots = [read_crate(file) for file in (directory / "src/lib.rs", directory / "src/main.rs") if file.exists()]
    return Crate(name, identifier, roots)


def edges_of(crate: Crate) -> tuple[list[Edge], list[Outside]]:
    """Imports between the files of a crate, and those that lead out of it."""
    resolver = _Resolver(crate)
    for root in crate.roots:
        for module in root.all():
            resolver.module(module)
    return list(resolver.edges.values()), resolver.outside


class _Resolver:
    def __init__(self, crate: Crate) -> None:
        self.crate = crate
        self.edges: dict[tuple[Path, Path], Edge] = {}
        self.outside: list[Outside] = []
        libraries = [root for root in crate.roots if root.file.name == "lib.rs"]
        self.library = libraries[0] if libraries else None

    def module(self, module: Module) -> None:
        """Adds all edges that leave one module."""
        for use in module.uses:
            if use.name == "*":
                self._glob(module, use)
            elif not self._is_reexport(module, use):
                self._tie(module, use.path, use.line, use=use)
            elif use.name in module.names:
                self._tie(module, use.path, module.names[use.name], use=use)
        for path, line in module.paths:
            if self._starts_somewhere(module, path[0]):
                self._tie(module, path, line)
            elif self._is_outside(path[0]):
                self.outside.append(Outside(module.file, line, path))

    def _tie(self, module: Module, path: Names, line: int, use: Use | None = None) -> None:
        if use and self._names_a_module(module, path, use) and any(p[0] == use.name for p, _ in module.paths):
            # `use crate::report;` and later `report::build::Report`: the longer path says which file is meant.
            return
        files, out = self._resolve(module, path, use, frozenset())
        if out:
            self.outside.append(Outside(module.file, line, out))
        for file in files:
            self._edge(module.file, file, line, path)

    def _edge(self, source: Path, target: Path, line: int, path: Names) -> None:
        if source != target:
            edge = self.edges.setdefault((source, target), Edge(source, target))
            # Of `Type::new` and `Kind::Variant` the type is what is imported.
            name = next((part for part in path if part[0].isupper()), path[-1])
            if (line, name) not in edge.ties:
                edge.ties.append((line, name))

    def _glob(self, module: Module, use: Use) -> None:
        """A glob ties a module to what it uses of it."""
        target = self._find_module(module, use.path)
        if target is None:
            files, out = self._resolve(module, use.path, use, frozenset())
            for file in files:
                self._edge(module.file, file, use.line, use.path)
            if out:
                self.outside.append(Outside(module.file, use.line, (*out, "*")))
            return
        if self._is_reexport(module, use):
            return
        for name, line in module.names.items():
            if name in target.definitions or any(name == other.name for other in target.uses):
                for file in self._resolve_in(target, (name,), use, frozenset())[0]:
                    self._edge(module.file, file, line, (name,))

    def _is_reexport(self, module: Module, use: Use) -> bool:
        """`pub use child::X` hands on what a child has, and needs nothing of it itself."""
        if not use.public:
            return False
        path = use.path[1:] if use.path[0] == "self" else use.path
        if path[0] == "crate":
            path = path[1:]
            return path[: len(module.path)] == module.path and len(path) > len(module.path)
        return path[0] in module.children

    def _starts_somewhere(self, module: Module, first: str) -> bool:
        return (
            first in ("crate", "self", "super")
            or first in module.children
            or any(use.name == first for use in module.uses)
            or (first == self.crate.identifier and self.library is not None)
        )

    def _is_outside(self, first: str) -> bool:
        # `Type::name` is followed from the type's own `use`; `u64::MAX` is nobody's.
        return first[0].islower() and not PRIMITIVES.fullmatch(first)

    def _names_a_module(self, module: Module, path: Names, use: Use) -> bool:
        return self._find_module(module, path, use) is not None

    def _find_module(self, module: Module, path: Names, use: Use | None = None) -> Module | None:
        """The module of the crate that a path names, if it names one."""
        at, rest = self._start(module, path)
        seen: set[tuple[Names, Names]] = set()
        while at is not None and rest:
            if (at.path, rest) in seen:
                return None
            seen.add((at.path, rest))
            first, rest = rest[0], rest[1:]
            if first == "super":
                at = at.parent
            elif first in at.children:
                at = at.children[first]
            else:
                named = [other for other in at.uses if other.name == first and other is not use]
                if not named:
                    return None
                at, rest = self._start(at, named[0].path + rest)
        return at

    def _start(self, module: Module, path: Names) -> tuple[Module | None, Names]:
        """Where a path begins, and what is left of it. None: outside of the crate."""
        first, rest = path[0], path[1:]
        if first == "crate":
            root = module
            while root.parent:
                root = root.parent
            return root, rest
        if first == self.crate.identifier and self.library:
            return self.library, rest
        if first == "self":
            return module, rest
        if first == "super":
            return module.parent, rest
        if first in module.children or first in module.definitions or any(use.name == first for use in module.uses):
            return module, path
        return None, path

    def _resolve(
        self, module: Module, path: Names, use: Use | None, seen: frozenset[Use]
    ) -> tuple[set[Path], Names | None]:
        """The files that define what a path names, or the path outside of the crate that it stands for."""
        own = use is not None and path[0] == use.name
        if own and path[0] not in module.children and path[0] != self.crate.identifier:
            # `use libc;`, `use serde::...`: the first part is no name of this module.
            return set(), path
        at, rest = self._start(module, path)
        if at is None:
            return set(), path
        return self._resolve_in(at, rest, use, seen)

    def _resolve_in(
        self, module: Module, path: Names, use: Use | None, seen: frozenset[Use]
    ) -> tuple[set[Path], Names | None]:
        if not path:
            return {module.file}, None
        first, rest = path[0], path[1:]
        if first == "super":
            return self._resolve_in(module.parent or module, rest, use, seen)
        # A module and something else can have one name. What goes on behind it is in the module.
        in_child = bool(rest) and first in module.children
        if first in module.definitions and not in_child:
            return {module.file}, None
        named = [other for other in module.uses if other.name == first and other is not use and other not in seen]
        if named and not in_child:
            found = [self._resolve(module, other.path + rest, other, seen | {other}) for other in named]
            return set().union(*(files for files, _ in found)), next((out for _, out in found if out), None)
        if first in module.children:
            return self._resolve_in(module.children[first], rest, use, seen)
        # Else made by a macro, or behind a `cfg`: the module itself is the best answer.
        return self._through_globs(module, path, use, seen) or {module.file}, None

    def _through_globs(self, module: Module, path: Names, use: Use | None, seen: frozenset[Use]) -> set[Path]:
        """The files that define what a path names, if a glob of the module brings it."""
        for other in module.uses:
            target = self._find_module(module, other.path) if other.name == "*" and other not in seen else None
            if target is not None:
                files, _ = self._resolve_in(target, path, use, seen | {other})
                if path[0] in target.definitions or (files and files != {target.file}):
                    return files
        return set()
