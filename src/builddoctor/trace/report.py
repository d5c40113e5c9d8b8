"""What a trace says, as data: header, units with their phases, a timeline, events, how it ends.

``BuildState.report`` makes it; its size grows with the number of phases and not of samples. ``choose_phase`` finds the
phase that a user names.
Does *not* cover: adding events up (``trace.state``), verdicts (``diagnose``), memory by tool and lanes
(``trace.picture``), and how any of it looks (``ui``).

Texts are as the trace has them. What shows them takes the control characters out (``units.one_line``, ``escaped``).
Sizes are MiB, times seconds since the build began.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

import msgspec

from builddoctor.core.errors import UsageError
from builddoctor.core.events import (
    GiveUp,
    Header,
    InputsKept,
    OutputFinding,
    OutputTail,
    SceneSeen,
    Summary,
    UnitCommand,
)
from builddoctor.core.phase import kind_words
from builddoctor.core.units import whole_number

ABSURD = 1e12
"""No figure of a build comes near."""

PHASE_HINT = (
    "a phase's number, or UNIT[:PROGRAM[:ARCH]] such as gelu.cu:cicc:sm_90; `builddoctor trace units` lists them"
)

EventKind = Literal["kill", "killed", "requeue", "give-up", "hold", "warning", "note"]
"""``kill``: builddoctor ended a phase; ``killed``: something else did"""


class Journey(msgspec.Struct, kw_only=True, gc=False):
    """A run on another machine; ``wall_s`` of the run is its time there."""

    node: str
    sent_mib: float = 0.0
    """compressed, to that machine"""
    back_mib: float = 0.0
    transfer_s: float = 0.0
    """on the way there and back, and waiting there"""


class Attempt(msgspec.Struct, kw_only=True, gc=False):
    """One run of a phase, from its admission to its end."""

    admitted_at_s: float
    started_at_s: float | None = None
    ended_at_s: float | None = None
    """None where the trace ends before it does"""
    reserve_mib: float
    running: int
    """phases that ran then, itself among them"""
    outcome: str = ""
    """``core.phase.Outcome``; empty where the trace ends before it does"""
    exit_code: int | None = None
    signal: int | None = None
    cause: str = ""
    """``core.evidence.KillCause`` of a kill that was not ours"""
    killed_for: str = ""
    """why builddoctor ended it"""
    peak_mib: float = 0.0
    wall_s: float = 0.0
    """without the time that it stood still"""
    stood_s: float = 0.0
    """stopped for a while, so that others could end within memory"""
    cpu_s: float = 0.0
    elsewhere: Journey | None = None
    """None for a run on this machine"""


class PhaseRow(msgspec.Struct, kw_only=True, gc=False):
    """One phase as it ended up."""

    phase_id: int
    unit_id: str = ""
    kind: str
    tool: str = ""
    arch: str
    source: str = ""
    input_mib: float = 0.0
    asked_at_s: float = 0.0
    estimate_mib: float = 0.0
    """as it was when the phase asked"""
    estimate_source: str = ""
    reserve_mib: float
    """as it was when the phase asked"""
    peak_mib: float = 0.0
    """of all its runs"""
    wall_s: float = 0.0
    """all its runs together"""
    cpu_s: float = 0.0
    waited_s: float = 0.0
    outcome: str = ""
    """of its last run; empty when the trace ends before the phase does"""
    requeues: int = 0
    lost_s: float = 0.0
    """time of runs that had to be run again"""
    attempts: list[Attempt] = []

    @property
    def running(self) -> bool:
        """It was admitted and had not ended where the trace ends."""
        return bool(self.attempts) and self.attempts[-1].ended_at_s is None

    @property
    def name(self) -> str:
        """``cicc sm_90 of src/gelu.cu``."""
        what = kind_words(self.kind, self.arch)
        return f"{what} of {self.source}" if self.source else what


class UnitRow(msgspec.Struct, kw_only=True, gc=False):
    """One unit with its phases."""

    unit: str
    """its source; what it makes, where there is none (a link)"""
    unit_id: str = ""
    output: str = ""
    archs: list[str] = []
    threads: int = 1
    argv_digest: str = ""
    began_at_s: float = 0.0
    ended_at_s: float | None = None
    peak_mib: float = 0.0
    """of its largest phase"""
    estimate_mib: float = 0.0
    """of that phase"""
    wall_s: float = 0.0
    """all its phases together"""
    waited_s: float = 0.0
    requeues: int = 0
    phases: list[PhaseRow] = []

    @property
    def worst(self) -> PhaseRow | None:
        """The phase that has the peak; the first of several."""
        return max(self.phases, key=lambda phase: phase.peak_mib, default=None)


class Point(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The whole picture at one moment, from the record that is written once a second."""

    at_s: float
    budget_mib: float
    limit_mib: float
    used_mib: float
    """by all processes under the tightest limit"""
    ours_mib: float
    others_mib: float
    running: int
    waiting: int
    open_units: int
    threads: int
    """the most that nvcc was told by ``--threads`` in a unit open then"""
    kernel_kills: int | None = None
    """in this build so far"""


