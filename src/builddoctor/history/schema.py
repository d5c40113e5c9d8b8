"""Tables of the history file, and the steps from one version of them to the next.

``PRAGMA user_version`` counts the steps that a file has seen. A step is never changed once it has shipped; a new one is
added at the end. Does *not* cover: opening the file (``history.store``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

STEPS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE units (
            id INTEGER PRIMARY KEY,
            project TEXT NOT NULL,
            place TEXT NOT NULL,
            output TEXT NOT NULL,
            options TEXT NOT NULL,
            nvcc TEXT NOT NULL,
            host_compiler TEXT NOT NULL,
            host_arch TEXT NOT NULL,
            archs TEXT NOT NULL,
            updated_at REAL NOT NULL,
            UNIQUE (project, place, output, options, nvcc, host_compiler, host_arch, archs)
        )
        """,
        """
        CREATE TABLE phases (
            unit INTEGER NOT NULL REFERENCES units (id) ON DELETE CASCADE,
            kind TEXT NOT NULL,
            arch TEXT NOT NULL,
            tool TEXT NOT NULL,
            builds INTEGER NOT NULL,
            seen TEXT NOT NULL,
            updated_at REAL NOT NULL,
            PRIMARY KEY (unit, kind, arch, tool)
        ) WITHOUT ROWID
        """,
    ),
    ("CREATE INDEX units_by_age ON units (updated_at)",),
)

VERSION = len(STEPS)

COLUMNS = "project, place, output, options, nvcc, host_compiler, host_arch, archs"
"""What names a unit."""

EXACTLY = " AND ".join(f"{column.strip()} = ?" for column in COLUMNS.split(","))


def version_of(connection: sqlite3.Connection) -> int:
    """Steps that this file has seen; 0 for a new one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def bring_up_to_date(connection: sqlite3.Connection, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Take the steps that are missing, all or none. Of two processes that try, the second finds nothing to do."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statements in steps[version_of(connection) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {max(len(steps), version_of(connection))}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
