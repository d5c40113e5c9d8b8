"""One page of a traced build: verdict, memory over time, worst phases, what happened, what to do. Pure.

Texts come from a trace, and a trace may come from anybody: nothing in them reaches the terminal as a control sequence.
Colour carries nothing that the words do not.
"""

from __future__ import annotations

import textwrap

import msgspec
from rich.text import Text

from builddoctor.model.verdict import Verdict
from builddoctor.render.signs import Signs
from builddoctor.render.tables import below, fitted, phase_rows
from builddoctor.render.timeline import timeline
from builddoctor.render.verdict import LABEL_CELLS, LEAST_CELLS, evidence_lines, fix_lines, heading, labelled
from builddoctor.trace.report import Happened, PhaseRow, TraceReport
from builddoctor.units import escaped, format_clock, format_gib, format_mib, one_line, shell_word

WORST = 8
MOST_EVENTS = 14
WIDEST_PICTURE = 160
_TOLD = ("give-up", "killed", "kill", "requeue", "warning", "note")
_STYLES = {"give-up": "bold red", "killed": "red", "kill": "yellow", "requeue": "yellow", "warning": "yellow"}


def trace_page(report: TraceReport, verdict: Verdict, *, width: int, signs: Signs) -> list[Text]:
    """The page. ``width``: cells of a line; only what is to be pasted may be longer."""
    folder = report.header.cwd
    lines = _head(report, verdict, width)
    if verdict.verdict is not None:
        lines += labelled("died", shorter(verdict.died, folder), width, "bold red")
        lines += labelled("why", shorter(verdict.why, folder), width)
        lines += labelled("next", verdict.fixes[0].text if verdict.fixes else "", width)
    lines += [*_figures(report, width), Text()]
    lines += timeline(report, width=min(width, WIDEST_PICTURE), height=_height(width), signs=signs)
    lines += _worst(report, width)
    if not report.whole:
        lines += _last_seconds(report, width)
    lines += [*_happened(report, width), *fix_lines(verdict, width), *_evidence(verdict, width, folder), *_more(report)]
    return lines


def headline(report: TraceReport, verdict: Verdict) -> str:
    """``✗ demo · sm_90 · nvcc 13.0.88 failed with exit code 1 after 12:41``."""
    header, summary = report.header, report.summary
    nvcc = f"nvcc {header.nvcc}" if header.nvcc else ""
    name = header.title or " ".join(header.command)
    title = one_line(" · ".join([name, *(part for part in (*header.archs, nvcc) if part and part not in name)]))
    after = format_clock(summary.wall_s if summary is not None else report.last_at_s)
    if summary is None:
        runs = not verdict.died
        return f"· {title} runs since {after}" if runs else f"✗ {title}: the trace stops short after {after}"
    if summary.result == "ok":
        return f"✓ {title} in {after}"
    if summary.result == "interrupted":
        return f"✗ {title} interrupted after {after}"
    return f"✗ {title} failed with exit code {summary.exit_code} after {after}"


def _head(report: TraceReport, verdict: Verdict, width: int) -> list[Text]:
    text = headline(report, verdict)
    style = "bold green" if text.startswith("✓") else "bold red" if text.startswith("✗") else "bold"
    lines = textwrap.wrap(text, max(LEAST_CELLS, width), subsequent_indent="  ", break_on_hyphens=False)
    when = one_line(f"  {report.header.trace_id}, {report.header.started_at}, {report.header.cwd}")
    return [*(Text(line, style=style) for line in lines), Text(fitted(when, width), style="dim")]


def _figures(report: TraceReport, width: int) -> list[Text]:
    summary = report.summary
    phases = report.phases
    redone = sum(phase.requeues for phase in phases)
    lost = sum(phase.lost_s for phase in phases)
    at_least = "" if summary is not None else "at least "
    parts = [
        f"{at_least}{format_gib(report.peak_mib)} of {format_gib(report.limit_mib)} GiB",
        f"{len(report.units)} units, {len(phases)} phases",
        f"{redone} run again" + (f", {format_clock(lost)} lost" if redone else ""),
    ]
    if summary is not None:
        parts.append(f"kernel kills {summary.kernel_oom_kills}")
        parts.append(f"jobs {summary.effective_jobs_mean:.1f} on average, {summary.effective_jobs_max} at most")
    return labelled("peak", " · ".join(parts), width)


def _height(width: int) -> int:
    return 10 if width < 80 else 13 if width < 140 else 16


