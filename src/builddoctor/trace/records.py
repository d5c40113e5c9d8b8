"""What a trace holds: one JSON object a line, told apart by its ``t``.

Covers: the schema, as msgspec structs; ``scripts/generate`` writes its JSON Schema from them.
Does *not* cover: the file (``trace.writer``, ``trace.reader``).

``at_s`` is seconds since the build began, on the supervisor's monotonic clock. Sizes are MiB. A trace holds no
environment; arguments that look like credentials are masked before they get here. Fields may be added within a schema
version; a reader skips records whose ``t`` it does not know.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from builddoctor.model.summary import Summary

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


class UnitBegan(Record, frozen=True, kw_only=True, tag="unit"):
    unit_id: str
    source: str
    output: str = ""
    archs: list[str] = msgspec.field(default_factory=list)
    threads: Whole = 1
    counted: bool = True
    argv_digest: str = ""


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


class GaveUp(Record, frozen=True, kw_only=True, tag="give-up"):
    phase_id: Whole
    verdict: str
    reason: str


class TickRecord(Record, frozen=True, kw_only=True, tag="tick"):
    """Once a second: the whole picture."""

    budget_mib: Mib
    limit_mib: Mib
    headroom_mib: Mib
    ours_mib: Mib
    running: Whole
    waiting: Whole
    open_units: Whole
    oom_kills: Whole | None = None
    planned: Whole | None = None
    """units that the build tool means to compile, those that are done included; None while nobody has said"""


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
