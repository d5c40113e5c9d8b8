"""Traced builds in a terminal: a page of one, a list of them, tables of units and phases, two of them compared.

Texts come from a trace of unknown origin: nothing in them reaches the terminal as a control sequence.
Colour carries nothing that the words do not.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import msgspec
from rich.text import Text

from builddoctor.core.events import BuildResult, Event
from builddoctor.core.phase import STORE, Outcome, kind_words
from builddoctor.core.units import escaped, format_clock, format_gib, format_mib, one_line, shell_word
from builddoctor.core.verdict import Diagnosis
from builddoctor.trace.analysis import Peek
from builddoctor.trace.compare import Change, Comparison, UnitPair
from builddoctor.trace.replay import Difference, Replay
from builddoctor.trace.report import Happened, PhaseRow, TraceReport, UnitRow
from builddoctor.ui.chart import timeline
from builddoctor.ui.held_back import held_back_words
from builddoctor.ui.layout import (
    GAP,
    LEAST_CELLS,
    LEAST_NAME_CELLS,
    Column,
    Signs,
    below,
    keep_end,
    keep_start,
    labelled,
    plural,
    table,
)
from builddoctor.ui.verdict import evidence_lines, fix_lines, heading

USUAL_WIDTH = 100
NARROW = 80
"""Below this only the columns that matter most are shown."""
WIDE = 130
KINDS = ("cudafe++", "cicc", "ptxas", "host")
"""The kinds of phases whose peaks a wide table shows."""

WORST = 8
MOST_EVENTS = 14
WIDEST_PICTURE = 160
_TOLD = ("give-up", "killed", "kill", "requeue", "warning", "note")
_STYLES = {"give-up": "bold red", "killed": "red", "kill": "yellow", "requeue": "yellow", "warning": "yellow"}


MOST_ROWS = 20
MOST_NAMES = 8
MOST_PROJECT_CELLS = 24


def trace_page(report: TraceReport, verdict: Diagnosis, *, width: int, signs: Signs) -> list[Text]:
    """The page. ``width``: cells of a line; only what is to be pasted may be longer."""
    folder = report.header.cwd
    lines = _head(report, verdict, width)
    if verdict.verdict is not None:
        lines += labelled("died", shorter(verdict.died, folder), width, "bold red")
        lines += labelled("why", shorter(verdict.why, folder), width)
        lines += labelled("next", verdict.fixes[0].text if verdict.fixes else "", width)
    held = held_back_words(report)
    lines += [*_figures(report, width), *(labelled("time", held, width) if held else [])]
    lines += [*_elsewhere(report, width), Text()]
    lines += timeline(report, width=min(width, WIDEST_PICTURE), height=_height(width), signs=signs)
    lines += _worst(report, width)
    if not report.whole:
        lines += _last_seconds(report, width)
    lines += [*_happened(report, width), *fix_lines(verdict, width), *_evidence(verdict, width, folder), *_more(report)]
    return lines


def headline(report: TraceReport, verdict: Diagnosis) -> str:
    """``✗ demo · sm_90 · nvcc 13.0.88 failed with exit code 1 after 12:41``."""
    header, summary = report.header, report.summary
    nvcc = f"nvcc {header.nvcc}" if header.nvcc else ""
    name = header.title or " ".join(header.command)
    title = one_line(" · ".join([name, *(part for part in (*header.archs, nvcc) if part and part not in name)]))
    after = format_clock(summary.wall_s if summary is not None else report.last_at_s)
    if summary is None:
        runs = not verdict.died
        return f"· {title} runs since {after}" if runs else f"✗ {title}: the trace stops short after {after}"
    if summary.result is BuildResult.OK:
        return f"✓ {title} in {after}"
    if summary.result is BuildResult.INTERRUPTED and summary.left_s is not None:
        return f"· {title} is to be continued: stopped in time after {after}"
    if summary.result is BuildResult.INTERRUPTED:
        return f"✗ {title} interrupted after {after}"
    return f"✗ {title} failed with exit code {summary.exit_code} after {after}"


def _head(report: TraceReport, verdict: Diagnosis, width: int) -> list[Text]:
    text = headline(report, verdict)
    style = "bold green" if text.startswith("✓") else "bold red" if text.startswith("✗") else "bold"
    lines = textwrap.wrap(text, max(LEAST_CELLS, width), subsequent_indent="  ", break_on_hyphens=False)
    when = one_line(f"  {report.header.trace_id}, {report.header.started_at}, {report.header.cwd}")
    return [*(Text(line, style=style) for line in lines), Text(keep_end(when, width), style="dim")]


def _figures(report: TraceReport, width: int) -> list[Text]:
    summary = report.summary
    phases = report.phases
    redone = sum(phase.requeues for phase in phases)
    lost = sum(phase.lost_s for phase in phases)
    at_least = "" if summary is not None else "at least "
    parts = [
        f"{at_least}{format_gib(report.peak_mib)} of {format_gib(report.limit_mib)} GiB",
        f"{plural(len(report.units), 'unit')}, {plural(len(phases), 'phase')}",
        f"{redone} run again" + (f", {format_clock(lost)} lost" if redone else ""),
    ]
    if summary is not None:
        parts.append(f"kernel kills {summary.kernel_oom_kills}")
        parts.append(f"jobs {summary.effective_jobs_mean:.1f} on average, {summary.effective_jobs_max} at most")
    return labelled("peak", " · ".join(parts), width)


def _elsewhere(report: TraceReport, width: int) -> list[Text]:
    """What other machines ran, and what the way there took; and what came from the store."""
    away = [run for phase in report.phases for run in phase.attempts if run.elsewhere is not None]
    runs = [run for run in away if run.elsewhere is not None and run.elsewhere.node != STORE]
    taken = [run for run in away if run not in runs and run.outcome == Outcome.OK.value]
    spared = format_clock(sum(run.wall_s for run in taken))
    stored = labelled("store", f"{plural(len(taken), 'phase')}, {spared} of compiling", width) if taken else []
    ways = [run.elsewhere for run in runs if run.elsewhere is not None]
    if not ways:
        return stored
    lost = sum(run.outcome in (Outcome.NODE_LOST.value, Outcome.KILLED_THERE.value) for run in runs)
    sent, back = (format_mib(sum(each)) for each in zip(*((way.sent_mib, way.back_mib) for way in ways), strict=True))
    parts = [
        f"{plural(len(runs), 'phase')} on {', '.join(sorted({one_line(way.node) for way in ways}))}",
        f"{format_clock(sum(run.wall_s for run in runs))} of compiling",
        f"{sent} there, {back} back",
        f"{format_clock(sum(way.transfer_s for way in ways))} on the way and waiting there",
    ]
    return [*labelled("nodes", " · ".join([*parts, *([f"{lost} lost"] if lost else [])]), width), *stored]


def _height(width: int) -> int:
    return 10 if width < 80 else 13 if width < 140 else 16


def _worst(report: TraceReport, width: int) -> list[Text]:
    worst = sorted(report.phases, key=lambda phase: -phase.peak_mib)[:WORST]
    if not worst:
        return heading("no compiler phase ran")
    return [*heading("worst phases"), *phase_rows(worst, width=width, folder=report.header.cwd)]


def _last_seconds(report: TraceReport, width: int) -> list[Text]:
    """What was going on when it stopped."""
    lines = heading(f"the last seconds, up to {format_clock(report.last_at_s)}")
    for point in report.last_points[-5:]:
        used = f"{format_mib(point.used_mib)} of {format_mib(point.limit_mib)} in use"
        ours = f"{format_mib(point.ours_mib)} by {point.running} phases, {point.waiting} waiting"
        lines.append(Text(keep_end(f"  {format_clock(point.at_s):>7}  {used}, {ours}", width)))
    running = sorted((phase for phase in report.phases if phase.running), key=lambda phase: -phase.peak_mib)
    for phase in running[:WORST]:
        lines.append(Text(keep_end(_running(phase, report), width)))
    if len(running) > WORST:
        lines.append(Text(f"  and {len(running) - WORST} more"))
    if not running:
        lines.append(Text("  no phase was running"))
    return lines


def _running(phase: PhaseRow, report: TraceReport) -> str:
    run = phase.attempts[-1]
    what = f"{kind_words(phase.kind, phase.arch)} {below(phase.source, report.header.cwd)}"
    return one_line(
        f"  running  {what}: {format_mib(run.peak_mib)} of "
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


def _evidence(verdict: Diagnosis, width: int, folder: str) -> list[Text]:
    short = [shorter(text, folder) for text in verdict.evidence]
    return evidence_lines(msgspec.structs.replace(verdict, evidence=short), width)


def _more(report: TraceReport) -> list[Text]:
    name = shell_word(report.name)
    return [Text(), Text(f"more: builddoctor trace units {name}   builddoctor trace view {name}", style="dim")]


def shorter(text: str, folder: str) -> str:
    """A text in which names of files stand without the build's folder before them."""
    return text.replace(folder + "/", "") if len(folder) > 1 else text


