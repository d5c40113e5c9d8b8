"""The parts of the page that can be read without any script: words, figures, tables. Data in, HTML out.

Everything from the trace goes through ``text``; nothing else may be put between tags or quotes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from builddoctor.core.phase import STORE, kind_words
from builddoctor.core.plan import Scenario, WhatIf
from builddoctor.core.units import format_clock, format_mib, one_line
from builddoctor.core.verdict import Fix
from builddoctor.trace.picture import GROUPS, Picture, Run
from builddoctor.ui.layout import plural
from builddoctor.ui.page.payload import BAD_OUTCOMES, CSS_OF, OUTCOME_WORDS, Units, place_of, worst
from builddoctor.ui.page.words import Words

MOST_EVENTS = 200
SIGN = {"good": "✓", "bad": "✗", "torn": "…"}
EVENT_WORDS = {
    "kill": "Killed",
    "ended": "Ended",
    "give-up": "Given up",
    "wait": "Waited",
    "warning": "Warning",
    "note": "Note",
}


MOST_UNITS = 2000
FIRST_UNITS = 40
"""shown at first: the rest takes a button, and no time before"""
MOST_PHASES_NAMED = 12
COLUMNS = (
    ("Unit", "", ""),
    ("Largest phase", "wide", ""),
    ("Peak", "n", ""),
    ("Expected", "n wide", "what builddoctor expected of the largest phase"),
    ("Time", "n", ""),
    ("Waited", "n wide", ""),
    ("Run again", "n wide", ""),
    ("Ended", "ended wide", ""),
)
STEPS = 20


def verdict(words: Words) -> str:
    """The first thing on the page."""
    steps = [_fix(step) for step in words.fixes]
    ladder = f'<ol class="fixes" aria-label="What to do, cheapest first">{"".join(steps[:2])}</ol>' if steps else ""
    if len(steps) > 2:
        ladder += (
            f'<details class="more"><summary>{plural(len(steps) - 2, "more way")}</summary>'
            f'<ol class="fixes" start="3">{"".join(steps[2:])}</ol></details>'
        )
    if words.evidence:
        evidence = "".join(f"<li>{text(line)}</li>" for line in words.evidence)
        ladder += f'<details class="more"><summary>The evidence</summary><ul>{evidence}</ul></details>'
    time = f"<p>{text(words.time)}</p>" if words.time else ""
    return (
        f'<section class="card verdict {words.state}" aria-labelledby="headline">'
        f'<span class="state">{SIGN[words.state]} {text(words.label)}</span>'
        f'<h1 id="headline">{text(words.headline)}</h1><p>{text(words.because)}</p>{time}{ladder}</section>'
    )


def _fix(step: Fix) -> str:
    paste = (
        f'<div class="paste"><code>{text(step.command)}</code>'
        '<button type="button" data-copy hidden>Copy</button></div>'
        if step.command
        else ""
    )
    differs = ' <span class="quiet">(what is built differs)</span>' if step.changes_binary else ""
    return f"<li><div>{text(_capital(step.text))}{differs}{paste}</div></li>"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def figures(picture: Picture) -> str:
    """The build in six numbers."""
    moments, summary = picture.moments, picture.summary
    peak = max((each.total_mib for each in moments), default=0.0)
    last = moments[-1] if moments else None
    limit = last.limit_mib if last is not None else picture.header.limit_mib
    budget = last.budget_mib if last is not None else picture.header.budget_mib
    busy_s = sum(run.end_s - run.start_s for run in picture.runs)
    jobs = busy_s / picture.last_at_s if picture.last_at_s > 0 else 0.0
    kills = sum(run.outcome == "killed-by-kernel" for run in picture.runs)
    redone = sum(run.attempt > 1 for run in picture.runs)
    units = len({run.unit_id for run in picture.runs if run.counted})
    waits = sum(run.waited_s for run in picture.runs)
    cells = [
        ("Peak of compilers", format_mib(peak), f"budget {format_mib(budget)}, limit {format_mib(limit)}"),
        ("Time", format_clock(picture.last_at_s), "" if summary is not None else "up to where the trace stops"),
        ("Units", str(units), plural(len({run.phase_id for run in picture.runs}), "phase")),
        ("Effective MAX_JOBS", f"{jobs:.1f}", f"on {plural(picture.header.cores, 'core')}, most {picture.lanes}"),
        ("Killed by the kernel", str(kills), f"{redone} run again"),
        ("Waited", format_clock(waits), "for memory or a core, all phases together"),
    ]
    rows = "".join(
        f'<div><dt>{text(name)}</dt><dd>{text(value)}<span class="of">{text(of)}</span></dd></div>'
        for name, value, of in cells
    )
    return f'<dl class="figures" aria-label="The build in figures">{rows}</dl>'


def picture_in_words(picture: Picture, units: Units) -> str:
    """What the three pictures show, in words."""
    if not picture.runs:
        return "No compiler ran."
    fullest = max(picture.moments, key=lambda each: each.total_mib)
    held = [(name, size) for name, size in zip(GROUPS, fullest.held_mib, strict=True) if size >= 1.0]
    tools = ", ".join(f"{name} {format_mib(size)}" for name, size in sorted(held, key=lambda pair: -pair[1]))
    holders = "; ".join(
        f"{phase_name(picture.runs[run])} of {units.names[units.of_run[run]]} {format_mib(size)}"
        for run, size in fullest.holders[:3]
        if size >= 1.0
    )
    kills = [mark for mark in picture.marks if mark.kind in ("kill", "ended")]
    killed = (
        f" {plural(len(kills), 'run')} ended by a kill, the first after {format_clock(kills[0].at_s)}." if kills else ""
    )
    waits = sum(mark.kind == "wait" for mark in picture.marks)
    return (
        f"In words: compilers held most after {format_clock(fullest.at_s)}: {format_mib(fullest.total_mib)} ({tools}). "
        f"The largest then: {holders}.{killed} Phases waited for memory {plural(waits, 'time')}; "
        f"at most {picture.lanes} ran at once."
    )


def events(picture: Picture) -> str:
    """What happened when: kills and warnings, and the longest waits."""
    said: set[tuple[float, str]] = set()
    rows = []
    marks = [mark for mark in picture.marks if mark.kind != "wait"]
    for mark in marks[:MOST_EVENTS]:
        key = (round(mark.at_s, 1), mark.text)
        if key in said:
            continue
        said.add(key)
        kind = "kill" if mark.kind in ("kill", "ended", "give-up") else mark.kind
        rows.append(
            f'<li class="{kind}"><button type="button" data-at="{mark.at_s:.2f}">{format_clock(mark.at_s)}</button>'
            f"<span><b>{EVENT_WORDS.get(mark.kind, 'Note')}:</b> {text(mark.text)}</span></li>"
        )
    waits = [run for run in picture.runs if run.waited_for and run.waited_s >= 1.0]
    longest = max(waits, key=lambda run: run.waited_s, default=None)
    if longest is not None:
        rows.append(
            f'<li><button type="button" data-at="{longest.start_s:.2f}">{format_clock(longest.start_s)}</button>'
            f"<span><b>Longest wait:</b> {text(phase_name(longest))} of {text(longest.source)} waited "
            f"{format_clock(longest.waited_s)}: {text(longest.waited_for)}</span></li>"
        )
    if not rows:
        rows = ["<li><span></span><span>Nothing out of the ordinary.</span></li>"]
    more = f'<p class="quiet">{len(marks) - MOST_EVENTS} more are in the trace.</p>' if len(marks) > MOST_EVENTS else ""
    return f'<ol class="events" id="events-list">{"".join(rows)}</ol>{more}'


def about(picture: Picture) -> str:
    """Where the trace comes from."""
    header = picture.header
    rows: Iterable[tuple[str, str]] = (
        ("Command", " ".join(header.command)),
        ("Folder", header.cwd),
        ("Started", started(header.started_at)),
        ("Limited by", f"{header.limited_by} ({format_mib(header.limit_mib)} at the start)"),
        ("Cores", str(header.cores)),
        *_elsewhere(picture),
        ("Window", f"{header.window} units open at once"),
        ("nvcc", f"{header.nvcc} {header.toolkit}".strip() or "none"),
        ("Trace", f"{header.trace_id}, written by builddoctor {header.builddoctor}"),
    )
    return (
        '<dl class="about">' + "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in rows) + "</dl>"
    )


def _elsewhere(picture: Picture) -> Iterable[tuple[str, str]]:
    """Other machines, and the store: what they are, and what they did for this build."""
    sizes = {
        each.node: f"{plural(each.cores, 'core')}, {format_mib(each.budget_mib)} for phases" for each in picture.nodes
    }
    for name in dict.fromkeys([*sizes, *(run.node for run in picture.runs if run.node)]):
        runs = [run for run in picture.runs if run.node == name]
        did = f"{plural(len(runs), 'phase')}, {format_clock(sum(run.end_s - run.start_s for run in runs))} with the way"
        title = "Store" if name == STORE else f"Node {one_line(name)}"
        yield title, f"{sizes[name]}; {did}" if name in sizes else did


def started(iso: str) -> str:
    """A time as people write it; as it stands where it is none."""
    try:
        return datetime.fromisoformat(iso).astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError):
        return iso


def unit_table(picture: Picture, units: Units) -> str:
    """Worst first. Every cell says its worth for sorting."""
    by_unit: dict[int, list[Run]] = {}
    for run, unit in zip(picture.runs, units.of_run, strict=True):
        by_unit.setdefault(unit, []).append(run)
    order = sorted(by_unit, key=lambda unit: -worst(by_unit[unit]).peak_mib)
    most = worst(by_unit[order[0]]).peak_mib if order else 1.0
    head = "".join(
        f'<th scope="col" class="{css}"{_sorted(name)}><button type="button"{_title(tip)}>{name}</button></th>'
        for name, css, tip in COLUMNS
    )
    body = "".join(
        _unit_row(unit, units.names[unit], by_unit[unit], most, later=place >= FIRST_UNITS, picture=picture)
        for place, unit in enumerate(order[:MOST_UNITS])
    )
    left = (
        f'<p class="quiet">{len(order) - MOST_UNITS} smaller units are left out.</p>' if len(order) > MOST_UNITS else ""
    )
    return (
        '<table id="unit-table"><caption class="unseen">Units, the largest first; headers sort</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{left}"
    )


def _sorted(name: str) -> str:
    return ' aria-sort="descending"' if name == "Peak" else ""


def _title(tip: str) -> str:
    return f' title="{text(tip)}"' if tip else ""


def _unit_row(unit: int, name: str, runs: Sequence[Run], most_mib: float, *, later: bool, picture: Picture) -> str:
    largest = worst(runs)
    last = runs[-1].outcome
    bad = last in BAD_OUTCOMES
    redone = sum(run.attempt > 1 for run in runs)
    took = sum(run.end_s - run.start_s for run in runs)
    waited = sum(run.waited_s for run in runs)
    ended = OUTCOME_WORDS.get(last, OUTCOME_WORDS["failed"])
    if last == "ok" and runs[-1].unit_id not in picture.finished:
        ended = "not finished"
    phases = "".join(f"<li>{_phase_in_words(run)}</li>" for run in runs[:MOST_PHASES_NAMED])
    more = f"<li>{len(runs) - MOST_PHASES_NAMED} more</li>" if len(runs) > MOST_PHASES_NAMED else ""
    share = 100 * largest.peak_mib / max(most_mib, 1.0)
    css = CSS_OF.get(largest.group, largest.group)
    classes = " ".join(name for name, wanted in (("failed", bad), ("later", later)) if wanted)
    return (
        f'<tr data-unit="{unit}" class="{classes}">'
        f'<th scope="row" data-sort="{text(name)}"><div class="name"><span>{breakable(name)}</span>'
        f'<button type="button" data-show="{unit}" data-needs-script hidden '
        f'aria-label="Show {text(name)} in the picture">show</button></div>'
        f"<details><summary>{plural(len(runs), 'phase')}</summary><ul>{phases}{more}</ul></details></th>"
        f'<td class="wide" data-sort="{text(phase_name(largest))}">{text(phase_name(largest))}</td>'
        f'<td class="n" data-sort="{largest.peak_mib:.0f}">{format_mib(largest.peak_mib)}'
        f'<span class="size s{_step(share)} {css}"></span></td>'
        f'<td class="n wide" data-sort="{largest.estimate_mib:.0f}">{format_mib(largest.estimate_mib)}</td>'
        f'<td class="n" data-sort="{took:.2f}">{format_clock(took)}</td>'
        f'<td class="n wide" data-sort="{waited:.2f}">{format_clock(waited)}</td>'
        f'<td class="n wide" data-sort="{redone}">{redone or ""}</td>'
        f'<td class="ended wide" data-sort="{text(ended)}">{"✕ " if bad else ""}{text(ended)}</td></tr>'
    )


def _step(share: float) -> int:
    """Width of a bar in steps of five percent: a class for each, since the page allows no style in tags."""
    return max(1, min(STEPS, round(share / 100 * STEPS)))


def _phase_in_words(run: Run) -> str:
    again = f", run {run.attempt}" if run.attempt > 1 else ""
    place = f", {text(place_of(run))}" if run.node else ""
    waited = f", waited {format_clock(run.waited_s)}" if run.waited_s >= 1.0 else ""
    bad = f", {OUTCOME_WORDS.get(run.outcome, 'failed')}" if run.outcome in BAD_OUTCOMES else ""
    return (
        f"{text(phase_name(run))}{again}{place}: {format_mib(run.peak_mib)} of ~{format_mib(run.estimate_mib)}, "
        f"{format_clock(run.end_s - run.start_s)}{waited}{bad}"
    )


def what_if_table(what: WhatIf | None) -> str:
    """A row for each limit, a column for each number of cores."""
    if what is None:
        return "<p>There is nothing in this trace that could run again.</p>"
    if what.left_out:
        return f"<p>No other limit and no number of cores would help: {text(what.left_out)}.</p>"
    head = "".join(f'<th scope="col">{plural(cores, "core")}</th>' for cores in what.cores)
    rows = "".join(
        f'<tr><th scope="row">{format_mib(limit)}</th>'
        + "".join(_cell(each) for each in what.scenarios if each.limit_mib == limit)
        + "</tr>"
        for limit in what.limits_mib
    )
    notes = [
        (
            "Simulated with the phases of this trace, as builddoctor would run them now that it knows them. "
            "plain: the same without builddoctor, MAX_JOBS as many as cores."
        )
    ]
    if what.at_least:
        notes.append(
            f"{plural(what.at_least, 'phase')} never ran to the end: taken with what was held until then, and may need "
            "more."
        )
    return (
        f'<p>{text(what_if_in_words(what))}</p><div class="grid"><table>'
        '<caption class="unseen">Time by memory limit and cores</caption>'
        f'<thead><tr><th scope="col">Memory limit</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        + "".join(f'<p class="quiet">{text(note)}</p>' for note in notes)
    )


def _cell(each: Scenario) -> str:
    here = ' class="here"' if each.as_it_was else ""
    if each.makespan_s is None:
        main = f'<span class="no">✕ would fail</span><small>{text(each.problem)}</small>'
    else:
        redone = f"<small>{each.redone} run again</small>" if each.redone else ""
        main = f'<span class="time">{format_clock(each.makespan_s)}</span>{redone}'
    alone = "killed" if each.plain_s is None else format_clock(each.plain_s)
    was = "<small>as it was</small>" if each.as_it_was else ""
    return f"<td{here}>{main}{was}<small>plain: {alone}</small></td>"


def what_if_in_words(what: WhatIf) -> str:
    """The most important change, in a sentence."""
    was = next((each for each in what.scenarios if each.as_it_was), None)
    if was is None:
        return ""
    at = f"{format_mib(was.limit_mib)} and {plural(was.cores, 'core')}"
    same_cores = [each for each in what.scenarios if each.cores == was.cores]
    if was.makespan_s is None:
        enough = min((each.limit_mib for each in same_cores if each.makespan_s is not None), default=None)
        if enough is None:
            return f"It fails within {at}, and at every other limit here."
        return f"It fails within {at}; {format_mib(enough)} would be enough."
    says = [f"Again within {at} it would take about {format_clock(was.makespan_s)}"]
    least = min(each.limit_mib for each in same_cores if each.makespan_s is not None)
    if least < was.limit_mib:
        says.append(f"{format_mib(least)} would still do")
    best = min(
        (each for each in what.scenarios if each.makespan_s is not None), key=lambda each: each.makespan_s or 0.0
    )
    if best.makespan_s is not None and best.makespan_s < 0.8 * was.makespan_s:
        says.append(
            f"{plural(best.cores, 'core')} and {format_mib(best.limit_mib)} would bring it to "
            f"{format_clock(best.makespan_s)}"
        )
    return "; ".join(says) + "."


def text(value: object) -> str:
    """Fit to stand between tags and in quotes; control characters are blanks."""
    return html.escape(one_line(str(value)), quote=True)


def breakable(name: str) -> str:
    """A path that may be broken behind its slashes and underscores, and not within words."""
    return re.sub(r"([/_])", r"\1<wbr>", text(name))


def phase_name(run: Run) -> str:
    return kind_words(run.kind, run.arch)