def _worst(report: TraceReport, width: int) -> list[Text]:
    worst = sorted(report.phases, key=lambda phase: -phase.peak_mib)[:WORST]
    if not worst:
        return heading("no compiler phase ran")
    rows = phase_rows(worst, width=width, folder=report.header.cwd)
    return [*heading("worst phases"), Text(rows[0], style="dim"), *map(Text, rows[1:])]


def _last_seconds(report: TraceReport, width: int) -> list[Text]:
    """What was going on when it stopped."""
    lines = heading(f"the last seconds, up to {format_clock(report.last_at_s)}")
    for point in report.last_points[-5:]:
        used = f"{format_mib(point.used_mib)} of {format_mib(point.limit_mib)} in use"
        ours = f"{format_mib(point.ours_mib)} by {point.running} phases, {point.waiting} waiting"
        lines.append(Text(fitted(f"  {format_clock(point.at_s):>7}  {used}, {ours}", width)))
    running = sorted((phase for phase in report.phases if phase.running), key=lambda phase: -phase.peak_mib)
    for phase in running[:WORST]:
        lines.append(Text(fitted(_running(phase, report), width)))
    if len(running) > WORST:
        lines.append(Text(f"  and {len(running) - WORST} more"))
    if not running:
        lines.append(Text("  no phase was running"))
    return lines


def _running(phase: PhaseRow, report: TraceReport) -> str:
    run = phase.attempts[-1]
    arch = f" {phase.arch}" if phase.arch else ""
    return one_line(
        f"  running  {phase.kind}{arch} {below(phase.source, report.header.cwd)}: {format_mib(run.peak_mib)} of "
        f"~{format_mib(phase.estimate_mib)}, for {format_clock(report.last_at_s - run.admitted_at_s)}"
    )


def _happened(report: TraceReport, width: int) -> list[Text]:
    """The gravest kinds of events first to be kept, shown in the order of time."""
    told = (event for event in report.events if event.kind in _TOLD)
    ranked = sorted(told, key=lambda event: _TOLD.index(event.kind))
    shown = sorted(ranked[:MOST_EVENTS], key=lambda event: event.at_s)
    holds = sum(event.kind == "hold" for event in report.events)
    if not shown and not holds:
        return []
    lines = heading("what happened")
    for event in shown:
        lines += _event(event, width, report.header.cwd)
    left = len(ranked) - len(shown)
    if left or report.left_out or holds:
        more = [f"{left + report.left_out} more events"] if left + report.left_out else []
        more += [f"{holds} waits for memory or a core"] if holds else []
        lines.append(Text(f"  and {', '.join(more)}", style="dim"))
    return lines


def _event(event: Happened, width: int, folder: str) -> list[Text]:
    room = max(LEAST_CELLS, width - 11)
    first, *rest = textwrap.wrap(one_line(shorter(event.text, folder)), room, break_on_hyphens=False)[:4] or [""]
    style = _STYLES.get(event.kind, "")
    return [
        Text(f"  {format_clock(event.at_s):>7}  ").append(first, style=style),
        *(Text(" " * 11 + line, style=style) for line in rest),
    ]


def _evidence(verdict: Verdict, width: int, folder: str) -> list[Text]:
    short = [shorter(text, folder) for text in verdict.evidence]
    return evidence_lines(msgspec.structs.replace(verdict, evidence=short), width)


def _more(report: TraceReport) -> list[Text]:
    name = shell_word(report.header.trace_id)
    return [Text(), Text(f"more: builddoctor trace units {name}   builddoctor trace view {name}", style="dim")]


def shorter(text: str, folder: str) -> str:
    """A text in which names of files stand without the build's folder before them."""
    return text.replace(folder + "/", "") if len(folder) > 1 else text


def failure_lines(report: TraceReport, verdict: Verdict, *, width: int) -> list[str]:
    """The last words of a build that failed: what died, why, what next, and the command to see more."""
    first, folder = verdict.fixes[0] if verdict.fixes else None, report.header.cwd
    lines = labelled("died", shorter(verdict.died, folder), width)
    lines += labelled("why", shorter(verdict.why, folder), width)
    if first is not None:
        lines += labelled("next", first.text, width)
        lines += [Text(" " * (LABEL_CELLS + 2) + escaped(first.command))] if first.command else []
    rest = len(verdict.fixes) - 1
    ways = f" and {rest} more way{'s' * (rest > 1)}" if rest > 0 else ""
    more = f"builddoctor trace show {shell_word(report.header.trace_id)}   (the evidence{ways})"
    return [*(line.plain for line in lines), f"  {'more':<{LABEL_CELLS}}{more}"]
