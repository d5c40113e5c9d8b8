"""What the history knows, as plain tables. Pure: data in, lines out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from builddoctor.model.past import PastPhase, PastUnit
from builddoctor.units import format_clock, format_mib, one_line

NAME_CELLS = 48


def project_rows(projects: Sequence[tuple[str, int, float]]) -> list[str]:
    """One line a project: units, when last built, name. ``projects``: name, units, seconds since 1970."""
    if not projects:
        return ["no history yet"]
    rows = [f"{'units':>7}  {'last built':<18}project"]
    return rows + [f"{units:>7}  {_day(updated_at):<18}{one_line(name)}" for name, units, updated_at in projects]


def past_rows(units: Sequence[PastUnit]) -> list[str]:
    """One line a unit, the largest first: its largest phase, its time, builds, place and how it was built."""
    if not units:
        return ["nothing of that project"]
    rows = [f"{'peak':>9}{'time':>8}{'builds':>8}  {'unit':<{NAME_CELLS}}  largest phase"]
    for unit in sorted(units, key=_peak_mib, reverse=True):
        worst = max(unit.phases, key=_phase_peak_mib, default=None)
        place = one_line(unit.key.place)
        name = place if len(place) <= NAME_CELLS else "…" + place[-NAME_CELLS + 1 :]
        what = one_line(f"{worst.kind.value} {worst.arch}").strip() if worst is not None else ""
        builds = max((each.builds for each in unit.phases), default=0)
        rows.append(
            f"{format_mib(_peak_mib(unit)):>9}{format_clock(_wall_s(unit)):>8}{builds:>8}  {name:<{NAME_CELLS}}  {what}"
        )
    return rows


def _day(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "?"


def _peak_mib(unit: PastUnit) -> float:
    return max(map(_phase_peak_mib, unit.phases), default=0.0)


def _phase_peak_mib(phase: PastPhase) -> float:
    return max((seen.peak_mib for seen in phase.seen), default=0.0)


def _wall_s(unit: PastUnit) -> float:
    """Of one build: figures kept of a phase, shared among the builds that they come from."""
    return sum(sum(seen.wall_s for seen in phase.seen) / max(1, min(phase.builds, 8)) for phase in unit.phases)
