"""A build in single lines: progress and events without a terminal, waits and time left in words, and how it ended."""

from __future__ import annotations

import math
from collections.abc import Sequence

from builddoctor.core.board import BoardState, EventRow, TimeLeft, WaitingRow, WaitReason
from builddoctor.core.events import BuildResult, Summary
from builddoctor.core.phase import kind_words
from builddoctor.core.units import format_clock, format_gib, format_mib, one_line
from builddoctor.core.verdict import Verdict
from builddoctor.ui.layout import plural

MOST_NAMED = 3

_WAITS = {
    WaitReason.CORES: ("for a core", ""),
    WaitReason.OTHERS: ("behind other phases", ""),
    WaitReason.ALONE: ("to run alone", ", once the others have ended"),
    WaitReason.OTHER_ALONE: ("for a phase that runs alone", ""),
    WaitReason.FREEING: ("for the memory of a phase that was ended", ""),
    WaitReason.NODE: ("for another machine, since it does not fit here", ""),
}
"""Why a phase waits, in words before and after its name."""


def progress_line(state: BoardState) -> str:
    """``[12:41] 41/66 units, 7 running, 19.2 of 26.5 GiB budget, 6 to 8 min left``."""
    units = f"{state.units_done}/{state.units_total}" if state.units_total else str(state.units_done)
    waiting = f", {state.waiting} waiting" if state.waiting else ""
    left = left_words(state.left)
    return (
        f"[{format_clock(state.elapsed_s)}] {units} units, {state.jobs} running{waiting}, "
        f"{format_gib(state.used_mib)} of {format_gib(state.budget_mib)} GiB budget{', ' + left if left else ''}"
    )


def progress_lines(state: BoardState) -> list[str]:
    """The line of progress, what is to be said of a build that was started without us, and why the first phase in the
    queue waits, if one does."""
    at = f"[{format_clock(state.elapsed_s)}]"
    lines = [progress_line(state), *(f"{at} {one_line(text)}" for text in (state.verdict, state.threat) if text)]
    return [*lines, wait_line(state.elapsed_s, state.held)] if state.held is not None else lines


def event_line(event: EventRow) -> str:
    """``[12:42] redoes cicc of …``."""
    return f"[{format_clock(event.at_s)}] {one_line(event.text)}"


def wait_line(at_s: float, row: WaitingRow) -> str:
    """``[12:42] waits for 3.6 GiB: src/gelu.cu cicc, 2.1 GiB free``."""
    before, after = wait_words(row)
    return f"[{format_clock(at_s)}] waits {before}: {one_line(row.source)} {kind_words(row.kind)}{after}"


def wait_words(row: WaitingRow, *, brief: bool = False) -> tuple[str, str]:
    """Why a phase waits, before its name and after it: ``for 3.6 GiB``, ``, 2.1 GiB free``."""
    if row.reason is not WaitReason.MEMORY:
        return _WAITS[row.reason]
    soon = not brief and row.release_s is not None and row.release_s >= 1
    release = f", next release in about {format_clock(row.release_s or 0.0)}" if soon else ""
    return f"for {format_mib(row.needs_mib)}", f", {format_mib(row.free_mib)} free{release}"


def left_words(left: TimeLeft | None) -> str:
    """``6 to 8 min left``; empty while it is unknown. Never finer than is known."""
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


