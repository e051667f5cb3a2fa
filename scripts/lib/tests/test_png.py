"""Tests of the reader of PNG pictures."""

from __future__ import annotations

import struct
import unittest
import zlib

from gpu_track_scripts import png


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def picture(rows: list[bytes], width: int, colour: int) -> bytes:
    """A picture of filtered rows; colour type 2 has 3 bytes a pixel, 6 has 4."""
    head = struct.pack(">IIBBBBB", width, len(rows), 8, colour, 0, 0, 0)
    data = zlib.compress(b"".join(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


class Png(unittest.TestCase):
    def test_each_filter_is_undone(self) -> None:
        # Two pixels a row: none, left, above, mean, Paeth.
        rows = [
            bytes([0, 10, 20, 30, 40, 50, 60]),
            bytes([1, 10, 20, 30, 1, 1, 1]),
            bytes([2, 1, 1, 1, 1, 1, 1]),
            bytes([3, 10, 10, 10, 10, 10, 10]),
            bytes([4, 1, 1, 1, 1, 1, 1]),
        ]
        expected = [
            bytes([10, 20, 30, 40, 50, 60]),
            bytes([10, 20, 30, 11, 21, 31]),
            bytes([11, 21, 31, 12, 22, 32]),
            bytes([15, 20, 25, 23, 31, 38]),
            bytes([16, 21, 26, 24, 32, 39]),
        ]
        self.assertEqual(png.pixels(picture(rows, 2, 2)), expected)

    def test_pixels_that_differ_clearly_from_the_page_are_counted(self) -> None:
        page, ink, faint = bytes([255, 255, 255, 255]), bytes([255, 0, 255, 255]), bytes([220, 220, 220, 255])
        rows = [b"\0" + page + faint + ink, b"\0" + ink + page + page]
        self.assertEqual(png.drawn(picture(rows, 3, 6), page), 2)


if __name__ == "__main__":
    unittest.main()
