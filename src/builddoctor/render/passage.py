"""What a build prints, on its way to a terminal that has a board at its foot. Pure.

Covers: whole lines as they came, the line that is not finished, colours that go on from line to line. Of escape
sequences, colours and links pass; what moves the cursor or clears the screen does not: it was meant for a screen that
the build does not have.
Does *not* cover: reading it (``supervise.screen``), placing it (``render.painting``).
"""

from __future__ import annotations

import re

MOST_UNFINISHED = 32 * 1024
"""A line without end is broken here."""
MOST_STYLES = 16

_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])"
    rb"|[\x00-\x06\x0b\x0c\x0e-\x1a]|\xc2[\x80-\x9f]|\x1b"
)
_PASSES = re.compile(rb"\x1b\[[0-9;:]*m|\x1b\[K|\x1b\]8;[^\x07\x1b]*(?:\x07|\x1b\\)")
_STYLE = re.compile(rb"\x1b\[([0-9;:]*)m")
_UNFINISHED_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,2048}\x1b?)?\Z")


class Passage:
    """Takes bytes as they come, in pieces of any size."""

    def __init__(self) -> None:
        self._unfinished = b""
        self._styles: list[bytes] = []

    @property
    def style(self) -> bytes:
        """Colours that the next line begins with."""
        return b"".join(self._styles)

    @property
    def unfinished(self) -> str:
        """The beginning of a line whose end has not come yet, as one sees it: after a carriage return anew."""
        visible = self._unfinished.rstrip(b"\r").rpartition(b"\r")[2]
        text = _ESCAPE.sub(b"", _UNFINISHED_ESCAPE.sub(b"", visible)).decode(errors="replace").expandtabs()
        return "".join(char for char in text if char.isprintable())

    def feed(self, data: bytes) -> list[bytes]:
        """Whole lines, without their ends."""
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        while len(self._unfinished) > MOST_UNFINISHED:
            # A progress bar writes over itself: all but its last state is gone anyway.
            kept = self._unfinished.rpartition(b"\r")[2] or self._unfinished
            if len(kept) > MOST_UNFINISHED:
                lines.append(kept[:MOST_UNFINISHED])
                kept = kept[MOST_UNFINISHED:]
            self._unfinished = kept
        return [self._clean(line) for line in lines]

    def rest(self) -> list[bytes]:
        """What is left when nothing more comes."""
        return self.feed(b"\n") if self._unfinished else []

    def _clean(self, line: bytes) -> bytes:
        if line.endswith(b"\r"):
            line = line.rstrip(b"\r")
        for style in _STYLE.findall(line) if b"\x1b" in line else ():
            self._note(style)
        return _ESCAPE.sub(_kept, line)

    def _note(self, style: bytes) -> None:
        if style in (b"", b"0"):
            self._styles.clear()
            return
        if style.startswith(b"0;"):
            self._styles.clear()
        self._styles = [*self._styles, b"\x1b[" + style + b"m"][-MOST_STYLES:]


def _kept(match: re.Match[bytes]) -> bytes:
    return match[0] if _PASSES.fullmatch(match[0]) else b""
