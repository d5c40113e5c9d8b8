"""Answers from a trace, in one pass and in memory that grows with the number of phases, not of samples.

Covers: the phases of each unit, worst first; how many ran at once by kind; how the trace ends.
Does *not* cover: verdicts (a later layer) and pictures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from builddoctor.trace.records import (
    AnyRecord,
    End,
    Header,
    PhaseAdmitted,
    PhaseCurve,
    PhaseFinished,
    PhaseQueued,
    Requeued,
    UnitBegan,
)


class PhaseRow(msgspec.Struct, kw_only=True):
    """One phase as it ended up."""

    phase_id: int
    kind: str
    arch: str
    reserve_mib: float
    peak_mib: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    waited_s: float = 0.0
    outcome: str = ""
    """empty when the trace ends before the phase does"""
    requeues: int = 0


class UnitRow(msgspec.Struct, kw_only=True):
    """One unit with its phases."""

    unit: str
    peak_mib: float = 0.0
    wall_s: float = 0.0
    phases: list[PhaseRow] = []


class Digest(msgspec.Struct, kw_only=True):
    """What a trace says."""

    header: Header
    units: list[UnitRow]
    most_at_once: dict[str, int]
    """admitted phases running at once, most, by kind"""
    last_at_s: float
    whole: bool
    """the trace has its summary: the supervisor ended in order"""
    exit_code: int | None


def digest(records: Iterable[AnyRecord]) -> Digest:
    """Read a trace once. The first record must be its header, as TraceReader guarantees."""
    header: Header | None = None
    phases: dict[int, PhaseRow] = {}
    units: dict[str, UnitRow] = {}
    unit_of: dict[int, str] = {}
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    last_at_s = 0.0
    end: End | None = None
    for record in records:
        last_at_s = max(last_at_s, record.at_s)
        if isinstance(record, Header):
            header = record
        elif isinstance(record, UnitBegan):
            if record.counted:
                units[record.unit_id] = UnitRow(unit=record.source)
        elif isinstance(record, PhaseQueued):
            row = PhaseRow(phase_id=record.phase_id, kind=record.kind, arch=record.arch, reserve_mib=record.reserve_mib)
            phases[record.phase_id] = row
            unit_of[record.phase_id] = record.unit_id
            if record.unit_id in units:
                units[record.unit_id].phases.append(row)
        elif isinstance(record, PhaseAdmitted):
            row = phases[record.phase_id]
            row.waited_s += record.waited_s
            running[row.kind] += 1
            most[row.kind] = max(most[row.kind], running[row.kind])
        elif isinstance(record, PhaseCurve):
            row = phases[record.phase_id]
            row.peak_mib = max(row.peak_mib, record.rss_mib)
        elif isinstance(record, PhaseFinished):
            row = phases[record.phase_id]
            running[row.kind] -= 1
            row.outcome = record.outcome
            row.peak_mib = max(row.peak_mib, record.peak_mib)
            row.wall_s += record.wall_s
            row.cpu_s += record.cpu_s
        elif isinstance(record, Requeued):
            phases[record.phase_id].requeues += 1
        elif isinstance(record, End):
            end = record
    assert header is not None, "a trace begins with its header"
    for unit in units.values():
        unit.peak_mib = max((row.peak_mib for row in unit.phases), default=0.0)
        unit.wall_s = sum(row.wall_s for row in unit.phases)
    return Digest(
        header=header,
        units=sorted(units.values(), key=lambda unit: -unit.peak_mib),
        most_at_once=dict(most),
        last_at_s=last_at_s,
        whole=end is not None,
        exit_code=None if end is None else end.summary.exit_code,
    )
