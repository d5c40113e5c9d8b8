"""What held a build back: its cores, its memory, or that there was too little to do at once.

Covers: the time of each, from when phases asked, ran and ended; what twice the cores or the memory could bring at best.
Does *not* cover: what they would bring (``simulate.what_if`` runs the build again).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from builddoctor.trace.report import PhaseRow, TraceReport, UnitRow


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one build. The first three add up to its time."""

    cores_s: float
    """as many phases ran as there are cores, or more"""
    memory_s: float
    """fewer ran, and some waited: for memory, or to run alone"""
    neither_s: float
    """fewer ran, and none waited: the build tool had no more to start, or was busy itself"""
    longest_unit: str
    longest_unit_s: float
    """its phases, of whichever one ran"""
    twice_the_cores_s: float
    """no build of this work takes less on so many: half the work on each, or the longest unit"""
    twice_the_memory_s: float
    """no build of this work takes less with so much: all cores busy, or the longest unit"""


def held_back(report: TraceReport) -> HeldBack | None:
    """None for a build of which nothing ran, or whose end is not known."""
    summary, cores = report.summary, max(1, report.header.cores)
    phases = report.phases
    if summary is None or not phases:
        return None
    runs = [span for phase in phases for span in _runs(phase)]
    waits = [span for phase in phases for span in _waits(phase)]
    full_s, short_s = _shares(runs, waits, cores)
    longest = max(report.units, key=_busy_s, default=None)
    longest_s = _busy_s(longest) if longest is not None else 0.0
    work_s = sum(map(_work_s, phases))
    return HeldBack(
        cores_s=round(full_s, 1),
        memory_s=round(short_s, 1),
        neither_s=round(max(0.0, summary.wall_s - full_s - short_s), 1),
        longest_unit=longest.unit if longest is not None else "",
        longest_unit_s=round(longest_s, 1),
        twice_the_cores_s=round(max(work_s / (2 * cores), longest_s), 1),
        twice_the_memory_s=round(max(work_s / cores, longest_s), 1),
    )


_Span = tuple[float, float]


def _runs(phase: PhaseRow) -> Iterable[_Span]:
    return [(run.admitted_at_s, run.ended_at_s) for run in phase.attempts if run.ended_at_s is not None]


def _waits(phase: PhaseRow) -> Iterable[_Span]:
    """From asking, or from the end of the run before, to being admitted."""
    since_s = phase.asked_at_s
    for run in phase.attempts:
        yield since_s, run.admitted_at_s
        since_s = run.ended_at_s if run.ended_at_s is not None else run.admitted_at_s


def _shares(runs: Iterable[_Span], waits: Iterable[_Span], cores: int) -> tuple[float, float]:
    """Seconds in which all cores had a phase; in which not, while one waited."""
    changes = sorted(
        change
        for spans, ran in ((runs, 1), (waits, 0))
        for since_s, until_s in spans
        if until_s > since_s
        for change in ((since_s, 1, ran), (until_s, -1, ran))
    )
    full_s = short_s = before_s = 0.0
    counts = [0, 0]
    for at_s, change, ran in changes:
        if counts[1] >= cores:
            full_s += at_s - before_s
        elif counts[0]:
            short_s += at_s - before_s
        counts[ran] += change
        before_s = at_s
    return full_s, short_s


def _busy_s(unit: UnitRow) -> float:
    """Time in which one of its phases did the work that counts; never more than that work on cores of its own."""
    busy_s = end_s = 0.0
    for since_s, until_s in sorted(span for phase in unit.phases for span in list(_runs(phase))[-1:]):
        busy_s += max(0.0, until_s - max(since_s, end_s))
        end_s = max(end_s, until_s)
    return min(busy_s, sum(map(_work_s, unit.phases)))


def _work_s(phase: PhaseRow) -> float:
    """Of its last run: processor time, where it was seen."""
    if not phase.attempts:
        return 0.0
    return phase.attempts[-1].cpu_s or phase.attempts[-1].wall_s
