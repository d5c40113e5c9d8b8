"""A plan as a page: what a build would take on one machine, with builddoctor and without, and what more memory or cores
would buy.

Names come from recipes: no control character in them gets through. Colour adds, and carries nothing alone.
Does *not* cover: working it out (``plans``).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from rich.text import Text

from builddoctor.core.plan import Alternative, Plan, Range
from builddoctor.core.recipe import Hazard
from builddoctor.core.units import format_clock, format_gib, format_mib, one_line, shell_word
from builddoctor.ui.chart import Chart
from builddoctor.ui.held_back import plan_held_back_words
from builddoctor.ui.layout import Column, Signs, plural, table

LABEL = 11
LEAST_WIDTH = 40
MOST_WIDTH = 110
MOST_TOO_BIG = 6
SAME_SHARE = 0.03
"""Times that differ by less are the same to a person."""

LEAST_CHART_WIDTH = 76
CHART_WIDTH, CHART_HEIGHT = 72, 10

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
    lines = [Text(_clean(title, signs), style="bold"), Text("")]
    for part in (_what(plan, trust), (*_times(plan), *_cluster(plan))):
        for row in part:
            lines += _row(row, width, signs)
        lines.append(Text(""))
    if plan.order:
        lines += [*_stages(plan, width, signs), Text("")]
    told = [*hazard_rows(plan.hazards), *(("note", note, "") for note in plan.notes)]
    for row in told:
        lines += _row(row, width, signs)
    if told:
        lines.append(Text(""))
    lines += _more(plan, width=width, signs=signs)
    for row in _next(plan):
        lines += _row(row, MOST_WIDTH * 4, signs)
    return lines


def _what(plan: Plan, trust: str) -> Iterator[Row]:
    kind = f"{plan.host_arch}, " if plan.host_arch else ""
    memory = f"{format_mib(plan.memory_mib)}: {format_mib(plan.budget_mib)} of it for compilers"
    beside = f"{format_mib(plan.beside_mib)} for what starts them, " if plan.beside_mib else ""
    kept = f"{beside}{format_mib(plan.reserve_mib)} stay free"
    yield "machine", f"{kind}{plan.cores} core{'s' * (plan.cores != 1)}, {memory}, {kept}", ""
    runs = f", {plan.runs} run{'s' * (plan.runs != 1)}" if plan.provenance == "measured" and plan.runs else ""
    yield "recipe", f"{plan.recipe}: {OF_PROVENANCE[plan.provenance]}{runs}", ""
    if plan.differs:
        yield "", f"{'; '.join(plan.differs)}{f': {trust}' if trust else ''}", "yellow"
    yield "units", f"{sum(not place.startswith('link ') for place in plan.order)}{_largest(plan)}", ""
    for text in plan.too_big[:MOST_TOO_BIG]:
        yield "too big", f"{text}: does not fit here, even alone", "bold red"
    if plan.too_big[MOST_TOO_BIG:]:
        yield "too big", f"{len(plan.too_big) - MOST_TOO_BIG} more units", "bold red"


def _largest(plan: Plan) -> str:
    largest = max((stage.largest_mib for stage in plan.stages), default=0.0)
    return f", the largest that fits takes {format_mib(largest)}" if largest else ""


def _times(plan: Plan) -> Iterator[Row]:
    rest = ", without what does not fit" if plan.too_big else ""
    time = plan.makespan_range_s
    yield (
        "gated",
        f"{format_clock(plan.makespan_s)}, likely {format_clock(time.low)} to {format_clock(time.high)}{rest}",
        "bold",
    )
    if held := plan_held_back_words(plan):
        yield "", held, ""
    yield "", f"peak {format_mib(plan.peak_mib)}, likely {_sizes(plan.peak_range_mib)}", ""
    if plan.time_limit_s:
        limit = format_clock(plan.time_limit_s)
        count = (
            f"{plan.attempts}" if plan.attempts is not None else f"never, for {plan.longest_unit} takes longer than one"
        )
        yield "", f"in jobs of {limit}, one after the other with --until: {count}", "" if plan.attempts else "yellow"
    yield "", f"window {plan.window} (units open at most, builddoctor's MAX_JOBS), nvcc --threads {plan.threads}", ""
    pair = plan.static
    if pair is not None:
        knobs = f"MAX_JOBS={pair.jobs}, NVCC_THREADS={pair.threads}: {format_clock(pair.makespan_s)}"
        yield "without", f"{knobs}; safe whichever units run together, at most {format_mib(pair.peak_mib)}", ""
    else:
        yield "without", "no number of jobs is safe without builddoctor, not even MAX_JOBS=1", "yellow"
    if plan.staged_s is not None:
        yield "", f"in stages, as below: {format_clock(plan.staged_s)}", ""


def _cluster(plan: Plan) -> Iterator[Row]:
    """What the other machines would bring; that they bring nothing, where that is so."""
    found = plan.cluster
    if found is None:
        return
    cores, largest_mib = sum(node.cores for node in found.nodes), max(node.budget_mib for node in found.nodes)
    most = f"at most {format_mib(largest_mib)} for one phase"
    there = f"{plural(len(found.nodes), 'node')}, {plural(cores, 'core')}, {most}"
    if found.makespan_s is None:
        yield "cluster", f"{there}: something fits on none of them", "bold red"
        return
    time = format_clock(found.makespan_s)
    if found.only_there:
        names = f"{found.only_there[0]}{f' and {len(found.only_there) - 1} more' if found.only_there[1:] else ''}"
        yield "cluster", f"{there}: {time}, with what does not fit here: {names}", "bold"
    elif found.makespan_s > plan.makespan_s * (1 - SAME_SHARE):
        yield "cluster", f"{there}: {time}. They bring nothing: {_why_nothing(plan, found.makespan_s)}", "yellow"
    else:
        yield "cluster", f"{there}: {time} instead of {format_clock(plan.makespan_s)}", "bold"


def _why_nothing(plan: Plan, makespan_s: float) -> str:
    if plan.longest_unit_s >= makespan_s * (1 - SAME_SHARE):
        return f"{plan.longest_unit} alone takes as long"
    return "this machine has cores and memory enough, or preprocessing and links are what all waits for"


def _sizes(sizes: Range) -> str:
    return (
        f"{format_gib(sizes.low)} to {format_mib(sizes.high)}"
        if sizes.low >= 1024
        else (f"{format_mib(sizes.low)} to {format_mib(sizes.high)}")
    )


def _stages(plan: Plan, width: int, signs: Signs) -> list[Text]:
    """A line a stage."""
    columns = [
        Column("stage", name=True),
        *(Column(head, right=True) for head in ("jobs", "threads", "units", "largest", "peak", "time")),
        Column(""),
    ]
    rows = [
        (
            signs.words(stage.name),
            str(stage.jobs),
            str(stage.threads),
            str(stage.units),
            format_mib(stage.largest_mib),
            format_mib(stage.peak_mib),
            format_clock(stage.makespan_s),
            "links, and what is left" if stage.weight == "rest" else "",
        )
        for stage in plan.stages
    ]
    lines = table(columns, rows, width=width)
    if max(line.cell_len for line in lines) > width:
        lines = table(columns[:-1], [row[:-1] for row in rows], width=width)
    return lines


def hazard_rows(hazards: Iterable[Hazard]) -> Iterator[Row]:
    """What is known to fail, and who says so."""
    for hazard in hazards:
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
    wrapped = textwrap.wrap(_clean(text, signs), width - LABEL, break_long_words=False, break_on_hyphens=False) or [""]
    lines = [Text(f"{label:<{LABEL}}").append(wrapped[0], style=style)]
    return [*lines, *(Text(" " * LABEL).append(each, style=style) for each in wrapped[1:])]


def _clean(text: str, signs: Signs) -> str:
    """A line that any terminal takes."""
    return signs.words(one_line(text))


def _more(plan: Plan, *, width: int, signs: Signs) -> list[Text]:
    """What other memory and cores would do, with an empty line at its end; nothing where there is none to compare."""
    if not plan.order or len(plan.alternatives) < 2:
        return []
    times = [each.makespan_s for each in plan.alternatives if each.makespan_s is not None]
    if len(times) == len(plan.alternatives) and max(times) <= (1 + SAME_SHARE) * min(times):
        words = "Neither memory nor cores decide: half of both is enough, the longest unit takes as long as the build."
        return [Text(line) for line in textwrap.wrap(words, width)] + [Text("")]
    picture = _chart(plan, width=width, signs=signs)
    return [*_alternatives(plan, width), Text(""), *picture, *([Text("")] if picture else [])]


def _alternatives(plan: Plan, width: int) -> list[Text]:
    """A row for each memory, a column for each number of cores: gated, and the best that is safe without."""
    counts = sorted({each.cores for each in plan.alternatives})
    by_place = {(each.memory_mib, each.cores): each for each in plan.alternatives}
    while True:
        columns = [Column("memory"), *(Column(plural(count, "core")) for count in counts)]
        rows = []
        for memory_mib in sorted({each.memory_mib for each in plan.alternatives}):
            row = [Text(format_mib(memory_mib))]
            for count in counts:
                here = memory_mib == plan.memory_mib and count == plan.cores
                row.append(Text(_cell(by_place.get((memory_mib, count))), style="bold" if here else ""))
            rows.append(row)
        lines = table(columns, rows)
        if len(counts) == 1 or max(line.cell_len for line in lines) <= width:
            break
        counts = [count for count in counts if count == plan.cores] if len(counts) == 2 else counts[1:]
    aside = "  (without: the largest safe -j)"
    return [lines[0].append(aside if lines[0].cell_len + len(aside) <= width else "", style="dim"), *lines[1:]]


def _cell(each: Alternative | None) -> str:
    if each is None:
        return ""
    if each.makespan_s is None:
        return "does not fit"
    known = each.static_jobs and each.static_s is not None
    static = f"-j{each.static_jobs} {format_clock(each.static_s or 0.0)}" if known else "none"
    return f"{format_clock(each.makespan_s)} ({static})"


def _chart(plan: Plan, *, width: int, signs: Signs) -> list[Text]:
    """Time over memory with this machine's cores: gated, and without builddoctor."""
    here = sorted((each for each in plan.alternatives if each.cores == plan.cores), key=lambda each: each.memory_mib)
    gated = [(each.memory_mib, each.makespan_s) for each in here if each.makespan_s is not None]
    static = [(each.memory_mib, each.static_s) for each in here if each.static_s is not None]
    if len(gated) < 2 or width < LEAST_CHART_WIDTH:
        return []
    unit, divisor = ("GiB", 1024.0) if gated[0][0] >= 1024 else ("MiB", 1.0)
    first, last = here[0].memory_mib, here[-1].memory_mib
    top_s = max(*(time_s for _, time_s in (*gated, *static)), 1e-3)

    def place(memory_mib: float) -> float:
        return (memory_mib - first) / (last - first)

    chart = Chart(
        min(width, CHART_WIDTH),
        CHART_HEIGHT,
        x_ticks=[(place(each.memory_mib), _number(each.memory_mib / divisor)) for each in here],
        y_ticks=[(part / 3, format_clock(top_s * part / 3)) for part in range(4)],
        signs=signs,
    )
    ours, theirs, between = ("●", "○", "·") if signs.unicode else ("o", "x", ".")
    for points, sign, style in ((static, theirs, "yellow"), (gated, ours, "cyan")):
        shares = [(place(memory_mib), time_s / top_s) for memory_mib, time_s in points]
        chart.curve(shares, between, style)
        for x, y in shares:
            chart.mark(x, y, sign, style)
    legend = Text(f"time over memory, {unit}, {plural(plan.cores, 'core')}   ")
    legend.append(ours, style="cyan").append(" gated   ")
    legend.append(theirs, style="yellow").append(" without, the largest safe -j")
    return [legend, *chart.lines()]


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
