"""Plain tables of traces, units and phases. Pure: data in, lines out; the first line is the head.

Names come from traces: no control character in them gets through. A name that is too long keeps its end, which tells
it from others.
"""

from __future__ import annotations

from collections.abc import Sequence

from builddoctor.trace.peek import Peek
from builddoctor.trace.report import PhaseRow, UnitRow
from builddoctor.units import format_clock, format_mib, one_line

USUAL_WIDTH = 100
NARROW = 80
"""Below this only the columns that matter most are shown."""
WIDE = 130
LEAST_NAME = 12
KINDS = ("cudafe++", "cicc", "ptxas", "host")
"""What a unit's peaks are told apart by, where there is room."""


def trace_rows(traces: Sequence[Peek], *, width: int = USUAL_WIDTH) -> list[str]:
    """One line a trace: id, when, result, peak, time, archs and what was built."""
    if not traces:
        return ["no traces yet"]
    wide = width >= NARROW
    archs = max((len(",".join(each.header.archs)) for each in traces), default=0)
    archs = min(max(archs, 4), 20) + 2 if wide else 0
    rows = [
        f"{'id':<8}{'started':<18}{'took':>8}  {'result':<11}{'peak':>9} of {'limit':<10}{'arch':<{archs}}project"
        if wide
        else f"{'id':<8}{'started':<13}{'took':>7}  {'result':<9}{'peak':>8}  project"
    ]
    for trace in traces:
        header = trace.header
        name = header.title or " ".join(header.command)
        name_id, took = f"{_start(header.trace_id, 7):<8}", format_clock(trace.last_at_s)
        peak = "" if trace.peak_mib is None else format_mib(trace.peak_mib)
        if wide:
            start = f"{name_id}{_when(header.started_at):<18}{took:>8}  {_result(trace):<11}{peak:>9} of "
            start += f"{format_mib(trace.limit_mib):<10}{_start(','.join(header.archs), archs - 2):<{archs}}"
        else:
            start = f"{name_id}{_when(header.started_at)[5:]:<13}{took:>7}  {_result(trace):<9}{peak:>8}  "
        rows.append((start + _start(name, max(LEAST_NAME - 3, width - len(start)))).rstrip())
    return rows


def _result(trace: Peek) -> str:
    if trace.exit_code is None:
        return "running" if trace.still_written else "cut off"
    return trace.result if trace.result == "ok" else f"exit {trace.exit_code}"


def _when(started_at: str) -> str:
    return one_line(started_at)[:16].replace("T", " ")


def unit_rows(
    units: Sequence[UnitRow], *, width: int = USUAL_WIDTH, folder: str = "", by_kind: bool | None = None
) -> list[str]:
    """One line a unit: peak, estimate, time, how often it was run again, and the phase that has the peak."""
    wide, narrow = width >= WIDE if by_kind is None else by_kind, width < NARROW
    head = f"{'peak':>9}"
    head += f"{'estimate':>10}{'off':>7}" if not narrow else f"{'off':>7}"
    head += f"{'time':>8}" + ("" if narrow else f"{'waited':>8}{'again':>6}")
    head += "".join(f"{kind:>10}" for kind in KINDS) if wide else ""
    worst_cells = 0 if wide or narrow else 18
    name_cells = max(LEAST_NAME, width - len(head) - 2 - worst_cells)
    rows = [head + f"  {'unit':<{name_cells if worst_cells else 0}}" + ("worst phase" if worst_cells else "")]
    for unit in units:
        row = f"{format_mib(unit.peak_mib):>9}"
        row += f"{_size(unit.estimate_mib):>10}" if not narrow else ""
        row += f"{off(unit.estimate_mib, unit.peak_mib):>7}{format_clock(unit.wall_s):>8}"
        row += "" if narrow else f"{format_clock(unit.waited_s):>8}{unit.requeues or '':>6}"
        row += "".join(f"{_peak_of(unit, kind):>10}" for kind in KINDS) if wide else ""
        worst = unit.worst
        name = fitted(below(one_line(unit.unit), folder), name_cells)
        row += f"  {name:<{name_cells}}" if worst_cells else f"  {name}"
        row += f"  {worst.kind} {worst.arch}" if worst_cells and worst is not None else ""
        rows.append(one_line(row).rstrip())
    return rows


def phase_rows(phases: Sequence[PhaseRow], *, width: int = USUAL_WIDTH, folder: str = "") -> list[str]:
    """One line a phase."""
    narrow = width < NARROW
    head = f"{'peak':>9}" + ("" if narrow else f"{'estimate':>10}{'off':>7}") + f"{'time':>8}"
    head += ("" if narrow else f"{'waited':>8}{'again':>6}") + f"  {'phase':<17}"
    name_cells = max(LEAST_NAME, width - len(head))
    rows = [head + "unit"]
    for phase in phases:
        row = f"{format_mib(phase.peak_mib):>9}"
        row += "" if narrow else f"{_size(phase.estimate_mib):>10}{off(phase.estimate_mib, phase.peak_mib):>7}"
        row += f"{format_clock(phase.wall_s):>8}"
        row += "" if narrow else f"{format_clock(phase.waited_s):>8}{phase.requeues or '':>6}"
        row += f"  {_start(f'{phase.kind} {phase.arch}', 16):<17}"
        rows.append(one_line(row + fitted(below(one_line(phase.source), folder), name_cells)).rstrip())
    return rows


def _size(size_mib: float) -> str:
    return format_mib(size_mib) if size_mib > 0 else ""


def off(estimate_mib: float, peak_mib: float) -> str:
    """By how much the truth was above the estimate: ``+12%``; empty where one of them is not known."""
    if estimate_mib <= 0 or peak_mib <= 0:
        return ""
    share = 100 * (peak_mib / estimate_mib - 1)
    return f"{share:+.0f}%" if share < 1000 else f"x{peak_mib / estimate_mib:.0f}" if share < 1e6 else ">x9999"


def below(path: str, folder: str) -> str:
    """A path without the build's folder before it."""
    return path[len(folder) + 1 :] if folder and path.startswith(folder + "/") else path


def fitted(name: str, cells: int) -> str:
    """The end of a name that is too long."""
    return name if len(name) <= cells else "…" + name[len(name) - cells + 1 :]


def _start(text: str, cells: int) -> str:
    text = one_line(text).strip()
    return text if len(text) <= cells else text[: max(1, cells - 1)] + "…"


def _peak_of(unit: UnitRow, kind: str) -> str:
    peaks = [phase.peak_mib for phase in unit.phases if phase.kind == kind]
    return format_mib(max(peaks)) if peaks else ""
