"""A plan as a page: what a build would take on one machine, with builddoctor and without. Pure: data in, lines out.

Names come from recipes: no control character in them gets through. Colour adds, and carries nothing alone.
Does *not* cover: working it out (``plans``), or what other memory and cores would do (``render.plan_more``).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.text import Text

from builddoctor.model.plan import Plan, Range, Stage
from builddoctor.render.plan_more import more
from builddoctor.render.plan_words import clean, span
from builddoctor.render.signs import Signs
from builddoctor.units import format_gib, format_mib, shell_word

LABEL = 11
LEAST_WIDTH = 40
MOST_WIDTH = 110
MOST_TOO_BIG = 6

OF_PROVENANCE = {
    "measured": "measured",
    "emulated": "the real tools under emulation of their processor: sizes hold, times are a rough guide",
    "derived": "derived from measured figures of something alike",
}

Row = tuple[str, str, str]
"""label, text, style of the text"""


def plan_page(plan: Plan, *, width: int, signs: Signs, trust: str = "") -> list[Text]:
    """All of it. ``trust``: what the recipe's distance means, in words."""
    width = max(LEAST_WIDTH, min(width, MOST_WIDTH))
    archs = f" for {', '.join(plan.archs)}" if plan.archs else ""
    title = f"{f'{plan.project} {plan.version}'.rstrip()}{archs} on {plan.machine}"
    lines = [Text(clean(title, signs), style="bold"), Text("")]
    for part in (_what(plan, trust), _times(plan)):
        for row in part:
            lines += _row(row, width, signs)
        lines.append(Text(""))
    if plan.order:
        lines += [*_stages(plan, width, signs), Text("")]
    told = [*_hazards(plan), *(("note", note, "") for note in plan.notes)]
    for row in told:
        lines += _row(row, width, signs)
    if told:
        lines.append(Text(""))
    lines += more(plan, width=width, signs=signs)
    for row in _next(plan):
        lines += _row(row, MOST_WIDTH * 4, signs)
    return lines


def _what(plan: Plan, trust: str) -> Iterator[Row]:
    kind = f"{plan.host_arch}, " if plan.host_arch else ""
    memory = f"{format_mib(plan.memory_mib)}: {format_mib(plan.budget_mib)} of it for compilers"
    kept = f"{format_mib(plan.reserve_mib)} stay free"
    yield "machine", f"{kind}{plan.cores} core{'s' * (plan.cores != 1)}, {memory}, {kept}", ""
    runs = f", {plan.runs} run{'s' * (plan.runs != 1)}" if plan.provenance == "measured" and plan.runs else ""
    yield "recipe", f"{plan.recipe}: {OF_PROVENANCE[plan.provenance]}{runs}", ""
    if plan.differs:
        yield "", f"{'; '.join(plan.differs)}{f': {trust}' if trust else ''}", "yellow"
    yield "units", f"{len(plan.order)}{_largest(plan)}", ""
    for text in plan.too_big[:MOST_TOO_BIG]:
        yield "too big", f"{text}: does not fit here, not even alone", "bold red"
    if plan.too_big[MOST_TOO_BIG:]:
        yield "too big", f"{len(plan.too_big) - MOST_TOO_BIG} more units", "bold red"


def _largest(plan: Plan) -> str:
    largest = max((stage.largest_mib for stage in plan.stages), default=0.0)
    return f", the largest that fits takes {format_mib(largest)}" if largest else ""


def _times(plan: Plan) -> Iterator[Row]:
    rest = ", without what does not fit" if plan.too_big else ""
    time = plan.makespan_range_s
    yield "gated", f"{span(plan.makespan_s)}, likely {span(time.low)} to {span(time.high)}{rest}", "bold"
    yield "", f"peak {format_mib(plan.peak_mib)}, likely {_sizes(plan.peak_range_mib)}", ""
    yield "", f"window {plan.window} (units open at most, builddoctor's MAX_JOBS), nvcc --threads {plan.threads}", ""
    pair = plan.static
    if pair is not None:
        knobs = f"MAX_JOBS={pair.jobs}, NVCC_THREADS={pair.threads}: {span(pair.makespan_s)}"
        yield "without", f"{knobs}; safe whichever units meet, at most {format_mib(pair.peak_mib)}", ""
    else:
        yield "without", "no number of jobs is safe without builddoctor, not even MAX_JOBS=1", "yellow"
    if plan.staged_s is not None:
        yield "", f"in stages, as below: {span(plan.staged_s)}", ""


def _sizes(sizes: Range) -> str:
    return (
        f"{format_gib(sizes.low)} to {format_mib(sizes.high)}"
        if sizes.low >= 1024
        else (f"{format_mib(sizes.low)} to {format_mib(sizes.high)}")
    )


def _stages(plan: Plan, width: int, signs: Signs) -> list[Text]:
    """A line a stage."""
    cells = min(max(len(stage.name) for stage in plan.stages), max(8, width - 52))
    head = f"{'stage':<{cells}}  {'jobs':>5}{'threads':>9}{'units':>7}{'largest':>10}{'peak':>10}{'time':>8}"
    lines = [Text(head, style="dim")]
    for stage in plan.stages:
        name = clean(stage.name, signs)[:cells]
        row = (
            f"{name:<{cells}}  {stage.jobs:>5}{stage.threads:>9}{stage.units:>7}"
            f"{format_mib(stage.largest_mib):>10}{format_mib(stage.peak_mib):>10}{span(stage.makespan_s):>8}"
        )
        aside = _aside(stage)
        lines.append(Text(row + (aside if len(row) + len(aside) <= width else "")))
    return lines


def _aside(stage: Stage) -> str:
    return "  links, and what is left" if stage.weight == "rest" else ""


def _hazards(plan: Plan) -> Iterator[Row]:
    for hazard in plan.hazards:
        tool = hazard.tool if hazard.tool not in hazard.text else ""
        where = ": ".join(filter(None, (hazard.place, tool)))
        source = f" ({hazard.source})" if hazard.source else ""
        yield "hazard", f"{f'{where}: ' if where else ''}{hazard.text}{source}", "yellow"


def _next(plan: Plan) -> Iterator[Row]:
    """Lines to paste."""
    arch = f" --arch {','.join(plan.archs)}" if plan.archs else ""
    recipe = shell_word(plan.recipe)
    yield "next", f"builddoctor build {shell_word(plan.project)}{arch} --recipe {recipe}", ""
    size = f"{max(1, int(plan.memory_mib // 1024))}GiB" if plan.memory_mib >= 1024 else f"{int(plan.memory_mib)}MiB"
    yield "", f"builddoctor recipe render {recipe} --to sh --cores {plan.cores} --memory {size}", ""


def _row(row: Row, width: int, signs: Signs) -> list[Text]:
    """``label  text``; what is too long goes on under the text."""
    label, text, style = row
    wrapped = textwrap.wrap(clean(text, signs), width - LABEL, break_long_words=False, break_on_hyphens=False) or [""]
    lines = [Text(f"{label:<{LABEL}}").append(wrapped[0], style=style)]
    return [*lines, *(Text(" " * LABEL).append(each, style=style) for each in wrapped[1:])]
