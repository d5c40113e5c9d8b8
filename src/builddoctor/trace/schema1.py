"""Traces of schema 1, as builddoctor wrote them before its events were its trace: read into the events of today.

Covers: the records that schema 1 had and schema 2 has not, and what each becomes. Records that both have are decoded as
events at once. Does *not* cover: lines and files (``trace.reader``).

What a schema 1 trace does not say stays unsaid: a wait is a note in words, the reason of a kill or of a phase that was
given up is its sentence (``said``), and memory samples say nothing of the limits beyond the last tick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from builddoctor.core.events import (
    Admit,
    BuildEnded,
    BuildEvent,
    Continue,
    ContinueReason,
    GiveUp,
    Header,
    InputsKept,
    Kill,
    KillReason,
    MemorySampled,
    Note,
    NoteLevel,
    OutputFinding,
    OutputTail,
    Pause,
    PhaseAsked,
    PhaseEnded,
    PhaseStarted,
    Queue,
    ReleaseUnit,
    Requeue,
    SceneSeen,
    Status,
    UngatedProcess,
    UnitBegan,
    UnitCommand,
    UnitEnded,
)
from builddoctor.core.evidence import KillCause
from builddoctor.core.past import UnitKey
from builddoctor.core.phase import Estimate, Outcome, Phase, PhaseKind, Unit
from builddoctor.core.units import Mib, Seconds, Whole
from builddoctor.core.verdict import Verdict


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", omit_defaults=True):
    """Base of the records that schema 2 has in another form."""

    at_s: Seconds


class UnitNamed(Record, frozen=True, kw_only=True, tag="name"):
    """Written before its unit's record."""

    unit_id: str
    project: str
    place: str
    output: str = ""
    target: str = ""
    options: str = ""
    source_digest: str = ""


class UnitSeen(Record, frozen=True, kw_only=True, tag="unit"):
    unit_id: str
    source: str
    output: str = ""
    archs: list[str] = msgspec.field(default_factory=list)
    threads: Whole = 1
    counted: bool = True
    argv_digest: str = ""


class PhaseQueued(Record, frozen=True, kw_only=True, tag="ask"):
    phase_id: Whole
    unit_id: str
    kind: str
    tool: str
    source: str
    arch: str = ""
    input_mib: Mib = 0.0
    argv_digest: str = ""
    estimate_mib: Mib
    reserve_mib: Mib
    estimate_source: str


class PhaseAdmitted(Record, frozen=True, kw_only=True, tag="admit"):
    phase_id: Whole
    reserve_mib: Mib
    waited_s: Seconds
    running: Whole


class PhaseCurve(Record, frozen=True, kw_only=True, tag="rss"):
    """Memory of one running phase, written when it changed by a twentieth and by 16 MiB at least."""

    phase_id: Whole
    rss_mib: Mib


class PhaseFinished(Record, frozen=True, kw_only=True, tag="end"):
    phase_id: Whole
    outcome: str
    exit_code: Whole | None = None
    signal: Whole | None = None
    cause: str = ""
    peak_mib: Mib
    wall_s: Seconds
    cpu_s: Seconds


class Requeued(Record, frozen=True, kw_only=True, tag="requeue"):
    phase_id: Whole
    reserve_mib: Mib
    solo: bool
    lost_s: Seconds


class Killed(Record, frozen=True, kw_only=True, tag="kill"):
    phase_id: Whole
    reason: str


class Paused(Record, frozen=True, kw_only=True, tag="pause"):
    pid: Whole
    name: str
    rss_mib: Mib
    free_mib: Mib


class Continued(Record, frozen=True, kw_only=True, tag="continue"):
    pid: Whole
    name: str
    stopped_s: Seconds
    reason: str


class GaveUp(Record, frozen=True, kw_only=True, tag="give-up"):
    phase_id: Whole
    verdict: str
    reason: str


AnyRecord = (
    UnitNamed
    | UnitSeen
    | PhaseQueued
    | PhaseAdmitted
    | PhaseCurve
    | PhaseFinished
    | Requeued
    | Killed
    | Paused
    | Continued
    | GaveUp
    # Of the same form in both.
    | Header
    | UnitCommand
    | ReleaseUnit
    | UnitEnded
    | PhaseStarted
    | InputsKept
    | Status
    | Note
    | SceneSeen
    | OutputFinding
    | OutputTail
    | BuildEnded
)

_REPEATED = ("redoes ", "gives up on ", "stops ", "continues ")
"""How notes begin that say again what a record of their own said just before."""

_CONTINUED = {
    "memory is back": ContinueReason.MEMORY_BACK,
    "nothing else makes progress": ContinueReason.NOTHING_MOVES,
    "it was stopped for long enough": ContinueReason.LONG_ENOUGH,
}


