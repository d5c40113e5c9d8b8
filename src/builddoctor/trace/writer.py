"""Append records to a trace file.

A record is in the file, opened with O_APPEND, when ``write`` returns: it survives the death of this process. ``sync``
(to be called at least every two seconds and at pressure edges) makes it survive the machine's.
A full disk never stops a build: records are dropped, counted, and writing goes on when there is room again. A line that
was torn by it is closed first, so that later records stay readable.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

import msgspec

from builddoctor.errors import FolderNotWritableError
from builddoctor.trace.records import Record
from builddoctor.units import printable_tree


class TraceWriter:
    """One trace file. ``path`` is created; its folder must exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dropped = 0
        """records that could not be written"""
        self.problem = ""
        """why the last record could not be written; empty when all is well"""
        self._encoder = msgspec.json.Encoder()
        self._torn = False
        self._dirty = False
        try:
            self._fd: int | None = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise FolderNotWritableError(
                f"cannot write the trace {path}: {error.strerror}",
                hint="name a file in a folder that you may write: `--trace /some/folder/build.jsonl`",
            ) from error
        with contextlib.suppress(OSError):
            # Whoever follows the trace sees by it that somebody still writes.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, *records: Record) -> None:
        """Append records, all in one go; never raises for a full or failing disk."""
        if self._fd is None or not records:
            return
        lines = b"".join(self._encode(record) + b"\n" for record in records)
        if self._torn:
            lines = b"\n" + lines
        try:
            written = os.write(self._fd, lines)
        except OSError as error:
            self.dropped += len(records)
            self.problem = error.strerror or str(error)
            return
        self._dirty = True
        self._torn = written < len(lines)
        if self._torn:
            self.dropped += lines[written:].count(b"\n")
            self.problem = "No space left on device"
        else:
            self.problem = ""

    def _encode(self, record: Record) -> bytes:
        try:
            return self._encoder.encode(record)
        except UnicodeEncodeError:
            # Somewhere in it is a file name that is no UTF-8.
            return self._encoder.encode(printable_tree(msgspec.to_builtins(record)))

    def sync(self) -> None:
        """Flush to the disk what was written since the last time. May block: call it from a thread."""
        if self._fd is None or not self._dirty:
            return
        self._dirty = False
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            # A pipe or a special file cannot be synced; a failing disk shows at the next write.
            self.problem = error.strerror or str(error)

    def close(self) -> None:
        """Sync and close; writing afterwards does nothing."""
        self.sync()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
