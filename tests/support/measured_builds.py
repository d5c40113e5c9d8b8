"""Workloads from files: measured phases (JSON Lines), a digest of such (CSV), and traces of builddoctor.

Covers: those three formats; a phase's time is its processor time where the file has it, since the simulator shares
cores by itself, and its wall time otherwise.
Does *not* cover: writing any of them. A file that cannot be read or understood is a TraceError.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path

import msgspec

from builddoctor.core.errors import TraceError
from builddoctor.core.events import PhaseEnded
from builddoctor.core.phase import Outcome, PhaseKind
from builddoctor.core.units import MIB
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload
from builddoctor.trace.analysis import fold
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.state import BuildState, PhaseState, RunState

KIND_OF = {
    "preprocess": PhaseKind.PREPROCESS,
    "cudafe++": PhaseKind.CUDAFE,
    "cicc": PhaseKind.CICC,
    "ptxas": PhaseKind.PTXAS,
    "fatbinary": PhaseKind.NVLINK,
    "nvlink": PhaseKind.NVLINK,
    "host": PhaseKind.HOST,
    "host-compile": PhaseKind.HOST,
    "host-compile-cxx": PhaseKind.HOST,
    "link": PhaseKind.LINK,
}
"""What measured phases are called, and what they are here."""

TOOL_OF = {PhaseKind.PREPROCESS: "cc1plus", PhaseKind.HOST: "cc1plus", PhaseKind.LINK: "collect2"}
"""Where the program is not called as the phase is."""

CURVE_STEP_MIB = 16.0
CURVE_STEP_SHARE = 0.05
"""how far memory must move for another point of a curve: a gate that becomes its compiler is no fall"""


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """One phase in either kind of file."""

    unit: str
    kind: str
    arch: str = ""
    input_mib: float = 0.0
    peak_mib: float
    wall_s: float
    cpu_s: float = 0.0
    curve: str = ""


class _MeasuredRow(msgspec.Struct, frozen=True, kw_only=True):
    unit: str
    phase: str
    arch: str = ""
    input_bytes: float = 0.0
    peak_mib: float
    wall_s: float
    cpu_s: float = 0.0


def from_measurements(path: Path) -> Workload:
    """A file of measured phases: a line of provenance, then one object a line with ``unit``, ``phase``, ``arch``,
    ``input_bytes``, ``peak_mib``, ``wall_s`` and ``cpu_s``."""
    decoder = msgspec.json.Decoder(_MeasuredRow)
    try:
        provenance, *lines = path.read_bytes().splitlines()
        msgspec.json.decode(provenance)
        rows = [decoder.decode(line) for line in lines if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise TraceError(f"cannot read measured phases from {path}: {error}") from error
    return _workload(
        path,
        [
            _Row(
                unit=row.unit,
                kind=row.phase,
                arch=row.arch,
                input_mib=row.input_bytes / MIB,
                peak_mib=row.peak_mib,
                wall_s=row.wall_s,
                cpu_s=row.cpu_s,
            )
            for row in rows
        ],
    )


def from_digest(path: Path) -> Workload:
    """A CSV file with the columns unit, kind, arch, input_mib, peak_mib, wall_s, cpu_s; lines with # are remarks.

    A column ``curve`` may follow: ``at:held`` pairs, thousandths of the phase's time and of its peak.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(line for line in file if not line.startswith("#")))
        rows = msgspec.convert(table, list[_Row], strict=False)
    except (OSError, ValueError, csv.Error) as error:
        raise TraceError(f"cannot read a digest of phases from {path}: {error}") from error
    return _workload(path, rows)


def from_trace(path: Path) -> Workload:
    """The build that a trace recorded: every phase that ended by itself, as its last run was. Raises TraceError.

    What configure steps compiled is left out. A phase that never ran to its end is missing from its unit.
    """
    state = fold(TraceReader(path), BuildState(curves=True))
    phases: dict[str, list[PhaseWork]] = {unit.unit.unit_id: [] for unit in state.units if unit.unit.counted}
    for phase in state.phases.values():
        unit, end = phase.unit, phase.end
        if end is None or end.outcome not in (Outcome.OK, Outcome.FAILED):
            continue
        if unit is not None and not unit.unit.counted:
            continue
        # A phase of no known unit is a unit of its own.
        name = unit.unit.unit_id if unit is not None else f"phase {phase.row.phase_id}"
        phases.setdefault(name, []).append(_traced(phase, end))
    units = []
    for unit_id, work in phases.items():
        if work:
            begun = state.unit(unit_id)
            units.append(_unit(begun.row.unit if begun is not None and begun.row.unit else unit_id, work))
    return Workload(name=path.name, units=tuple(units))


