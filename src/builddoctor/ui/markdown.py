"""A build as Markdown, for the summary of a CI job: how it went, its peak, its largest units, and what would do.

Covers: ``trace show --markdown``. Text of the build's own is never taken for Markdown or HTML.
"""

from __future__ import annotations

from collections.abc import Sequence

from builddoctor.core.events import BuildResult
from builddoctor.core.phase import kind_words
from builddoctor.core.units import format_clock, format_mib, one_line
from builddoctor.core.verdict import Diagnosis
from builddoctor.trace.report import TraceReport
from builddoctor.ui.trace_page import headline

LARGEST = 8
SYSTEM_MIB = 2048
"""What a runner's system and agent take beside a build."""
RUNNERS_GIB = (7, 16, 32, 64, 128, 256, 512)
"""Memory of runners as GitHub, GitLab and clouds sell them."""


def job_summary(report: TraceReport, verdict: Diagnosis) -> str:
    """Sections of a page, the verdict first."""
    sections = [f"### {_plain(headline(report, verdict))}", _figures(report)]
    if verdict.verdict is not None:
        advice = [
            f"{number}. {_plain(fix.text)}{_code(fix.command)}" for number, fix in enumerate(verdict.fixes[:3], 1)
        ]
        sections.append("\n".join([f"**{verdict.verdict.value}**: {_plain(verdict.why)}", "", *advice]))
    if report.units:
        sections.append(_largest(report))
    return "\n\n".join([*sections, _next(report)]) + "\n"


def _figures(report: TraceReport) -> str:
    summary = report.summary
    rows = [("peak of all compilers at once", f"{format_mib(report.peak_mib)} of {format_mib(report.limit_mib)}")]
    rows.append(("units, phases", f"{len(report.units)}, {len(report.phases)}"))
    if summary is not None:
        rows.append(("kills by the kernel", str(summary.kernel_oom_kills)))
        rows.append(("phases run again", str(summary.requeued)))
        rows.append(("jobs on average, at most", f"{summary.effective_jobs_mean:.1f}, {summary.effective_jobs_max}"))
    return _table(("", ""), rows)


def _largest(report: TraceReport) -> str:
    rows = []
    for unit in sorted(report.units, key=lambda each: -each.peak_mib)[:LARGEST]:
        worst = unit.worst
        kind = "" if worst is None else kind_words(worst.kind, worst.arch)
        rows.append((_code_cell(unit.unit), format_mib(unit.peak_mib), kind, format_clock(unit.wall_s)))
    return "**Largest units**\n\n" + _table(("unit", "peak", "phase", "time"), rows)


def _next(report: TraceReport) -> str:
    """What the next run takes, and where."""
    summary = report.summary
    largest_mib = max((unit.peak_mib for unit in report.units), default=0.0)
    if not largest_mib:
        return "No compiler was seen."
    least = _runner(largest_mib)
    words = [
        f"The largest compiler takes {format_mib(largest_mib)}: a runner of {least} builds this, one phase at a time."
    ]
    if (ample := _runner(report.peak_mib)) != least:
        words.append(f"As fast as here it is with {ample}.")
    if summary is not None and summary.left_s:
        runs = summary.runs_left
        words.append(f"About {format_clock(summary.left_s)} are left: {runs} more {'run' if runs == 1 else 'runs'}.")
    elif summary is not None and summary.result is BuildResult.OK:
        words.append(f"The next run of the same takes about {format_clock(summary.wall_s)}.")
    return " ".join(words)


def _runner(build_mib: float) -> str:
    needed = build_mib + SYSTEM_MIB
    return next((f"{gib} GiB" for gib in RUNNERS_GIB if gib * 1024 >= needed), format_mib(needed))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _plain(text: str) -> str:
    """Characters that Markdown or HTML would take for something else, escaped."""
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>#|~!$@" else char for char in one_line(text))


def _code(command: str) -> str:
    return f": {_code_cell(command)}" if command else ""


def _code_cell(text: str) -> str:
    """As code; a backtick inside would end it."""
    return "`" + one_line(text).replace("`", "'").replace("|", "¦") + "`"
