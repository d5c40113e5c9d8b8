"""The live board: one picture of a running build, as text with styles. Pure.

Rules: one glance answers *is it all right, how long, who holds the memory*; every wait has its reason in
words; nothing blinks; colour adds, never carries meaning alone.
"""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from builddoctor.model.board import BoardState, RunningRow
from builddoctor.units import format_clock, format_gib, format_mib, one_line

MOST_RUNNING_ROWS = 6
MOST_EVENT_ROWS = 3
BAR_CELLS = 38
LABEL_CELLS = 10


def board(state: BoardState, width: int) -> Group:
    """The whole board for a terminal of ``width`` columns: one row a line, whatever the names hold."""
    lines = [_head(state, width), _units(state), _memory(state), _jobs(state), Text("")]
    rows = sorted(state.running, key=lambda row: -row.rss_mib)
    lines += [_running(row, width) for row in rows[:MOST_RUNNING_ROWS]]
    if len(rows) > MOST_RUNNING_ROWS:
        rest = rows[MOST_RUNNING_ROWS:]
        lines.append(Text(f"  …{len(rest)} more, {format_mib(sum(row.rss_mib for row in rest))}", style="dim"))
    lines.append(_waiting(state))
    for event in state.events[-MOST_EVENT_ROWS:]:
        text = f"{format_clock(event.at_s):<{LABEL_CELLS}}{one_line(event.text)}"
        lines.append(Text(text, style="yellow" if event.warning else ""))
    for line in lines:
        line.truncate(max(1, width - 1), overflow="ellipsis")
        line.no_wrap = True
    return Group(*lines)


def _head(state: BoardState, width: int) -> Text:
    clock = f"{format_clock(state.elapsed_s)} elapsed"
    text = Text(f"builddoctor  {one_line(state.title)}", style="bold")
    text.truncate(max(1, width - len(clock) - 3), overflow="ellipsis", pad=True)
    return text.append(f" {clock}", style="not bold")


def _units(state: BoardState) -> Text:
    text = Text("units".ljust(LABEL_CELLS))
    if state.units_total:
        filled = round(BAR_CELLS * min(1.0, state.units_done / state.units_total))
        text.append("█" * filled, style="green")
        text.append("░" * (BAR_CELLS - filled) + "  ")
        text.append(f"{state.units_done} of {state.units_total}")
    else:
        text.append(f"{state.units_done} done, {state.units_open} open")
    text.append(f"      phases {state.phases_done} · redone {state.requeued} · kernel kills {state.kernel_kills}")
    return text


def _memory(state: BoardState) -> Text:
    """Used memory, the budget's end (│) and the reserve behind it, on the scale of the limit."""
    text = Text("memory".ljust(LABEL_CELLS))
    scale = max(state.limit_mib, state.budget_mib, 1.0)
    cells = BAR_CELLS - 2
    used = min(cells, round(cells * state.used_mib / scale))
    budget = min(cells - 1, max(used, round(cells * state.budget_mib / scale)))
    text.append("▕")
    text.append("█" * min(used, budget), style="cyan")
    text.append("·" * (budget - min(used, budget)))
    text.append("│", style="yellow")
    text.append("─" * (cells - 1 - budget) + "▏ ", style="dim")
    text.append(f"{format_gib(state.used_mib)} of {format_gib(state.budget_mib)} GiB budget   ")
    text.append(f"limit {format_gib(state.limit_mib)} ({state.limited_by})", style="dim")
    return text


def _jobs(state: BoardState) -> Text:
    return Text(
        f"{'jobs':<{LABEL_CELLS}}now {state.jobs}   so far {state.jobs_mean:.1f}, most {state.jobs_max}   "
        f"(window MAX_JOBS={state.window}, threads {state.threads})"
    )


def _running(row: RunningRow, width: int) -> Text:
    of = f"{format_mib(row.rss_mib):>8} of ~{format_mib(row.estimate_mib)}"
    tail = f"  {of:<22}{format_clock(row.running_s):>6}"
    name = Text(f"  {row.kind:<10} {one_line(row.source)}{' ' + row.arch if row.arch else ''}")
    name.truncate(max(10, width - len(tail) - 1), overflow="ellipsis", pad=True)
    return name.append(tail)


def _waiting(state: BoardState) -> Text:
    label = "waiting".ljust(LABEL_CELLS)
    if state.held is None:
        return Text(f"{label}{state.waiting} for a core" if state.waiting else "", style="dim")
    held = state.held
    why = f"{format_mib(held.free_mib)} free" if held.reason == "memory" else held.reason
    more = f"; {state.waiting - 1} more wait" if state.waiting > 1 else ""
    return Text(f"{label}{one_line(held.source)} {held.kind} needs ~{format_mib(held.needs_mib)}: {why}{more}")
