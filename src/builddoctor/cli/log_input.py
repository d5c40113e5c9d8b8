"""A log to be explained, from a file or from stdin, as a stream of bytes; compressed ones are unpacked on the way.

Covers: gzip, bzip2, xz (and zstandard where Python has it) by their first bytes, files cut off within, what is no text.
Does *not* cover: what is in the log (``diagnose.explaining``), traces (``cli.trace``).
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from builddoctor.errors import TextError
from builddoctor.units import shell_word

CHUNK = 1 << 20
LOOKED_AT = 64 * 1024
"""bytes that decide whether it is a text"""
BINARY_SHARE = 0.1
"""of those, that no text has"""
STDIN = "-"

_TEXT_BYTES = frozenset((*range(0x20, 0x100), *b"\t\n\r\x0b\x0c\b\x1b\a"))
_ZSTD = b"\x28\xb5\x2f\xfd"
_UNPACKERS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", _ZSTD: "zstd"}
_ARCHIVES = {
    b"PK\x03\x04": ("a zip archive", "unzip -p"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "7z x -so"),
    b"LPKSHHRH": ("systemd's journal", "journalctl --no-pager --file"),
}


class Readable(Protocol):
    """What gives what there is, and does not wait for more."""

    def read1(self, size: int, /) -> bytes: ...


class LogInput:
    """``first``: its first bytes, unpacked; iterate to get all of them. ``cut_off``: it ended within a packed block."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cut_off = False
        self._raw = self._open()
        try:
            self._begin(self._raw)
        except TextError:
            self.close()
            raise

    def close(self) -> None:
        """Lets go of the file; stdin stays open."""
        self._raw.close()

    def _begin(self, raw: io.BufferedReader) -> None:
        try:
            start = raw.peek(LOOKED_AT)
        except OSError as error:
            raise self._unreadable(error) from error
        self._refuse_archives(start)
        packed = next((kind for mark, kind in _UNPACKERS.items() if start.startswith(mark)), "")
        self._stream: Readable = self._unpacked(packed, raw) if packed else raw
        self._first = self._read(LOOKED_AT)
        self.first = self._first
        self._refuse_binary()

    def __iter__(self) -> Iterator[bytes]:
        data = self._first
        while data:
            yield data
            data = self._read(CHUNK)

    def _open(self) -> io.BufferedReader:
        if self.name == STDIN:
            return io.BufferedReader(cast(io.RawIOBase, _Plain(sys.stdin.fileno())), LOOKED_AT)
        path = Path(self.name)
        try:
            if path.is_dir():
                raise TextError(
                    f"{self.name} is a folder, and a log is a file",
                    hint=f"builddoctor doctor {shell_word(self.name)}   looks at a project",
                )
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        return io.BufferedReader(cast(io.RawIOBase, _Plain(descriptor)), LOOKED_AT)

    def _unreadable(self, error: Exception) -> TextError:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return TextError(
            f"cannot read {self.name}: {why}", hint="builddoctor explain FILE, or `BUILD 2>&1 | builddoctor explain -`"
        )

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read1(size)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
            # What was unpacked before is all there is.
            self.cut_off = True
            return b""
        except OSError as error:
            if error.errno is None:
                self.cut_off = True
                return b""
            raise self._unreadable(error) from error

    def _unpacked(self, kind: str, raw: io.BufferedReader) -> Readable:
        if kind == "gzip":
            return gzip.GzipFile(fileobj=raw)
        if kind == "bzip2":
            return bz2.BZ2File(raw)
        if kind == "xz":
            return lzma.LZMAFile(raw)
        try:
            return cast(Readable, import_module("compression.zstd").ZstdFile(raw))
        except ImportError:
            raise TextError(f"{self.name} is packed with zstandard", hint=self._pipe("zstd -dc")) from None

    def _refuse_archives(self, start: bytes) -> None:
        for mark, (what, program) in _ARCHIVES.items():
            if start.startswith(mark):
                raise TextError(f"{self.name} is {what}, and no log itself", hint=self._pipe(program))

    def _refuse_binary(self) -> None:
        sample = self.first
        if not sample or sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return
        # A file that was being written when a machine died has zeroes at its end: those alone are no reason.
        seen = sample.rstrip(b"\0")
        odd = sum(byte not in _TEXT_BYTES for byte in seen)
        if not seen or odd > BINARY_SHARE * len(seen):
            raise TextError(f"{self.name} is binary, and no text", hint=self._pipe("strings"))

    def _pipe(self, program: str) -> str:
        return f"{program} {'FILE' if self.name == STDIN else shell_word(self.name)} | builddoctor explain -"


class _Plain(io.FileIO):
    """A descriptor that is read to its end and closed by nobody else: a pipe gives what there is."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "rb", closefd=descriptor != 0)
