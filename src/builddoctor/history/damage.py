"""Damage to the history file: noticed, and the file moved aside, once however many builds find it.

Does *not* cover: a file that another program holds, or a newer version wrote: those are sound.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from builddoctor.history.schema import COLUMNS, VERSION, version_of
from builddoctor.units import MIB

_DAMAGED = ("not a database", "malformed", "corrupt", "disk image", "no such table", "no such column")


CHECKED_WHOLE_MIB = 2.0
"""A larger file is not read through when it is opened: 1.3 ms a MiB, and what it takes to get it from the disk."""

AGAIN_S = 0.02


@contextlib.contextmanager
def alone_with(path: Path, *, wait_s: float) -> Iterator[None]:
    """Hold the file against others that find the same damage; the kernel lets go when we end.

    By a lock file beside it, which stays. Raises OSError, also (EAGAIN) when another holds it for longer than
    ``wait_s``: it may be stopped, or its disk may hang.
    """
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until_s = time.monotonic() + wait_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until_s:
                    raise
                time.sleep(AGAIN_S)
        yield
    finally:
        os.close(descriptor)


def move_aside(path: Path) -> Path | None:
    """Rename a damaged file, and its journal, which belongs to it; None when it is sound by now. Raises OSError.

    Another process may have found the same damage first: then the file is a new one, and stays.
    """
    if _is_sound(path):
        return None
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    with contextlib.suppress(OSError):
        # First: once the file is gone, a journal of that name is the new file's.
        os.replace(f"{path}-journal", f"{aside}-journal")
    os.replace(path, aside)
    return aside


def _is_sound(path: Path) -> bool:
    """A whole history, or one that another process is about to begin."""
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)
        if version_of(connection) >= VERSION:
            check(connection, whole=True)
    except sqlite3.Error as error:
        return not is_damage(error)
    else:
        return True
    finally:
        if connection is not None:
            connection.close()


def check(connection: sqlite3.Connection, *, whole: bool = False) -> None:
    """Raise an error for a file that is torn, not ours, or of another version.

    A file that lost its end shows at the first question, whatever its size. A damaged page of a large one shows when
    it is read, unless the ``whole`` is read now.
    """
    version = version_of(connection)
    if version != VERSION:
        raise sqlite3.OperationalError(f"its schema has version {version}, this builddoctor's has {VERSION}")
    if whole or size_mib(connection) <= CHECKED_WHOLE_MIB:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found is None or found[0] != "ok":
            raise sqlite3.DatabaseError("database disk image is malformed")
    connection.execute("SELECT kind, arch, tool, builds, seen, updated_at FROM phases LIMIT 1").fetchone()
    connection.execute(f"SELECT id, {COLUMNS}, updated_at FROM units LIMIT 1").fetchone()  # noqa: S608


def size_mib(connection: sqlite3.Connection) -> float:
    """What the file holds, without pages that are free to be used again."""
    (pages,), (free,), (page_bytes,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
    )
    return float((pages - free) * page_bytes) / MIB


def is_damage(error: sqlite3.Error) -> bool:
    return any(word in str(error) for word in _DAMAGED)
