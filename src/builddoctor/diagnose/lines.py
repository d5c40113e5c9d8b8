"""A stream of bytes, cut into whole lines of bounded length.

Covers: chunks of any size, lines without an end, UTF-16 (what PowerShell writes) by its byte order mark.
Does *not* cover: what is in a line (``diagnose.cleaning``).
"""

from __future__ import annotations

import codecs

LONGEST_LINE = 64 * 1024
"""bytes of a line that are looked at. A link line of a big project has some 30 KB; what is longer is data"""


class Lines:
    """Gives back whole lines as soon as they are whole, the same whatever the chunks were."""

    def __init__(self) -> None:
        self._head = b""
        self._began = False
        self._decoder: codecs.IncrementalDecoder | None = None
        self._pending = b""
        self._was_cut = False

    def feed(self, data: bytes) -> bytes:
        """What became whole with these bytes: lines that end with a line feed, none longer than LONGEST_LINE."""
        if not self._began:
            self._head += data
            if len(self._head) < len(codecs.BOM_UTF8):
                return b""
            data = self._begin()
        return self._whole(self._as_utf8(data, last=False))

    def rest(self) -> bytes:
        """The last line where it has no end; empty otherwise. Nothing can be fed after it."""
        data = b"" if self._began else self._begin()
        whole = self._whole(self._as_utf8(data, last=True))
        last, self._pending = self._pending, b""
        return whole + (_shortened(last) if self._was_cut or len(last) > LONGEST_LINE else last)

    def _begin(self) -> bytes:
        data, self._head, self._began = self._head, b"", True
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        return data.removeprefix(codecs.BOM_UTF8)

    def _as_utf8(self, data: bytes, *, last: bool) -> bytes:
        if self._decoder is None:
            return data
        return self._decoder.decode(data, last).encode("utf-8", "replace")

    def _whole(self, data: bytes) -> bytes:
        end = data.rfind(b"\n") + 1
        if not end:
            self._keep(self._pending + data)
            return b""
        whole = self._pending + data[:end]
        if self._was_cut:
            first, _, others = whole.partition(b"\n")
            whole = _shortened(first) + b"\n" + others
            self._was_cut = False
        self._pending = b""
        self._keep(data[end:])
        return _all_shortened(whole)

    def _keep(self, pending: bytes) -> None:
        """Remember a line that has no end yet: never much more of it than counts."""
        if len(pending) > LONGEST_LINE:
            self._was_cut = True
            returns = b"\r" if pending.endswith(b"\r") else b""
            pending = _shortened(pending) + returns
        self._pending = pending


def _all_shortened(whole: bytes) -> bytes:
    """The same lines, those that are too long made shorter. Looks at few bytes where none is."""
    at, done, parts = 0, 0, []
    while at + LONGEST_LINE < len(whole):
        end = whole.rfind(b"\n", at, at + LONGEST_LINE + 1)
        if end < 0:
            end = whole.index(b"\n", at)
            parts += [whole[done:at], _shortened(whole[at:end])]
            done = end
        at = end + 1
    return b"".join([*parts, whole[done:]]) if parts else whole


def _shortened(line: bytes) -> bytes:
    """The beginning of what a progress bar wrote last."""
    return line.rstrip(b"\r").rpartition(b"\r")[2][:LONGEST_LINE]
