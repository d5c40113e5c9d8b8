"""Priors fitted to measured phases: how the figures that ship were found, before they were rounded by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from builddoctor.core.phase import PhaseKind
from builddoctor.estimation.features import PREPROCESSED_MIB, Clue, Done, UnitNotes, clues
from builddoctor.estimation.priors import Prior, Priors, Sort

WIDENED = 1.25
"""Another project lies further from a fit than the one it was made of."""

TENTHS = (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.96)
"""Residuals that stand for a distribution: the middles of its tenths, the last a little out."""

LEAST_TO_FIT = 8

ALIKE = 0.2
"""Spread of x, relative, at which samples and the shape's own slope count the same."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One measured phase to fit a prior to."""

    x: float
    peak_mib: float


def fitted_priors(shapes: Priors, units: Iterable[Sequence[Done]]) -> dict[Sort, Prior]:
    """The priors of these shapes, fitted to measured units (phases of each in the order in which they ran)."""
    samples: dict[Sort, list[Sample]] = {sort: [] for sort in shapes}
    for unit in units:
        notes, front = UnitNotes(), UnitNotes()
        for done in unit:
            found = {clue.sort: clue for clue in (*clues(done.phase, notes), *clues(done.phase, front))}
            if done.phase.kind is PhaseKind.CICC:
                found[Sort.CICC_OF_SIZE] = Clue(Sort.CICC_OF_SIZE, done.phase.input_mib)
            if done.phase.kind is PhaseKind.HOST and done.phase.input_mib >= PREPROCESSED_MIB:
                found[Sort.HOST_OF_SIZE] = Clue(Sort.HOST_OF_SIZE, done.phase.input_mib)
            for sort, clue in found.items():
                samples.setdefault(sort, []).append(Sample(x=clue.x, peak_mib=done.peak_mib))
            notes.note(done)
            if done.phase.kind is not PhaseKind.CICC:
                front.note(done)
    return {sort: fitted(shape, samples[sort]) for sort, shape in shapes.items()}


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
