"""How phases grow from their start to their end, learned from this build's own samples. Pure.

Covers: by kind of phase, the share of its time after which a phase has to be taken for as large as it will get.
Does *not* cover: how large that is (``policy.estimator``), or using it (``policy.ahead``).

Compilers grow over most of their run: ten phases above 500 MiB of the example held 38 to 57 % of their peak on average,
as an even ramp would (50 %). One that takes all at its start holds 100 %. Nothing is assumed: until a few phases have
been watched, all are taken to be at their peaks from their starts on; and a kind of which little was seen, to be as
hasty as the most hasty of the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from builddoctor.model.phase import PhaseKind

LEAST_SEEN = 2
"""Phases to watch before any is taken to grow."""

LEAST_OF_KIND = 3
"""Phases of a kind to watch before it is judged by itself."""

LEAST_S = 0.8
LEAST_MIB = 150.0
LEAST_LOOKS = 4
"""Of a shorter or smaller phase, or one that was looked at less often, the samples show nothing."""

KEPT = 16

CAUTION = 0.7
"""A phase is taken to be full this much earlier than the most hasty of its kind."""


class Growth:
    """Mean size over peak, of each kind's latest phases."""

    def __init__(self) -> None:
        self._means: dict[PhaseKind, deque[float]] = {}
        self._evenness: dict[PhaseKind, float] = {}
        self._others = 0.0

    def ended(self, kind: PhaseKind, *, area_mib_s: float, looks: int, peak_mib: float, wall_s: float) -> None:
        """A phase ended by itself. ``area_mib_s``: its size added up over time."""
        if wall_s < LEAST_S or peak_mib < LEAST_MIB or looks < LEAST_LOOKS:
            return
        mean = min(1.0, max(0.0, area_mib_s / (peak_mib * wall_s)))
        self._means.setdefault(kind, deque(maxlen=KEPT)).append(mean)
        if self.seen:
            self._evenness = {each: _even(max(means)) for each, means in self._means.items() if _judged(means)}
            self._others = _even(max(map(max, self._means.values())))

    @property
    def seen(self) -> bool:
        """Enough phases have been watched that some are taken to grow."""
        return sum(map(len, self._means.values())) >= LEAST_SEEN

    def evenness(self, kind: PhaseKind) -> float:
        """Share of its time over which a phase of this kind grows: 1 for an even ramp, 0 for one that may be full at
        its start."""
        return self._evenness.get(kind, self._others)

    def full_after(self, kind: PhaseKind) -> float:
        """Share of its time, 0 to ``CAUTION``, after which a phase of this kind may be at its peak."""
        return CAUTION * self.evenness(kind)


def _judged(means: Sequence[float]) -> bool:
    return len(means) >= LEAST_OF_KIND


def _even(hasty: float) -> float:
    """An even ramp that is full after a share f of the time has a mean of 1 - f / 2."""
    return min(1.0, 2 * (1 - hasty))
