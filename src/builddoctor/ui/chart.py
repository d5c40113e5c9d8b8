"""Charts drawn with characters: memory over time, and the grid that any chart is drawn on.

Covers: what phases held and what others did, budget and limit, kills. Does *not* cover: memory by tool (``ui.page``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.text import Text

from builddoctor.core.units import format_clock
from builddoctor.trace.report import Point, TraceReport
from builddoctor.ui.layout import Signs

LEAST_WIDTH = 24
MARKS = {"killed": "K", "kill": "E", "give-up": "X"}
_MEANING = {"killed": "killed", "kill": "ended by builddoctor", "give-up": "given up"}
_EIGHTHS = "▁▂▃▄▅▆▇█"

Tick = tuple[float, str]
"""place from 0 to 1, and what stands there"""


class Chart:
    """Cells in a frame with ticks. Places are shares of the axes, from 0 to 1; what is drawn later is on top."""

    def __init__(
        self, width: int, height: int, *, x_ticks: Sequence[Tick], y_ticks: Sequence[Tick], signs: Signs
    ) -> None:
        """``width``, ``height``: cells of the whole picture with its labels; the frame takes three rows."""
        self._signs = signs
        self._x_ticks, self._y_ticks = x_ticks, y_ticks
        self._labels = max((len(label) for _, label in y_ticks), default=0)
        self.columns = max(2, width - self._labels - 2)
        self.rows = max(2, height - 3)
        self._cells = [[(" ", "")] * self.columns for _ in range(self.rows)]

    def fill(self, heights: Sequence[float], sign: str, style: str) -> None:
        """Columns from the bottom up, one for each cell; with eighths of a cell at their top where ``sign`` is full."""
        for column, height in enumerate(heights):
            eighths = round(8 * self.rows * _share(height))
            whole, part = divmod(eighths, 8)
            for row in range(whole):
                self._cells[row][column] = (sign, style)
            if part and sign == _EIGHTHS[-1]:
                self._cells[whole][column] = (_EIGHTHS[part - 1], style)
            elif part >= 4 or (part and not whole):
                self._cells[whole][column] = (sign, style)

    def line(self, heights: Sequence[float], sign: str, style: str) -> None:
        """A cell in each column."""
        for column, height in enumerate(heights):
            self._cells[self._row(height)][column] = (sign, style)

    def curve(self, points: Sequence[tuple[float, float]], sign: str, style: str) -> None:
        """Straight lines from point to point."""
        for (x, y), (next_x, next_y) in pairwise(points):
            steps = max(1, abs(self._column(next_x) - self._column(x)), abs(self._row(next_y) - self._row(y)))
            for step in range(steps + 1):
                self.mark(x + (next_x - x) * step / steps, y + (next_y - y) * step / steps, sign, style)

    def mark(self, x: float, y: float, sign: str, style: str) -> None:
        """One cell."""
        self._cells[self._row(y)][self._column(x)] = (sign, style)

    def lines(self) -> list[Text]:
        """The picture, from its top."""
        left_top, right_top, left_foot, right_foot, tick, foot, side, edge = (
            "┌┐└┘┤┬│─" if self._signs.unicode else "++++++|-"
        )
        labels = {self._row(place): label for place, label in self._y_ticks}
        margin = " " * self._labels
        drawn = [Text(margin + left_top + edge * self.columns + right_top)]
        for row in reversed(range(self.rows)):
            label = labels.get(row, "")
            line = Text(f"{label:>{self._labels}}{tick if label else side}")
            for sign, style in self._cells[row]:
                line.append(sign, style=style)
            drawn.append(line.append(side))
        places = {self._column(place): label for place, label in self._x_ticks}
        frame = "".join(foot if column in places else edge for column in range(self.columns))
        return [*drawn, Text(margin + left_foot + frame + right_foot), Text(margin + " " + self._foot(places))]

    def _foot(self, places: dict[int, str]) -> str:
        """Labels below their places, as far as they do not touch."""
        line = ""
        for column, label in sorted(places.items()):
            start = min(max(0, column - len(label) // 2), self.columns - len(label))
            if start > len(line) or not line:
                line = line.ljust(max(0, start)) + label
        return line

    def _row(self, y: float) -> int:
        return min(self.rows - 1, round(_share(y) * (self.rows - 1)))

    def _column(self, x: float) -> int:
        return round(_share(x) * (self.columns - 1))


def timeline(report: TraceReport, *, width: int, height: int, signs: Signs) -> list[Text]:
    """Memory over time with its legend; a line of words where there is nothing to draw."""
    points = report.timeline
    if len(points) < 2 or width < LEAST_WIDTH:
        return [Text("memory was not read often enough for a picture", style="dim")] if len(points) < 2 else []
    top_mib = max(max(point.limit_mib, point.used_mib, point.budget_mib) for point in points)
    unit, divisor = ("GiB", 1024.0) if top_mib >= 2048 else ("MiB", 1.0)
    used, budget, limit, others = ("█", "─", "━", "░") if signs.unicode else ("#", "-", "=", ":")
    first_s, last_s = points[0].at_s, max(report.last_at_s, points[-1].at_s, points[0].at_s + 1)
    scale = max(top_mib, 1e-3 * divisor)
    number = max(2, min(8, width // 16))
    top = scale / divisor
    chart = Chart(
        width,
        height,
        x_ticks=[
            (at / (number - 1), format_clock(first_s + (last_s - first_s) * at / (number - 1))) for at in range(number)
        ],
        y_ticks=[(part / 4, f"{top * part / 4:.1f}" if top < 100 else f"{top * part / 4:.0f}") for part in range(5)],
        signs=signs,
    )
    columns = _columns(points, first_s, last_s, chart.columns)
    chart.fill([point.used_mib / scale for point in columns], others, "bright_black")
    chart.fill([point.ours_mib / scale for point in columns], used, "cyan")
    chart.line([point.budget_mib / scale for point in columns], budget, "yellow")
    chart.line([point.limit_mib / scale for point in columns], limit, "red")
    kinds = []
    for row, (kind, letter) in enumerate(MARKS.items()):
        # Letters at the top where something died.
        moments = [event.at_s for event in report.events if event.kind == kind]
        kinds += [kind] if moments else []
        for at_s in moments:
            chart.mark((at_s - first_s) / (last_s - first_s), 1 - (row + 1) / (chart.rows - 1), letter, "bold red")
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
    return [*_flowing(legend, width), *chart.lines()]


def _flowing(pieces: Sequence[Text], width: int) -> list[Text]:
    """Pieces side by side, as many as a line takes."""
    lines = [pieces[0]]
    for piece in pieces[1:]:
        if lines[-1].cell_len + 3 + piece.cell_len <= width:
            lines[-1].append("   ").append_text(piece)
        else:
            lines.append(piece)
    return lines


def _columns(points: Sequence[Point], first_s: float, last_s: float, number: int) -> list[Point]:
    """A point for each column: the fullest of its span of time, or else the one before."""
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
        drawn.append(last)
    return drawn


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
