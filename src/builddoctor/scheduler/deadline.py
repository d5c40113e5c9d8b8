"""The deadline of a build that must end by a time of its own (``--until``): what is not started, and when it is over.

Covers: phases of units that would not end in time, alone or beside what was begun; when nothing is left to wait for.
Does *not* cover: ending the build (``runtime.build``), or how long a phase takes (``estimation.run_time``).

A build tool keeps whole units and nothing of half ones, so a unit is begun only where the cores have time for it and
for all that was begun before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from builddoctor.core.phase import Phase

OVER_AFTER_S = 2.0
"""Nothing runs, and all that waits is too late: a unit between two of its phases asks in a moment, and may not be."""


class Deadline:
    """``until_s``: on the clock of the build's events; None: none. ``remaining_s``: of a phase's unit, from it on;
    ``least_s``: the same where guesses were too long."""

    def __init__(
        self,
        until_s: float | None,
        *,
        remaining_s: Callable[[Phase], float],
        least_s: Callable[[Phase], float],
        cores: int,
    ) -> None:
        self._until_s = math.inf if until_s is None else until_s
        self._remaining_s = remaining_s
        self._least_s = least_s
        self._cores = cores
        self._begun: set[str] = set()
        self._work_s = 0.0
        self._last_end_s = 0.0
        self._over = False

    @property
    def is_set(self) -> bool:
        """There is one, and it has not been reached."""
        return self._until_s < math.inf and not self._over

    def look(self, running: Iterable[Phase], waiting: Iterable[Phase], now_s: float) -> None:
        """Before the queue is passed along: the work of units that were begun, and can still end."""
        left_s = self._until_s - now_s
        begun_s = (self._remaining_s(phase) for phase in waiting if phase.unit_id in self._begun)
        self._work_s = sum(map(self._remaining_s, running)) + sum(each for each in begun_s if each <= left_s)

    def is_too_late_for(self, phase: Phase, now_s: float) -> bool:
        """It must not start. Where it may, and would begin its unit, what comes after it finds that much less time."""
        if not self.is_set:
            return self._over
        remaining_s, left_s = self._remaining_s(phase), self._until_s - now_s
        if phase.unit_id in self._begun:
            # What was done of it is lost otherwise.
            return self._least_s(phase) > left_s
        if max(remaining_s, (self._work_s + remaining_s) / self._cores) > left_s:
            return True
        self._work_s += remaining_s
        return False

    def has_time_for(self, unit_s: float, now_s: float) -> bool:
        """A unit that takes so long could be begun and end. Asked after ``look``."""
        left_s = self._until_s - now_s
        return not self.is_set or max(unit_s, (self._work_s + unit_s) / self._cores) <= left_s

    def started(self, phase: Phase) -> None:
        """Its unit is begun."""
        if self.is_set and phase.unit_id:
            self._begun.add(phase.unit_id)

    def ended(self, now_s: float) -> None:
        """A phase has ended."""
        self._last_end_s = now_s

    def is_over(self, now_s: float, *, idle: bool) -> bool:
        """True once. ``idle``: nothing runs, and all that waits is too late, at its nvcc gate or behind it."""
        rests = idle and now_s >= self._last_end_s + OVER_AFTER_S
        if self.is_set and (rests or now_s >= self._until_s):
            self._over = True
            return True
        return False
