"""Read a trace, line by line, never the whole of it at once.

Covers: records in file order; a torn last line, torn lines in between, and unknown records, all skipped and counted;
holes in the file, which are jumped over. Does *not* cover: what the records mean (``trace.analysis``).
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from builddoctor.errors import TraceError
from builddoctor.trace.records import TRACE_SCHEMA, AnyRecord, Header

MAX_LINE_BYTES = 4 * 1024 * 1024
"""No line of ours comes near; a longer one is not a trace's."""

BLOCK_BYTES = 256 * 1024

CURVE_PREFIX = b'{"t":"rss",'
"""How the writer begins a PhaseCurve: nearly all lines of a long trace."""

LIST_HINT = "`builddoctor trace list` shows the traces there are"


class TraceReader:
    """Iterate to get the records; ``skipped`` counts the lines that were not readable.

    ``bytes_read``: whole lines up to here lie behind the record that was given last, or at the end the file's size.

    ``curves=False`` leaves out the memory samples of phases (``PhaseCurve``) without decoding them, damaged ones among
    them: most questions need none, and they are nearly all of a long trace.
    ``start``: the byte to begin at, after the header; it must be the beginning of a line.
    """

    def __init__(self, path: Path, *, curves: bool = True, start: int = 0) -> None:
        self.path = path
        self.skipped = 0
        self.bytes_read = 0
        self._curves = curves
        self._start = start

    def __iter__(self) -> Iterator[AnyRecord]:
        self.skipped = self.bytes_read = 0
        try:
            with _open(self.path) as file:
                yield self._header(file)
                if self._start > self.bytes_read:
                    self.bytes_read = file.seek(self._start)
                yield from self._rest(file)
        except OSError as error:
            raise TraceError(f"cannot read {self.path}: {error.strerror}", hint=LIST_HINT) from error

    def _header(self, file: io.BufferedReader) -> Header:
        line = file.readline(MAX_LINE_BYTES)
        self.bytes_read += len(line)
        try:
            record = msgspec.json.decode(line, type=AnyRecord)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            record = None
        if not isinstance(record, Header):
            newer = _schema_of(line)
            raise self._too_new(newer) if newer > TRACE_SCHEMA else self._not_a_trace()
        if record.schema > TRACE_SCHEMA:
            raise self._too_new(record.schema)
        return record

    def _rest(self, file: io.BufferedReader) -> Iterator[AnyRecord]:
        decode = msgspec.json.Decoder(AnyRecord).decode
        while block := file.read(BLOCK_BYTES):
            if not block.endswith(b"\n"):
                block += file.readline(MAX_LINE_BYTES)
            lines = block.split(b"\n")
            if not self._curves:
                lines = [line for line in lines if not line.startswith(CURVE_PREFIX)]
            for line in lines:
                if not line or len(line) > MAX_LINE_BYTES:
                    self.skipped += line != b""
                    continue
                try:
                    record = decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    self.skipped += not line.isspace()
                    continue
                yield record
            self.bytes_read += len(block)
            if len(block) >= MAX_LINE_BYTES and block.endswith(b"\0"):
                self.bytes_read = _jump_over_hole(file)

    def _too_new(self, schema: int) -> TraceError:
        return TraceError(
            f"{self.path} has trace schema {schema}; this builddoctor reads up to {TRACE_SCHEMA}",
            hint="a newer builddoctor wrote it: `pip install -U builddoctor`",
        )

    def _not_a_trace(self) -> TraceError:
        return TraceError(
            f"{self.path} is not a trace of builddoctor", hint=f"a trace begins with a header line; {LIST_HINT}"
        )


def _open(path: Path) -> io.BufferedReader:
    """A regular file, opened. Raises TraceError for a folder, a device or a pipe, which could make us wait for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise TraceError(f"cannot read {path}: no regular file", hint=LIST_HINT)
    return io.BufferedReader(io.FileIO(descriptor), BLOCK_BYTES)


def _jump_over_hole(file: io.BufferedReader) -> int:
    """Go on where the file has data again, as far as the file system says; gives the position."""
    position = file.tell()
    try:
        return file.seek(os.lseek(file.fileno(), position, os.SEEK_DATA))
    except OSError as error:
        # Either there is no more data, or this file system does not tell.
        return file.seek(0, io.SEEK_END) if error.errno == errno.ENXIO else file.seek(position)


class _AnyHeader(msgspec.Struct, tag_field="t", tag="header"):
    """All that must be known of a header of another schema."""

    schema: int


def _schema_of(line: bytes) -> int:
    try:
        return msgspec.json.decode(line, type=_AnyHeader).schema
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0
