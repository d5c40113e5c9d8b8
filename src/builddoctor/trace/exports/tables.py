"""A trace as tables: runs of phases, units, memory of phases over time, and the whole picture each second.

Covers: columns with their types, rows one after the other, and the same tables as CSV (RFC 4180, a heading, UTF-8), as
Parquet (needs pyarrow, which comes with ``builddoctor[parquet]``) and as one SQLite file. Does *not* cover: where the
files go. Columns may be added; none changes its meaning. Texts have their control characters as escapes.
"""

from __future__ import annotations

import csv
import importlib
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TextIO

import msgspec

from builddoctor.core.errors import ExtraMissingError
from builddoctor.core.events import BuildEnded, Header, MemorySampled, Status
from builddoctor.core.units import escaped, printable
from builddoctor.trace.analysis import read_build
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.report import Attempt, PhaseRow

Type = Literal["text", "real", "integer"]
Value = str | float | int | None
Row = tuple[Value, ...]

ROWS_AT_ONCE = 50_000
"""of a Parquet file"""

INDEXES = (("phases", "unit_id"), ("phases", "peak_mib"), ("samples", "phase_id"))
"""of the database: table and column"""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table. ``rows`` reads the trace anew; it raises TraceError when that is none."""

    name: str
    columns: tuple[tuple[str, Type], ...]
    rows: Callable[[Path], Iterator[Row]]


def _phases(path: Path) -> Iterator[Row]:
    report = read_build(path)
    named = {phase.phase_id: unit.unit for unit in report.units for phase in unit.phases}
    phases = [phase for unit in report.units for phase in unit.phases] + report.other_phases
    for phase in sorted(phases, key=lambda phase: phase.phase_id):
        for number, attempt in enumerate(phase.attempts or [None], 1):
            yield _phase_row(phase, named.get(phase.phase_id, ""), attempt, number)


def _phase_row(phase: PhaseRow, unit: str, run: Attempt | None, number: int) -> Row:
    return (
        phase.phase_id,
        number if run is not None else 0,
        _text(phase.unit_id),
        _text(unit),
        _text(phase.source),
        _text(phase.kind),
        _text(phase.tool),
        _text(phase.arch),
        phase.input_mib,
        phase.asked_at_s,
        run.admitted_at_s if run is not None else None,
        run.ended_at_s if run is not None else None,
        phase.waited_s,
        run.wall_s if run is not None else None,
        run.cpu_s if run is not None else None,
        phase.estimate_mib,
        _text(phase.estimate_source),
        run.reserve_mib if run is not None else phase.reserve_mib,
        run.peak_mib if run is not None else None,
        _text(run.outcome) if run is not None else "",
        run.exit_code if run is not None else None,
        run.signal if run is not None else None,
        _text(run.cause) if run is not None else "",
        _text(run.killed_for) if run is not None else "",
    )


def _units(path: Path) -> Iterator[Row]:
    for unit in sorted(read_build(path).units, key=lambda unit: (unit.began_at_s, unit.unit_id)):
        worst = unit.worst
        yield (
            _text(unit.unit_id),
            _text(unit.unit),
            _text(unit.output),
            _text(" ".join(unit.archs)),
            unit.threads,
            unit.began_at_s,
            unit.ended_at_s,
            unit.wall_s,
            unit.waited_s,
            unit.peak_mib,
            _text(worst.kind) if worst is not None else "",
            _text(worst.arch) if worst is not None else "",
            unit.estimate_mib,
            unit.requeues,
            len(unit.phases),
        )


def _samples(path: Path) -> Iterator[Row]:
    for event in TraceReader(path):
        if type(event) is MemorySampled:
            for phase_id, rss_mib in event.rss_mib:
                yield event.at_s, phase_id, rss_mib


def _ticks(path: Path) -> Iterator[Row]:
    for event in TraceReader(path, curves=False):
        if type(event) is Status:
            yield (
                event.at_s,
                event.ours_mib,
                event.budget_mib,
                event.limit_mib,
                event.headroom_mib,
                event.running,
                event.waiting,
                event.open_units,
                event.oom_kills,
                event.planned,
            )


def _text(text: str) -> str:
    return escaped(printable(text))


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            name="phases",
            columns=(
                ("phase_id", "integer"),
                ("attempt", "integer"),
                ("unit_id", "text"),
                ("unit", "text"),
                ("source", "text"),
                ("kind", "text"),
                ("tool", "text"),
                ("arch", "text"),
                ("input_mib", "real"),
                ("asked_at_s", "real"),
                ("admitted_at_s", "real"),
                ("ended_at_s", "real"),
                ("waited_s", "real"),
                ("wall_s", "real"),
                ("cpu_s", "real"),
                ("estimate_mib", "real"),
                ("estimate_source", "text"),
                ("reserve_mib", "real"),
                ("peak_mib", "real"),
                ("outcome", "text"),
                ("exit_code", "integer"),
                ("signal", "integer"),
                ("cause", "text"),
                ("killed_for", "text"),
            ),
            rows=_phases,
        ),
        Table(
            name="units",
            columns=(
                ("unit_id", "text"),
                ("unit", "text"),
                ("output", "text"),
                ("archs", "text"),
                ("threads", "integer"),
                ("began_at_s", "real"),
                ("ended_at_s", "real"),
                ("wall_s", "real"),
                ("waited_s", "real"),
                ("peak_mib", "real"),
                ("worst_kind", "text"),
                ("worst_arch", "text"),
                ("estimate_mib", "real"),
                ("requeues", "integer"),
                ("phases", "integer"),
            ),
            rows=_units,
        ),
        Table(
            name="samples",
            columns=(("at_s", "real"), ("phase_id", "integer"), ("rss_mib", "real")),
            rows=_samples,
        ),
        Table(
            name="ticks",
            columns=(
                ("at_s", "real"),
                ("ours_mib", "real"),
                ("budget_mib", "real"),
                ("limit_mib", "real"),
                ("headroom_mib", "real"),
                ("running", "integer"),
                ("waiting", "integer"),
                ("open_units", "integer"),
                ("kernel_kills", "integer"),
                ("planned", "integer"),
            ),
            rows=_ticks,
        ),
    )
}
"""By name."""


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


def write_parquet(path: Path, table: Table, target: Path) -> int:
    """Write the table of the trace at ``path``; gives the number of rows. Raises ExtraMissingError without pyarrow."""
    arrow, parquet = _pyarrow()
    kinds = {"text": arrow.string(), "real": arrow.float64(), "integer": arrow.int64()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in table.columns])
    rows = table.rows(path)
    count = 0
    with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        while batch := list(itertools.islice(rows, ROWS_AT_ONCE)):
            columns = [
                arrow.array(values, type=field.type)
                for values, field in zip(zip(*batch, strict=True), schema, strict=True)
            ]
            writer.write_batch(arrow.record_batch(columns, schema=schema))
            count += len(batch)
    return count


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ExtraMissingError(
            f"Parquet needs pyarrow, which cannot be loaded: {error}",
            hint="`python -m pip install pyarrow`, or `--to csv`, `--to sqlite`, which need nothing",
        ) from error


def write_sqlite(path: Path, target: Path) -> int:
    """Write all tables of the trace at ``path`` into the new file ``target``; gives the number of rows.

    A table ``build`` says what was built, as names and values.
    Raises TraceError when it is no trace, sqlite3.Error when the file cannot be written.
    """
    count = 0
    connection = sqlite3.connect(target)
    try:
        # A new file that is not read yet: what a crash leaves of it is thrown away anyway.
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
    for event in TraceReader(path, curves=False):
        if not isinstance(event, Header | BuildEnded):
            continue
        prefix, struct = ("", event) if isinstance(event, Header) else ("summary_", event.summary)
        for name, value in msgspec.structs.asdict(struct).items():
            if isinstance(value, msgspec.Struct):
                yield prefix + name, msgspec.json.encode(value).decode()
            elif isinstance(value, list):
                yield prefix + name, printable(msgspec.json.encode([printable(each) for each in value]).decode())
            else:
                yield prefix + name, printable(value) if isinstance(value, str) else value
