"""One table of a trace as CSV (RFC 4180, a heading, UTF-8)."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TextIO

from builddoctor.trace.exports.tables import Table, Value


def write_csv(path: Path, table: Table, out: TextIO) -> int:
    """Write the table of the trace at ``path``; gives the number of rows."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(name for name, _ in table.columns)
    count = 0
    for row in table.rows(path):
        writer.writerow(tuple(map(_cell, row)))
        count += 1
    return count


def _cell(value: Value) -> Value:
    """A file's name that a spreadsheet would take for a formula is marked as text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value