def failure_lines(report: TraceReport, verdict: Diagnosis, *, width: int) -> list[str]:
    """The last words of a build that failed: what died, why, what next, and the command to see more."""
    first, folder = verdict.fixes[0] if verdict.fixes else None, report.header.cwd
    lines = labelled("died", shorter(verdict.died, folder), width)
    lines += labelled("why", shorter(verdict.why, folder), width)
    if first is not None:
        lines += labelled("next", first.text, width)
        lines += [Text(" " * 10 + escaped(first.command))] if first.command else []
    rest = len(verdict.fixes) - 1
    ways = f" and {rest} more way{'s' * (rest > 1)}" if rest > 0 else ""
    more = f"builddoctor trace show {shell_word(report.name)}   (the evidence{ways})"
    return [*(line.plain for line in lines), f"  {'more':<8}{more}"]


def replay_page(found: Replay, *, skipped: int) -> list[Text]:
    """Whether today's scheduler decides as the build did, or the first fact on which it does not."""
    counts = f"{found.facts} facts, {found.decisions} decisions"
    lines = [Text(f"{skipped} unreadable lines were skipped: what they said was not decided upon")] if skipped else []
    difference = found.difference
    if difference is None:
        return [*lines, Text(f"decides as the build did: {counts}")]
    return [
        *lines,
        Text(
            f"decides otherwise from fact {difference.number} on, at {format_clock(difference.fact.at_s)}", style="bold"
        ),
        *(Text(f"  {word:<6}{_json(event)}") for word, event in _sides(difference)),
    ]


