"""Where a running phase is heading: a peak for one that has passed its estimate, from how it grew.

Does *not* cover: growth without end (``policy.runaway``), or what is done about either (``policy.governor``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

PLATEAU_FACTOR = 1.05
"""A phase that no longer grows may still take this much of what it holds."""

MORE_TIME = 0.5
"""A phase past its time is taken to need half as long again as it had."""

MOST_FACTOR = 3.0
"""No extrapolation goes beyond this much of what is held: growth comes in steps, and a step has no end in sight."""

LOOKED_BACK = 0.4
"""Share of a phase's life over which its growth is measured."""

LEAST_LOOKED_BACK_S = 2.0


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a phase."""

    age_s: float
    rss_mib: float


def growth_mib_s(points: Sequence[Point]) -> float:
    """Growth over the last part of a phase's life, ages ascending; 0 for less than two looks, or when it shrinks."""
    if len(points) < 2:
        return 0.0
    last = points[-1]
    since_s = last.age_s - max(LEAST_LOOKED_BACK_S, LOOKED_BACK * last.age_s)
    first = next((each for each in points if each.age_s >= since_s), points[0])
    if first is last:
        first = points[-2]
    took_s = last.age_s - first.age_s
    rate = (last.rss_mib - first.rss_mib) / took_s if took_s > 0 else 0.0
    return rate if math.isfinite(rate) and rate > 0 else 0.0


def heading_for_mib(points: Sequence[Point], *, reserve_mib: float, wall_s: float) -> float:
    """Peak to be expected of a running phase.

    ``points``: looks at it, ages ascending. ``reserve_mib``: what it was admitted with, which stands while the phase
    is below it. ``wall_s``: time it was expected to take; 0 when unknown.
    """
    if not points:
        return reserve_mib
    last = points[-1]
    if last.rss_mib <= reserve_mib:
        return reserve_mib
    left_s = max(wall_s - last.age_s, MORE_TIME * last.age_s)
    grown_mib = last.rss_mib + growth_mib_s(points) * left_s
    return min(max(grown_mib, PLATEAU_FACTOR * last.rss_mib), MOST_FACTOR * last.rss_mib)
