"""Read a trace that is still being written: what is new in it, whether somebody writes, whether it is still there.

Does *not* cover: what the records mean; whole traces (``trace.reader``).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from builddoctor.errors import TraceError
from builddoctor.trace.reader import MAX_LINE_BYTES, TraceReader
from builddoctor.trace.records import AnyRecord

READ_BYTES = 1 << 20


class TraceTail:
    """One trace, opened once: it is followed even when its name goes away.

    Raises TraceError when it is no trace.
    """

    def __init__(self, path: Path) -> None:
        # It says what is wrong with a file that is no trace, and waits for no pipe.
        next(iter(TraceReader(path)))
        self.path = path
        self._decoder = msgspec.json.Decoder(AnyRecord)
        self._unfinished = b""
        self._position = 0
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise TraceError(f"cannot read {path}: {error.strerror}") from error

    def close(self) -> None:
        os.close(self._fd)

    def new(self) -> Iterator[list[AnyRecord]]:
        """Records that have come since the last time, in pieces. The last line waits until it is whole.

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
            yield [record for record in map(self._decoded, lines) if record is not None]

    def _decoded(self, line: bytes) -> AnyRecord | None:
        try:
            record: AnyRecord = self._decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return record

    @property
    def is_written(self) -> bool:
        """A builddoctor has it open; False as well where this file system has no locks."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False

    @property
    def is_removed(self) -> bool:
        """Its last name has gone: it ends for everybody when it is closed."""
        return os.fstat(self._fd).st_nlink == 0
