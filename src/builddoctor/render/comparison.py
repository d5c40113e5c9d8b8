"""Two builds side by side, as a page. Pure."""

from __future__ import annotations

from rich.text import Text

from builddoctor.render.tables import LEAST_NAME, NARROW, fitted
from builddoctor.trace.compare import Change, Comparison, UnitPair
from builddoctor.units import format_clock, format_mib, one_line

MOST_ROWS = 20
MOST_NAMES = 8


def comparison_page(told: Comparison, *, width: int) -> list[Text]:
    """What changed, what differs around it, and which units there are in one of the builds only."""
    return [
        Text(one_line(f"{told.before} → {told.after}"), style="bold"),
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
        half = max(LEAST_NAME, (width - 27) // 2)
        before, after = fitted(one_line(each.before), half), fitted(one_line(each.after), half)
        lines.append(Text(f"  {each.what:<21}{before} → {after}"))
    return lines


def _units(told: Comparison, width: int) -> list[Text]:
    changed = [pair for pair in told.units if pair.peak_mib.significant or pair.wall_s.significant]
    if not told.units:
        return [Text(), Text("no unit is in both builds")]
    if not changed:
        return [Text(), Text("no unit stands out: all differ alike")]
    narrow = width < NARROW
    head = f"{'peak':>9}{'now':>10}{'':>9}" if not narrow else f"{'peak':>9}{'':>8}"
    head += f"{'time':>8}{'now':>8}{'':>9}" if not narrow else f"{'time':>8}{'':>8}"
    lines = [Text(), Text("units that stand out", style="bold"), Text(head + "  unit", style="dim")]
    lines += [_unit(pair, width - len(head) - 2, narrow) for pair in changed[:MOST_ROWS]]
    if len(changed) > MOST_ROWS:
        lines.append(Text(f"  and {len(changed) - MOST_ROWS} more", style="dim"))
    return lines


def _unit(pair: UnitPair, cells: int, narrow: bool) -> Text:
    peak, wall = pair.peak_mib, pair.wall_s
    line = Text(f"{format_mib(peak.after if narrow else peak.before):>9}")
    line.append("" if narrow else f"{format_mib(peak.after):>10}")
    line.append(_mark(peak, 8 if narrow else 9), style=_style(peak))
    line.append(f"{format_clock(wall.after if narrow else wall.before):>8}")
    line.append("" if narrow else f"{format_clock(wall.after):>8}")
    line.append(_mark(wall, 8 if narrow else 9), style=_style(wall))
    notes = " (other options)" if pair.options_differ else ""
    if pair.requeues_before != pair.requeues_after:
        notes += f" (run again {pair.requeues_after} times, before {pair.requeues_before})"
    return line.append(f"  {fitted(one_line(pair.unit), max(LEAST_NAME, cells - len(notes)))}{notes}")


def _mark(change: Change, cells: int) -> str:
    """The share where it is significant: what is left blank does not stand out."""
    return f"{_share(change) if change.significant else '':>{cells}}"


def _style(change: Change) -> str:
    return "red" if change.after > change.before else "green"


def _share(change: Change) -> str:
    if change.before <= 0:
        return "new" if change.after > 0 else ""
    share = 100 * change.share
    return f"{share:+.0f}%" if share < 10_000 else f"x{change.after / change.before:.0f}"


def _missing(title: str, names: list[str], width: int) -> list[Text]:
    if not names:
        return []
    lines = [Text(), Text(f"{title}: {len(names)}", style="bold")]
    lines += [Text("  " + fitted(one_line(name), max(LEAST_NAME, width - 2))) for name in names[:MOST_NAMES]]
    return lines + ([Text(f"  and {len(names) - MOST_NAMES} more", style="dim")] if len(names) > MOST_NAMES else [])
