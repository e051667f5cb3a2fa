"""Which way imports may point: declared layers, no cycles between files or modules, no I/O in the core.

Reads the production code of every crate of the workspace, and the declared order from `scripts/layers.ini`.
"""

from __future__ import annotations

import argparse
import re
import sys
from configparser import ConfigParser
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from .cycles import rings, steps
from .imports import Crate, Edge, Names, Outside, edges_of, read

MEMBERS = re.compile(r"^members\s*=\s*\[([^\]]*)\]", re.MULTILINE)
# The first `name` is the package's; a `[lib]` that has another one is not used here.
PACKAGE = re.compile(r'^name\s*=\s*"([^"]*)"', re.MULTILINE)


@dataclass
class Rules:
    """What `layers.ini` declares."""

    crates: dict[str, set[str]]
    modules: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    without_io: dict[str, WithoutIo] = field(default_factory=dict)


@dataclass
class WithoutIo:
    """Modules of a crate that do no I/O and read no clock."""

    modules: set[str]
    forbidden: list[Names]
    allowed: list[str]

    def forbids(self, path: Names) -> bool:
        """Whether such a module may not name this path."""
        text = "::".join(path)
        if any(fnmatchcase(text, allowed) for allowed in self.allowed):
            return False
        if path[-1] == "*":
            # `use std::time::*` can name all that is below.
            return any(path[:-1][: len(start)] == start[: len(path) - 1] for start in self.forbidden)
        return any(path[: len(start)] == start for start in self.forbidden)


def read_rules(file: Path) -> Rules:
    """The declared layers."""
    parser = ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    with file.open(encoding="utf-8") as lines:
        parser.read_file(lines)
    rules = Rules({name: set(known.split()) for name, known in parser["crates"].items()})
    for section in parser.sections():
        kind, _, crate = section.partition(" ")
        values = parser[section]
        if kind == "modules":
            rules.modules[crate] = {name: set(known.split()) for name, known in values.items()}
        elif kind == "without-io":
            forbidden = [tuple(path.split("::")) for path in values["forbidden"].split()]
            rules.without_io[crate] = WithoutIo(set(values["modules"].split()), forbidden, values["allowed"].split())
    return rules


@dataclass
class Workspace:
    """The crates of a workspace, with their imports."""

    root: Path
    crates: list[Crate]
    edges: dict[str, list[Edge]]
    outside: dict[str, list[Outside]]


def read_workspace(root: Path) -> Workspace:
    """Reads all members of a workspace."""
    members = MEMBERS.search((root / "Cargo.toml").read_text(encoding="utf-8"))
    if members is None:
        raise ValueError(f"{root}/Cargo.toml: no members")
    workspace = Workspace(root, [], {}, {})
    for name in re.findall(r'"([^"]*)"', members.group(1)):
        package = PACKAGE.search((root / name / "Cargo.toml").read_text(encoding="utf-8"))
        if package is None:
            raise ValueError(f"{root}/{name}/Cargo.toml: no name")
        crate = read(name, root / name, package.group(1).replace("-", "_"))
        workspace.crates.append(crate)
        workspace.edges[name], workspace.outside[name] = edges_of(crate)
    return workspace


def problems(workspace: Workspace, rules: Rules) -> list[str]:
    """All that is against the rules, each as one text."""
    found = []
    for crate in workspace.crates:
        found += _crates(workspace, crate, rules)
        if crate.name in rules.modules:
            found += _modules(workspace, crate, rules.modules[crate.name])
        if crate.name in rules.without_io:
            found += _without_io(workspace, crate, rules.without_io[crate.name])
        found += _file_rings(workspace, crate)
        found += _module_rings(workspace, crate)
    return found


def _crates(workspace: Workspace, crate: Crate, rules: Rules) -> list[str]:
    if crate.name not in rules.crates:
        return [f"crate {crate.name} has no entry under [crates]"]
    allowed = rules.crates[crate.name]
    names = {other.identifier: other.name for other in workspace.crates if other is not crate}
    return [
        f"{_at(workspace, use.file, use.line)}: {crate.name} -> {names[use.path[0]]} ({'::'.join(use.path)}): "
        f"rule: {_rule(crate.name, allowed)}"
        for use in workspace.outside[crate.name]
        if use.path[0] in names and names[use.path[0]] not in allowed
    ]


