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


class _Reading:
    """What has been read of a trace so far."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.end: End | None = None
        self.phases: dict[int, PhaseRow] = {}
        self.units: dict[str, UnitRow] = {}
        self.admitted: set[int] = set()
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def take(self, record: AnyRecord) -> None:
        if isinstance(record, Header):
            self.header = record
        elif isinstance(record, UnitBegan):
            if record.counted:
                self.units[record.unit_id] = UnitRow(unit=record.source)
        elif isinstance(record, PhaseQueued):
            row = PhaseRow(phase_id=record.phase_id, kind=record.kind, arch=record.arch, reserve_mib=record.reserve_mib)
            self.phases[record.phase_id] = row
            if record.unit_id in self.units:
                self.units[record.unit_id].phases.append(row)
        elif isinstance(record, End):
            self.end = record
        elif isinstance(record, PhaseAdmitted | PhaseCurve | PhaseFinished | Requeued) and (
            known := self.phases.get(record.phase_id)
        ):
            self._take_of(known, record)

    def _take_of(self, row: PhaseRow, record: PhaseAdmitted | PhaseCurve | PhaseFinished | Requeued) -> None:
        if isinstance(record, PhaseAdmitted):
            row.waited_s += record.waited_s
            if record.phase_id not in self.admitted:
                self.admitted.add(record.phase_id)
                self.running[row.kind] += 1
            self.most[row.kind] = max(self.most[row.kind], self.running[row.kind])
        elif isinstance(record, PhaseCurve):
            row.peak_mib = max(row.peak_mib, record.rss_mib)
        elif isinstance(record, Requeued):
            row.requeues += 1
        else:
            if record.phase_id in self.admitted:
                self.admitted.discard(record.phase_id)
                self.running[row.kind] -= 1
            row.outcome = record.outcome
            row.peak_mib = max(row.peak_mib, record.peak_mib)
            row.wall_s += record.wall_s
            row.cpu_s += record.cpu_s


def digest(records: Iterable[AnyRecord]) -> Digest:
    """Read a trace once. The first record must be its header, as TraceReader guarantees."""
    reading = _Reading()
    last_at_s = 0.0
    for record in records:
        last_at_s = max(last_at_s, record.at_s)
        reading.take(record)
    assert reading.header is not None, "a trace begins with its header"
    units = list(reading.units.values())
    for unit in units:
        unit.peak_mib = max((row.peak_mib for row in unit.phases), default=0.0)
        unit.wall_s = sum(row.wall_s for row in unit.phases)
    return Digest(
        header=reading.header,
        units=sorted(units, key=lambda unit: -unit.peak_mib),
        most_at_once=dict(reading.most),
        last_at_s=last_at_s,
        whole=reading.end is not None,
        exit_code=None if reading.end is None else reading.end.summary.exit_code,
    )
