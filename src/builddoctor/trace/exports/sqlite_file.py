"""All tables of a trace in one SQLite file, with what was built in a table ``build`` of names and values."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from builddoctor.trace.exports.tables import TABLES
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.records import End, Header
from builddoctor.units import printable

INDEXES = (("phases", "unit_id"), ("phases", "peak_mib"), ("samples", "phase_id"))


def write_sqlite(path: Path, target: Path) -> int:
    """Write the trace at ``path`` into the new file ``target``; gives the number of rows.

    Raises TraceError when it is no trace, sqlite3.Error when the file cannot be written.
    """
    count = 0
    connection = sqlite3.connect(target)
    try:
        # A new file that nobody reads yet: what a crash leaves of it is thrown away anyway.
        connection.execute("pragma journal_mode = off")
        connection.execute("pragma synchronous = off")
        for table in TABLES.values():
            columns = ", ".join(f"{name} {kind}" for name, kind in table.columns)
            connection.execute(f"create table {table.name} ({columns})")
            marks = ", ".join("?" * len(table.columns))
            done = connection.executemany(f"insert into {table.name} values ({marks})", table.rows(path))  # noqa: S608
            count += done.rowcount
        connection.execute("create table build (name text primary key, value)")
        connection.executemany("insert or replace into build values (?, ?)", _facts(path))
        for table_name, column in INDEXES:
            connection.execute(f"create index {table_name}_{column} on {table_name} ({column})")
        connection.commit()
    finally:
        connection.close()
    return count


def _facts(path: Path) -> Iterator[tuple[str, object]]:
    """Header and summary; lists as JSON."""
    for record in TraceReader(path, curves=False):
        if not isinstance(record, Header | End):
            continue
        prefix, struct = ("", record) if isinstance(record, Header) else ("summary_", record.summary)
        for name, value in msgspec.structs.asdict(struct).items():
            if isinstance(value, list):
                yield prefix + name, printable(msgspec.json.encode([printable(each) for each in value]).decode())
            else:
                yield prefix + name, printable(value) if isinstance(value, str) else value
