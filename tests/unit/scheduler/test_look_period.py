"""How soon memory is looked at again."""

from __future__ import annotations

import pytest

from builddoctor.scheduler.look_period import LONGEST_S, MEASURED_AFTER, SHORTEST_S, LookPeriod


def seen(*held_mib: float, every_s: float = 1.0) -> LookPeriod:
    """A build of which so much was held at each look, after enough looks at one that held nothing."""
    period = LookPeriod()
    for place in range(MEASURED_AFTER):
        period.saw(0.0, place * every_s - MEASURED_AFTER * every_s, busy=True)
    for place, mib in enumerate(held_mib):
        period.saw(mib, place * every_s, busy=True)
    return period


def test_before_anything_is_known_memory_may_fill_at_once() -> None:
    """6000 MiB/s: of 12,000 MiB that are left a quarter is taken by the next look, were it so."""
    assert LookPeriod().next_s(12_000.0) == pytest.approx(0.5)
    assert LookPeriod().next_s(600.0) == SHORTEST_S


def test_a_build_of_which_nothing_runs_is_not_known() -> None:
    """An hour of ninja's own work says nothing of compilers."""
    period = LookPeriod()
    for place in range(10 * MEASURED_AFTER):
        period.saw(0.0, float(place), busy=False)
    assert period.next_s(12_000.0) == pytest.approx(0.5)
    assert period.next_s(12_000.0, quiet=True) == LONGEST_S


def test_twice_the_fastest_fill_is_feared_and_never_forgotten() -> None:
    """1000 MiB within a second, and calm since: 4000 MiB are half gone within a second at twice that."""
    assert seen(0.0, 1000.0, *[1000.0] * 50).next_s(4000.0) == pytest.approx(0.5)


def test_a_calm_build_is_looked_at_each_second_and_near_the_limit_more_often() -> None:
    """Nothing was seen to grow: 500 MiB/s are feared all the same."""
    assert seen(100.0).next_s(4000.0) == LONGEST_S
    assert seen(100.0).next_s(1000.0) == pytest.approx(0.5)
    assert seen(100.0).next_s(10.0) == SHORTEST_S
    assert seen(100.0).next_s(4000.0, longest_s=0.25) == 0.25
