"""What a build says in single lines: progress and events without a terminal, waits and time left in words. Pure."""

from __future__ import annotations

import math

from builddoctor.model.board import BoardState, EventRow, TimeLeft, WaitingRow
from builddoctor.units import format_clock, format_gib, format_mib, one_line

_REASONS = {
    "cores": ("for a core", ""),
    "others": ("behind others", ""),
    "it must run alone": ("to run alone", ", once the others have ended"),
    "another runs alone": ("for the one that runs alone", ""),
    "a kill is under way": ("for the memory of what was just ended", ""),
}
"""The governor's word for what keeps a phase, and ours: before its name, and after."""


def progress_line(state: BoardState) -> str:
    """``[12:41] 41/66 units, 7 running, 19.2 of 26.5 GiB budget, 6 to 8 min left``."""
    units = f"{state.units_done}/{state.units_total}" if state.units_total else str(state.units_done)
    waiting = f", {state.waiting} waiting" if state.waiting else ""
    left = left_words(state.left)
    return (
        f"[{format_clock(state.elapsed_s)}] {units} units, {state.jobs} running{waiting}, "
        f"{format_gib(state.used_mib)} of {format_gib(state.budget_mib)} GiB budget{', ' + left if left else ''}"
    )


def event_line(event: EventRow) -> str:
    """``[12:42] redoes cicc of …``."""
    return f"[{format_clock(event.at_s)}] {one_line(event.text)}"


def wait_line(at_s: float, row: WaitingRow) -> str:
    """``[12:42] waits for 3.6 GiB: src/gelu.cu cicc, 2.1 GiB free``."""
    before, after = wait_words(row)
    return f"[{format_clock(at_s)}] waits {before}: {one_line(row.source)} {row.kind}{after}"


def wait_words(row: WaitingRow, *, brief: bool = False) -> tuple[str, str]:
    """Why a phase waits, before its name and after it: ``for 3.6 GiB``, ``, 2.1 GiB free``."""
    if row.reason != "memory":
        return _REASONS.get(row.reason, (f"({one_line(row.reason)})", ""))
    soon = not brief and row.release_s is not None and row.release_s >= 1
    release = f", next release in about {format_clock(row.release_s or 0.0)}" if soon else ""
    return f"for {format_mib(row.needs_mib)}", f", {format_mib(row.free_mib)} free{release}"


def left_words(left: TimeLeft | None) -> str:
    """``6 to 8 min left``; empty while nobody knows. Never finer than is known."""
    if left is None or not (math.isfinite(left.low_s) and math.isfinite(left.high_s)):
        return ""
    if left.high_s <= 60:
        return "less than a minute left"
    if left.high_s >= 2 * 3600:
        return f"{_range(left.low_s / 3600, left.high_s / 3600, step=0.5)} h left"
    if left.low_s < 60:
        return f"less than {math.ceil(left.high_s / 60)} min left"
    return f"{_range(left.low_s / 60, left.high_s / 60, step=1)} min left"


def _range(low: float, high: float, *, step: float) -> str:
    """Outward to whole steps; coarser where the figures are large."""
    if high >= 20 * step:
        step *= 5
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    if low <= 0:
        return f"less than {high:g}"
    return f"about {high:g}" if low >= high else f"{low:g} to {high:g}"
