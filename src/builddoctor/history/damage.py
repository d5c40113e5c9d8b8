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

_DAMAGED = ("not a database", "malformed", "corrupt", "disk image", "no such table", "no such column")


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder against others that find the same damage; the kernel lets go when we end. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
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
    os.replace(path, aside)
    with contextlib.suppress(OSError):
        os.replace(f"{path}-journal", f"{aside}-journal")
    return aside


def _is_sound(path: Path) -> bool:
    """A whole history, or one that another process is about to begin."""
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)
        if version_of(connection) >= VERSION:
            check(connection)
    except sqlite3.Error as error:
        return not is_damage(error)
    else:
        return True
    finally:
        if connection is not None:
            connection.close()


def check(connection: sqlite3.Connection) -> None:
    """Raise an error for a file that is torn, not ours, or of another version. Reads all of it: 5 ms a MiB."""
    version = version_of(connection)
    if version != VERSION:
        raise sqlite3.OperationalError(f"its schema has version {version}, this builddoctor's has {VERSION}")
    found = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found is None or found[0] != "ok":
        raise sqlite3.DatabaseError("database disk image is malformed")
    connection.execute("SELECT kind, arch, tool, builds, seen, updated_at FROM phases LIMIT 1").fetchone()
    connection.execute(f"SELECT id, {COLUMNS}, updated_at FROM units LIMIT 1").fetchone()  # noqa: S608


def is_damage(error: sqlite3.Error) -> bool:
    return any(word in str(error) for word in _DAMAGED)
