"""What is known of compilers before a build has shown anything: a base figure for each sort of evidence, and how far
phases lie around it.

Covers: the shapes, the figures that ship, and fitting such figures to measured phases.
Does *not* cover: what this build shows (``policy.residuals``) or what earlier ones did (``policy.past``).

Figures that ship are rounded by hand from fits of 369 phases of TransformerEngine 2.8 for sm_100 (nvcc 13.0.88,
gcc 12.2, x86-64), bounds of host code and links by judgement. A tool's peak is a line over the size of its input; from
one tool to the next of a unit it is a power law, which stays positive for units smaller than any that were measured.
Fitted residuals are widened, since one project stands for all.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence

import msgspec

WIDENED = 1.25
"""Another project lies further from a fit than the one it was made of."""

TENTHS = (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.96)
"""Residuals that stand for a distribution: the middles of its tenths, the last a little out."""

LEAST_TO_FIT = 8

ALIKE = 0.2
"""Spread of x, relative, at which samples and the shape's own slope count the same."""


class Sort(str, enum.Enum):
    """What a guess rests on."""

    PREPROCESS = "prior"
    NOTHING = "prior: preprocesses nothing"
    SAME_INPUT = "the unit's other arch, preprocessed"
    FRONT_END = "prior: input size"
    CICC_OF_FRONT_END = "front end of the unit"
    CICC_OF_SIZE = "prior: input size of cicc"
    CICC_OF_CICC = "the unit's other arch"
    PTXAS = "prior: PTX size"
    HOST_OF_CICC = "cicc of the unit"
    HOST_OF_FRONT_END = "front end of the unit, for its host code"
    HOST_OF_SIZE = "prior: input size of host code"
    HOST_PLAIN = "prior: host code"
    LINK = "prior: link"
    PAST = "history"

    __hash__ = str.__hash__
    """as of ``PhaseKind``"""


class Prior(msgspec.Struct, frozen=True, kw_only=True):
    """A base figure, in MiB, over x (MiB of input, or MiB of an earlier phase), and residuals around it."""

    intercept: float
    slope: float = 0.0
    power: bool = False
    """exp(intercept) times x to the power of slope; else a line"""
    residuals: tuple[float, ...]
    """natural logarithms of truth over base, ascending"""
    weight: float = 1.5
    """phases of this build that they count as"""
    bandwidth: tuple[float, ...] = ()
    """see ``policy.residuals.Book``"""

    def base_mib(self, x: float) -> float:
        """The figure for x; at least 8 MiB, at most 1 PiB."""
        if self.power:
            exponent = self.intercept + self.slope * math.log(min(max(x, 1.0), 1e9))
            return min(max(math.exp(min(exponent, 20.0)), 8.0), 1e9)
        return min(max(self.intercept + self.slope * min(max(x, 0.0), 1e9), 8.0), 1e9)


Priors = Mapping[Sort, Prior]