class Schema1:
    """Records in file order to events. Raises ValueError for a record with words that no builddoctor wrote."""

    def __init__(self, header: Header) -> None:
        self._named: dict[str, UnitNamed] = {}
        self._estimates: dict[int, Estimate] = {}
        self._peak_mib: dict[int, float] = {}
        self._held: dict[int, float] = {}
        self._held_mib = 0.0
        self._headroom_mib, self._budget_mib = header.limit_mib, header.budget_mib
        self._turn: dict[type, Callable[[Any], Sequence[BuildEvent]]] = {
            UnitNamed: self._name,
            UnitSeen: self._unit,
            PhaseQueued: self._asked,
            PhaseAdmitted: self._admitted,
            PhaseCurve: self._sampled,
            PhaseFinished: self._ended,
            Requeued: self._requeued,
            Killed: self._killed,
            Paused: self._paused,
            Continued: self._continued,
            GaveUp: self._gave_up,
            Note: self._note,
            Status: self._status,
        }

    def events(self, record: AnyRecord) -> Sequence[BuildEvent]:
        """What this record says, as events of today."""
        turn = self._turn.get(type(record))
        return turn(record) if turn is not None else (record,)  # type: ignore[return-value]

    def _name(self, record: UnitNamed) -> Sequence[BuildEvent]:
        self._named[record.unit_id] = record
        return ()

    def _unit(self, record: UnitSeen) -> Sequence[BuildEvent]:
        unit = Unit(
            unit_id=record.unit_id,
            source=record.source,
            output=record.output,
            archs=tuple(record.archs),
            threads=record.threads,
            counted=record.counted,
        )
        name = self._named.pop(record.unit_id, None)
        if name is None:
            return (UnitBegan(at_s=record.at_s, unit=unit, argv_digest=record.argv_digest),)
        key = UnitKey(
            project=name.project,
            place=name.place,
            output=name.output,
            options=name.options,
            archs=tuple(sorted(record.archs)),
        )
        began = UnitBegan(
            at_s=record.at_s,
            unit=unit,
            argv_digest=record.argv_digest,
            key=key,
            target=name.target,
            source_digest=name.source_digest,
        )
        return (began,)

    def _asked(self, record: PhaseQueued) -> Sequence[BuildEvent]:
        phase = Phase(
            phase_id=record.phase_id,
            unit_id=record.unit_id,
            kind=PhaseKind(record.kind),
            source=record.source,
            arch=record.arch,
            input_mib=record.input_mib,
            tool=record.tool,
        )
        estimate = self._estimates[record.phase_id] = Estimate(
            peak_mib=record.estimate_mib,
            spread_mib=record.reserve_mib - record.estimate_mib,
            source=record.estimate_source,
        )
        return (
            PhaseAsked(at_s=record.at_s, phase=phase, argv_digest=record.argv_digest),
            Queue(at_s=record.at_s, phase_id=record.phase_id, estimate=estimate),
        )

    def _estimate(self, phase_id: int, reserve_mib: float) -> Estimate:
        known = self._estimates.get(phase_id)
        if known is None:
            return Estimate(peak_mib=reserve_mib, spread_mib=0.0, source="")
        return msgspec.structs.replace(known, spread_mib=reserve_mib - known.peak_mib)

    def _admitted(self, record: PhaseAdmitted) -> Sequence[BuildEvent]:
        return (
            Admit(
                at_s=record.at_s,
                phase_id=record.phase_id,
                estimate=self._estimate(record.phase_id, record.reserve_mib),
                alone=record.running == 1,
                waited_s=record.waited_s,
                running=record.running,
            ),
        )

    def _sampled(self, record: PhaseCurve) -> Sequence[BuildEvent]:
        self._held_mib += record.rss_mib - self._held.get(record.phase_id, 0.0)
        self._held[record.phase_id] = record.rss_mib
        return (
            MemorySampled(
                at_s=record.at_s,
                rss_mib=((record.phase_id, record.rss_mib),),
                held_mib=self._held_mib,
                headroom_mib=self._headroom_mib,
                budget_mib=self._budget_mib,
                reserve_mib=0.0,
            ),
        )

    def _ended(self, record: PhaseFinished) -> Sequence[BuildEvent]:
        self._held_mib = max(0.0, self._held_mib - self._held.pop(record.phase_id, 0.0))
        self._peak_mib[record.phase_id] = record.peak_mib
        return (
            PhaseEnded(
                at_s=record.at_s,
                phase_id=record.phase_id,
                outcome=Outcome(record.outcome),
                peak_mib=record.peak_mib,
                wall_s=record.wall_s,
                cpu_s=record.cpu_s,
                exit_code=record.exit_code,
                signal=record.signal,
                cause=KillCause(record.cause) if record.cause else None,
            ),
        )

    def _requeued(self, record: Requeued) -> Sequence[BuildEvent]:
        return (
            Requeue(
                at_s=record.at_s,
                phase_id=record.phase_id,
                estimate=self._estimate(record.phase_id, record.reserve_mib),
                solo=record.solo,
                lost_s=record.lost_s,
                peak_mib=self._peak_mib.get(record.phase_id, 0.0),
            ),
        )

    def _killed(self, record: Killed) -> Sequence[BuildEvent]:
        return (Kill(at_s=record.at_s, phase_id=record.phase_id, reason=KillReason.HEADROOM, said=record.reason),)

    def _gave_up(self, record: GaveUp) -> Sequence[BuildEvent]:
        return (
            GiveUp(
                at_s=record.at_s,
                phase_id=record.phase_id,
                verdict=Verdict(record.verdict),
                peak_mib=self._peak_mib.get(record.phase_id, 0.0),
                said=record.reason,
            ),
        )

    def _paused(self, record: Paused) -> Sequence[BuildEvent]:
        process = UngatedProcess(pid=record.pid, start_ticks=0, name=record.name, rss_mib=record.rss_mib, cpu_s=0.0)
        return (Pause(at_s=record.at_s, process=process, free_mib=record.free_mib),)

    def _continued(self, record: Continued) -> Sequence[BuildEvent]:
        process = UngatedProcess(pid=record.pid, start_ticks=0, name=record.name, rss_mib=0.0, cpu_s=0.0)
        reason = _CONTINUED.get(record.reason, ContinueReason.BUILD_ENDS)
        return (Continue(at_s=record.at_s, process=process, stopped_s=record.stopped_s, reason=reason),)

    def _note(self, record: Note) -> Sequence[BuildEvent]:
        return () if record.level is not NoteLevel.HOLD and record.text.startswith(_REPEATED) else (record,)

    def _status(self, record: Status) -> Sequence[BuildEvent]:
        self._headroom_mib, self._budget_mib = record.headroom_mib, record.budget_mib
        return (record,)
