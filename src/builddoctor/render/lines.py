"""What a build says without a terminal: a line every few seconds, and every event. Pure."""

from __future__ import annotations

from builddoctor.model.board import BoardState, EventRow
from builddoctor.units import format_clock, format_gib, one_line


def progress_line(state: BoardState) -> str:
    """``[12:41] 41/66 units, 7 running, 19.2 of 26.5 GiB budget``."""
    units = f"{state.units_done}/{state.units_total}" if state.units_total else str(state.units_done)
    waiting = f", {state.waiting} waiting" if state.waiting else ""
    return (
        f"[{format_clock(state.elapsed_s)}] {units} units, {state.jobs} running{waiting}, "
        f"{format_gib(state.used_mib)} of {format_gib(state.budget_mib)} GiB budget"
    )


def event_line(event: EventRow) -> str:
    """``[12:42] redoes cicc of …``."""
    return f"[{format_clock(event.at_s)}] {one_line(event.text)}"
