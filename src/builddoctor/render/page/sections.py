"""The parts of the page that can be read without any script: words, figures, tables. Pure: data in, HTML out.

Everything from the trace goes through ``text``; nothing else may be put between tags or quotes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from builddoctor.model.verdict import Fix
from builddoctor.render.page.markup import phase_name, plural, text
from builddoctor.render.page.payload import Units
from builddoctor.render.page.words import Words
from builddoctor.trace.picture import GROUPS, Picture
from builddoctor.units import format_clock, format_mib

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
    return (
        f'<section class="card verdict {words.state}" aria-labelledby="headline">'
        f'<span class="state">{SIGN[words.state]} {text(words.label)}</span>'
        f'<h1 id="headline">{text(words.headline)}</h1><p>{text(words.because)}</p>{ladder}</section>'
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
        ("Waited for memory", format_clock(waits), "all phases together"),
    ]
    rows = "".join(
        f'<div><dt>{text(name)}</dt><dd>{text(value)}<span class="of">{text(of)}</span></dd></div>'
        for name, value, of in cells
    )
    return f'<dl class="figures" aria-label="The build in figures">{rows}</dl>'


def picture_in_words(picture: Picture, units: Units) -> str:
    """What the three pictures show, for those who do not see them."""
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
    marks = [
        mark for mark in picture.marks if mark.kind != "wait" and not (mark.kind == "warning" and _is_twice(mark.text))
    ]
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


def _is_twice(words: str) -> bool:
    """Warnings that say again what a mark of its own says."""
    return words.startswith("gives up on ")


def about(picture: Picture) -> str:
    """Where the trace comes from."""
    header = picture.header
    rows: Iterable[tuple[str, str]] = (
        ("Command", " ".join(header.command)),
        ("Folder", header.cwd),
        ("Started", started(header.started_at)),
        ("Limited by", f"{header.limited_by} ({format_mib(header.limit_mib)} at the start)"),
        ("Cores", str(header.cores)),
        ("Window", f"{header.window} units open at once"),
        ("nvcc", f"{header.nvcc} {header.toolkit}".strip() or "none"),
        ("Trace", f"{header.trace_id}, written by builddoctor {header.builddoctor}"),
    )
    return '<dl class="about">' + "".join(f"<dt>{name}</dt><dd>{text(value)}</dd>" for name, value in rows) + "</dl>"


def started(iso: str) -> str:
    """A time as people write it; as it stands where it is none."""
    try:
        return datetime.fromisoformat(iso).astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError):
        return iso
