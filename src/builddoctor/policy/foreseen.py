"""Work of units that have not begun, by what earlier builds or a recipe took for them. Pure.

Covers: which of a project's units are still to come, their work, and how much longer phases take now than then.
Does *not* cover: how long the build still takes (``policy.time_left``), or whose figures these are
(``supervise.remembering``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

Works = Mapping[tuple[str, str], float]
"""Seconds of all phases of a unit, added up, by its place and its output (``model.past.UnitKey``)."""

SLOWEST_PACE, FASTEST_PACE = 5.0, 0.2
PACE_PRIOR_UNITS = 2
"""So many units of mean work speak for a pace of 1 before any has ended."""


class Foreseen(msgspec.Struct, frozen=True, kw_only=True):
    """All units that earlier builds had and this one has not begun."""

    count: int
    mean_s: float
    """work as it takes now"""
    spread: float
    """standard deviation over mean"""
    longest_s: float


class ForeseenWork:
    """One build against what is known of its project."""

    def __init__(self, works: Works) -> None:
        self._unseen: dict[tuple[str, str], dict[str, float]] = {}
        for (place, output), work_s in works.items():
            if math.isfinite(work_s) and work_s > 0:
                self._unseen.setdefault((_file(place), output), {})[place] = work_s
        self._open: dict[str, float] = {}
        lengths_s = list(self._lengths_s())
        prior_s = PACE_PRIOR_UNITS * sum(lengths_s) / len(lengths_s) if lengths_s else 0.0
        self._then_s = self._now_s = prior_s

    def began(self, unit_id: str, place: str, output: str) -> None:
        """A unit of this name began; one of another folder is the same when its file and its output are."""
        there = self._unseen.get((_file(place), output))
        if not there:
            return
        found = place if place in there else next(iter(there))
        self._open[unit_id] = there.pop(found)

    def ended(self, unit_id: str, work_s: float) -> None:
        """It took this much; 0 for one that was cached, which says nothing of others."""
        then_s = self._open.pop(unit_id, 0.0)
        if then_s > 0 and work_s > 0 and math.isfinite(work_s):
            self._then_s += then_s
            self._now_s += work_s

    @property
    def pace(self) -> float:
        """What phases take now over what they took then: more run beside each other, or the machine is another."""
        return min(SLOWEST_PACE, max(FASTEST_PACE, self._now_s / self._then_s)) if self._then_s > 0 else 1.0

    def work_s(self, unit_id: str) -> float | None:
        """All work of a unit that has begun and not ended, as it takes now; None where nothing is known of it."""
        then_s = self._open.get(unit_id)
        return then_s * self.pace if then_s is not None else None

    def to_come(self) -> Foreseen:
        """Those that have not begun."""
        lengths_s = [self.pace * each for each in self._lengths_s()]
        count = len(lengths_s)
        mean_s = sum(lengths_s) / count if count else 0.0
        squares = sum((each - mean_s) ** 2 for each in lengths_s) / count if count else 0.0
        return Foreseen(
            count=count,
            mean_s=mean_s,
            spread=math.sqrt(squares) / mean_s if mean_s > 0 else 0.0,
            longest_s=max(lengths_s, default=0.0),
        )

    def _lengths_s(self) -> Iterable[float]:
        return (work_s for there in self._unseen.values() for work_s in there.values())


def _file(place: str) -> str:
    return place.rpartition("/")[2]
