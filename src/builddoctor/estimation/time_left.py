"""How long a build still takes: a range, not a figure. Pure.

Covers: work that is left over work done a second, the spread of the units seen so far, the last unit that runs alone;
units that earlier builds or a recipe have shown.
Does *not* cover: one phase (``estimation.run_time``); what follows the last unit, such as a link or a wheel.

Work is the time of a unit's phases added up; it is done at the rate of the build so far, waits for memory and all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from builddoctor.core.board import TimeLeft

LEAST_UNITS = 3
"""Units that must have ended before anything is said."""

Z = 1.28
"""Standard deviations on either side: four of five."""

PRIOR_SPREAD, PRIOR_UNITS = 0.9, 6
"""Units of a library differ this much, and that is worth as much as so many units seen."""

UNSEEN_SPREAD = 0.7
"""Units that come later are not drawn from the same hat as those seen: the build tool has its own order."""

LEAST_ERROR = 0.1
TAIL_SPREADS, TAIL_SHARE = 1.5, 0.7
"""The last unit to end, alone, is one of the large ones: so many standard deviations, so much of the largest."""

FORESEEN_TAIL_SHARE = 0.5
"""Where all units are known, so much of the longest that is left."""

LONGEST_S = 1e6
"""Eleven days: more is no figure."""


ForeseenWorks = Mapping[tuple[str, str], float]
"""Seconds of all phases of a unit, added up, by its place and its output (``core.past.UnitKey``; empty: any)."""

TRUSTED_SHARE = 0.9
"""Of the units that have begun so many must have been foreseen, or those to come are of another project or release."""


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

    def __init__(self, works: ForeseenWorks) -> None:
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


class Works:
    """The work (s) of units that have ended, added up."""

    def __init__(self) -> None:
        self.count = 0
        self.largest_s = 0.0
        self._sum_s = 0.0
        self._sum_squares_s2 = 0.0
        self._open_s: dict[str, float] = {}

    def phase_ran(self, unit_id: str, wall_s: float) -> None:
        """A phase of this unit ran for ``wall_s``."""
        self._open_s[unit_id] = self._open_s.get(unit_id, 0.0) + _known(wall_s)

    def unit_ended(self, unit_id: str, *, counted: bool) -> None:
        """All of its phases have run. A unit without any was cached, or is none of ours."""
        work_s = self._open_s.pop(unit_id, 0.0)
        if counted and work_s > 0:
            self.count += 1
            self.largest_s = max(self.largest_s, work_s)
            self._sum_s += work_s
            self._sum_squares_s2 += work_s * work_s

    def done_s(self, unit_id: str) -> float:
        """Work done so far in an open unit."""
        return self._open_s.get(unit_id, 0.0)

    @property
    def mean_s(self) -> float:
        return self._sum_s / self.count if self.count else 0.0

    @property
    def spread(self) -> float:
        """Standard deviation over mean; of few units rather what is usual than what they show."""
        squares = PRIOR_UNITS * PRIOR_SPREAD**2
        if self.count and self.mean_s > 0:
            # Divided twice: the square of a very small mean is 0.
            squares += max(0.0, self._sum_squares_s2 / self.mean_s / self.mean_s - self.count)
        return math.sqrt(squares / (PRIOR_UNITS + max(0, self.count - 1)))


class OpenUnit(msgspec.Struct, frozen=True):
    """A unit that has begun and not ended."""

    done_s: float
    """work done in it"""
    left_s: float | None = None
    """work left, where there is an estimate of this very unit"""
    foreseen: bool = False
    """earlier builds or a recipe know it"""


def time_left(
    works: Works,
    *,
    to_come: int,
    open_units: Sequence[OpenUnit],
    rate: float,
    jobs: float | None = None,
    foreseen: Foreseen = NOTHING,
) -> TimeLeft | None:
    """Time until the last unit has ended; None when that cannot be said.

    ``to_come``: units not begun; ``rate``: work done a second so far; ``jobs``: phases that run at once now, where
    that is more than the rate says; ``foreseen``: those among them that earlier builds had.
    """
    covered = min(to_come, foreseen.count)
    known = sum(unit.foreseen for unit in open_units)
    all_known = covered == to_come and known >= TRUSTED_SHARE * len(open_units)
    if works.count < (1 if all_known else LEAST_UNITS) or not (math.isfinite(rate) and rate > 0):
        return None
    # Short units end first: those that ended are shorter than all. As far as units differ, work in open ones counts.
    differ = min(1.0, works.spread)
    mean_s = works.mean_s + differ * sum(_known(unit.done_s) for unit in open_units) / works.count
    known_s = [_left(unit, mean_s, differ) for unit in open_units]
    unseen_s = _known(covered * foreseen.mean_s) + (to_come - covered) * mean_s
    longest_s = max(known_s, default=0.0)
    middle_s = max((sum(known_s) + unseen_s) / rate, longest_s)
    left = to_come + len(known_s)
    error = Z * LEAST_ERROR
    if all_known:
        # Of a build that was begun before only a part is still to come, and it is not known which.
        part = foreseen.spread * math.sqrt(max(0.0, 1 / covered - 1 / foreseen.count)) if covered else 0.0
        error = Z * math.hypot(LEAST_ERROR, part)
    elif left:
        sampling = works.spread * math.sqrt(1 / works.count + 1 / left)
        error = Z * math.hypot(LEAST_ERROR, sampling, UNSEEN_SPREAD * works.spread / math.sqrt(works.count))
    # The last units end one by one: at full rate all the time it takes less, with the longest last it takes more.
    fastest = max(rate, jobs) if jobs is not None and math.isfinite(jobs) else rate
    low_s = max((sum(known_s) + unseen_s) / fastest, 0.7 * longest_s) / (1 + error)
    if all_known:
        tail_s = FORESEEN_TAIL_SHARE * max(longest_s, _known(foreseen.longest_s) if covered else 0.0)
    else:
        tail_s = max(TAIL_SPREADS * works.spread * mean_s, TAIL_SHARE * works.largest_s) if left else 0.0
    return TimeLeft(low_s=min(low_s, middle_s), high_s=middle_s * (1 + error * (1 + differ / 2)) + tail_s)


def _left(unit: OpenUnit, mean_s: float, differ: float) -> float:
    """Where all units are alike, what is missing; where they are not, one that took long may take long still."""
    if unit.left_s is not None:
        return _known(unit.left_s)
    return (1 - differ) * max(0.0, mean_s - _known(unit.done_s)) + differ * mean_s


def _known(seconds: float) -> float:
    return min(max(0.0, seconds), LONGEST_S) if math.isfinite(seconds) else 0.0
