"""Bytes that draw a board at the foot of a terminal, and text above it. Pure.

Covers: redrawing what changed and nothing else, so that nothing flickers; text that goes by above; a terminal that
changes its size. Does *not* cover: the terminal (``supervise.terminal``), or the board (``render.board``).

Between two calls the cursor is at the start of the board's first line. There it stays with its cell when the terminal
becomes narrower and long lines are broken anew, so the next board begins where the old one did.
"""

from __future__ import annotations

from collections.abc import Sequence

HIDE_CURSOR = b"\x1b[?25l"
SHOW_CURSOR = b"\x1b[?25h"
BEGIN, END = b"\x1b[?2026h", b"\x1b[?2026l"
"""Terminals that know them show what lies between at once; others pass over them."""

_CLEAR_LINE = b"\x1b[K"
_CLEAR_BELOW = b"\x1b[J"
_RESET = b"\x1b[0m"


class Painter:
    """What is on the screen. Lines are as the terminal gets them, none as wide as the terminal."""

    def __init__(self) -> None:
        self._shown: list[bytes] = []
        self._size = (0, 0)

    def paint(self, lines: Sequence[bytes], size: tuple[int, int]) -> bytes:
        """Draw the board; empty when nothing changed. ``size``: columns and rows of the terminal."""
        anew = size != self._size
        self._size = size
        if anew:
            self._shown = []
            return self._framed(_CLEAR_BELOW, lines)
        if self._shown == list(lines):
            return b""
        return self._framed(b"", lines)

    def text(
        self, lines: Sequence[bytes], board: Sequence[bytes], size: tuple[int, int], *, style: bytes = b""
    ) -> bytes:
        """Put whole lines above the board, and draw it anew. ``style``: the colours that the text begins with."""
        columns = size[0]
        anew = size != self._size
        self._size = size
        pieces = [_CLEAR_BELOW if anew else b""]
        for line in lines:
            # What may go on in another row, or jump over cells, needs them empty; the rest just writes over.
            odd = len(line) >= columns or b"\t" in line or b"\r" in line
            pieces += [_CLEAR_BELOW if odd else _CLEAR_LINE, style, line, b"\r\n"]
            style = b""
        pieces.append(_RESET)
        self._shown = []
        return self._framed(b"".join(pieces), board)

    def erase(self) -> bytes:
        """Take the board away."""
        self._shown = []
        self._size = (0, 0)
        return _CLEAR_BELOW

    def _framed(self, before: bytes, lines: Sequence[bytes]) -> bytes:
        old, self._shown = self._shown, list(lines)
        if not lines:
            return before + _CLEAR_BELOW
        pieces = [BEGIN, before]
        at = 0
        for row, line in enumerate(lines):
            last = row == len(lines) - 1
            if row < len(old) and old[row] == line and not last:
                continue
            # Line feeds, and no jumps down: at the foot of the terminal they make room.
            pieces.append(b"\n" * (row - at) + (b"\r" if row > at else b""))
            at = row
            pieces += [line, _CLEAR_BELOW if last else _CLEAR_LINE, b"\r"]
        pieces += [f"\x1b[{at}A".encode() if at else b"", END]
        return b"".join(pieces)
