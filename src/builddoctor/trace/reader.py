"""Read a trace, line by line, never the whole of it at once.

Covers: events in file order, of both schemas (``TraceReader``), and what is new in a trace that is still being written
(``TraceTail``). Torn lines and unknown events are skipped and counted. Holes in the file are jumped over.
Does *not* cover: what the events add up to (``trace.state``).
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from builddoctor.core.errors import TraceError
from builddoctor.core.events import TRACE_SCHEMA, BuildEvent, Header
from builddoctor.trace import schema1

MAX_LINE_BYTES = 4 * 1024 * 1024
"""A longer line is damage: builddoctor writes none that comes near."""

BLOCK_BYTES = 256 * 1024
READ_BYTES = 1 << 20
"""at once, of a trace that is followed"""

SAMPLE_PREFIXES = (b'{"t":"sample",', b'{"t":"rss",', b'{"t":"pressure",', b'{"t":"time"')
"""How the writer begins memory samples, of both schemas, and other looks that only the scheduler decides upon: nearly
all lines of a long trace."""

LIST_HINT = "`builddoctor trace list` shows the traces there are"


_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding a damaged line raises."""


def _events_of(header: Header) -> Callable[[bytes], Sequence[BuildEvent]]:
    """What makes events of a line of this trace."""
    if header.schema < TRACE_SCHEMA:
        old, events = msgspec.json.Decoder(schema1.AnyRecord).decode, schema1.Schema1(header).events
        return lambda line: events(old(line))
    decode = msgspec.json.Decoder(BuildEvent).decode
    return lambda line: (decode(line),)


class LineDecoder:
    """Lines of one trace, in order, as events."""

    def __init__(self, header: Header) -> None:
        self._events = _events_of(header)

    def events(self, line: bytes) -> Sequence[BuildEvent] | None:
        """The events of one line; None when it cannot be read."""
        try:
            return self._events(line)
        except _UNREADABLE:
            return None


class TraceReader:
    """Iterate to get the events; ``skipped`` counts the lines that were not readable.

    ``bytes_read``: whole lines up to here lie behind the event that was given last, or at the end the file's size.

    ``curves=False`` leaves out memory samples (``MemorySampled``), and what else the scheduler alone looks at, without
    decoding them, damaged ones among them: most questions need none, and they are nearly all of a long trace.
    ``start``: the byte to begin at, after the header; it must be the beginning of a line.
    """

    def __init__(self, path: Path, *, curves: bool = True, start: int = 0) -> None:
        self.path = path
        self.skipped = 0
        self.bytes_read = 0
        self._curves = curves
        self._start = start

    def __iter__(self) -> Iterator[BuildEvent]:
        self.skipped = self.bytes_read = 0
        try:
            with _open(self.path) as file:
                header = self._header(file)
                yield header
                if self._start > self.bytes_read:
                    self.bytes_read = file.seek(self._start)
                yield from self._rest(file, LineDecoder(header))
        except OSError as error:
            raise TraceError(f"cannot read {self.path}: {error.strerror}", hint=LIST_HINT) from error

    def _header(self, file: io.BufferedReader) -> Header:
        line = file.readline(MAX_LINE_BYTES)
        self.bytes_read += len(line)
        try:
            record: Header | None = msgspec.json.decode(line, type=Header)
        except _UNREADABLE:
            record = None
        if record is None or record.schema < 1:
            newer = _schema_of(line)
            raise self._too_new(newer) if newer > TRACE_SCHEMA else self._not_a_trace()
        if record.schema > TRACE_SCHEMA:
            raise self._too_new(record.schema)
        return record

    def _rest(self, file: io.BufferedReader, decoder: LineDecoder) -> Iterator[BuildEvent]:
        while block := file.read(BLOCK_BYTES):
            if not block.endswith(b"\n"):
                block += file.readline(MAX_LINE_BYTES)
            lines = block.split(b"\n")
            if not self._curves:
                lines = [line for line in lines if not line.startswith(SAMPLE_PREFIXES)]
            for line in lines:
                if not line or len(line) > MAX_LINE_BYTES:
                    self.skipped += line != b""
                    continue
                events = decoder.events(line)
                if events is None:
                    self.skipped += not line.isspace()
                    continue
                yield from events
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


class TraceTail:
    """One trace, opened once: it is followed even when its name goes away.

    Raises TraceError when it is no trace.
    """

    def __init__(self, path: Path) -> None:
        # It says what is wrong with a file that is no trace, and waits for no pipe.
        header = next(iter(TraceReader(path)))
        assert isinstance(header, Header)
        self.path = path
        self._decoder = LineDecoder(header)
        self._unfinished = b""
        self._position = 0
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise TraceError(f"cannot read {path}: {error.strerror}") from error

    def close(self) -> None:
        os.close(self._fd)

    def new(self) -> Iterator[list[BuildEvent]]:
        """Events that have come since the last time, in pieces. The last line waits until it is whole.

        Raises TraceError when the file cannot be read any more, or was begun anew by another build.
        """
        while True:
            try:
                data = os.pread(self._fd, READ_BYTES, self._position)
                size = os.fstat(self._fd).st_size
            except OSError as error:
                raise TraceError(f"cannot read {self.path} any more: {error.strerror}") from error
            if size < self._position:
                raise TraceError(
                    f"{self.path} was begun anew: another build writes it now",
                    hint="builds that run at the same time need traces of their own",
                )
            if not data:
                return
            self._position += len(data)
            *lines, self._unfinished = (self._unfinished + data).split(b"\n")
            if len(self._unfinished) > MAX_LINE_BYTES:
                self._unfinished = b""
            yield [event for line in lines for event in self._decoder.events(line) or ()]

    @property
    def is_written(self) -> bool:
        """A builddoctor has it open; False as well where this file system has no locks."""
        return _locked(self._fd, otherwise=False)

    @property
    def is_removed(self) -> bool:
        """Its last name has gone: it is gone once it is closed everywhere."""
        return os.fstat(self._fd).st_nlink == 0


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
    except _UNREADABLE:
        return 0


def is_locked(path: Path) -> bool:
    """A builddoctor has the trace open; True as well where there are no locks. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _locked(fd, otherwise=True)
    finally:
        os.close(fd)


def _locked(fd: int, *, otherwise: bool) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # No locks on this file system.
        return otherwise
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False
