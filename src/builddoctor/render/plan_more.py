"""What more memory or more cores would buy: a table and a picture of a plan's alternatives. Pure but for the plotting
library's one figure, which is cleared each time.

Where neither would help, that is said in a sentence instead.
"""

from __future__ import annotations

import textwrap

from rich.text import Text

from builddoctor.model.plan import Alternative, Plan
from builddoctor.render.plan_words import span
from builddoctor.render.signs import Signs
from builddoctor.units import format_mib

SAME_SHARE = 0.03
"""Times that differ by less are the same to a person."""

CELL = 20
LEAST_PLOT_WIDTH = 76
PLOT_WIDTH, PLOT_HEIGHT = 72, 10

_FRAME_IN_ASCII = str.maketrans("┌┐└┘├┤┬┴┼│─", "+++++++++|-")


def more(plan: Plan, *, width: int, signs: Signs) -> list[Text]:
    """Lines with an empty one at their end; none where there is nothing to compare."""
    if not plan.order or len(plan.alternatives) < 2:
        return []
    times = [each.makespan_s for each in plan.alternatives if each.makespan_s is not None]
    if len(times) == len(plan.alternatives) and max(times) <= (1 + SAME_SHARE) * min(times):
        words = "Neither memory nor cores decide: half of both would do, the longest unit takes as long as the build."
        return [Text(line) for line in textwrap.wrap(words, width)] + [Text("")]
    lines = [*_table(plan, width)]
    picture = _plot(plan, width=width, signs=signs)
    return [*lines, Text(""), *picture, *([Text("")] if picture else [])]


def _table(plan: Plan, width: int) -> list[Text]:
    """A row for each memory, a column for each number of cores: gated, and the best that is safe without."""
    counts = sorted({each.cores for each in plan.alternatives})
    while len(counts) > 1 and 12 + CELL * len(counts) > width:
        counts = [count for count in counts if count == plan.cores] if len(counts) == 2 else counts[1:]
    by_place = {(each.memory_mib, each.cores): each for each in plan.alternatives}
    head = f"{'memory':<12}" + "".join(f"{cores_words(count):<{CELL}}" for count in counts)
    aside = "  (without: the largest safe -j)"
    lines = [Text(head.rstrip() + aside * (len(head.rstrip() + aside) <= width), style="dim")]
    for memory_mib in sorted({each.memory_mib for each in plan.alternatives}):
        line = Text(f"{format_mib(memory_mib):<12}")
        for count in counts:
            each = by_place.get((memory_mib, count))
            here = memory_mib == plan.memory_mib and count == plan.cores
            line.append(f"{_cell(each) if each else '':<{CELL}}", style="bold" if here else "")
        line.rstrip()
        lines.append(line)
    return lines


def _cell(each: Alternative) -> str:
    if each.makespan_s is None:
        return "does not fit"
    static = f"-j{each.static_jobs} {span(each.static_s)}" if each.static_jobs and each.static_s is not None else "none"
    return f"{span(each.makespan_s)} ({static})"


def _plot(plan: Plan, *, width: int, signs: Signs) -> list[Text]:
    """Time over memory with this machine's cores: gated, and without builddoctor."""
    here = sorted((each for each in plan.alternatives if each.cores == plan.cores), key=lambda each: each.memory_mib)
    gated = [(each.memory_mib, each.makespan_s) for each in here if each.makespan_s is not None]
    static = [(each.memory_mib, each.static_s) for each in here if each.static_s is not None]
    if len(gated) < 2 or width < LEAST_PLOT_WIDTH:
        return []
    unit, divisor = ("GiB", 1024.0) if gated[0][0] >= 1024 else ("MiB", 1.0)
    # Here, and not above: no other command should wait for it.
    import plotext as figure

    figure.clear_figure()
    figure.limit_size(False, False)
    figure.plot_size(min(width, PLOT_WIDTH), PLOT_HEIGHT)
    figure.theme("clear")
    ours, theirs, between = ("●", "○", "·") if signs.unicode else ("o", "x", ".")
    for points, marker, colour in ((static, theirs, "orange"), (gated, ours, "cyan")):
        if points:
            at, times = [each / divisor for each, _ in points], [time_s for _, time_s in points]
            figure.plot(at, times, marker=between, color=colour)
            figure.scatter(at, times, marker=marker, color=colour)
    top_s = max(time_s for _, time_s in (*gated, *static))
    figure.ylim(0, max(top_s, 1e-3))
    ticks = [top_s * part / 3 for part in range(4)]
    figure.yticks(ticks, [span(tick) for tick in ticks])
    places = [each.memory_mib / divisor for each in here]
    figure.xticks(places, [_number(place) for place in places])
    drawn = figure.build()
    figure.clear_figure()
    if not signs.unicode:
        drawn = drawn.translate(_FRAME_IN_ASCII)
    legend = (
        Text(f"time over memory, {unit}, {cores_words(plan.cores)}   ").append(ours, style="cyan").append(" gated   ")
    )
    legend.append(theirs, style="yellow").append(" without, the largest safe -j")
    return [legend, *(Text.from_ansi(line) for line in drawn.rstrip("\n").split("\n"))]


def cores_words(count: int) -> str:
    return f"{count} core{'s' * (count != 1)}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
