"""Reads the modules of a Rust crate: what each one declares, imports and names. Test code is left out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from .rust_tokens import Token, is_name, tokens

DEFINING = {"fn", "struct", "enum", "union", "trait", "const", "static", "type"}
# What can follow a brace within one `const` or `static` item.
CONTINUING = {".", "?", ",", "+", "-", "|", "&", "=", "*", "<"}
CLOSING = {"{": "}", "(": ")", "[": "]"}
PATH_ATTRIBUTE = re.compile(r'#\[path\s*=\s*"([^"]*)"\]')


@dataclass(frozen=True)
class Use:
    """One name that a `use` declaration brings into a module; `name` is `*` for a glob."""

    path: tuple[str, ...]
    name: str
    line: int
    public: bool


@dataclass
class Module:
    """A module of a crate, inline or in a file of its own."""

    path: tuple[str, ...]
    file: Path
    parent: Module | None = None
    definitions: set[str] = field(default_factory=set)
    uses: list[Use] = field(default_factory=list)
    children: dict[str, Module] = field(default_factory=dict)
    # Paths of two segments and more in bodies and signatures, with their lines.
    paths: list[tuple[tuple[str, ...], int]] = field(default_factory=list)
    # Single names in bodies and signatures, with the line of their first use.
    names: dict[str, int] = field(default_factory=dict)

    def all(self) -> list[Module]:
        """This module and everything below it."""
        return [self] + [below for child in self.children.values() for below in child.all()]


def is_test_file(path: Path) -> bool:
    """Whether a file is test code by its name alone."""
    return path.stem == "tests" or path.stem.endswith("_tests")


def read_crate(root: Path) -> Module:
    """The module tree below a crate's `lib.rs` or `main.rs`."""
    return _read_file(root, (), None, root.parent)


def _read_file(file: Path, path: tuple[str, ...], parent: Module | None, directory: Path) -> Module:
    module = Module(path, file, parent)
    source = file.read_text(encoding="utf-8")
    try:
        _Reader(tokens(source), source.splitlines()).items(module, directory)
    except (IndexError, ValueError) as error:
        raise ValueError(f"{file}: can't be read: {error}") from error
    return module