class Happened(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that a person wants to know of."""

    at_s: float
    kind: EventKind
    text: str
    phase_id: int | None = None


class TraceReport(msgspec.Struct, kw_only=True):
    """What a trace says."""

    header: Header
    units: list[UnitRow]
    """worst first"""
    other_phases: list[PhaseRow] = []
    """of what configure steps compile, and of units that are not known"""
    timeline: list[Point] = []
    """in order, of a bounded number; of each span of time the moment when phases held most"""
    events: list[Happened] = []
    """in order, of a bounded number of each kind: ``left_out`` says how many more there were"""
    left_out: int = 0
    last_points: list[Point] = []
    """the last seconds, every second"""
    last_at_s: float
    whole: bool
    """the trace has its summary: the supervisor ended in order"""
    summary: Summary | None = None
    skipped: int = 0
    """lines that could not be read"""
    given_up: list[GiveUp] = []
    """phases that could not be saved, in order; the last of a bounded number"""
    seen: list[SceneSeen] = []
    """looks at the surroundings, in order, of a bounded number"""
    said: list[OutputFinding] = []
    """what the build printed that the catalogue knows, in order, of a bounded number"""
    tails: list[OutputTail] = []
    """the last lines of what a failed build printed, of each stream"""
    commands: dict[str, UnitCommand] = {}
    """of units, by id: ``trace.commands.command_of``"""
    kept: dict[int, InputsKept] = {}
    """inputs that were kept, by phase"""

    @property
    def name(self) -> str:
        """As commands take it: its id where it lies in builddoctor's own folder, else its file."""
        trace_id = self.header.trace_id
        path = self.summary.trace if self.summary is not None else ""
        return path if path and PurePosixPath(path).stem.rpartition("-")[2] != trace_id else trace_id

    @property
    def exit_code(self) -> int | None:
        return None if self.summary is None else self.summary.exit_code

    @property
    def phases(self) -> list[PhaseRow]:
        """All of them, by the time they asked."""
        found = [phase for unit in self.units for phase in unit.phases] + self.other_phases
        return sorted(found, key=lambda phase: phase.phase_id)

    @property
    def peak_mib(self) -> float:
        """Most that phases held at once; at least that, where the trace was cut off."""
        sampled = max((point.ours_mib for point in self.timeline), default=0.0)
        largest = max((unit.peak_mib for unit in self.units), default=0.0)
        return self.summary.peak_mib if self.summary is not None else max(sampled, largest)

    @property
    def limit_mib(self) -> float:
        """The last that was seen."""
        return self.last_points[-1].limit_mib if self.last_points else self.header.limit_mib


def sum_up(unit: UnitRow) -> None:
    """Fill in what follows from its phases."""
    worst = unit.worst
    if worst is not None:
        unit.peak_mib, unit.estimate_mib = worst.peak_mib, worst.estimate_mib
    unit.wall_s = sum(phase.wall_s for phase in unit.phases)
    unit.waited_s = sum(phase.waited_s for phase in unit.phases)
    unit.requeues = sum(phase.requeues for phase in unit.phases)


def believable(summary: Summary) -> bool:
    """No figure in it is beyond any build's: one that is comes from damage or from an attack."""
    figures = [value for value in msgspec.structs.astuple(summary) if isinstance(value, int | float)]
    return max(map(abs, figures), default=0) < ABSURD


def choose_phase(report: TraceReport, wanted: str) -> PhaseRow:
    """The phase that ``wanted`` names; of several that fit, the one with the largest peak. Raises UsageError.

    Empty: the phase that could not be saved, else the first that failed by itself.
    """
    phases = report.phases
    if not wanted:
        found = _died(report)
        if found is None:
            raise UsageError("no phase of this build died: say which one is meant", hint=PHASE_HINT)
        return found
    number = whole_number(wanted)
    if number is not None:
        by_number = next((phase for phase in phases if phase.phase_id == number), None)
        if by_number is None:
            raise UsageError(f"this build has no phase {number}", hint=PHASE_HINT)
        return by_number
    unit, _, rest = wanted.partition(":")
    tool, _, arch = rest.partition(":")
    fitting = [
        phase
        for phase in phases
        if _names(unit, phase.source) and tool in ("", phase.tool, phase.kind) and arch in ("", phase.arch)
    ]
    if not fitting:
        raise UsageError(f"this build has no phase {wanted!r}", hint=PHASE_HINT)
    return max(fitting, key=lambda phase: phase.peak_mib)


def _died(report: TraceReport) -> PhaseRow | None:
    given_up = [event.phase_id for event in report.events if event.kind == "give-up"]
    by_id = {phase.phase_id: phase for phase in report.phases}
    if given_up and given_up[-1] in by_id:
        return by_id[given_up[-1]]
    counted = [phase for unit in report.units for phase in unit.phases]
    failed = [phase for phase in counted if phase.outcome == "failed"]
    return min(failed, key=lambda phase: phase.phase_id, default=None)


def _names(unit: str, source: str) -> bool:
    """``gelu.cu`` and ``src/gelu.cu`` name ``/home/me/src/gelu.cu``."""
    return source == unit or source.endswith(f"/{unit}") or source.rpartition("/")[2].rpartition(".")[0] == unit
