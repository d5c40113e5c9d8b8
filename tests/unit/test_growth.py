"""Where a running phase is heading."""

from __future__ import annotations

import pytest

from builddoctor.policy.growth import MOST_FACTOR, PLATEAU_FACTOR, Point, growth_mib_s, heading_for_mib


def points(*pairs: tuple[float, float]) -> list[Point]:
    return [Point(age_s=age_s, rss_mib=rss_mib) for age_s, rss_mib in pairs]


def test_below_its_reservation_the_reservation_stands() -> None:
    """However fast it grows."""
    assert heading_for_mib(points((0, 0), (10, 900)), reserve_mib=1000.0, wall_s=100.0) == 1000
    assert heading_for_mib([], reserve_mib=1000.0, wall_s=100.0) == 1000


def test_past_it_growth_goes_on_for_the_time_left() -> None:
    """40 MiB/s with 20 s left of an expected 60: 800 MiB more."""
    seen = points((0, 0), (20, 400), (30, 800), (40, 1200))
    assert heading_for_mib(seen, reserve_mib=1000.0, wall_s=60.0) == pytest.approx(2000)


def test_past_its_time_it_is_given_half_as_long_again() -> None:
    """At 40 s of an expected 10, growth goes on for 20."""
    seen = points((0, 0), (20, 400), (30, 800), (40, 1200))
    assert heading_for_mib(seen, reserve_mib=1000.0, wall_s=10.0) == pytest.approx(2000)


def test_a_plateau_is_nearly_the_end() -> None:
    """A phase that no longer grows, or gives memory back, is taken to need a little more than it holds."""
    for last_mib in (2000.0, 1900.0):
        seen = points((0, 0), (10, 2000), (30, 2000), (40, last_mib))
        assert heading_for_mib(seen, reserve_mib=1000.0, wall_s=60.0) == PLATEAU_FACTOR * last_mib


def test_no_extrapolation_goes_beyond_three_times_what_is_held() -> None:
    """A step of the first seconds is no promise for an hour."""
    seen = points((0, 0), (1, 1500))
    assert heading_for_mib(seen, reserve_mib=1000.0, wall_s=3600.0) == MOST_FACTOR * 1500


@pytest.mark.parametrize("seen", [points(), points((5, 100)), points((5, 100), (5, 900))])
def test_growth_needs_two_looks_at_two_times(seen: list[Point]) -> None:
    """Otherwise there is none."""
    assert growth_mib_s(seen) == 0.0
