"""Estimates for a version of a project that nothing was fitted to: TransformerEngine 2.11, a sample of its units.

Measured after all priors and settings had been chosen, on 2.8 and the example.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from builddoctor.model.phase import Outcome, Phase
from builddoctor.policy.estimator import LearningEstimator
from builddoctor.simulate.measured import from_digest
from builddoctor.simulate.remembered import cold, warm
from builddoctor.simulate.workload import Workload, unit_id

DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture(scope="module")
def sample() -> Workload:
    return from_digest(DATA / "te-2.11-sm100-sample.csv")


def shares(estimator: LearningEstimator, build: Workload) -> tuple[list[float], list[float]]:
    """Bounds and medians over the truth, each phase learned after it was estimated."""
    bounds, medians = [], []
    for index, unit in enumerate(build.units):
        for number, work in enumerate(unit.phases):
            phase = Phase(
                phase_id=1000 * index + number,
                unit_id=unit_id(index),
                kind=work.kind,
                source=unit.source,
                arch=work.arch,
                input_mib=work.input_mib,
                tool=work.tool,
            )
            estimate = estimator.estimate(phase)
            bounds.append(estimate.reserve_mib / work.peak_mib)
            medians.append(estimate.peak_mib / work.peak_mib)
            estimator.observe(phase, outcome=Outcome.OK, peak_mib=work.peak_mib, wall_s=work.wall_s)
    return bounds, medians


def test_a_first_build_of_it_stays_within_its_bounds(sample: Workload) -> None:
    """With nothing known but priors: 95 of 100 phases, and no bound is many times too low."""
    bounds, _ = shares(cold(sample), sample)
    assert sum(each >= 1 for each in bounds) >= 0.95 * len(bounds)
    assert min(bounds) > 1 / 3


def test_a_build_after_the_version_before_it_is_nearly_exact(sample: Workload) -> None:
    """2.8 is in the history, which has all of these units."""
    known = {unit.name: unit for unit in from_digest(DATA / "te-2.8-sm100.csv").units}
    earlier = Workload(name=sample.name, units=tuple(known[unit.name] for unit in sample.units))
    bounds, medians = shares(warm(earlier), sample)
    assert sum(each >= 1 for each in bounds) >= 0.95 * len(bounds)
    assert statistics.median(abs(each - 1) for each in medians) <= 0.05