def closing(
    summary: Summary,
    *,
    title: str,
    blame: str = "",
    peak_mib: float = 0.0,
    last: Sequence[str] = (),
    failed: Sequence[str] = (),
    staged: bool = False,
) -> list[str]:
    """Lines after a build. ``blame``: the phase that could not be saved, and the most that it held.

    ``last``: what a failed build is to end with, from its trace; without them the summary has to do. ``failed``: units
    with an error, told of a build that is to be continued. ``staged``: there were no gates, which would have counted
    phases.
    """
    lines = [_headline(summary, title)]
    if summary.left_s is not None and failed:
        more = f" and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
        lines.append(
            f"  {plural(len(failed), 'unit')} failed ({', '.join(failed[:MOST_NAMED])}{more}), with the error above: "
            f"the next run compiles {'it' if len(failed) == 1 else 'them'} again"
        )
    figures = _staged(summary) if staged else _figures(summary)
    if last:
        return [*lines, *figures, f"  trace   {summary.trace}", *last]
    if summary.verdict == Verdict.TOO_BIG:
        lines += [
            f"  {blame} does not fit: it was ended at {format_mib(peak_mib)} while it ran alone.",
            "  Fewer jobs cannot help: it was the only compiler running. It needs a higher memory limit, fewer archs,",
            "  or another compiler version.",
        ]
    elif summary.verdict == Verdict.RUNAWAY:
        lines += [
            f"  {blame} grew without end: {format_mib(peak_mib)} when it was ended, and still rising.",
            "  Fewer jobs cannot help: one process took all of it. Try another minor version of nvcc, another host",
            "  gcc, or -std=c++17 in place of c++20 (as in NVIDIA/TransformerEngine#1996 and CLIUtils/CLI11#1378).",
        ]
    elif summary.verdict == Verdict.NOT_REDOABLE:
        lines.append(f"  {blame} was killed for memory; it reads or writes a pipe, and cannot be run again.")
    elif summary.verdict == Verdict.EXTERNAL_KILL:
        lines.append(
            f"  {blame} was killed twice from outside; no kernel counter rose, so it was not this memory limit."
        )
    pauses = [] if staged else _pauses(summary)
    return [*lines, *figures, *pauses, f"  trace   {summary.trace}"]


def _figures(summary: Summary) -> list[str]:
    if not summary.phases and not summary.units:
        limit, kills = format_gib(summary.limit_mib), summary.kernel_oom_kills
        return [f"  no gate was asked: it called no compiler that has one · limit {limit} GiB · kernel kills {kills}"]
    redone = f"{plural(summary.requeued, 'phase')} redone"
    peak = f"peak {format_gib(summary.peak_mib)} of {format_gib(summary.limit_mib)} GiB"
    count = f"{plural(summary.units, 'unit')}, {plural(summary.phases, 'phase')}"
    counts = f"{count} · {redone} · kernel kills {summary.kernel_oom_kills}"
    each_ms = 1000 * summary.gate_overhead_s / summary.gates if summary.gates else 0.0
    jobs = f"jobs {summary.effective_jobs_mean:.1f} on average, {summary.effective_jobs_max} at most"
    each = f"{each_ms:.0f} ms and at most {summary.gate_peak_mib:.0f} MiB each"
    lines = [f"  {peak} · {counts}", f"  {jobs} · gates {summary.gate_overhead_s:.1f} s ({each})"]
    if summary.suspended:
        times = "once" if summary.suspended == 1 else f"{summary.suspended} times"
        lines.append(f"  {times} a phase was stopped for a while, so that others could end within memory")
    if summary.stored:
        spared = format_clock(summary.stored_s)
        lines.append(f"  {plural(summary.stored, 'phase')} from the store: {spared} of compiling")
    return lines


def _staged(summary: Summary) -> list[str]:
    limit, kills = format_gib(summary.limit_mib), summary.kernel_oom_kills
    lines = [f"  in stages, without gates · limit {limit} GiB · kernel kills {kills}"]
    if summary.paused:
        times = "once" if summary.paused == 1 else f"{summary.paused} times"
        lines.append(
            f"  {times} a process was stopped for a while, because memory ran short: the recipe's figures were too low"
        )
    return lines


def _pauses(summary: Summary) -> list[str]:
    if not summary.paused:
        return []
    times = "once" if summary.paused == 1 else f"{summary.paused} times"
    return [
        f"  {times} a process that no gate caught was stopped for a while, because memory ran short. That is weaker",
        "  than a gate, where a process waits before it starts. Let the build take compilers from PATH, $CC and $CXX.",
    ]


def _rest(summary: Summary) -> str:
    if not summary.left_s:
        return ""
    runs = summary.runs_left
    return f"; about {format_clock(summary.left_s)} more, {runs} {'run' if runs == 1 else 'runs'} like this one"


def _headline(summary: Summary, title: str) -> str:
    took = format_clock(summary.wall_s)
    if summary.result is BuildResult.OK:
        return f"✓ {title} in {took}"
    if summary.result is BuildResult.INTERRUPTED and summary.left_s is not None:
        return f"· {title} is to be continued: stopped in time after {took}{_rest(summary)}"
    if summary.result is BuildResult.INTERRUPTED:
        return f"✗ {title} interrupted after {took}; nothing of it is left running"
    return f"✗ {title} failed with exit code {summary.exit_code} after {took}"
