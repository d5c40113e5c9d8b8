"""What a trace holds: one JSON object a line, told apart by its ``t``.

Covers: the schema, as msgspec structs; ``scripts/generate`` writes its JSON Schema from them.
Does *not* cover: the file (``trace.writer``, ``trace.reader``).

``at_s`` is seconds since the build began, on the supervisor's monotonic clock. Sizes are MiB. A trace holds no
environment but TMPDIR and a scheduler's job number, and of a failed build's output the lines that tell why and the
last thirty; what looks like a credential in arguments and lines is masked before it gets here. Fields may be added
within a schema version; a reader skips records whose ``t`` it does not know.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from builddoctor.model.phase import Estimate, Phase, Unit
from builddoctor.model.summary import Summary
from builddoctor.model.surroundings import Scene

TRACE_SCHEMA = 1

Seconds = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
Mib = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""Numbers beyond any build's: a line that holds one is not readable, and nobody need think of sums that overflow."""


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", omit_defaults=True):
    """Base of all records."""

    at_s: Seconds


class Header(Record, frozen=True, kw_only=True, tag="header"):
    """First line: what was run, where, under which limits."""

    schema: Whole
    builddoctor: str
    trace_id: str
    started_at: str
    """UTC, ISO 8601"""
    command: list[str]
    cwd: str
    title: str
    archs: list[str]
    cores: Whole
    window: Whole
    budget_mib: Mib
    limit_mib: Mib
    limited_by: str
    page_kib: Whole
    toolkit: str = ""
    nvcc: str = ""
    caps: list[str] = msgspec.field(default_factory=list)
    boot_id: str = ""
    oom_kills: Whole | None = None
    """the kernel's kill counter at the start"""
    threads: Whole = 0
    """nvcc's ``--threads``; 0 in traces that do not say"""
    project: str = ""
    """what the project calls itself"""
    project_version: str = ""
    host_compiler: str = ""
    """such as ``12.2.0``"""
    host_arch: str = ""


class UnitNamed(Record, frozen=True, kw_only=True, tag="name"):
    """What a unit is called across builds and machines (``model.past.UnitKey``); written before its unit's record."""

    unit_id: str
    project: str
    place: str
    output: str = ""
    """file name of what is made"""
    target: str = ""
    """what is made, as the build tool calls it: a path below the folder where it runs the compiler"""
    options: str = ""
    """digest of the options that matter for memory"""
    source_digest: str = ""
    """of the source file itself, not of what it includes"""


class UnitBegan(Record, frozen=True, kw_only=True, tag="unit"):
    unit_id: str
    source: str
    output: str = ""
    archs: list[str] = msgspec.field(default_factory=list)
    threads: Whole = 1
    counted: bool = True
    argv_digest: str = ""


class UnitCommand(Record, frozen=True, kw_only=True, tag="command"):
    """The compiler driver's own command line, credentials masked; written before its unit's record.

    Where it is nearly that of an earlier unit, only what differs (``trace.commands`` puts it together again).
    """

    unit_id: str
    tool: str = ""
    """the driver as it was called"""
    cwd: str = ""
    argv: list[str] = msgspec.field(default_factory=list)
    """without the driver itself"""
    like: str = ""
    """the unit that has the other words, in a record of its own; then tool and folder are that one's too"""
    changed: list[tuple[int, str]] = msgspec.field(default_factory=list)
    """place and word"""


class UnitOpened(Record, frozen=True, kw_only=True, tag="unit-open"):
    """A unit that was held at its nvcc gate, since its ``unit`` record, became nvcc."""

    unit_id: str
    waited_s: float
    threads: int = 0
    """nvcc's ``--threads`` as it was set; 0: as the build gave it"""


class UnitDone(Record, frozen=True, kw_only=True, tag="unit-end"):
    unit_id: str


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


class PhaseStarted(Record, frozen=True, kw_only=True, tag="start"):
    phase_id: Whole
    pid: Whole


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
    """who sent a SIGKILL that was not ours: ``cgroup``, ``ancestor``, ``host``, ``oomd``, ``outside`` or ``unknown``"""
    peak_mib: Mib
    wall_s: Seconds
    cpu_s: Seconds


class Requeued(Record, frozen=True, kw_only=True, tag="requeue"):
    phase_id: Whole
    reserve_mib: Mib
    solo: bool
    lost_s: Seconds


class Killed(Record, frozen=True, kw_only=True, tag="kill"):
    """builddoctor decided to end a phase."""

    phase_id: Whole
    reason: str


class Paused(Record, frozen=True, kw_only=True, tag="pause"):
    """A process of the build that no gate asked for was stopped for a while."""

    pid: int
    name: str
    rss_mib: float
    free_mib: float
    """for all such processes that were growing"""


class Continued(Record, frozen=True, kw_only=True, tag="continue"):
    """It goes on."""

    pid: int
    name: str
    stopped_s: float
    reason: str


class GaveUp(Record, frozen=True, kw_only=True, tag="give-up"):
    phase_id: Whole
    verdict: str
    reason: str


class KeptFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One input of a phase, kept."""

    name: str
    """in the phase's folder beside the trace, without its ``.gz``"""
    path: str
    """what the command line calls it"""
    size_bytes: Whole


