"""What the pictures of a build show, as data: memory by tool over time, runs in lanes, and marks.

Covers: the data that ``BuildState.picture`` makes, and ``Spans``, which keeps a bounded number of moments of a build of
any length. Does *not* cover: units and verdicts (``trace.report``, ``diagnose``), or how any of it looks (``ui``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from builddoctor.core.events import Header, NodeSeen, Summary

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

FIRST_S = 0.05
"""the first width of a span (``Spans``)"""

State = TypeVar("State")


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
    node: str = ""
    """the other machine that it ran on, or ``phase.STORE``"""
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
    nodes: tuple[NodeSeen, ...]
    """other machines, as they were seen last"""
    last_at_s: float
    summary: Summary | None


def group_of(tool: str, kind: str) -> str:
    """Which of ``GROUPS`` a program belongs to."""
    name = os.path.basename(tool).removeprefix("ld.")
    return _GROUP_OF_TOOL.get(name) or _GROUP_OF_KIND.get(kind) or "other"


class Spans(Generic[State]):
    """The fullest moment of each span of time, for a bounded number of spans.

    Spans begin at 50 ms. When there are too many, neighbours are joined in pairs, and each is twice as long.
    Call ``advance`` before a change and ``offer`` after it. A state is made only when it may be kept: making it costs.
    """

    def __init__(self, most: int) -> None:
        self._most = max(2, most)
        self._width_s = FIRST_S
        self._kept: list[tuple[float, float, State]] = []
        """time, total and state of each span that is over"""
        self._span = 0
        self._best: tuple[float, float, State] | None = None
        self._at_s = 0.0

    def advance(self, at_s: float, total: float, state: Callable[[], State]) -> None:
        """Time has come this far, and nothing has changed up to now: what lies over a border begins the next span."""
        at_s = self._at_s = max(self._at_s, at_s)
        span = int(at_s / self._width_s)
        if span <= self._span:
            return
        border_s = (self._span + 1) * self._width_s
        for begins_s in (border_s, span * self._width_s) if span > self._span + 1 else (border_s,):
            if self._best is not None:
                self._kept.append(self._best)
            self._best = (begins_s, total, state())
        self._span = span
        if len(self._kept) > 2 * self._most:
            self._join()

    def offer(self, total: float, state: Callable[[], State]) -> None:
        """A change, at the time of the last ``advance``."""
        if self._best is None or total > self._best[1]:
            self._best = (self._at_s, total, state())

    def kept(self, total: float, state: Callable[[], State]) -> list[tuple[float, State]]:
        """All kept moments in order of time, and the state at the end."""
        moments = [*self._kept, *([self._best] if self._best is not None else [])]
        moments.append((self._at_s, total, state()))
        return [(at_s, kept) for at_s, _, kept in moments]

    def _join(self) -> None:
        while len(self._kept) > self._most:
            self._width_s *= 2
            self._span //= 2
            joined: list[tuple[float, float, State]] = []
            for moment in self._kept:
                if not joined or int(joined[-1][0] / self._width_s) != int(moment[0] / self._width_s):
                    joined.append(moment)
                elif moment[1] > joined[-1][1]:
                    joined[-1] = moment
            self._kept = joined
