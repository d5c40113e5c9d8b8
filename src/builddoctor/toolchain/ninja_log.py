"""ninja's own log of what is done (``.ninja_log``), read as it grows. It is never written here.

Covers: versions 5 to 7 of the file, lines that are half written, a file that ninja wrote anew. Which lines are of the
run that goes on is told by its clock: ninja counts from its own start.
Does *not* cover: what is still to be done (``gates.fronts``). Source: ninja's manual, "The Ninja log";
src/build_log.cc of ninja-build/ninja.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from builddoctor.core.units import whole_number

_FIELDS = 5
"""start, end, a time of change, output, hash of the command"""
MOST_BYTES = 256 * 1024 * 1024


class Done(msgspec.Struct, frozen=True):
    """One output that was made."""

    start_s: float
    """since ninja began"""
    end_s: float
    output: str
    """as build.ninja calls it"""


class NinjaLog:
    """One file, from its beginning on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0
        self._inode = 0
        self._torn = b""
        self.anew = False
        """the last call found another file than the one before, and read it from its beginning"""

    def new(self) -> list[Done]:
        """Lines that came since the last call, in order; none where it cannot be read."""
        self.anew = False
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._at:
                    self.anew = self._inode != 0
                    self._inode, self._at, self._torn = status.st_ino, 0, b""
                file.seek(self._at)
                text = self._torn + file.read(MOST_BYTES)
                self._at = file.tell()
        except OSError:
            return []
        *lines, self._torn = text.split(b"\n")
        return [done for line in lines if (done := _read(line)) is not None]


def of_this_run(lines: list[Done], *, running_s: float) -> list[Done]:
    """Of a whole log the lines of the run that began ``running_s`` ago: the last, in which ends only rise.

    A run before that ended sooner after its start than this one's first line cannot be told apart: see the outputs'
    own times for that.
    """
    kept: list[Done] = []
    last_s = running_s + 1.0
    for done in reversed(lines):
        if done.end_s > last_s:
            break
        last_s = done.end_s
        kept.append(done)
    return kept[::-1]


def _read(line: bytes) -> Done | None:
    words = line.decode(errors="surrogateescape").split("\t")
    if len(words) != _FIELDS:
        return None
    start, end = whole_number(words[0]), whole_number(words[1])
    return None if start is None or end is None else Done(start / 1000, end / 1000, words[3])
