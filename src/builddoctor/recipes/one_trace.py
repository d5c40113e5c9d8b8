"""The phases of one traced build, as rows with the names that units have across builds.

Covers: units that were built to their end, those that were not and why, killed runs (left out, counted), and traces
from before units had names: their places are paths below the build's folder.
Does *not* cover: which of it a recipe may hold, and several traces (``recipes.from_trace``).
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path, PurePosixPath

import msgspec

from builddoctor.errors import TraceError
from builddoctor.model.phase import Outcome, PhaseKind
from builddoctor.recipes.measured import MeasuredPhase
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.records import (
    End,
    Header,
    PhaseFinished,
    PhaseQueued,
    UnitBegan,
    UnitDone,
    UnitNamed,
)
from builddoctor.units import escaped

PLACE_PARTS = 3
"""Of a source outside the build's folder, the last parts of its path."""

_KINDS = {kind.value: kind for kind in PhaseKind}


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """A unit that was not built to its end."""

    place: str
    why: str


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What one trace gives."""

    path: Path
    header: Header
    project: str
    version: str
    ended_well: bool
    """the build ended, with exit code 0"""
    phases: tuple[MeasuredPhase, ...]
    halves: tuple[Half, ...]
    said: tuple[str, ...]
    """what a person should know of this trace"""


class _Unit(msgspec.Struct):
    """One unit while the trace is read."""

    began: UnitBegan
    name: UnitNamed | None
    asked: list[PhaseQueued] = []
    done: bool = False


class _Reading:
    """State while the records come."""

    def __init__(self) -> None:
        self.names: dict[str, UnitNamed] = {}
        self.units: list[_Unit] = []
        self.open: dict[str, _Unit] = {}
        self.ended: dict[int, PhaseFinished] = {}
        self.killed_runs = 0
        self.end: End | None = None

    def take(self, record: object) -> None:
        if isinstance(record, UnitNamed):
            self.names[record.unit_id] = record
        elif isinstance(record, UnitBegan):
            # A number may come again: the kernel gives processes' numbers anew.
            unit = _Unit(record, self.names.pop(record.unit_id, None))
            self.units.append(unit)
            self.open[record.unit_id] = unit
        elif isinstance(record, PhaseQueued) and record.unit_id in self.open:
            self.open[record.unit_id].asked.append(record)
        elif isinstance(record, PhaseFinished):
            before = self.ended.get(record.phase_id)
            self.killed_runs += before is not None and before.outcome != Outcome.OK
            self.ended[record.phase_id] = record
        elif isinstance(record, UnitDone) and record.unit_id in self.open:
            self.open[record.unit_id].done = True
        elif isinstance(record, End):
            self.end = record


def gather(path: Path, run: int) -> Gathered:
    """Read one trace; ``run`` is its number. Raises TraceError."""
    reader = TraceReader(path, curves=False)
    reading = _Reading()
    header: Header | None = None
    for record in reader:
        if isinstance(record, Header):
            header = header or record
        else:
            reading.take(record)
    if header is None:
        raise TraceError(f"{path} is not a trace of builddoctor")
    return _gathered(path, header, reading, run, skipped=reader.skipped)


def _gathered(path: Path, header: Header, reading: _Reading, run: int, *, skipped: int) -> Gathered:
    summary = reading.end.summary if reading.end is not None else None
    project = _project(header, reading)
    said = []
    if summary is None:
        said.append("the trace was cut off: a part of the build")
    elif summary.result != "ok":
        said.append(f"the build failed with exit code {summary.exit_code}: a part of it")
    if skipped:
        said.append(f"{counted(skipped, 'unreadable line')} of the trace")
    whole: dict[tuple[str, ...], list[MeasuredPhase]] = {}
    halves: dict[str, str] = {}
    others = again = 0
    for unit in reading.units:
        if unit.name is not None and unit.name.project != project:
            others += 1
            continue
        # Links have no source, and are not counted among the units; what configure steps try out has no name.
        if not unit.began.counted and not (_is_link(unit) and _named(unit, header)):
            continue
        place = _place(unit, header)
        why = _unfinished(unit, reading, failed=summary is None or summary.result != "ok")
        if why:
            halves.setdefault(place, why)
            continue
        rows = [row for asked in unit.asked if (row := _row(unit, asked, reading.ended[asked.phase_id], header, run))]
        if not rows:
            continue
        key = (place, rows[0].output, rows[0].target)
        again += key in whole
        whole[key] = rows
    if others:
        said.append(f"{counted(others, 'unit')} of other projects, built with it")
    if again:
        said.append(f"{counted(again, 'unit')} compiled more than once in this build: the last time counts")
    if reading.killed_runs:
        said.append(f"{counted(reading.killed_runs, 'run')} of phases that were ended and run again")
    return Gathered(
        path=path,
        header=header,
        project=project,
        version=header.project_version if project == _own_project(header) else "",
        ended_well=summary is not None and summary.result == "ok",
        phases=tuple(row for rows in whole.values() for row in rows),
        halves=tuple(Half(place=place, why=why) for place, why in halves.items() if not _in(place, whole)),
        said=tuple(said),
    )


def counted(number: int, what: str) -> str:
    """``1 unit``, ``2 units``."""
    return f"{number} {what}{'s' if number != 1 else ''}"


def _in(place: str, whole: dict[tuple[str, ...], list[MeasuredPhase]]) -> bool:
    return any(key[0] == place for key in whole)


def _project(header: Header, reading: _Reading) -> str:
    """The build's own; where none of its units is of that (``pip install`` from somewhere), the one with the most."""
    own = _own_project(header)
    counts = Counter(unit.name.project for unit in reading.units if unit.name is not None and unit.began.counted)
    return own if not counts or own in counts else counts.most_common(1)[0][0]