def _traced(state: PhaseState, end: PhaseEnded) -> PhaseWork:
    phase = state.row
    return PhaseWork(
        kind=state.kind,
        arch=phase.arch,
        input_mib=phase.input_mib,
        peak_mib=end.peak_mib,
        wall_s=end.cpu_s or end.wall_s,
        tool=phase.tool,
        curve=_shares(state.last_run, end) if state.last_run is not None else (),
    )


def _shares(run: RunState, end: PhaseEnded) -> tuple[tuple[float, float], ...]:
    """What a phase held in its last run, of its time and of its peak; nothing where the figures are of no use."""
    from_s = run.attempt.started_at_s
    if from_s is None or not run.curve or not (end.at_s > from_s and end.peak_mib > 0):
        return ()
    points: list[tuple[float, float]] = []
    last_mib = 0.0
    for at_s, mib in run.curve:
        step_mib = abs(mib - last_mib)
        # Nothing is what is seen of a process that has ended, shortly before its end is heard of.
        if mib > 0 and step_mib >= CURVE_STEP_MIB and step_mib >= CURVE_STEP_SHARE * last_mib:
            points.append(((at_s - from_s) / (end.at_s - from_s), mib / end.peak_mib))
            last_mib = mib
    return tuple((min(max(at, 0.0), 1.0), min(max(held, 0.0), 1.0)) for at, held in points)


def _workload(path: Path, rows: Iterable[_Row]) -> Workload:
    units: dict[str, list[PhaseWork]] = {}
    for row in rows:
        kind = _kind(row.kind)
        figures = (row.input_mib, row.peak_mib, row.wall_s, row.cpu_s)
        if not all(math.isfinite(figure) and figure >= 0 for figure in figures):
            raise TraceError(f"{path}: a phase of {row.unit} has figures that cannot be: {figures}")
        units.setdefault(row.unit, []).append(
            PhaseWork(
                kind=kind,
                # Gates announce the arch that the code is for, whichever tool it is.
                arch=row.arch.replace("compute_", "sm_"),
                input_mib=row.input_mib,
                peak_mib=row.peak_mib,
                wall_s=row.cpu_s or row.wall_s,
                tool=TOOL_OF.get(kind, kind.value),
                curve=_curve(path, row),
            )
        )
    if not units:
        raise TraceError(f"{path} holds no phases")
    return Workload(name=path.name, units=tuple(_unit(name, phases) for name, phases in units.items()))


def _curve(path: Path, row: _Row) -> tuple[tuple[float, float], ...]:
    try:
        points = [tuple(int(figure) / 1000 for figure in point.split(":")) for point in row.curve.split()]
        curve = tuple((at, held) for at, held in points)
    except ValueError as error:
        raise TraceError(f"{path}: a phase of {row.unit} has a curve that cannot be read: {error}") from error
    if any(not (0 <= at <= 1 and 0 <= held <= 1) for at, held in curve) or list(curve) != sorted(curve, key=_at):
        raise TraceError(f"{path}: a phase of {row.unit} has a curve that cannot be: {row.curve}")
    return curve


def _at(point: tuple[float, float]) -> float:
    return point[0]


def _unit(name: str, phases: list[PhaseWork]) -> UnitWork:
    links = all(phase.kind is PhaseKind.LINK for phase in phases)
    return UnitWork(
        name=name,
        source="" if links else name,
        archs=tuple(sorted({phase.arch for phase in phases if phase.arch})),
        phases=tuple(phases),
        after_all=links,
    )


def _kind(name: str) -> PhaseKind:
    if name not in KIND_OF:
        raise TraceError(f"no phase is called {name!r}; known are {', '.join(sorted(KIND_OF))}")
    return KIND_OF[name]