SHIPPED: Priors = {
    Sort.PREPROCESS: Prior(intercept=75.0, residuals=(-0.5, -0.1, 0.0, 0.1, 0.7), bandwidth=(0.6,)),
    Sort.NOTHING: Prior(intercept=19.0, residuals=(-0.3, -0.1, 0.0, 0.1, 1.2)),
    Sort.SAME_INPUT: Prior(intercept=0.0, slope=1.0, residuals=(-0.1, -0.05, 0.0, 0.05, 0.1)),
    Sort.FRONT_END: Prior(intercept=48.0, slope=73.0, residuals=(-0.4, -0.1, 0.0, 0.2, 1.0), bandwidth=(0.04,)),
    Sort.CICC_OF_FRONT_END: Prior(
        intercept=-3.4, slope=1.54, power=True, residuals=(-0.7, -0.2, 0.0, 0.2, 0.6), bandwidth=(0.2, 0.2)
    ),
    Sort.CICC_OF_SIZE: Prior(intercept=100.0, slope=80.0, residuals=(-0.7, -0.2, 0.0, 0.5, 1.5), bandwidth=(0.04,)),
    Sort.CICC_OF_CICC: Prior(intercept=0.0, slope=1.0, residuals=(-0.8, -0.1, 0.0, 0.1, 0.8)),
    Sort.PTXAS: Prior(intercept=30.0, slope=34.0, residuals=(-0.3, -0.1, 0.0, 0.1, 0.5), bandwidth=(0.6,)),
    Sort.HOST_OF_CICC: Prior(
        intercept=1.5, slope=0.72, power=True, residuals=(-0.4, -0.1, 0.0, 0.1, 0.4), bandwidth=(0.4, 0.6)
    ),
    Sort.HOST_OF_FRONT_END: Prior(
        intercept=1.0, slope=0.8, power=True, residuals=(-0.6, -0.2, 0.0, 0.2, 0.7), bandwidth=(0.2,)
    ),
    Sort.HOST_OF_SIZE: Prior(intercept=114.0, slope=32.0, residuals=(-0.6, -0.1, 0.0, 0.4, 1.5), bandwidth=(0.04,)),
    Sort.HOST_PLAIN: Prior(intercept=400.0, residuals=(-1.5, -0.6, 0.0, 1.1, 1.6)),
    Sort.LINK: Prior(intercept=60.0, slope=2.0, residuals=(-1.0, -0.3, 0.0, 0.6, 1.2)),
    Sort.PAST: Prior(intercept=0.0, slope=1.0, residuals=(-0.01, -0.003, 0.0, 0.003, 0.01)),
}


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One measured phase to fit a prior to."""

    x: float
    peak_mib: float


def fitted(shape: Prior, samples: Sequence[Sample]) -> Prior:
    """The prior of the same shape that fits these samples; the one given when they are too few or all alike.

    Least squares of relative errors for a line, of logarithms for a power law. A second pass leaves the worst twentieth
    out, so that a few odd units do not bend the line; their residuals count all the same.
    """
    usable = [each for each in samples if each.peak_mib > 0 and math.isfinite(each.x) and each.x >= 0]
    if len(usable) < LEAST_TO_FIT:
        return shape
    chosen = usable
    fit = shape
    for _ in range(2):
        fit = _fit(shape, chosen)
        chosen = sorted(usable, key=lambda each: abs(_residual(fit, each)))[: math.ceil(0.95 * len(usable))]
    residuals = sorted(WIDENED * _residual(fit, each) for each in usable)
    picked = tuple(round(residuals[min(len(residuals) - 1, int(share * len(residuals)))], 3) for share in TENTHS)
    return msgspec.structs.replace(fit, residuals=picked)


def _residual(prior: Prior, sample: Sample) -> float:
    return math.log(sample.peak_mib / prior.base_mib(sample.x))


def _fit(shape: Prior, samples: Sequence[Sample]) -> Prior:
    """Weighted least squares of two parameters; of the intercept alone for a shape without a slope."""
    if shape.power:
        points = [(math.log(max(each.x, 1.0)), math.log(each.peak_mib), 1.0) for each in samples]
    else:
        points = [(each.x, each.peak_mib, each.peak_mib**-2) for each in samples]
    total = sum(weight for _, _, weight in points)
    mean_x = sum(weight * x for x, _, weight in points) / total
    mean_y = sum(weight * y for _, y, weight in points) / total
    if shape.slope == 0.0:
        middle = sorted(y for _, y, _ in points)[len(points) // 2]
        return msgspec.structs.replace(shape, intercept=round(middle, 4))
    spread = sum(weight * (x - mean_x) ** 2 for x, _, weight in points)
    # Units all alike say nothing of the slope: it is drawn towards the shape's.
    held = total * (ALIKE**2 if shape.power else (ALIKE * mean_x) ** 2)
    together = sum(weight * (x - mean_x) * (y - mean_y) for x, y, weight in points)
    slope = (together + held * shape.slope) / (spread + held)
    return msgspec.structs.replace(shape, intercept=round(mean_y - slope * mean_x, 4), slope=round(slope, 4))
