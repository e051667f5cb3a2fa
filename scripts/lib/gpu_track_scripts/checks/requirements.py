"""Ties requirements to tests: every id in tests/requirements has a test that carries it, and every tag a row.

A requirement is a table row whose first cell is an id (`| CPU-3 | ...`). A row in tests/requirements/untested.md
exempts it, with the reason.
A test carries ids in a comment above it: `// Requirement: CPU-3, FAULT-7`; in Python and shell `# Requirement: ...`.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ID = r"[A-Z][A-Z0-9]*-[0-9]+"
ROW = re.compile(rf"^\|\s*({ID})\s*\|")
REASON = re.compile(rf"^\|\s*({ID})\s*\|\s*(\S.*?)\s*\|$")
# Where the rows are, a file a subject, and the reasons among them.
REQUIREMENTS = Path("tests", "requirements")
UNTESTED = REQUIREMENTS / "untested.md"
TAG = re.compile(r"^\s*(//|#) Requirements?:(.*)$")
# What stands between a tag and its test.
RUST_BETWEEN = re.compile(r"^\s*(//|#\[)")
RUST_TEST = re.compile(r"^\s*fn (\w+)")
RUST_TEST_ATTRIBUTE = re.compile(r"^\s*#\[test\]")
# One line of a macro that makes tests: `name!(...)`, or an entry of its list.
RUST_MACRO = re.compile(r"^\s*(\w+)(!|\(|:| =>)")
PYTHON_BETWEEN = re.compile(r"^\s*(#|@)")
PYTHON_TEST = re.compile(r"^\s*(def|class) (\w*[Tt]est\w*|check_\w+|[A-Z]\w*)")
SHELL_BETWEEN = re.compile(r"^\s*#")
SHELL_TEST = re.compile(r"^\s*(\S+)")
SOURCES = ("collector", "launcher", "shim", "include", "tests", "scripts")
LEFT_OUT = {"fixtures", "target", "__pycache__", "corpus"}


@dataclass(frozen=True)
class Row:
    """One requirement, or one reason why no test shows it, and where it stands."""

    name: str
    at: str


@dataclass(frozen=True)
class Tag:
    """One id above a test."""

    name: str
    at: str
    # The test's own line, or None if no test follows.
    test: str | None


def rows_of(file: Path, shown: str, pattern: re.Pattern[str] = ROW) -> list[Row]:
    """The requirements in a document, or the reasons."""
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        row = pattern.match(line)
        if row:
            found.append(Row(row.group(1), f"{shown}:{number}"))
    return found


def tags_of(file: Path, shown: str) -> list[Tag]:
    """The requirements that the tests of a file carry."""
    if file.suffix == ".rs":
        comment, between, test = "//", RUST_BETWEEN, RUST_TEST
    elif file.suffix == ".py":
        comment, between, test = "#", PYTHON_BETWEEN, PYTHON_TEST
    else:
        comment, between, test = "#", SHELL_BETWEEN, SHELL_TEST
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        tag = TAG.match(line)
        if not tag or tag.group(1) != comment:
            continue
        end = next((at for at in range(number, len(lines)) if not between.match(lines[at])), len(lines))
        below = lines[end] if end < len(lines) else ""
        is_test = test.match(below)
        if comment == "//":
            start = next((at for at in range(number - 1, 0, -1) if not between.match(lines[at - 1])), 0)
            has_attribute = any(RUST_TEST_ATTRIBUTE.match(text) for text in lines[start:end])
            is_test = (is_test if has_attribute else None) or RUST_MACRO.match(below)
        names = [name.strip() for name in tag.group(2).split(",")]
        found += [Tag(name, f"{shown}:{number}", below.strip() if is_test else None) for name in names]
    return found


def by_name(rows: list[Row], found: list[str]) -> dict[str, Row]:
    """The rows by their ids; adds to `found` those that are there twice."""
    known: dict[str, Row] = {}
    for row in rows:
        if row.name in known:
            found.append(f"{row.at}: {row.name} is already defined in {known[row.name].at}")
        known.setdefault(row.name, row)
    return known


def problems(rows: list[Row], reasons: list[Row], tags: list[Tag]) -> list[str]:
    """All that does not fit together."""
    found: list[str] = []
    known = by_name(rows, found)
    untested = by_name(reasons, found)
    found += [
        f"{row.at}: no row in {REQUIREMENTS} defines {row.name}" for row in untested.values() if row.name not in known
    ]
    carried = set()
    for tag in tags:
        carried.add(tag.name)
        if not re.fullmatch(ID, tag.name):
            found.append(f"{tag.at}: `{tag.name}` is no requirement's id")
        elif tag.name not in known:
            found.append(f"{tag.at}: no row in {REQUIREMENTS} defines {tag.name}")
        elif tag.name in untested:
            found.append(f"{tag.at}: {tag.name} has a test, but {untested[tag.name].at} calls it untested")
        if tag.test is None:
            found.append(f"{tag.at}: no test follows this tag")
    without = [row for row in known.values() if row.name not in carried and row.name not in untested]
    cure = f"write `// Requirement: ID` above one, or the reason into {UNTESTED}"
    return found + [f"{row.at}: no test carries {row.name}; {cure}" for row in without]


def read(root: Path) -> tuple[list[Row], list[Row], list[Tag]]:
    """All requirements, reasons and tags of a repository."""
    files = [file for file in sorted((root / REQUIREMENTS).glob("*.md")) if file != root / UNTESTED]
    rows = [row for file in files for row in rows_of(file, str(file.relative_to(root)))]
    reasons = rows_of(root / UNTESTED, str(UNTESTED), REASON) if (root / UNTESTED).exists() else []
    tags = []
    for source in SOURCES:
        for file in sorted((root / source).rglob("*")):
            shown = file.relative_to(root)
            script = file.suffix in (".rs", ".py", ".sh") or (shown.parts[0] == "scripts" and not file.suffix)
            if script and file.is_file() and not LEFT_OUT & set(shown.parts):
                tags += tags_of(file, str(shown))
    return rows, reasons, tags


def main(arguments: list[str] | None = None) -> int:
    """Checks a repository. Status 1: something does not fit."""
    parser = argparse.ArgumentParser(prog="check-requirements", description=__doc__)
    root = Path(__file__).resolve().parents[4]
    parser.add_argument("--root", type=Path, default=root, help="the repository (default: this one)")
    options = parser.parse_args(arguments)
    rows, reasons, tags = read(options.root)
    if not rows:
        print(f"check-requirements: no requirements in {options.root / REQUIREMENTS}", file=sys.stderr)
        return 2
    found = problems(rows, reasons, tags)
    for problem in found:
        print(problem)
    tests = len({(tag.at, tag.test) for tag in tags})
    print(
        f"check-requirements: {len(rows)} requirements, {len(reasons)} of them untested with a reason; "
        f"{tests} tests carry an id; {len(found)} problems"
    )
    return 1 if found else 0
