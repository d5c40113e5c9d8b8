"""Work of units that have not begun, by what earlier builds or a recipe took for them. Pure.

Covers: which of a project's units are still to come, and their work.
Does *not* cover: how long the build still takes (``policy.time_left``), how much longer phases take now than then
(``policy.durations``), or whose figures these are (``supervise.remembering``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

Works = Mapping[tuple[str, str], float]
"""Seconds of all phases of a unit, added up, by its place and its output (``model.past.UnitKey``; empty: any)."""

TRUSTED_SHARE = 0.9
"""Of the units that have begun so many must have been foreseen, or those to come are of another project or release."""


LONGEST_S = 1e6
"""Eleven days: more was not measured."""


class Foreseen(msgspec.Struct, frozen=True, kw_only=True):
    """All units that earlier builds had and this one has not begun."""

    count: int
    mean_s: float
    """work as it takes now"""
    spread: float
    """standard deviation over mean"""
    longest_s: float


NOTHING = Foreseen(count=0, mean_s=0.0, spread=0.0, longest_s=0.0)


class ForeseenWork:
    """One build against what is known of its project. ``pace``: what phases take now over what they took then."""

    def __init__(self, works: Works) -> None:
        self._unseen: dict[tuple[str, str], dict[str, float]] = {}
        for (place, output), work_s in works.items():
            if 0 < work_s <= LONGEST_S:
                self._unseen.setdefault((_file(place), output), {})[place] = work_s
        self._open: dict[str, float] = {}
        self._met = self._missed = 0

    def began(self, unit_id: str, place: str, output: str) -> None:
        """A unit of this name began; one of another folder is the same when its file and its output are."""
        there = self._unseen.get((_file(place), output)) or self._unseen.get((_file(place), ""))
        if not there:
            self._missed += 1
            return
        self._met += 1
        self._open[unit_id] = there.pop(place if place in there else next(iter(there)))

    def ended(self, unit_id: str) -> None:
        """It is done."""
        self._open.pop(unit_id, None)

    def work_s(self, unit_id: str, pace: float) -> float | None:
        """All work of a unit that has begun and not ended; None where nothing is known of it."""
        then_s = self._open.get(unit_id)
        return pace * then_s if then_s is not None else None

    def to_come(self, pace: float) -> Foreseen:
        """Those that have not begun; none where most that have begun were not foreseen."""
        if self._met < TRUSTED_SHARE * (self._met + self._missed):
            return NOTHING
        works_s = [pace * work_s for there in self._unseen.values() for work_s in there.values()]
        count = len(works_s)
        mean_s = sum(works_s) / count if count else 0.0
        squares = sum((each - mean_s) ** 2 for each in works_s) / count if count else 0.0
        return Foreseen(
            count=count,
            mean_s=mean_s,
            spread=math.sqrt(squares) / mean_s if mean_s > 0 else 0.0,
            longest_s=max(works_s, default=0.0),
        )


def _file(place: str) -> str:
    return place.rpartition("/")[2]
