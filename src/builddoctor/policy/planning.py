"""Priorities of units: the longest remaining path first, or better, once units' pasts are known. Pure.

Covers: when to look for a better order, how long, and the priority of a phase in the order found.
Does *not* cover: the search itself (``policy.order``), or what is expected of units (``policy.estimator``).

Looking costs processor time that the build could have: it goes on in small pieces from sample to sample, and about one
hundredth of a core on average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from builddoctor.model.phase import Phase
from builddoctor.policy.order import OrderSearch, UnitToCome

PHASES_A_LOOK = 1600
"""Phases placed in thought between two samples: about 4 ms."""

TRIALS = 600
"""Orders tried before a search is over; more gain less than a thousandth."""

NEWS_AFTER_S = 1.0
"""Units come one by one: the next search waits for a few."""

AGAIN_AFTER_S = 5.0
AGAIN_SHARE = 0.02
"""A new search begins after this, or after this share of what is left of the build: what is left has changed."""

CRITICAL_SHARE = 0.85
LEAST_REST_S = 1.0
"""A unit that takes this much of the rest of the build must not wait."""

PACE_STEP = 0.05
"""A pace that has moved by so much (residual) has all that wait put in order again."""

MOST_PHASES = PHASES_A_LOOK
"""With more phases to come any order by length packs well, and a trial takes longer than a gate should wait."""

MANY_UNITS = 128
"""Of so many any order is as good until the last of them, unless memory is short."""

UnitsToCome = Callable[[], Sequence[UnitToCome]]


def worth_a_search(units: int, *, short: bool) -> bool:
    """``short``: something waits for memory."""
    return short or units <= MANY_UNITS


class Planner:
    """Order of one build."""

    def __init__(
        self,
        remaining_s: Callable[[Phase], float],
        *,
        slots: int,
        searches: bool = True,
        pace: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self._remaining_s = remaining_s
        self._pace, self._paced = pace, 1.0
        self._slots = slots
        self._searches = searches
        self._slopes: dict[str, float] = {}
        self._search: OrderSearch | None = None
        self._trials = 0
        self._news = False
        self._next_s = 0.0
        self._end_s = math.inf
        self._began_s = -NEWS_AFTER_S

    def priority(self, phase: Phase) -> float:
        """Higher starts first: seconds of the unit that remain, by the unit's weight in the order found."""
        return self.urgency(phase.unit_id, self._remaining_s(phase))

    def urgency(self, unit_id: str, left_s: float) -> float:
        """Priority of a unit with this much to go."""
        return self._slopes.get(unit_id, 1.0) * left_s

    def hangs_on(self, left_s: float, now_s: float) -> bool:
        """A unit with this much to go is what the build's end hangs on, as far as the order found says."""
        return left_s >= CRITICAL_SHARE * max(self._end_s - now_s, LEAST_REST_S)

    def unit_came(self) -> None:
        """There is a unit that the last search did not know."""
        self._news = True

    def think(self, to_come: UnitsToCome, *, budget_mib: float, now_s: float, worth: bool = True) -> bool:
        """Look a little further for a better order; True when priorities have changed. ``worth``: begin to, if it is
        time (see ``worth_a_search``).
        """
        pace = self._pace()
        moved = abs(math.log(pace / self._paced)) > PACE_STEP
        if moved:
            # Who asked before was given the seconds of another pace.
            self._paced = pace
        return ((worth or self._search is not None) and self._look(to_come, budget_mib, now_s)) or moved

    def _look(self, to_come: UnitsToCome, budget_mib: float, now_s: float) -> bool:
        if self._search is None:
            if now_s < (min(self._next_s, self._began_s + NEWS_AFTER_S) if self._news else self._next_s):
                return False
            self._begin(list(to_come()), budget_mib, now_s)
        if self._search is None:
            return False
        better = False
        for _ in range(max(1, PHASES_A_LOOK // max(1, self._search.phases))):
            better = self._search.look() or better
            self._trials += 1
            if self._search.done or self._trials >= TRIALS:
                return self._end(now_s)
        if better:
            self._adopt()
        return better

    def _begin(self, units: Sequence[UnitToCome], budget_mib: float, now_s: float) -> None:
        self._news = False
        self._began_s = now_s
        self._next_s = now_s + AGAIN_AFTER_S
        if not self._searches or len(units) < 2 or sum(len(unit.phases) for unit in units) > MOST_PHASES:
            return
        slopes = [self._slopes.get(unit.unit_id) for unit in units]
        before = [None if slope is None else slope * unit.left_s for slope, unit in zip(slopes, units, strict=True)]
        self._search = OrderSearch(units, slots=self._slots, budget_mib=budget_mib, before=before)
        self._trials = 0

    def _end(self, now_s: float) -> bool:
        assert self._search is not None
        self._adopt()
        self._next_s = now_s + max(AGAIN_AFTER_S, AGAIN_SHARE * self._search.best_s)
        self._search = None
        return True

    def _adopt(self) -> None:
        assert self._search is not None
        self._slopes = self._search.slopes()
        self._end_s = self._began_s + self._search.best_s