def _modules(workspace: Workspace, crate: Crate, rules: dict[str, set[str]]) -> list[str]:
    paths = crate.modules_of_file()
    present = {path[0] for path in paths.values() if path}
    found = [
        f"{crate.name}: module {name} has no entry under [modules {crate.name}]"
        for name in sorted(present - set(rules))
    ]
    back: dict[tuple[str, str], list[Edge]] = {}
    for edge in workspace.edges[crate.name]:
        source, target = paths[edge.source][:1], paths[edge.target][:1] or ("the crate's root",)
        if source and source != target and source[0] in rules and not {target[0], "*"} & rules[source[0]]:
            back.setdefault((source[0], target[0]), []).append(edge)
    for (name, known), edges in sorted(back.items()):
        lines = [f"{crate.name}: {name} -> {known}: rule: {_rule(name, rules[name])}"]
        found.append("\n".join(lines + [_tie(workspace, edge) for edge in edges]))
    return found


def _without_io(workspace: Workspace, crate: Crate, rule: WithoutIo) -> list[str]:
    paths = crate.modules_of_file()
    found = {
        (use.file, use.line, "::".join(use.path)): None
        for use in workspace.outside[crate.name]
        if paths[use.file][:1] and paths[use.file][0] in rule.modules and rule.forbids(use.path)
    }
    return [
        f"{_at(workspace, file, line)}: names {path}: rule: {paths[file][0]} does no I/O and reads no clock"
        for file, line, path in found
    ]


def _file_rings(workspace: Workspace, crate: Crate) -> list[str]:
    graph: dict[Path, set[Path]] = {file: set() for file in crate.files}
    ties = {(edge.source, edge.target): edge for edge in workspace.edges[crate.name]}
    for source, target in ties:
        graph[source].add(target)
    found = []
    for ring in rings(graph):
        names = [_shown(workspace, file) for file in [*ring, ring[0]]]
        lines = [f"{crate.name}: files import each other: {' -> '.join(names)}"]
        lines += [_tie(workspace, ties[pair]) for pair in steps(ring)]
        found.append("\n".join(lines))
    return found


def _module_rings(workspace: Workspace, crate: Crate) -> list[str]:
    """Rings of the modules that one module holds, each taken with all that is below it."""
    paths = crate.modules_of_file()
    levels: dict[Names, dict[tuple[str, str], list[Edge]]] = {}
    for edge in workspace.edges[crate.name]:
        source, target = paths[edge.source], paths[edge.target]
        shared = 0
        while source[shared : shared + 1] == target[shared : shared + 1] and shared < min(len(source), len(target)):
            shared += 1
        if shared < min(len(source), len(target)):
            pair = (source[shared], target[shared])
            levels.setdefault(source[:shared], {}).setdefault(pair, []).append(edge)
    found = []
    for level, pairs in sorted(levels.items()):
        graph: dict[str, set[str]] = {}
        for one, other in pairs:
            graph.setdefault(one, set()).add(other)
        for ring in rings(graph):
            edges = [edge for pair in steps(ring) for edge in pairs[pair][:3]]
            if [edge.target for edge in edges] == [edge.source for edge in edges[1:] + edges[:1]]:
                # Already reported as a ring of files.
                continue
            names = ["::".join((*level, name)) for name in [*ring, ring[0]]]
            lines = [f"{crate.name}: modules import each other: {' -> '.join(names)}"]
            found.append("\n".join(lines + [_tie(workspace, edge) for edge in edges]))
    return found


def _tie(workspace: Workspace, edge: Edge) -> str:
    line = min(line for line, _ in edge.ties)
    names = list(dict.fromkeys(name for _, name in edge.ties))
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"    {_at(workspace, edge.source, line)}: {', '.join(names[:4])}{more} of {_shown(workspace, edge.target)}"


def _rule(name: str, known: set[str]) -> str:
    return f"{name} may know {', '.join(sorted(known)) or 'none of the others'}"


def _at(workspace: Workspace, file: Path, line: int) -> str:
    return f"{_shown(workspace, file)}:{line}"


def _shown(workspace: Workspace, file: Path) -> str:
    return str(file.relative_to(workspace.root))


def main(arguments: list[str] | None = None) -> int:
    """Checks a workspace. Status 1: something is against the rules."""
    root = Path(__file__).resolve().parents[4]
    parser = argparse.ArgumentParser(prog="check-layers", description=__doc__)
    parser.add_argument("--root", type=Path, default=root, help="the workspace (default: this repository)")
    parser.add_argument("--rules", type=Path, help="the declared layers (default: ROOT/scripts/layers.ini)")
    options = parser.parse_args(arguments)
    try:
        rules = read_rules(options.rules or options.root / "scripts/layers.ini")
        workspace = read_workspace(options.root)
    except (OSError, KeyError, ValueError) as error:
        print(f"check-layers: {error}", file=sys.stderr)
        return 2
    found = problems(workspace, rules)
    for problem in found:
        print(problem)
    files = sum(len(crate.files) for crate in workspace.crates)
    edges = sum(len(edges) for edges in workspace.edges.values())
    print(f"check-layers: {files} files, {edges} imports between files of a crate, {len(found)} against the rules")
    return 1 if found else 0
