"""A trace as tables: runs of phases, units, memory of phases over time, and the whole picture each second.

Covers: columns with their types, rows one after the other. Does *not* cover: files (``csv_file``, ``sqlite_file``,
``parquet_file``). Columns may be added; none changes its meaning. Texts have their control characters as escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from builddoctor.trace.analysis import read_build
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.records import PhaseCurve, TickRecord
from builddoctor.trace.report import Attempt, PhaseRow
from builddoctor.units import escaped, printable

Type = Literal["text", "real", "integer"]
Value = str | float | int | None
Row = tuple[Value, ...]


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
    for record in TraceReader(path):
        if type(record) is PhaseCurve:
            yield record.at_s, record.phase_id, record.rss_mib


def _ticks(path: Path) -> Iterator[Row]:
    for record in TraceReader(path, curves=False):
        if type(record) is TickRecord:
            yield (
                record.at_s,
                record.ours_mib,
                record.budget_mib,
                record.limit_mib,
                record.headroom_mib,
                record.running,
                record.waiting,
                record.open_units,
                record.oom_kills,
                record.planned,
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
