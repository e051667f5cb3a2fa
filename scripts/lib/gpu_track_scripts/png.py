"""Reads the pixels of a PNG picture with 8 bits a colour, as browsers write them."""

from __future__ import annotations

import struct
import zlib

# A colour that differs by no more in each part is hardly seen.
FAINT = 60


def pixels(picture: bytes) -> list[bytes]:
    """The rows of a picture, each 3 or 4 bytes a pixel."""
    chunks: list[bytes] = []
    width, channels, at = 0, 0, 8
    while at < len(picture):
        length, kind = struct.unpack(">I4s", picture[at : at + 8])
        body = picture[at + 8 : at + 8 + length]
        at += length + 12
        if kind == b"IHDR":
            width, _, depth, colour = struct.unpack(">IIBB", body[:10])
            channels = {2: 3, 6: 4}[colour]
            if depth != 8:
                raise ValueError(f"{depth} bits a colour")
        elif kind == b"IDAT":
            chunks.append(body)
    data, size = zlib.decompress(b"".join(chunks)), width * channels
    rows: list[bytes] = []
    before = bytearray(size)
    for start in range(0, len(data), size + 1):
        before = unfiltered(data[start], bytearray(data[start + 1 : start + 1 + size]), before, channels)
        rows.append(bytes(before))
    return rows


def unfiltered(kind: int, row: bytearray, above: bytearray, channels: int) -> bytearray:
    """Undoes the filter of a row (PNG specification, 9.2)."""
    for i in range(len(row)):
        left = row[i - channels] if i >= channels else 0
        corner = above[i - channels] if i >= channels else 0
        if kind == 1:
            add = left
        elif kind == 2:
            add = above[i]
        elif kind == 3:
            add = (left + above[i]) // 2
        elif kind == 4:
            guess = left + above[i] - corner
            add = min((left, above[i], corner), key=lambda near: abs(guess - near))
        else:
            add = 0
        row[i] = (row[i] + add) & 255
    return row


def drawn(picture: bytes, page: bytes) -> int:
    """How many pixels have clearly another colour than the page, whose colour has as many bytes as a pixel."""
    rows = pixels(picture)
    size, channels = len(rows[0]), len(page)
    cells = (row[i : i + channels] for row in rows for i in range(0, size, channels))
    return sum(any(abs(a - b) > FAINT for a, b in zip(cell, page)) for cell in cells)
