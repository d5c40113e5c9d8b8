"""The wait queue: phases that asked and have not started, in the order in which they should start. Pure.

Covers: the order (what a node waits for, what may not fit, then the most urgent unit first, ``scheduler.build_order``),
and places kept for units between two of their phases.
Does *not* cover: whether a phase may start (``scheduler.admission``).
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from operator import itemgetter

import msgspec

from builddoctor.core.events import HoldReason
from builddoctor.core.past import Course
from builddoctor.core.phase import Estimate, Phase

NEAR = 192
FAR = 64
"""A pass along a long queue looks at so many of the most urgent phases, and at so many of the others, in turn: when
memory is full, a thousand phases that do not fit need not all be tried at each end of another. Slurm's
``bf_max_job_test`` bounds its backfill likewise."""

Priority = Callable[[Phase], float]
"""Higher starts first."""


class Waiting(msgspec.Struct):
    """One phase that asked and has not started."""

    phase: Phase
    estimate: Estimate
    asked_at_s: float
    """when it asked; of one that is run again, when it was admitted at first"""
    queued_at_s: float
    """when it began to wait this time"""
    solo: bool = False
    """it must run alone"""
    course: Course = ()
    """what it held in an earlier build, in shares of its peak; empty where that is not known"""
    short: bool = False
    """its own time is expected to be short"""
    doubtful: bool = False
    """its unit may need more than there is: it comes first, so that a build that cannot succeed ends soon"""
    held_for: HoldReason | None = None
    estimated_at_s: float = 0.0
    key: tuple[float, float, int] = (0.0, 0.0, 0)

    @property
    def urgency(self) -> float:
        return -self.key[0]


class KeptPlace(msgspec.Struct, frozen=True):
    """A place kept for a unit between two of its phases."""

    urgency: float
    until_s: float
    estimate: Estimate
    """of the next phase"""


class WaitQueue:
    """Ordered when a phase comes."""

    def __init__(self, priority: Priority) -> None:
        self._priority = priority
        self._ordered: list[tuple[tuple[float, float, int], int]] = []
        self._by_id: dict[int, Waiting] = {}
        self._far = NEAR
        self._work_s = 0.0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Waiting]:
        """The most urgent first; phases may leave during the iteration."""
        for _, phase_id in list(self._ordered):
            if phase_id in self._by_id:
                yield self._by_id[phase_id]

    @property
    def work_s(self) -> float:
        """What the units of those that wait still take, guesses by their weights; without those that come first
        whatever they take."""
        return self._work_s

    def in_turn(self) -> Iterator[Waiting]:
        """The most urgent, then some of the others: with every call the next ones. One may leave when it was given."""
        ordered = self._ordered
        if len(ordered) > NEAR + FAR:
            start = self._far if NEAR <= self._far < len(ordered) else NEAR
            self._far = start + FAR
            ordered = ordered[:NEAR] + ordered[start : start + FAR]
        else:
            ordered = ordered[:]
        return map(self._by_id.__getitem__, map(itemgetter(1), ordered))

    def some(self, count: int) -> list[Waiting]:
        """At most this many, from all parts of the queue alike."""
        step = max(1, -(-len(self._ordered) // count))
        return [self._by_id[phase_id] for _, phase_id in self._ordered[::step]]

    @property
    def first(self) -> int | None:
        """The most urgent phase; None when nothing waits."""
        return self._ordered[0][1] if self._ordered else None

    def only(self, phase_id: int) -> Iterator[Waiting]:
        """This one, if it waits."""
        return iter([self._by_id[phase_id]] if phase_id in self._by_id else [])

    def keys(self) -> frozenset[int]:
        return frozenset(self._by_id)

    def add(self, waiting: Waiting) -> None:
        phase = waiting.phase
        waiting.key = (self._rank(waiting), waiting.asked_at_s, phase.phase_id)
        self._by_id[phase.phase_id] = waiting
        insort(self._ordered, (waiting.key, phase.phase_id))
        self._count(waiting, 1)

    def _rank(self, waiting: Waiting) -> float:
        if waiting.phase.urgent:
            return -math.inf
        return -sys.float_info.max if waiting.doubtful else -self._priority(waiting.phase)

    def leave(self, phase_id: int) -> Waiting | None:
        """Take a phase out; None when it did not wait."""
        waiting = self._by_id.pop(phase_id, None)
        if waiting is not None:
            del self._ordered[bisect_left(self._ordered, (waiting.key, phase_id))]
            self._count(waiting, -1)
        return waiting

    def _count(self, waiting: Waiting, times: int) -> None:
        if waiting.urgency < sys.float_info.max:
            self._work_s += times * waiting.urgency
        if not self._by_id:
            # Rounding must not add up.
            self._work_s = 0.0
