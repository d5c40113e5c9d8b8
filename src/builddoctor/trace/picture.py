"""What the pictures of a build show, as data: who held memory when, runs in lanes, and marks.

``trace.taking`` fills it in from records. Does *not* cover: units and verdicts (``trace.report``, ``diagnose``),
or how any of it looks (``render``).
"""

from __future__ import annotations

import os

import msgspec

from builddoctor.trace.records import End, Header

GROUPS = ("cicc", "ptxas", "cudafe++", "cc1plus", "ld", "other")
"""Tools as pictures tell them apart."""

_GROUP_OF_TOOL = {
    "cicc": "cicc",
    "ptxas": "ptxas",
    "cudafe++": "cudafe++",
    "cc1plus": "cc1plus",
    "cc1": "cc1plus",
    "collect2": "ld",
    "ld": "ld",
    "lld": "ld",
    "gold": "ld",
    "mold": "ld",
}
_GROUP_OF_KIND = {
    "cicc": "cicc",
    "ptxas": "ptxas",
    "cudafe++": "cudafe++",
    "host": "cc1plus",
    "preprocess": "cc1plus",
    "link": "ld",
}


class Run(msgspec.Struct, kw_only=True):
    """One phase from its admission to its end; a phase that was run again has several."""

    phase_id: int
    unit_id: str
    kind: str
    tool: str
    group: str
    """one of ``GROUPS``"""
    arch: str
    source: str
    lane: int
    start_s: float
    end_s: float = 0.0
    peak_mib: float = 0.0
    peak_at_s: float = 0.0
    estimate_mib: float
    reserve_mib: float
    waited_s: float
    waited_for: str = ""
    """what it needed and what there was, in words; empty when it did not wait for memory"""
    outcome: str = ""
    """empty where the trace ends before it does"""
    attempt: int = 1
    input_mib: float = 0.0
    cpu_s: float = 0.0
    counted: bool = True
    """False for what configure steps compile to try the compiler out"""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One look at everything."""

    at_s: float
    held_mib: tuple[float, ...]
    """by ``GROUPS``"""
    holders: tuple[tuple[int, float], ...]
    """index of the run and its MiB, largest first"""
    budget_mib: float
    limit_mib: float
    room_mib: float
    """what this build holds and what is free: the limit, less what others hold"""
    running: int
    waiting: int
    threads: float
    """``--threads`` of the open units, their mean; 0 when none is open"""

    @property
    def total_mib(self) -> float:
        return sum(self.held_mib)


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened."""

    at_s: float
    kind: str
    """``kill``, ``ended``, ``give-up``, ``wait``, ``warning`` or ``note``"""
    text: str
    total_mib: float
    """what the build held then"""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    header: Header
    runs: tuple[Run, ...]
    moments: tuple[Moment, ...]
    marks: tuple[Mark, ...]
    lanes: int
    finished: frozenset[str]
    """units that were seen to their end"""
    last_at_s: float
    summary: End | None


def group_of(tool: str, kind: str) -> str:
    """Which of ``GROUPS`` a program belongs to."""
    name = os.path.basename(tool).removeprefix("ld.")
    return _GROUP_OF_TOOL.get(name) or _GROUP_OF_KIND.get(kind) or "other"
