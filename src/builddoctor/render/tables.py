"""Plain tables of traces and units. Pure: data in, lines out."""

from __future__ import annotations

from collections.abc import Sequence

from builddoctor.trace.analysis import Digest
from builddoctor.trace.peek import Peek
from builddoctor.units import format_clock, format_mib, one_line

NAME_CELLS = 48


def trace_rows(traces: Sequence[Peek]) -> list[str]:
    """One line a trace: id, when, how it ended, what was run."""
    if not traces:
        return ["no traces yet"]
    rows = [f"{'id':<8}{'started':<27}{'took':>8}  {'ended':<12}command"]
    for trace in traces:
        header = trace.header
        ended = "cut off" if trace.exit_code is None else f"exit {trace.exit_code}"
        rows.append(
            one_line(
                f"{header.trace_id:<8}{header.started_at:<27}{format_clock(trace.last_at_s):>8}  {ended:<12}"
                f"{header.title or ' '.join(header.command)}"
            )
        )
    return rows


def unit_rows(trace: Digest) -> list[str]:
    """One line a unit, worst first: peak, time, and the phase that has the peak."""
    rows = [f"{'peak':>9}{'time':>8}  {'unit':<{NAME_CELLS}}  worst phase"]
    for unit in trace.units:
        worst = max(unit.phases, key=lambda phase: phase.peak_mib, default=None)
        name = unit.unit if len(unit.unit) <= NAME_CELLS else "…" + unit.unit[-NAME_CELLS + 1 :]
        what = f"{worst.kind} {worst.arch}".strip() if worst is not None else ""
        rows.append(
            one_line(f"{format_mib(unit.peak_mib):>9}{format_clock(unit.wall_s):>8}  {name:<{NAME_CELLS}}  {what}")
        )
    return rows
