"""How phases grow from their start to their end, learned from this build's own samples. Pure.

Covers: by kind of phase, the share of its time after which a phase has to be taken for as large as it will get, and how
evenly such phases usually grow.
Does *not* cover: how large that is (``estimation.estimator``), or using it (``scheduler.forecast``).

Compilers grow over most of their run: those of TransformerEngine that take more than 500 MiB held 32 to 71 % of their
peak on average (`cicc`), 54 to 88 % (host code), 71 to 79 % (`cudafe++`) and 80 to 86 % (`ptxas`). An even ramp holds
50 %, one that takes all at its start 100 %. Nothing is assumed: until a few phases have been watched, all are taken to
be at their peaks from their starts on; and a kind of which little was seen, to be as hasty as the most hasty of all.

Two figures, since they cost differently when wrong (docs/adr/0015): when all may be full at once is asked of the hasty
ones of a kind, and decides whether the kernel kills; how much of the spreads is set aside, of the usual ones.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import fmean, median

from builddoctor.core.phase import PhaseKind

LEAST_SEEN = 2
"""Phases to watch before any is taken to grow."""

LEAST_OF_KIND = 3
"""Phases of a kind to watch before it is judged by itself."""

LEAST_S = 0.8
LEAST_MIB = 150.0
LEAST_LOOKS = 4
"""Of a shorter or smaller phase, or one that was looked at less often, the samples show nothing."""

KEPT = 16

AT_ONCE = 0.95
"""A phase that held this share of its peak on average took all at its start: looks do not see the first moment."""

CAUTION = 0.7
"""A phase is taken to be full this much earlier than those of its kind whose means lie a standard deviation above."""


class Growth:
    """Mean size over peak, of each kind's latest phases."""

    def __init__(self) -> None:
        self._means: dict[PhaseKind, deque[float]] = {}
        self._usual: dict[PhaseKind, float] = {}
        self._hasty: dict[PhaseKind, float] = {}
        self._others = 0.0

    def ended(self, kind: PhaseKind, *, area_mib_s: float, looks: int, peak_mib: float, wall_s: float) -> None:
        """A phase ended by itself. ``area_mib_s``: its size added up over time."""
        if wall_s < LEAST_S or peak_mib < LEAST_MIB or looks < LEAST_LOOKS:
            return
        mean = min(1.0, max(0.0, area_mib_s / (peak_mib * wall_s)))
        self._means.setdefault(kind, deque(maxlen=KEPT)).append(mean)
        if self.seen:
            self._others = _even(max(map(max, self._means.values())))
        if len(means := self._means[kind]) >= LEAST_OF_KIND:
            usual = fmean(means)
            self._usual[kind] = _even(median(means))
            # Not statistics.pstdev: it computes in fractions, sixty times as long, and this is done at each end.
            self._hasty[kind] = _even(usual + math.dist(means, [usual] * len(means)) / math.sqrt(len(means)))

    @property
    def seen(self) -> bool:
        """Enough phases have been watched that some are taken to grow."""
        return sum(map(len, self._means.values())) >= LEAST_SEEN

    def evenness(self, kind: PhaseKind) -> float:
        """Share of its time over which a phase of this kind usually grows: 1 for an even ramp, 0 for one that is full
        at its start."""
        return self._usual.get(kind, self._others)

    def full_after(self, kind: PhaseKind) -> float:
        """Share of its time, 0 to ``CAUTION``, after which a phase of this kind may be at its peak."""
        return CAUTION * self._hasty.get(kind, self._others)


def _even(mean: float) -> float:
    """An even ramp that is full after a share f of the time has a mean of 1 - f / 2."""
    return min(1.0, 2 * (1 - mean)) if mean < AT_ONCE else 0.0
