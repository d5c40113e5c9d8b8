"""Results of phases in a folder: found by key, written whole or not at all, checked on reading, bounded in size.

Covers: one file for each result, which any number of builds read and write at once, on a file system that they may
share. Does *not* cover: keys (``phase_store.likeness``), what is in a file (``phase_store.result``), or when a
result is looked for (``runtime.stored_phases``).

A file that was torn, altered or put in another's place is no result, and is removed. Who may write into the folder
decides what your objects contain; so one that anybody may write to is refused.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from pathlib import Path

from builddoctor.core.errors import FolderNotWritableError, UsageError
from builddoctor.phase_store.result import Result, packed, unpacked

DEFAULT_MIB = 10 * 1024.0
"""The size of a store where none is said: TransformerEngine's results for one architecture take some 200 MiB."""

LEFT_SHARE = 0.9
"""What is left of the bound when it was passed, so that not each build has to make room."""

_NEW = ".new"


class StoreFolder:
    """One store. Its methods may be called from several threads."""

    # A folder answers at once, and always.
    problem = ""
    unanswered = 0
    resting = False

    def __init__(self, folder: Path, *, most_mib: float) -> None:
        """Raises FolderNotWritableError where it cannot be made, UsageError where anybody may write to it."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            mode = folder.stat().st_mode
        except OSError as error:
            raise FolderNotWritableError(
                f"no store in {folder}: {error.strerror}", hint="name another folder with `--store`"
            ) from error
        if mode & stat.S_IWOTH:
            raise UsageError(
                f"anybody may write to the store {folder}, and with it into your objects",
                hint=f"`chmod o-w {folder}`, or name another folder with `--store`",
            )
        self._folder = folder
        self.most_mib = most_mib
        self.refused = 0
        """files that were no results"""

    def find(self, key: str) -> Result | None:
        """The result of that key; None where there is none. One that is no result is removed."""
        found = self._read(key)
        return None if found is None else found[1]

    def size_bytes(self, key: str) -> int:
        """Of its file; 0 where there is none."""
        try:
            return self._path(key).stat().st_size
        except OSError:
            return 0

    def body(self, key: str) -> bytes | None:
        """The same, as its file holds it."""
        found = self._read(key)
        return None if found is None else found[0]

    def _read(self, key: str) -> tuple[bytes, Result] | None:
        path = self._path(key)
        try:
            body = path.read_bytes()
        except OSError:
            return None
        result = unpacked(body, key)
        if result is None:
            self.refuse(key)
            return None
        with contextlib.suppress(OSError):
            # What is used is kept longest; a reader of a group need not be allowed to say so.
            os.utime(path)
        return body, result

    def refuse(self, key: str) -> None:
        """It is no result of that phase."""
        self.refused += 1
        with contextlib.suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def put(self, result: Result) -> None:
        """Keep it. Raises OSError where it cannot be written; then nothing appears."""
        self.put_body(result.key, packed(result))

    def put_body(self, key: str, body: bytes | bytearray) -> None:
        """The same, packed already."""
        path = self._path(key)
        path.parent.mkdir(exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.uname().nodename}.{os.getpid()}.{threading.get_ident()}{_NEW}")
        try:
            beside.write_bytes(body)
            os.replace(beside, path)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)

    def close(self) -> None:
        """The build is over."""
        self.make_room()

    def make_room(self) -> float:
        """Remove what was used longest ago, where the store is larger than it may be; gives what is left, in MiB."""
        found: list[tuple[float, int, str]] = []
        for folder in self._folder.glob("[0-9a-f][0-9a-f]"):
            with contextlib.suppress(OSError), os.scandir(folder) as files:
                found += [(file.stat().st_mtime, file.stat().st_size, file.path) for file in files]
        held = sum(size for _, size, _ in found)
        if held > self.most_mib * 2**20:
            for _, size, path in sorted(found):
                if held <= self.most_mib * 2**20 * LEFT_SHARE:
                    break
                with contextlib.suppress(OSError):
                    os.unlink(path)
                    held -= size
        return held / 2**20

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / key[2:]
