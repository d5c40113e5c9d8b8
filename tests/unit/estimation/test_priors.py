"""What is known of compilers before a build has shown anything."""

from __future__ import annotations

import math

import pytest

from builddoctor.estimation.priors import SHIPPED, Prior, Sort
from support.fitted_priors import Sample, fitted

LINE = Prior(intercept=0.0, slope=1.0, residuals=(0.0,))
POWER = Prior(intercept=0.0, slope=1.0, power=True, residuals=(0.0,))


@pytest.mark.parametrize("sort", list(Sort))
@pytest.mark.parametrize("x", [0.0, -5.0, 1e-9, 1.0, 1e4, 1e30, math.inf])
def test_every_base_figure_is_a_size(sort: Sort, x: float) -> None:
    """Between 8 MiB and 1 PiB, whatever it is asked for."""
    assert 8 <= SHIPPED[sort].base_mib(x) <= 1e9


@pytest.mark.parametrize("sort", list(Sort))
def test_shipped_residuals_ascend_around_nothing(sort: Sort) -> None:
    """They hold a zero, lie on both sides of it, and reach further up than down or as far."""
    residuals = SHIPPED[sort].residuals
    assert list(residuals) == sorted(residuals)
    assert residuals[0] < 0.0 < residuals[-1]
    assert 0.0 in residuals


def test_a_line_is_found_again() -> None:
    """45 MiB and 30 MiB for each MiB of input, with an error of 5 % either way."""
    samples = [Sample(x=x, peak_mib=(45 + 30 * x) * (1.05 if x % 2 else 0.95)) for x in range(40)]
    fit = fitted(LINE, samples)
    assert fit.intercept == pytest.approx(45, rel=0.1)
    assert fit.slope == pytest.approx(30, rel=0.1)
    assert max(map(abs, fit.residuals)) < 0.15


def test_a_power_law_is_found_again() -> None:
    """The front end to the power of 1.5."""
    fit = fitted(POWER, [Sample(x=x, peak_mib=0.05 * x**1.5) for x in range(200, 2000, 50)])
    assert fit.slope == pytest.approx(1.5, rel=0.05)
    assert fit.base_mib(1000.0) == pytest.approx(0.05 * 1000**1.5, rel=0.05)


def test_a_few_odd_units_do_not_bend_the_line_but_show_in_its_residuals() -> None:
    """Two of forty take ten times what the others would."""
    samples = [Sample(x=x, peak_mib=(45 + 30 * x) * (10 if x in (7, 23) else 1)) for x in range(40)]
    fit = fitted(LINE, samples)
    assert fit.base_mib(20.0) == pytest.approx(645, rel=0.1)
    assert fit.residuals[-1] > 2


def test_units_all_alike_leave_the_slope_as_it_was() -> None:
    """No slope is made up from differences of a tenth of a per cent."""
    samples = [Sample(x=193 + 0.1 * (number % 3), peak_mib=110 + 5 * (number % 2)) for number in range(20)]
    fit = fitted(POWER, samples)
    assert fit.slope == pytest.approx(1.0, abs=0.05)
    assert fit.base_mib(193.0) == pytest.approx(112, rel=0.05)


def test_too_few_samples_change_nothing() -> None:
    """A fit needs eight."""
    assert fitted(LINE, [Sample(x=1.0, peak_mib=500.0)] * 7) is LINE
