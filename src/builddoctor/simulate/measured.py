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

from builddoctor.errors import TraceError
from builddoctor.model.phase import Outcome, PhaseKind
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.records import PhaseCurve, PhaseFinished, PhaseQueued, PhaseStarted, UnitBegan
from builddoctor.units import MIB

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
    names: dict[str, UnitBegan] = {}
    queued: dict[int, PhaseQueued] = {}
    ended: dict[int, PhaseFinished] = {}
    curves: dict[int, _Curve] = {}
    for record in TraceReader(path):
        if isinstance(record, UnitBegan):
            names[record.unit_id] = record
        elif isinstance(record, PhaseQueued):
            queued[record.phase_id] = record
        elif isinstance(record, PhaseStarted):
            curves[record.phase_id] = _Curve(record.at_s)
        elif isinstance(record, PhaseCurve) and record.phase_id in curves:
            curves[record.phase_id].points.append((record.at_s, record.rss_mib))
        elif isinstance(record, PhaseFinished) and record.outcome in (Outcome.OK, Outcome.FAILED):
            ended[record.phase_id] = record
    phases: dict[str, list[PhaseWork]] = {unit_id: [] for unit_id, unit in names.items() if unit.counted}
    for phase_id, asked in queued.items():
        begun, end = names.get(asked.unit_id), ended.get(phase_id)
        if end is None or (begun is not None and not begun.counted):
            continue
        # A phase of no known unit is a unit of its own.
        phases.setdefault(asked.unit_id if begun is not None else f"phase {phase_id}", []).append(
            _traced(asked, end, curves.get(phase_id))
        )
    units = []
    for unit_id, work in phases.items():
        if not work:
            continue
        begun = names.get(unit_id)
        name = (begun.source or begun.output) if begun is not None else ""
        units.append(_unit(name or unit_id, work))
    return Workload(name=path.name, units=tuple(units))


class _Curve(msgspec.Struct):
    """What a phase held in its last run."""

    from_s: float
    points: list[tuple[float, float]] = []

    def shares(self, end: PhaseFinished) -> tuple[tuple[float, float], ...]:
        """Of the run's time and of its peak; nothing where the figures are of no use."""
        took_s = end.at_s - self.from_s
        if not (took_s > 0 and end.peak_mib > 0):
            return ()
        # Nothing is what is seen of a process that has ended, shortly before its end is heard of.
        points = [((at_s - self.from_s) / took_s, mib / end.peak_mib) for at_s, mib in self.points if mib > 0]
        return tuple((min(max(at, 0.0), 1.0), min(max(held, 0.0), 1.0)) for at, held in points)


def _traced(asked: PhaseQueued, end: PhaseFinished, curve: _Curve | None) -> PhaseWork:
    return PhaseWork(
        kind=_kind(asked.kind),
        arch=asked.arch,
        input_mib=asked.input_mib,
        peak_mib=end.peak_mib,
        wall_s=end.cpu_s or end.wall_s,
        tool=asked.tool,
        curve=curve.shares(end) if curve is not None else (),
    )


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
