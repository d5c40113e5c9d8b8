"""The memory forecast: what running phases will hold from now on. Pure.

Covers: whether a phase fits beside those that run at every moment to come, when it does not fit beside their peaks: one
that is about to end makes room for another that has yet to grow.
Does *not* cover: how phases grow (``estimation.growth``) or how long they take (``estimation.run_time``).

Why: a compiler grows evenly over its run and holds half of its peak on average. Setting aside the peak of each for all
its run leaves half of the memory unused. When times turn out wrong, headroom falls, and the youngest phases, which have
lost the least, are run again (``scheduler.oom_guard``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

LATE_SHARE = 1.25
LATE_S = 0.5
"""A phase is taken to end this much later than expected."""

LEAST_LEFT = 0.2
"""And never to be nearer to its end than this share of its time: those that take longer than expected, take long."""

MOMENTS = 8
"""Ends of running phases that are looked at; those between count as the next one."""


class Ramp(msgspec.Struct, frozen=True):
    """One phase from now on: grows evenly from ``now_mib`` to ``full_mib``, and ends."""

    now_mib: float
    full_mib: float
    full_s: float
    """from now; 0: at once"""
    end_s: float

    def at_mib(self, after_s: float) -> float:
        """What it holds then, if it still runs."""
        if after_s >= self.full_s or self.full_mib <= self.now_mib:
            return max(self.now_mib, self.full_mib)
        return self.now_mib + (self.full_mib - self.now_mib) * after_s / self.full_s


def ramp(*, now_mib: float, full_mib: float, elapsed_s: float, wall_s: float, full_after: float) -> Ramp:
    """Of a phase that has run for ``elapsed_s``; ``full_after``: share of its time after which it may be full."""
    return Ramp(
        now_mib=now_mib,
        full_mib=full_mib,
        full_s=max(0.0, full_after * wall_s - elapsed_s),
        end_s=end_s(elapsed_s=elapsed_s, wall_s=wall_s),
    )


def end_s(*, elapsed_s: float, wall_s: float) -> float:
    """When a phase is taken to end, from now."""
    return max(wall_s - elapsed_s, LEAST_LEFT * wall_s) * LATE_SHARE + LATE_S


class Forecast:
    """All running phases together, taken once and asked many times."""

    def __init__(self, ramps: Iterable[Ramp]) -> None:
        left = sorted(ramps, key=lambda each: each.end_s)
        step = max(1, math.ceil(len(left) / MOMENTS))
        self._held: list[tuple[float, float]] = []
        """(moment, what is held up to it), ascending: most of it just before an end"""
        while left:
            moment_s = left[min(step, len(left)) - 1].end_s
            self._held.append((moment_s, sum(each.at_mib(moment_s) for each in left)))
            left = left[step:]

    def most_mib(self, candidate: Ramp) -> float:
        """The most that will be held at once while ``candidate`` runs too."""
        most_mib = candidate.at_mib(candidate.end_s)
        for moment_s, held_mib in self._held:
            until_s = min(moment_s, candidate.end_s)
            most_mib = max(most_mib, held_mib + candidate.at_mib(until_s))
            if moment_s >= candidate.end_s:
                break
        return most_mib
