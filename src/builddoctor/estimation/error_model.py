"""How wrong guesses of one sort have been: a distribution that begins as a prior and is learned online.

A guess is a base figure times exp(residual). A book holds residuals, each with the features of the phase that showed
it; median and bound of a new guess are weighted quantiles of the prior's residuals and of those seen, where residuals
of phases alike count most. Quantiles, not means: one outlier moves a median by one place, and a bound never leaves
what was seen or what the prior allows for.

Does *not* cover: the base figures (``estimation.priors``) or what is done with several guesses
(``estimation.estimator``).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

BOUND_SHARE = 0.95
"""Of phases that shall stay at or below their bound."""

KEPT = 64
"""Residuals kept in a book, the latest."""

FAR_WEIGHT = 0.05
"""What a phase quite unlike this one still counts: it shows the machine's and the tool's own drift."""

STALE_GROWTH = 1.1
"""A quantile is computed anew when its book has grown by this factor."""

LARGEST_RESIDUAL = 5.0
"""Beyond a factor of 148 a figure is no evidence but a fault."""

MOST_CELLS = 4096

WIDEN_STEP = 0.02
"""Distances are rounded to this."""

Spread = tuple[float, float]
"""Residual at the median, and at the bound; the second is no less."""


class Book:
    """Residuals of one sort of guess.

    ``prior``: residuals that stand for what is known beforehand, evenly weighted, ``prior_weight`` phases in all.
    ``bandwidth``: distance in each feature (natural logarithms mostly) at which a phase counts 0.6 of one quite alike.
    """

    def __init__(self, prior: Sequence[float], *, prior_weight: float, bandwidth: Sequence[float] = ()) -> None:
        self._prior = tuple(prior)
        self._weight_each = prior_weight / len(self._prior)
        self._bandwidth = tuple(bandwidth)
        self._seen: deque[tuple[tuple[float, ...], float]] = deque(maxlen=KEPT)
        self._count = 0
        self._cells: dict[tuple[float, ...], tuple[int, Spread]] = {}

    @property
    def count(self) -> int:
        """Residuals taken up so far."""
        return self._count

    def add(self, features: Sequence[float], residual: float) -> None:
        """Take up one finished phase. What is no number is passed over."""
        if math.isfinite(residual) and all(map(math.isfinite, features)):
            self._seen.append((tuple(features), max(-LARGEST_RESIDUAL, min(LARGEST_RESIDUAL, residual))))
            self._count += 1

    def spread(self, features: Sequence[float], *, widen: float = 0.0) -> Spread:
        """Residual at the median and at the bound for a phase with these features.

        ``widen``: distance of the evidence, added to the prior's residuals on either side.
        """
        cell = [
            math.floor(2 * each / width) if math.isfinite(each) else 0
            for each, width in zip(features, self._bandwidth, strict=False)
        ]
        widen = round(widen / WIDEN_STEP) * WIDEN_STEP
        place = (*cell, widen)
        known = self._cells.get(place)
        if known is not None and self._count <= known[0] * STALE_GROWTH:
            return known[1]
        spread = self._compute(features, widen)
        if len(self._cells) >= MOST_CELLS:
            self._cells.clear()
        self._cells[place] = (self._count, spread)
        return spread

    def _compute(self, features: Sequence[float], widen: float) -> Spread:
        points = [(math.copysign(abs(each) + widen, each) if each else 0.0, self._weight_each) for each in self._prior]
        for there, residual in self._seen:
            square = 0.0
            for here, other, width in zip(features, there, self._bandwidth, strict=False):
                square += ((here - other) / width) ** 2
            points.append((residual, FAR_WEIGHT + (1 - FAR_WEIGHT) * math.exp(-0.5 * min(square, 1400.0))))
        points.sort()
        whole = sum([weight for _, weight in points])
        median, bound = _quantile(points, 0.5 * whole), _quantile(points, BOUND_SHARE * whole)
        return median, max(median, bound)


def _quantile(points: Sequence[tuple[float, float]], wanted: float) -> float:
    """The smallest value with at least this weight at or below it; the middle of two for a tie."""
    below = 0.0
    for index, (value, weight) in enumerate(points):
        below += weight
        if below >= wanted * (1 + 1e-9):
            return value
        if below >= wanted * (1 - 1e-9):
            return (value + points[min(index + 1, len(points) - 1)][0]) / 2
    return points[-1][0]
