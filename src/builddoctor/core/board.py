"""The state of a running build as the screen shows it: one frozen picture at a time."""

from __future__ import annotations

import msgspec

from builddoctor.core.word import Word


class RunningRow(msgspec.Struct, frozen=True, kw_only=True):
    """One running phase."""

    kind: str
    source: str
    arch: str
    rss_mib: float
    estimate_mib: float
    running_s: float
    reserve_mib: float = 0.0
    """what admission set aside for it"""
    evidence: str = ""
    """where the estimate comes from"""
    left_s: float | None = None
    """time that it is expected to go on; None while it is not known"""
    suspended: bool = False
    """it stands still, so that others can end first"""
    node: str = ""
    """the other machine that it runs on"""


class WaitReason(Word):
    """Why a phase waits now: the scheduler's last word (``core.events.HoldReason``), unless memory is free since."""

    MEMORY = "memory"
    CORES = "cores"
    OTHERS = "others"
    """it would fit, and others go first"""
    ALONE = "alone"
    """it must run alone"""
    OTHER_ALONE = "other-alone"
    FREEING = "freeing"
    """for the memory of what was just ended"""
    NODE = "node"
    """for another machine: it does not fit here"""


class WaitingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One phase that waits, and why."""

    kind: str
    source: str
    needs_mib: float
    free_mib: float
    reason: WaitReason
    waited_s: float
    release_s: float | None = None
    """when the next running phase is expected to end; None while it is not known"""


class TimeLeft(msgspec.Struct, frozen=True, kw_only=True):
    """Until the last unit has ended: four builds of five lie between the two."""

    low_s: float
    high_s: float


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, in words."""

    at_s: float
    text: str
    warning: bool = False


class BoardState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything on the screen."""

    title: str
    elapsed_s: float
    units_done: int
    units_open: int
    units_total: int | None
    """None while it is not known how many there will be"""
    phases_done: int
    requeued: int
    kernel_kills: int
    used_mib: float
    budget_mib: float
    limit_mib: float
    limited_by: str
    jobs: int
    jobs_mean: float
    jobs_max: int
    window: int
    threads: int
    running: tuple[RunningRow, ...]
    waiting: int
    held: WaitingRow | None
    events: tuple[EventRow, ...]
    """oldest first"""
    left: TimeLeft | None = None
    """None while too little is known to say"""
    waits: tuple[WaitingRow, ...] = ()
    """every phase that waits, the longest first"""
    verdict: str = ""
    """of a build that was started without us: does it work, in a sentence"""
    threat: str = ""
    """and what threatens it; empty for nothing"""
    silent_s: float = 0.0
    """when followed by its trace: how long nothing was written to it"""
