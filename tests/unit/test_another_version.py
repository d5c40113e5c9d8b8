"""Estimates for a version of a project that nothing was fitted to: TransformerEngine 2.11, a sample of its units.

Measured after all priors and settings had been chosen, on 2.8 and the example.
"""

from __future__ import annotations

import statistics

import msgspec
import pytest

from builddoctor.simulate.remembered import cold, warm
from builddoctor.simulate.workload import Workload
from unit.left_out import measured, shares


@pytest.fixture(scope="module")
def sample() -> Workload:
    return measured("te-2.11-sm100-sample")


def test_a_first_build_of_it_stays_within_its_bounds(sample: Workload) -> None:
    """With nothing known but priors: 95 of 100 phases, and no bound is many times too low."""
    bounds, _ = shares(cold(sample), sample)
    assert sum(each >= 1 for each in bounds) >= 0.95 * len(bounds)
    assert min(bounds) > 1 / 3


def test_a_build_after_the_version_before_it_is_nearly_exact(sample: Workload) -> None:
    """2.8 is in the history, which has all of these units."""
    known = {unit.name: unit for unit in measured("te-2.8-sm100").units}
    earlier = msgspec.structs.replace(sample, units=tuple(known[unit.name] for unit in sample.units))
    bounds, medians = shares(warm(earlier), sample)
    assert sum(each >= 1 for each in bounds) >= 0.95 * len(bounds)
    assert statistics.median(abs(each - 1) for each in medians) <= 0.05
