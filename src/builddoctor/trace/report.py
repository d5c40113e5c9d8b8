"""What a trace says, as data: header, units with their phases, a timeline, events, how it ends.

``trace.analysis.read_build(path)`` fills it in one pass; its size grows with the number of phases and not of samples.
Does *not* cover: reading (``trace.analysis``), verdicts (``diagnose``), memory by tool and lanes
(``trace.picture``), and how any of it looks (``render``).

Texts are as the trace has them: whoever shows them takes the control characters out (``units.one_line``, ``escaped``).
Sizes are MiB, times seconds since the build began.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from builddoctor.model.summary import Summary
from builddoctor.trace.records import GaveUp, Header, Kept, Said, Seen, Tail, UnitCommand

ABSURD = 1e12

EventKind = Literal["kill", "killed", "requeue", "give-up", "hold", "warning", "note"]
"""``kill``: builddoctor ended a phase; ``killed``: somebody else did"""


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
    """``model.phase.Outcome``; empty where the trace ends before it does"""
    exit_code: int | None = None
    signal: int | None = None
    cause: str = ""
    """``model.evidence.KillCause`` of a kill that was not ours"""
    killed_for: str = ""
    """why builddoctor ended it"""
    peak_mib: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0


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
    """by everybody under the tightest limit"""
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
    most_at_once: dict[str, int]
    """admitted phases running at once, most, by kind"""
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
    given_up: list[GaveUp] = []
    """phases that could not be saved, in order; the last of a bounded number"""
    seen: list[Seen] = []
    """looks at the surroundings, in order, of a bounded number"""
    said: list[Said] = []
    """what the build printed that the catalogue knows, in order, of a bounded number"""
    tails: list[Tail] = []
    """the last lines of what a failed build printed, of each stream"""
    commands: dict[str, UnitCommand] = {}
    """of units, by id: ``trace.commands.command_of``"""
    kept: dict[int, Kept] = {}
    """inputs that were kept, by phase"""

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


def believable(summary: Summary) -> bool:
    """No figure in it is beyond any build's: one that is comes from damage, or from somebody who wants a crash."""
    figures = [value for value in msgspec.structs.astuple(summary) if isinstance(value, int | float)]
    return max(map(abs, figures), default=0) < ABSURD
