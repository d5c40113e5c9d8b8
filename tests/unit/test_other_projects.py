"""Estimates for a project that the priors were not fitted to: TransformerEngine and the example, each by the other's.

``scripts/bench predict`` has more sets and rows; these are the ones whose data is in this repository.
"""

from __future__ import annotations

import statistics

import pytest

from builddoctor.policy.clues import fitted_priors
from builddoctor.policy.estimator import LearningEstimator
from builddoctor.policy.priors import SHIPPED
from builddoctor.simulate.workload import Workload
from unit.left_out import example, measured, shares, units_of

BUILDS = {"te-2.8": measured("te-2.8-sm100"), "te-2.11": measured("te-2.11-sm100-sample"), "example": example()}


def fitted_to(build: Workload) -> LearningEstimator:
    return LearningEstimator(fitted_priors(SHIPPED, units_of(build)))


PAIRS = (("te-2.8", "example"), ("te-2.11", "example"), ("example", "te-2.8"), ("example", "te-2.11"))


@pytest.mark.parametrize(("known", "built"), PAIRS)
def test_another_project_s_phases_stay_within_their_bounds(known: str, built: str) -> None:
    """Cold, by priors of one other build."""
    bounds, _ = shares(fitted_to(BUILDS[known]), BUILDS[built])
    assert sum(each >= 1 for each in bounds) >= 0.93 * len(bounds)


def test_projects_left_out_all_together() -> None:
    """The figure that is asked for: 95 of 100, at 1.6 times the truth in the median."""
    bounds = [each for known, built in PAIRS for each in shares(fitted_to(BUILDS[known]), BUILDS[built])[0]]
    assert sum(each >= 1 for each in bounds) >= 0.95 * len(bounds)
    assert statistics.median(bounds) <= 1.6
