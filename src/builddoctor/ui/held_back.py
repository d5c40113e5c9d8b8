"""What holds a build back, in a sentence: cores, memory, or one unit; and what twice of it would bring.

Covers: a build that ran, and one that is planned. Does *not* cover: the figures (``trace.held_back``, ``plans``).
"""

from __future__ import annotations

from builddoctor.core.events import BuildResult
from builddoctor.core.plan import Plan
from builddoctor.core.units import format_clock, one_line
from builddoctor.trace.held_back import held_back
from builddoctor.trace.report import TraceReport
from builddoctor.ui.layout import below, plural

LEAST_SHARE = 0.05
"""of a build's time: less is not worth a word"""

ALONE_SHARE = 0.8
"""A unit that takes so much of a build's time is what it waits for."""


def held_back_words(report: TraceReport) -> str:
    """Of a build that ended well: what its time went for, and what would shorten it; empty for others."""
    held, summary = held_back(report), report.summary
    if held is None or summary is None or summary.result is not BuildResult.OK:
        return ""
    wall_s = summary.wall_s
    took = [f"{plural(report.header.cores, 'core')} busy for {format_clock(held.cores_s)} of {format_clock(wall_s)}"]
    if held.memory_s >= LEAST_SHARE * wall_s:
        took.append(f"some idle for want of memory for {format_clock(held.memory_s)}")
    if held.neither_s >= LEAST_SHARE * wall_s:
        took.append(f"some with nothing to do for {format_clock(held.neither_s)}")
    unit = below(held.longest_unit, report.header.cwd)
    if held.longest_unit_s >= ALONE_SHARE * wall_s:
        buys = _alone(unit, held.longest_unit_s)
    else:
        buys = f"with twice the cores {format_clock(held.twice_the_cores_s)} at best"
        if held.memory_s >= LEAST_SHARE * wall_s:
            buys += f", with twice the memory {format_clock(held.twice_the_memory_s)}"
        if unit:
            buys += f" · longest unit {format_clock(held.longest_unit_s)}, {unit}"
    return one_line(f"{', '.join(took)} · {buys}")


def plan_held_back_words(plan: Plan) -> str:
    """Of a build that was planned; empty where twice the cores and memory were not."""
    if plan.longest_unit and plan.longest_unit_s >= ALONE_SHARE * plan.makespan_s:
        return one_line(f"one unit holds it back: {_alone(plan.longest_unit, plan.longest_unit_s)}")
    more_memory_s = _planned_s(plan, cores=plan.cores, memory_mib=2 * plan.memory_mib)
    more_cores_s = _planned_s(plan, cores=2 * plan.cores, memory_mib=plan.memory_mib)
    if more_memory_s is None or more_cores_s is None:
        return ""
    least_s = min(more_memory_s, more_cores_s)
    what = "memory holds" if more_memory_s <= more_cores_s else "the number of cores holds"
    lead = f"{what} it back: " if least_s < (1 - LEAST_SHARE) * plan.makespan_s else ""
    return (
        f"{lead}with twice the memory {format_clock(more_memory_s)}, with twice the cores {format_clock(more_cores_s)}"
    )


def _alone(unit: str, time_s: float) -> str:
    return f"{unit} alone takes {format_clock(time_s)}: more cores or memory buy little"


def _planned_s(plan: Plan, *, cores: int, memory_mib: float) -> float | None:
    return next(
        (
            each.makespan_s
            for each in plan.alternatives
            if each.cores == cores and abs(each.memory_mib - memory_mib) < 1.0
        ),
        None,
    )