def _sides(difference: Difference) -> list[tuple[str, Event | None]]:
    then, now = difference.then or (None,), difference.now or (None,)
    return [("fact", difference.fact), *(("then", each) for each in then), *(("now", each) for each in now)]


def _json(event: Event | None) -> str:
    return "nothing" if event is None else escaped(msgspec.json.encode(event).decode())


def comparison_page(told: Comparison, *, width: int) -> list[Text]:
    """What changed, what differs around it, and which units there are in one of the builds only."""
    return [
        Text(one_line(f"{told.before} {told.project_before} → {told.after} {told.project_after}"), style="bold"),
        *_builds(told),
        *_around(told, width),
        *_units(told, width),
        *_missing("units that only the first has", told.only_before, width),
        *_missing("units that only the second has", told.only_after, width),
    ]


def _builds(told: Comparison) -> list[Text]:
    wall, peak = told.build_wall_s, told.build_peak_mib
    rows = [
        f"  time    {format_clock(wall.before):>9} {format_clock(wall.after):>9}  {_share(wall)}",
        f"  peak    {format_mib(peak.before):>9} {format_mib(peak.after):>9}  {_share(peak)}",
    ]
    if told.units:
        rows.append(f"  units   in both {len(told.units)}: peaks {_ratio(told.peak_ratio, told.peak_spread)}")
        rows.append(f"          times {_ratio(told.wall_ratio, told.wall_spread)}")
    return [Text(row) for row in rows]


