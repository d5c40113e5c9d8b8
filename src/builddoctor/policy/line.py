"""Phases that wait, in the order in which they should start. Pure.

Covers: the order (longest remaining path first), and places kept for units between two of their phases.
Does *not* cover: whether a phase may start (``policy.governor``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping

import msgspec

from builddoctor.model.phase import Estimate, Phase

Priority = Callable[[Phase], float]
"""Higher starts first."""


class Waiting(msgspec.Struct):
    """One phase that asked and has not started."""

    phase: Phase
    estimate: Estimate
    asked_at_s: float
    solo: bool = False
    short: bool = False
    """its own time is expected to be short"""
    held_for: str = ""
    key: tuple[float, float, int] = (0.0, 0.0, 0)

    @property
    def urgency(self) -> float:
        return -self.key[0]


class Kept(msgspec.Struct, frozen=True):
    """A place kept for a unit between two of its phases."""

    urgency: float
    until_s: float
    held_mib: float
    """what its last phase held: the next one is taken to need as much"""


class KeptPlaces:
    """Kept places, gone through together with the line: the more urgent ones count against who waits."""

    def __init__(self, kept: Mapping[str, Kept]) -> None:
        self._by_unit = dict(kept)
        self._ahead = sorted(((each.urgency, unit_id) for unit_id, each in kept.items()), key=lambda each: each[0])
        self._passed: set[str] = set()
        self._passed_mib = 0.0

    def reach(self, urgency: float) -> None:
        """Come to a phase of this urgency; urgencies fall from call to call."""
        while self._ahead and self._ahead[-1][0] > urgency:
            _, unit_id = self._ahead.pop()
            self._passed.add(unit_id)
            self._passed_mib += self._by_unit[unit_id].held_mib

    def take(self, unit_id: str) -> None:
        """A phase of this unit starts: its place is taken."""
        kept = self._by_unit.get(unit_id)
        if kept is not None and unit_id in self._passed:
            self._passed.remove(unit_id)
            self._passed_mib -= kept.held_mib
        self._ahead = [each for each in self._ahead if each[1] != unit_id]

    def beside(self, unit_id: str) -> tuple[int, float]:
        """Places kept, and their memory, for more urgent units than the one reached, but for its own."""
        if unit_id not in self._passed:
            return len(self._passed), self._passed_mib
        return len(self._passed) - 1, self._passed_mib - self._by_unit[unit_id].held_mib


class Line:
    """Ordered once when a phase comes; again when priorities change."""

    def __init__(self, priority: Priority) -> None:
        self._priority = priority
        self._ordered: list[tuple[tuple[float, float, int], int]] = []
        self._by_id: dict[int, Waiting] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Waiting]:
        """First come the most urgent; phases may leave while one goes through."""
        for _, phase_id in list(self._ordered):
            if phase_id in self._by_id:
                yield self._by_id[phase_id]

    def keys(self) -> frozenset[int]:
        return frozenset(self._by_id)

    def add(self, waiting: Waiting) -> None:
        phase = waiting.phase
        waiting.key = (-self._priority(phase), waiting.asked_at_s, phase.phase_id)
        self._by_id[phase.phase_id] = waiting
        insort(self._ordered, (waiting.key, phase.phase_id))

    def leave(self, phase_id: int) -> Waiting | None:
        """Take a phase out; None when it did not wait."""
        waiting = self._by_id.pop(phase_id, None)
        if waiting is not None:
            del self._ordered[bisect_left(self._ordered, (waiting.key, phase_id))]
        return waiting
