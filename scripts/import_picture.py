"""The picture of the packages' imports: boxes in rows, each above what it imports, as an SVG.

Covers: rows, the order within a row, arrows that go around boxes.
Does *not* cover: which package imports which (``generate``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

BOX_WIDTH, BOX_HEIGHT, ROW, GAP, MARGIN = 104, 30, 62, 22, 16
SWEEPS = 24
STYLE = (
    'rect.box{fill:#eef2f6;stroke:#546e7a}text{font:14px ui-monospace,"DejaVu Sans Mono",Menlo,monospace;'
    "text-anchor:middle;fill:#1f2933}path{fill:none;stroke:#78909c;stroke-width:1.4}"
    "marker path{fill:#546e7a;stroke:none}"
)


@dataclass(frozen=True, order=True)
class Spot:
    """A package in its row, or the place where an arrow from ``above`` passes a row on its way to ``package``."""

    row: int
    package: str
    above: str = ""

    @property
    def width(self) -> int:
        return 8 if self.above else BOX_WIDTH


def picture(imports: dict[str, set[str]]) -> str:
    """``imports`` without what follows from others, and without a cycle."""
    arrows = _arrows(imports)
    rows = _ordered(arrows)
    x = _across(rows)
    wide = max(x[row[-1]] + row[-1].width / 2 for row in rows) + MARGIN
    high = 2 * MARGIN + (len(rows) - 1) * ROW + BOX_HEIGHT
    body = [_arrow(spots, x, len(rows)) for spots in arrows]
    for spot in (spot for row in rows for spot in row if not spot.above):
        left, top = x[spot] - BOX_WIDTH / 2, _top(spot, len(rows))
        body.append(f'<rect class="box" x="{left:g}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"/>')
        body.append(f'<text x="{x[spot]:g}" y="{top + 20}">{spot.package}</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:g}" height="{high}" viewBox="0 0 {wide:g} {high}">\n'
        f"<style>{STYLE}</style>\n"
        '<marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker>\n<rect width="100%" height="100%" rx="8" fill="#fff"/>\n'
    )
    return head + "\n".join(body) + "\n</svg>\n"


def _arrows(imports: dict[str, set[str]]) -> list[list[Spot]]:
    """Each from its package through the rows between to the other one. A row lies above all that it imports."""

    @cache
    def row(package: str) -> int:
        return max((row(each) + 1 for each in imports[package]), default=0)

    def spots(upper: str, lower: str) -> list[Spot]:
        passed = range(row(upper) - 1, row(lower), -1)
        return [Spot(row(upper), upper), *(Spot(each, lower, upper) for each in passed), Spot(row(lower), lower)]

    return [spots(upper, lower) for upper in sorted(imports) for lower in sorted(imports[upper])]


def _ordered(arrows: list[list[Spot]]) -> list[list[Spot]]:
    """Rows from the lowest up; each spot near the middle of what it is joined to, so that few arrows cross."""
    joined: dict[Spot, list[Spot]] = {}
    for spots in arrows:
        for upper, lower in pairwise(spots):
            joined.setdefault(upper, []).append(lower)
            joined.setdefault(lower, []).append(upper)
    rows = [sorted(spot for spot in joined if spot.row == number) for number in range(max(joined).row + 1)]
    for sweep in range(SWEEPS):
        up = sweep % 2 == 0
        for number in range(1, len(rows)) if up else range(len(rows) - 2, -1, -1):
            x = _across(rows)
            beside = number - 1 if up else number + 1

            def middle(spot: Spot, x: dict[Spot, float] = x, beside: int = beside) -> float:
                near = [x[each] for each in joined[spot] if each.row == beside]
                return sum(near) / len(near) if near else x[spot]

            rows[number].sort(key=middle)
    return rows


def _across(rows: list[list[Spot]]) -> dict[Spot, float]:
    """Middles; every row is centred."""
    widths = [sum(spot.width + GAP for spot in row) - GAP for row in rows]
    found = {}
    for row, width in zip(rows, widths, strict=True):
        at = MARGIN + (max(widths) - width) / 2
        for spot in row:
            found[spot] = at + spot.width / 2
            at += spot.width + GAP
    return found


def _top(spot: Spot, rows: int) -> int:
    return MARGIN + (rows - 1 - spot.row) * ROW


def _arrow(spots: list[Spot], x: dict[Spot, float], rows: int) -> str:
    """Straight down beside boxes, curved between rows."""
    steps = [f"M{x[spots[0]]:g} {_top(spots[0], rows) + BOX_HEIGHT}"]
    for upper, lower in pairwise(spots):
        begin, end = _top(upper, rows) + BOX_HEIGHT, _top(lower, rows)
        half = (begin + end) // 2
        steps.append(f"C{x[upper]:g} {half} {x[lower]:g} {half} {x[lower]:g} {end}")
        if lower.above:
            steps.append(f"V{end + BOX_HEIGHT}")
    return f'<path d="{" ".join(steps)}" marker-end="url(#end)"/>'
