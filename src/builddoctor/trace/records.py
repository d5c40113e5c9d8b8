"""What a trace holds: one JSON object a line, told apart by its ``t``.

Covers: the schema, as msgspec structs; ``scripts/generate`` writes its JSON Schema from them.
Does *not* cover: the file (``trace.writer``, ``trace.reader``).

``at_s`` is seconds since the build began, on the supervisor's monotonic clock. Sizes are MiB. A trace holds no
environment; arguments that look like credentials are masked before they get here. Fields may be added within a schema
version; a reader skips records whose ``t`` it does not know.
"""

from __future__ import annotations

import msgspec

from builddoctor.model.summary import Summary

TRACE_SCHEMA = 1


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", omit_defaults=True):
    """Base of all records."""

    at_s: float


class Header(Record, frozen=True, kw_only=True, tag="header"):
    """First line: what was run, where, under which limits."""

    schema: int
    builddoctor: str
    trace_id: str
    started_at: str
    """UTC, ISO 8601"""
    command: list[str]
    cwd: str
    title: str
    archs: list[str]
    cores: int
    window: int
    budget_mib: float
    limit_mib: float
    limited_by: str
    page_kib: int
    toolkit: str = ""
    nvcc: str = ""
    caps: list[str] = msgspec.field(default_factory=list)
    boot_id: str = ""
    oom_kills: int | None = None
    """the kernel's kill counter at the start"""


class UnitBegan(Record, frozen=True, kw_only=True, tag="unit"):
    unit_id: str
    source: str
    output: str = ""
    archs: list[str] = msgspec.field(default_factory=list)
    threads: int = 1
    counted: bool = True
    argv_digest: str = ""


class UnitDone(Record, frozen=True, kw_only=True, tag="unit-end"):
    unit_id: str


class PhaseQueued(Record, frozen=True, kw_only=True, tag="ask"):
    phase_id: int
    unit_id: str
    kind: str
    tool: str
    source: str
    arch: str = ""
    input_mib: float = 0.0
    argv_digest: str = ""
    estimate_mib: float
    reserve_mib: float
    estimate_source: str


class PhaseAdmitted(Record, frozen=True, kw_only=True, tag="admit"):
    phase_id: int
    reserve_mib: float
    waited_s: float
    running: int


class PhaseStarted(Record, frozen=True, kw_only=True, tag="start"):
    phase_id: int
    pid: int


class PhaseCurve(Record, frozen=True, kw_only=True, tag="rss"):
    """Memory of one running phase, written when it changed by a twentieth and by 16 MiB at least."""

    phase_id: int
    rss_mib: float


class PhaseFinished(Record, frozen=True, kw_only=True, tag="end"):
    phase_id: int
    outcome: str
    exit_code: int | None = None
    signal: int | None = None
    cause: str = ""
    """who sent a SIGKILL that was not ours: ``cgroup``, ``ancestor``, ``host``, ``oomd``, ``outside`` or ``unknown``"""
    peak_mib: float
    wall_s: float
    cpu_s: float


class Requeued(Record, frozen=True, kw_only=True, tag="requeue"):
    phase_id: int
    reserve_mib: float
    solo: bool
    lost_s: float


class Killed(Record, frozen=True, kw_only=True, tag="kill"):
    """builddoctor decided to end a phase."""

    phase_id: int
    reason: str


class GaveUp(Record, frozen=True, kw_only=True, tag="give-up"):
    phase_id: int
    verdict: str
    reason: str


class TickRecord(Record, frozen=True, kw_only=True, tag="tick"):
    """Once a second: the whole picture."""

    budget_mib: float
    limit_mib: float
    headroom_mib: float
    ours_mib: float
    running: int
    waiting: int
    open_units: int
    oom_kills: int | None = None


class Note(Record, frozen=True, kw_only=True, tag="note"):
    """Something worth a line to a person: a warning, a hold, a knob that was capped."""

    text: str
    level: str = "info"


class End(Record, frozen=True, kw_only=True, tag="summary"):
    """Last line of a whole trace: the summary object."""

    summary: Summary


AnyRecord = (
    Header
    | UnitBegan
    | UnitDone
    | PhaseQueued
    | PhaseAdmitted
    | PhaseStarted
    | PhaseCurve
    | PhaseFinished
    | Requeued
    | Killed
    | GaveUp
    | TickRecord
    | Note
    | End
)
