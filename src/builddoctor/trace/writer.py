"""Append events to a trace file.

An event is in the file, opened with O_APPEND, when ``write`` returns: it survives the death of this process. ``sync``
(to be called at least every two seconds and at pressure edges) makes it survive the machine's.
A full disk never stops a build: events are dropped, counted, and writing goes on when there is room again. A line that
was torn by it is closed first, so that later events stay readable.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

import msgspec

from builddoctor.core.errors import FolderNotWritableError
from builddoctor.core.events import Event
from builddoctor.core.units import printable_tree


class TraceWriter:
    """One trace file. ``path`` is created; its folder must exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dropped = 0
        """events that could not be written"""
        self.problem = ""
        """why the last event could not be written; empty when all is well"""
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
            # `watch` sees by it that the trace is still written.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, *events: Event) -> None:
        """Append events, all in one go; never raises for a full or failing disk."""
        if self._fd is None or not events:
            return
        lines = b"".join(self._encode(event) + b"\n" for event in events)
        if self._torn:
            lines = b"\n" + lines
        try:
            written = os.write(self._fd, lines)
        except OSError as error:
            self.dropped += len(events)
            self.problem = error.strerror or str(error)
            return
        self._dirty = True
        self._torn = written < len(lines)
        if self._torn:
            self.dropped += lines[written:].count(b"\n")
            self.problem = "No space left on device"
        else:
            self.problem = ""

    def _encode(self, event: Event) -> bytes:
        try:
            return self._encoder.encode(event)
        except UnicodeEncodeError:
            # Somewhere in it is a file name that is no UTF-8.
            return self._encoder.encode(printable_tree(msgspec.to_builtins(event)))

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