class _Reader:
    """Goes through the tokens of one file."""

    def __init__(self, found: list[Token], lines: list[str]) -> None:
        self.tokens = found
        self.lines = lines
        self.at = 0

    def items(self, module: Module, directory: Path) -> None:
        """The items of a module, up to its closing brace or the end of the file."""
        public = False
        test = False
        while self.at < len(self.tokens) and self._text() != "}":
            text = self._text()
            if text == "#" and self._text(1) in ("[", "!"):
                test |= self._is_test_attribute()
                continue
            if text == "pub":
                public = True
                self.at += 1
                if self._text() == "(":
                    self._skip_group()
                continue
            if test:
                self._skip_item()
            elif text == "use":
                self._use(module, public)
            elif text == "mod" and is_name(self._text(1)):
                self._mod(module, directory)
            else:
                self._item(module)
            public = test = False

    def _item(self, module: Module) -> None:
        """An item that is neither `use` nor `mod`: what it defines, and all that it names."""
        if self._text() == "macro_rules":
            module.definitions.add(self._text(2))
            self.at += 3
        while self._text() not in (";", "{", "}"):
            text = self._text()
            if text in DEFINING and is_name(self._text(1)) and self._text(1) not in DEFINING | {"unsafe", "extern"}:
                self.at += 2 if self._text(1) == "mut" else 1
                module.definitions.add(self._text())
                self.at += 1
                break
            if text == "impl":
                break
            if not is_name(text) and text != '"':
                break
            self.at += 1
        if self._text() == "{" and self._text(-1) in ("extern", '"'):
            # `extern "C" { fn a(); }` defines in the module what it declares.
            self.at += 1
            while self._text() != "}":
                self._item(module)
            self.at += 1
            return
        self._body(module)

    def _body(self, module: Module) -> None:
        """The rest of an item: to its `;`, or behind its braces."""
        while self.at < len(self.tokens):
            text = self._text()
            if text == ";":
                self.at += 1
                return
            if text == "{":
                self._group(module)
                # `= { ... };` goes on to the semicolon; a function or type ends with its brace.
                if self.at < len(self.tokens) and self._text() == ";":
                    self.at += 1
                    return
                if self._text() not in CONTINUING:
                    return
            elif text in ("(", "["):
                self._group(module)
            else:
                self._mention(module)

    def _group(self, module: Module) -> None:
        """All that is named between a bracket and its partner, nested ones included."""
        close = CLOSING[self._text()]
        self.at += 1
        while self._text() != close:
            text = self._text()
            if text in CLOSING:
                self._group(module)
            elif text == "#" and self._text(1) == "[":
                if self._is_test_attribute():
                    self._skip_item()
            elif text == "use" and (is_name(self._text(1)) or self._text(1) in ("{", "::")):
                self._use(module, False)
            else:
                self._mention(module)
        self.at += 1

    def _mention(self, module: Module) -> None:
        """One token, or a path."""
        start = self.tokens[self.at]
        before = self._text(-1) if self.at else ""
        if not is_name(start.text):
            self.at += 1
            return
        path = [start.text]
        self.at += 1
        while self._text() == "::" and is_name(self._text(1)):
            path.append(self._text(1))
            self.at += 2
        if before in (".", "::", "fn"):
            return
        if len(path) > 1:
            module.paths.append((tuple(path), start.line))
        # `name:` is a field or a binding. `name!` is a macro, which may be another module's.
        elif self._text() != ":":
            module.names.setdefault(start.text, start.line)
        if len(path) > 1:
            module.names.setdefault(path[0], start.line)

    def _use(self, module: Module, public: bool) -> None:
        self.at += 1
        self._use_tree(module, (), public)
        if self._text() != ";":
            raise ValueError(f"line {self.tokens[self.at].line}: `use` without its end")
        self.at += 1

    def _use_tree(self, module: Module, prefix: tuple[str, ...], public: bool) -> None:
        if self._text() == "::":
            self.at += 1
        path = prefix
        line = self.tokens[self.at].line
        while is_name(self._text()):
            path += (self._text(),)
            self.at += 1
            if self._text() != "::":
                break
            self.at += 1
        if self._text() == "{":
            self.at += 1
            while self._text() != "}":
                self._use_tree(module, path, public)
                if self._text() == ",":
                    self.at += 1
            self.at += 1
            return
        if self._text() == "*":
            self.at += 1
            module.uses.append(Use(path, "*", line, public))
            return
        if path[-1] == "self" and len(path) > 1:
            path = path[:-1]
        name = path[-1]
        if self._text() == "as":
            name = self._text(1)
            self.at += 2
        module.uses.append(Use(path, name, line, public))

    def _mod(self, module: Module, directory: Path) -> None:
        name, line = self._text(1), self.tokens[self.at].line
        path = (*module.path, name)
        self.at += 2
        if self._text() == "{":
            self.at += 1
            child = Module(path, module.file, module)
            self.items(child, directory / name)
            self.at += 1
            module.children[name] = child
            return
        self.at += 1
        file, below = _file_of(name, module.file.parent, directory, self.lines, line)
        if not is_test_file(file):
            module.children[name] = _read_file(file, path, module, below)

    def _is_test_attribute(self) -> bool:
        """Skips an attribute. `#![...]` concerns the file, which was chosen already."""
        inner = self._text(1) == "!"
        self.at += 2 if inner else 1
        start = self.at
        self._skip_group()
        words = [token.text for token in self.tokens[start : self.at]]
        return not inner and (
            words[1:2] == ["test"] or (words[1:2] == ["cfg"] and "test" in words and "not" not in words)
        )

    def _skip_group(self) -> None:
        depth = 0
        while self.at < len(self.tokens):
            text = self._text()
            depth += (text in CLOSING) - (text in CLOSING.values())
            self.at += 1
            if depth == 0:
                return

    def _skip_item(self) -> None:
        """An item of test code, or a statement."""
        while self.at < len(self.tokens):
            text = self._text()
            if text == "#" and self._text(1) == "[":
                self.at += 1
                self._skip_group()
            elif text in CLOSING:
                self._skip_group()
                if text == "{":
                    return
            elif text == "}":
                return
            else:
                self.at += 1
                if text in (";", ","):
                    return

    def _text(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.tokens[index].text if 0 <= index < len(self.tokens) else "\0"


def _file_of(name: str, beside: Path, directory: Path, lines: list[str], line: int) -> tuple[Path, Path]:
    """The file of `mod name;`, and the directory of its own children."""
    above = line - 1
    while above and lines[above - 1].lstrip().startswith("#["):
        above -= 1
    attribute = PATH_ATTRIBUTE.search("\n".join(lines[above:line]))
    if attribute:
        file = beside / attribute.group(1)
        return file, file.parent
    for file in (directory / f"{name}.rs", directory / name / "mod.rs"):
        if file.exists():
            return file, directory / name
    raise ValueError(f"line {line}: no file for `mod {name}`")
