"""Memory over time, drawn with characters. Pure but for the plotting library's one figure, which is cleared each time.

Covers: what phases held and what others did, budget and limit, kills. Does *not* cover: memory by tool (the page).
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from builddoctor.render.signs import Signs
from builddoctor.trace.report import Point, TraceReport
from builddoctor.units import format_clock

LEAST_WIDTH = 24
MARKS = {"killed": "K", "kill": "E", "give-up": "X"}
_FRAME_IN_ASCII = str.maketrans("┌┐└┘├┤┬┴┼│─", "+++++++++|-")


def timeline(report: TraceReport, *, width: int, height: int, signs: Signs) -> list[Text]:
    """The picture with its legend; a line of words where there is nothing to draw."""
    points = report.timeline
    if len(points) < 2 or width < LEAST_WIDTH:
        return [Text("memory was not looked at often enough for a picture", style="dim")] if len(points) < 2 else []
    top_mib = max(max(point.limit_mib, point.used_mib, point.budget_mib) for point in points)
    unit, divisor = ("GiB", 1024.0) if top_mib >= 2048 else ("MiB", 1.0)
    used, ours, budget, limit, others = _signs(signs)
    # Here, and not above: no other command should wait for it.
    import plotext as figure

    figure.clear_figure()
    figure.limit_size(False, False)
    figure.plot_size(width, height)
    figure.theme("clear")
    first_s, last_s = points[0].at_s, max(report.last_at_s, points[-1].at_s, points[0].at_s + 1)
    columns = _columns(points, first_s, last_s, width)
    at_s = [at for at, _ in columns]
    figure.plot(at_s, [point.used_mib / divisor for _, point in columns], marker=others, fillx=True, color="gray")
    figure.plot(at_s, [point.ours_mib / divisor for _, point in columns], marker=ours, fillx=True, color="cyan")
    figure.plot(at_s, [point.budget_mib / divisor for _, point in columns], marker=budget, color="orange")
    figure.plot(at_s, [point.limit_mib / divisor for _, point in columns], marker=limit, color="red")
    scale = max(top_mib / divisor, 1e-3)
    kinds = []
    for row, (kind, letter) in enumerate(MARKS.items()):
        # Letters at the top where something died.
        moments = [event.at_s for event in report.events if event.kind == kind]
        if moments:
            kinds.append(kind)
            figure.scatter(moments, [scale * (0.93 - 0.07 * row)] * len(moments), marker=letter, color="red+")
    figure.xlim(first_s, last_s)
    figure.ylim(0, scale)
    ticks = [scale * part / 4 for part in range(5)]
    figure.yticks(ticks, [f"{tick:.1f}" if scale < 100 else f"{tick:.0f}" for tick in ticks])
    number = max(2, min(8, width // 16))
    clocks = [first_s + (last_s - first_s) * part / (number - 1) for part in range(number)]
    figure.xticks(clocks, [format_clock(clock) for clock in clocks])
    drawn = figure.build()
    figure.clear_figure()
    if not signs.unicode:
        drawn = drawn.translate(_FRAME_IN_ASCII)
    legend = [
        Text(f"memory, {unit}"),
        *(
            Text(sign, style=style).append(f" {words}", style="default")
            for sign, style, words in (
                (used, "cyan", "this build"),
                (others, "bright_black", "others"),
                (budget, "yellow", "budget"),
                (limit, "red", "limit"),
            )
        ),
        *(Text(MARKS[kind], style="bold red").append(f" {_MEANING[kind]}", style="not bold default") for kind in kinds),
    ]
    return [*_flowing(legend, width), *(Text.from_ansi(line) for line in drawn.rstrip("\n").split("\n"))]


def _flowing(pieces: Sequence[Text], width: int) -> list[Text]:
    """Pieces side by side, as many as a line takes."""
    lines = [pieces[0]]
    for piece in pieces[1:]:
        if lines[-1].cell_len + 3 + piece.cell_len <= width:
            lines[-1].append("   ").append_text(piece)
        else:
            lines.append(piece)
    return lines


_MEANING = {"killed": "killed", "kill": "ended by builddoctor", "give-up": "given up"}


def _signs(signs: Signs) -> tuple[str, str, str, str, str]:
    """For the legend and then for drawing: what this build holds, budget, limit, what others hold."""
    if signs.unicode:
        return "█", "hd", "─", "━", "░"
    return "#", "#", "-", "=", ":"


def _columns(points: Sequence[Point], first_s: float, last_s: float, width: int) -> list[tuple[float, Point]]:
    """A point for each column: the fullest of its span of time, or else the one before."""
    number = max(2, width)
    step_s = (last_s - first_s) / (number - 1)
    fullest: dict[int, Point] = {}
    for point in points:
        column = min(number - 1, max(0, round((point.at_s - first_s) / step_s)))
        known = fullest.get(column)
        if known is None or point.ours_mib > known.ours_mib:
            fullest[column] = point
    drawn, last = [], points[0]
    for column in range(number):
        last = fullest.get(column, last)
        drawn.append((first_s + column * step_s, last))
    return drawn
