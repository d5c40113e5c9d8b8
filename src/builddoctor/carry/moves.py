"""Paths of another folder in text: in build files, command lines, lists of headers.

Covers: several folders that have moved, each whole (``/src`` is not found in ``/opt/src`` or ``/src-old``), as ninja
and make write them. A path behind a flag without a space (``-I/src``) is one.
Does *not* cover: paths in what was compiled. Debug information and ``__FILE__`` go on naming the first folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_BEFORE = rb"""(?:(?<=[\s"'=,;:(\[]-[ILBFo])|(?<=-isystem)|(?<![\w.~/+\-]))"""
_BEHIND = rb"(?![\w.+\-])"
_HEAD_BYTES = 8192
MOST_TEXT_BYTES = 256 * 1024 * 1024


class Moves:
    """From where to where."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Of folders one of which lies in another the inner one counts."""
        self._to: dict[bytes, bytes] = {}
        for before, after in pairs:
            if before != after and len(before) > 1:
                for how in (str, _for_ninja, _for_make):
                    self._to.setdefault(how(before).encode(), how(after).encode())
        names = b"|".join(re.escape(each) for each in sorted(self._to, key=len, reverse=True))
        self._found = re.compile(_BEFORE + b"(?:" + names + b")" + _BEHIND)

    def __bool__(self) -> bool:
        return bool(self._to)

    def __call__(self, text: bytes) -> bytes:
        """The text with paths as they are now."""
        return self._found.sub(lambda found: self._to[found[0]], text) if self._to else text

    def carry_out(self, file: Path) -> bool:
        """Change a text file; False where there is nothing to change, or it is no text."""
        with file.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
            if b"\0" in head or file.stat().st_size > MOST_TEXT_BYTES:
                return False
            text = head + stream.read()
        changed = self(text)
        if changed != text:
            file.write_bytes(changed)
        return changed != text


def _for_ninja(path: str) -> str:
    return re.sub(r"([$ :])", r"$\1", path)


def _for_make(path: str) -> str:
    return path.replace(" ", "\\ ")