class Kept(Record, frozen=True, kw_only=True, tag="kept"):
    """The inputs of a phase that was given up, or crashed, were kept: ``<trace without .jsonl>.repro/<phase_id>/``."""

    phase_id: Whole
    tool: str
    """the program itself, not its gate"""
    argv: list[str]
    cwd: str
    files: list[KeptFile]
    preprocessed: bool = False
    """its source stands there with all that it includes"""
    versions: list[str] = msgspec.field(default_factory=list)
    """such as ``g++ 12.2.0``"""
    note: str = ""
    """what is missing"""


class TickRecord(Record, frozen=True, kw_only=True, tag="tick"):
    """Once a second: the whole picture."""

    budget_mib: Mib
    limit_mib: Mib
    headroom_mib: Mib
    ours_mib: Mib
    running: Whole
    waiting: Whole
    open_units: Whole
    held_units: Whole = 0
    """units that wait at their nvcc gate: not among the open ones"""
    oom_kills: Whole | None = None
    planned: Whole | None = None
    """units that the build tool means to compile, those that are done included; None while nobody has said"""
    left_s: tuple[Seconds, Seconds] | None = None
    """time until the last unit has ended, from and to; None while nobody can say"""


class Note(Record, frozen=True, kw_only=True, tag="note"):
    """Something worth a line to a person: a warning, a hold, a knob that was capped."""

    text: str
    level: str = "info"


class Seen(Record, frozen=True, kw_only=True, tag="seen"):
    """What was around: once at the start, at a phase that failed or was killed, and when a build has failed."""

    phase_id: Whole | None = None
    when: str = ""
    """``start``, ``phase`` or ``end``"""
    scene: Scene


class Said(Record, frozen=True, kw_only=True, tag="said"):
    """A line of the build's output that the catalogue of texts knows. Credentials in it are masked."""

    entry: str
    verdict: str = ""
    weight: str
    line: Whole
    """from 1, within its stream"""
    text: str
    captured: dict[str, str] = msgspec.field(default_factory=dict)
    stream: str = ""
    """``stdout`` or ``stderr``; empty where both are one"""


class Tail(Record, frozen=True, kw_only=True, tag="tail"):
    """The last lines that a build printed which failed, cleaned and masked."""

    lines: list[str]
    stream: str = ""
    read: Whole = 0
    """lines in all"""
    failing: Whole | None = None
    """line of the first command that failed, as the build tool says it"""


class End(Record, frozen=True, kw_only=True, tag="summary"):
    """Last line of a whole trace: the summary object."""

    summary: Summary


AnyRecord = (
    Header
    | UnitNamed
    | UnitBegan
    | UnitCommand
    | UnitOpened
    | UnitDone
    | PhaseQueued
    | PhaseAdmitted
    | PhaseStarted
    | PhaseCurve
    | PhaseFinished
    | Requeued
    | Killed
    | Paused
    | Continued
    | GaveUp
    | Kept
    | TickRecord
    | Note
    | Seen
    | Said
    | Tail
    | End
)


def unit_began(at_s: float, unit: Unit, digest: str) -> UnitBegan:
    """The record of a unit that began."""
    return UnitBegan(
        at_s=at_s,
        unit_id=unit.unit_id,
        source=unit.source,
        output=unit.output,
        archs=list(unit.archs),
        threads=unit.threads,
        counted=unit.counted,
        argv_digest=digest,
    )


def phase_queued(at_s: float, phase: Phase, estimate: Estimate, digest: str) -> PhaseQueued:
    """The record of a phase that asks."""
    return PhaseQueued(
        at_s=at_s,
        phase_id=phase.phase_id,
        unit_id=phase.unit_id,
        kind=phase.kind.value,
        tool=phase.tool,
        source=phase.source,
        arch=phase.arch,
        input_mib=round(phase.input_mib, 3),
        argv_digest=digest,
        estimate_mib=round(estimate.peak_mib, 1),
        reserve_mib=round(estimate.reserve_mib, 1),
        estimate_source=estimate.source,
    )


def phase_admitted(at_s: float, phase_id: int, estimate: Estimate, waited_s: float, *, running: int) -> PhaseAdmitted:
    """The record of a phase that may start."""
    reserve_mib, waited_s = round(estimate.reserve_mib, 1), round(waited_s, 3)
    return PhaseAdmitted(at_s=at_s, phase_id=phase_id, reserve_mib=reserve_mib, waited_s=waited_s, running=running)


def phase_requeued(at_s: float, phase_id: int, estimate: Estimate, *, solo: bool, lost_s: float) -> Requeued:
    """The record of a phase that will run again."""
    reserve_mib = round(estimate.reserve_mib, 1)
    return Requeued(at_s=at_s, phase_id=phase_id, reserve_mib=reserve_mib, solo=solo, lost_s=round(lost_s, 3))


def unit_opened(at_s: float, unit_id: str, threads: int, waited_s: float) -> UnitOpened:
    """The record of a unit that was held and is open now."""
    return UnitOpened(at_s=at_s, unit_id=unit_id, threads=threads, waited_s=round(waited_s, 3))
