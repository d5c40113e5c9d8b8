"""The page's two tables: units, and the build at other limits. Pure: data in, HTML out."""

from __future__ import annotations

from collections.abc import Sequence

from builddoctor.model.what_if import Scenario, WhatIf
from builddoctor.render.page.markup import breakable, phase_name, plural, text
from builddoctor.render.page.payload import BAD_OUTCOMES, CSS_OF, OUTCOME_WORDS, Units, worst
from builddoctor.trace.picture import Picture, Run
from builddoctor.units import format_clock, format_mib

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


STEPS = 20


def _step(share: float) -> int:
    """Width of a bar in steps of five percent: a class for each, since the page allows no style in tags."""
    return max(1, min(STEPS, round(share / 100 * STEPS)))


def _phase_in_words(run: Run) -> str:
    again = f", run {run.attempt}" if run.attempt > 1 else ""
    waited = f", waited {format_clock(run.waited_s)}" if run.waited_s >= 1.0 else ""
    bad = f", {OUTCOME_WORDS.get(run.outcome, 'failed')}" if run.outcome in BAD_OUTCOMES else ""
    return (
        f"{text(phase_name(run))}{again}: {format_mib(run.peak_mib)} of ~{format_mib(run.estimate_mib)}, "
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
    """The one change that matters, for those who do not read tables."""
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
