"""Splits Rust source into tokens with line numbers, without comments, and with literals reduced to one token."""

from __future__ import annotations

import re
from typing import NamedTuple


class Token(NamedTuple):
    """An identifier, `::`, a literal (`"`), or one character of punctuation."""

    text: str
    line: int


# Order matters: a lifetime looks like the start of a character, a raw string like an identifier.
TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<line_comment>//[^\n]*)
    | (?P<block_comment>/\*)
    | (?P<raw>(?:br|cr|r)(?P<hashes>\#*)"(?s:.*?)"(?P=hashes))
    | (?P<string>[bc]?"(?:[^"\\]|\\(?s:.))*")
    | (?P<char>b?'(?:[^'\\]|\\(?:x..|u\{[^}]*\}|.))')
    | (?P<lifetime>'[A-Za-z_]\w*)
    | (?P<name>(?:r\#)?[A-Za-z_]\w*)
    | (?P<number>\d\w*)
    | (?P<path>::)
    | (?P<other>.)
    """,
    re.VERBOSE,
)
COMMENT_EDGE = re.compile(r"/\*|\*/")


def tokens(source: str) -> list[Token]:
    """All tokens of a file. Lifetimes and numbers are left out: no path contains one."""
    found = []
    position, line = 0, 1
    while position < len(source):
        match = TOKEN.match(source, position)
        if match is None:
            raise ValueError(f"line {line}: no Rust token")
        kind = match.lastgroup
        end = _end_of_comment(source, match.end()) if kind == "block_comment" else match.end()
        if kind == "name":
            found.append(Token(match.group().replace("r#", ""), line))
        elif kind in ("path", "other"):
            found.append(Token(match.group(), line))
        elif kind in ("raw", "string", "char"):
            found.append(Token('"', line))
        line += source.count("\n", position, end)
        position = end
    return found


def is_name(text: str) -> bool:
    """Whether a token is an identifier or keyword."""
    return text[0].isalpha() or text[0] == "_"


def _end_of_comment(source: str, position: int) -> int:
    # Rust's block comments nest.
    depth = 1
    while depth:
        edge = COMMENT_EDGE.search(source, position)
        if edge is None:
            return len(source)
        depth += 1 if edge.group() == "/*" else -1
        position = edge.end()
    return position