def _ratio(ratio: float, spread: float) -> str:
    return f"{100 * (ratio - 1):+.1f}% in the middle, spread +-{100 * spread:.1f}%"


def _around(told: Comparison, width: int) -> list[Text]:
    if not told.differences:
        return [Text(), Text("toolchain, machine and command are the same")]
    lines = [Text(), Text("what differs", style="bold")]
    for each in told.differences:
        half = max(LEAST_NAME_CELLS, (width - 27) // 2)
        before, after = keep_end(one_line(each.before), half), keep_end(one_line(each.after), half)
        lines.append(Text(f"  {each.what:<21}{before} → {after}"))
    return lines


def _units(told: Comparison, width: int) -> list[Text]:
    changed = [pair for pair in told.units if pair.peak_mib.significant or pair.wall_s.significant]
    if not told.units:
        return [Text(), Text("no unit is in both builds")]
    if not changed:
        return [Text(), Text("no unit stands out: all differ alike")]
    narrow = width < NARROW
    heads = ("peak", "", "time", "") if narrow else ("peak", "now", "", "time", "now", "")
    columns = [*(Column(head, right=True) for head in heads), Column("unit", name=True), Column("")]
    rows = [_unit(pair, narrow) for pair in changed[:MOST_ROWS]]
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    lines = [*heading("units that stand out"), *table(columns, rows, width=width)]
    if len(changed) > MOST_ROWS:
        lines.append(Text(f"  and {len(changed) - MOST_ROWS} more", style="dim"))
    return lines


def _unit(pair: UnitPair, narrow: bool) -> list[str | Text]:
    peak, wall = pair.peak_mib, pair.wall_s
    notes = ["other options"] if pair.options_differ else []
    if pair.requeues_before != pair.requeues_after:
        notes.append(f"run again {pair.requeues_after} times, before {pair.requeues_before}")
    return [
        *([] if narrow else [format_mib(peak.before)]),
        format_mib(peak.after),
        _mark(peak),
        *([] if narrow else [format_clock(wall.before)]),
        format_clock(wall.after),
        _mark(wall),
        pair.unit,
        f"({'; '.join(notes)})" if notes else "",
    ]


def _mark(change: Change) -> Text:
    """The share where it is significant: what is left blank does not stand out."""
    share = _share(change) if change.significant else ""
    return Text(share, style="red" if change.after > change.before else "green")


def _share(change: Change) -> str:
    if change.before <= 0:
        return "new" if change.after > 0 else ""
    share = 100 * change.share
    return f"{share:+.0f}%" if share < 10_000 else f"x{change.after / change.before:.0f}"


def _missing(title: str, names: list[str], width: int) -> list[Text]:
    if not names:
        return []
    lines = [Text(), Text(f"{title}: {len(names)}", style="bold")]
    lines += [Text("  " + keep_end(one_line(name), max(LEAST_NAME_CELLS, width - 2))) for name in names[:MOST_NAMES]]
    return lines + ([Text(f"  and {len(names) - MOST_NAMES} more", style="dim")] if len(names) > MOST_NAMES else [])


def trace_rows(traces: Sequence[Peek], *, width: int = USUAL_WIDTH, whole: bool = False) -> list[Text]:
    """One line a trace: id, when, result, peak, time and project; where there is room, archs and what was run.

    ``whole``: names are not cut.
    """
    if not traces:
        return [Text("no traces yet")]
    wide = width >= NARROW
    columns = [Column("id"), Column("started"), Column("took", right=True), Column("result")]
    columns += [Column("peak of limit" if wide else "peak", right=True), *([Column("arch")] if wide else [])]
    rows = []
    for trace in traces:
        header = trace.header
        started = one_line(header.started_at)[:16].replace("T", " ")
        peak = "" if trace.peak_mib is None else format_mib(trace.peak_mib)
        row = [keep_start(header.trace_id, 7), started if wide else started[5:]]
        row += [format_clock(trace.last_at_s), _result(trace)]
        row += [f"{peak} of {format_mib(trace.limit_mib)}", keep_start(",".join(header.archs), 18)] if wide else [peak]
        rows.append(row)
    headers = [trace.header for trace in traces]
    names = {
        "project": [one_line(header.project_name) for header in headers],
        "build": [one_line(header.title or " ".join(header.command)) for header in headers],
    }
    for head, told in names.items():
        room = width - max(line.cell_len for line in table(columns, rows)) - GAP
        if head == "build" and room < LEAST_NAME_CELLS and not whole:
            break
        # Of these the start is what tells them apart.
        cells = max(LEAST_NAME_CELLS, min(room, MOST_PROJECT_CELLS if head == "project" else room))
        columns.append(Column(head))
        rows = [[*row, name if whole else keep_start(name, cells)] for row, name in zip(rows, told, strict=True)]
    return table(columns, rows)


def _result(trace: Peek) -> str:
    if trace.exit_code is None:
        return "running" if trace.still_written else "cut off"
    return trace.result if trace.result is BuildResult.OK else f"exit {trace.exit_code}"


def unit_rows(
    units: Sequence[UnitRow], *, width: int = USUAL_WIDTH, folder: str = "", whole: bool = False
) -> list[Text]:
    """One line a unit: peak, estimate, time, how often it was run again, and the phase that has the peak.

    A narrow ``width`` has fewer columns, a wide one the peaks of each kind of phase. ``whole``: names are not cut.
    """
    wide, narrow = width >= WIDE, width < NARROW
    columns = _columns(narrow)
    columns += [Column(kind_words(kind), right=True) for kind in KINDS] if wide else []
    columns += [Column("unit", name=True), *([] if wide or narrow else [Column("worst phase")])]
    rows = []
    for unit in units:
        row = _figures_of(unit, narrow=narrow)
        row += [_peak_of(unit, kind) for kind in KINDS] if wide else []
        row += [below(unit.unit, folder)]
        row += [] if wide or narrow else [kind_words(unit.worst.kind, unit.worst.arch) if unit.worst else ""]
        rows.append(row)
    return table(columns, rows, width=0 if whole else width)


def phase_rows(phases: Sequence[PhaseRow], *, width: int = USUAL_WIDTH, folder: str = "") -> list[Text]:
    """One line a phase."""
    narrow = width < NARROW
    columns = [*_columns(narrow), Column("phase"), Column("unit", name=True)]
    rows = [
        [
            *_figures_of(phase, narrow=narrow),
            keep_start(kind_words(phase.kind, phase.arch), 16),
            below(phase.source, folder),
        ]
        for phase in phases
    ]
    return table(columns, rows, width=width)


def _columns(narrow: bool) -> list[Column]:
    heads = ("peak", "off", "time") if narrow else ("peak", "estimate", "off", "time", "waited", "again")
    return [Column(head, right=True) for head in heads]


def _figures_of(row: UnitRow | PhaseRow, *, narrow: bool) -> list[str]:
    gap, took = off(row.estimate_mib, row.peak_mib), format_clock(row.wall_s)
    if narrow:
        return [format_mib(row.peak_mib), gap, took]
    estimate = format_mib(row.estimate_mib) if row.estimate_mib > 0 else ""
    waited, again = format_clock(row.waited_s), str(row.requeues or "")
    return [format_mib(row.peak_mib), estimate, gap, took, waited, again]


def off(estimate_mib: float, peak_mib: float) -> str:
    """By how much the truth was above the estimate: ``+12%``; empty where one of them is not known."""
    if estimate_mib <= 0 or peak_mib <= 0:
        return ""
    share = 100 * (peak_mib / estimate_mib - 1)
    return f"{share:+.0f}%" if share < 1000 else f"x{peak_mib / estimate_mib:.0f}" if share < 1e6 else ">x9999"


def _peak_of(unit: UnitRow, kind: str) -> str:
    peaks = [phase.peak_mib for phase in unit.phases if phase.kind == kind]
    return format_mib(max(peaks)) if peaks else ""
