"""The last words of a build: what came of it, in a few lines that a person wants to read. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from builddoctor.model.summary import Summary
from builddoctor.units import format_clock, format_gib, format_mib


def closing(
    summary: Summary,
    *,
    title: str,
    blame: str = "",
    peak_mib: float = 0.0,
    last: Sequence[str] = (),
    staged: bool = False,
) -> list[str]:
    """Lines after a build. ``blame``: the phase that could not be saved, and the most that it held.

    ``last``: what a failed build is to end with, from its trace; without them the summary has to do. ``staged``: there
    were no gates, which would have counted phases.
    """
    lines = [_headline(summary, title)]
    figures = _staged(summary) if staged else _figures(summary)
    if last:
        return [*lines, *figures, f"  trace   {summary.trace}", *last]
    if summary.verdict == "too-big":
        lines += [
            f"  {blame} does not fit: the kernel ended it at {format_mib(peak_mib)} while it ran alone.",
            "  Fewer jobs cannot help: it was the only compiler running. It needs a higher memory limit, fewer archs,",
            "  or another compiler version.",
        ]
    elif summary.verdict == "runaway":
        lines += [
            f"  {blame} grew without end: {format_mib(peak_mib)} when it was ended, and still rising.",
            "  Fewer jobs cannot help: one process took all of it. Try another minor version of nvcc, another host",
            "  gcc, or -std=c++17 in place of c++20 (as in NVIDIA/TransformerEngine#1996 and CLIUtils/CLI11#1378).",
        ]
    elif summary.verdict == "not-redoable":
        lines.append(f"  {blame} was killed for memory; it reads or writes a pipe, and cannot be run again.")
    elif summary.verdict == "external-kill":
        lines.append(
            f"  {blame} was killed twice from outside; no kernel counter rose, so it was not this memory limit."
        )
    pauses = [] if staged else _pauses(summary)
    return [*lines, *figures, *pauses, f"  trace   {summary.trace}"]


def _figures(summary: Summary) -> list[str]:
    redone = f"{summary.requeued} phase{'s' * (summary.requeued != 1)} redone"
    peak = f"peak {format_gib(summary.peak_mib)} of {format_gib(summary.limit_mib)} GiB"
    counts = f"{summary.units} units, {summary.phases} phases · {redone} · kernel kills {summary.kernel_oom_kills}"
    each_ms = 1000 * summary.gate_overhead_s / summary.gates if summary.gates else 0.0
    jobs = f"jobs {summary.effective_jobs_mean:.1f} on average, {summary.effective_jobs_max} at most"
    each = f"{each_ms:.0f} ms and at most {summary.gate_peak_mib:.0f} MiB each"
    return [f"  {peak} · {counts}", f"  {jobs} · gates {summary.gate_overhead_s:.1f} s ({each})"]


def _staged(summary: Summary) -> list[str]:
    limit, kills = format_gib(summary.limit_mib), summary.kernel_oom_kills
    lines = [f"  in stages, without gates · limit {limit} GiB · kernel kills {kills}"]
    if summary.paused:
        times = "once" if summary.paused == 1 else f"{summary.paused} times"
        lines.append(
            f"  {times} a process was stopped for a while, as memory ran short: the recipe's figures were too low"
        )
    return lines


def _pauses(summary: Summary) -> list[str]:
    if not summary.paused:
        return []
    times = "once" if summary.paused == 1 else f"{summary.paused} times"
    return [
        f"  {times} a process that no gate caught was stopped for a while, as memory ran short: that is weaker",
        "  than a gate, which has it wait before it starts. Let the build take compilers from PATH, $CC and $CXX.",
    ]


def _headline(summary: Summary, title: str) -> str:
    took = format_clock(summary.wall_s)
    if summary.result == "ok":
        return f"✓ {title} in {took}"
    if summary.result == "interrupted":
        return f"✗ {title} interrupted after {took}; nothing of it is left running"
    return f"✗ {title} failed with exit code {summary.exit_code} after {took}"