def _own_project(header: Header) -> str:
    """Traces from before they had a project have a title, which begins with it, and the folder that was built in."""
    return header.project or header.title.partition(" ")[0] or PurePosixPath(header.cwd).name or "unnamed"


def _is_link(unit: _Unit) -> bool:
    return not unit.began.source


def _named(unit: _Unit, header: Header) -> bool:
    """Traces with names give none to what configure steps try out; those without any have no host architecture."""
    if unit.began.output in ("", "-"):
        # What the build only asks of its compiler.
        return False
    return unit.name is not None or (not header.host_arch and not unit.began.output.startswith(("cmTC_", "a.out")))


def _place(unit: _Unit, header: Header) -> str:
    if unit.name is not None:
        return unit.name.place
    if _is_link(unit):
        return f"link {PurePosixPath(unit.began.output).name or 'unnamed'}"
    source = os.path.normpath(os.path.join(header.cwd, unit.began.source))
    below = os.path.relpath(source, header.cwd)
    return below if not below.startswith("..") else "/".join(PurePosixPath(source).parts[-PLACE_PARTS:])


def _target(unit: _Unit, header: Header) -> str:
    """As Ninja calls it; empty for what lies elsewhere, which is nobody's in another folder.

    Without a name, a relative one is below the folder where the compiler ran: Ninja's own.
    """
    output = unit.name.target if unit.name is not None else unit.began.output
    if unit.name is None and os.path.isabs(output):
        output = os.path.relpath(output, header.cwd)
    below = os.path.normpath(output) if output else ""
    return "" if below.startswith(("..", "/")) else below


def _unfinished(unit: _Unit, reading: _Reading, *, failed: bool) -> str:
    """Why a unit does not count; empty when it does."""
    for asked in unit.asked:
        end = reading.ended.get(asked.phase_id)
        what = escaped(f"{asked.kind} {asked.arch}".strip())
        if end is None:
            return f"its {what} did not end"
        if end.outcome != Outcome.OK:
            return f"its {what} did not end well ({escaped(end.outcome)})"
    if failed and not unit.done:
        return "it did not end"
    if failed and unit.began.archs and not any(asked.kind == PhaseKind.HOST.value for asked in unit.asked):
        # nvcc may have been ended between two phases.
        return "it was ended before its host code was compiled"
    return ""


def _row(unit: _Unit, asked: PhaseQueued, end: PhaseFinished, header: Header, run: int) -> MeasuredPhase | None:
    if asked.kind not in _KINDS:
        return None
    name = unit.name
    return MeasuredPhase(
        place=_place(unit, header),
        output=name.output if name is not None else PurePosixPath(unit.began.output).name,
        target=_target(unit, header),
        options=name.options if name is not None else "",
        source_digest=name.source_digest if name is not None else "",
        archs=tuple(sorted(set(unit.began.archs))),
        after_all=_is_link(unit),
        kind=_KINDS[asked.kind],
        tool=asked.tool,
        arch=asked.arch,
        input_mib=max(0.0, asked.input_mib),
        peak_mib=end.peak_mib,
        cpu_s=end.cpu_s or end.wall_s,
        run=run,
    )
