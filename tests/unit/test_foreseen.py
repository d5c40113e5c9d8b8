"""Work of units to come, by what earlier builds took."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.policy.foreseen import FASTEST_PACE, SLOWEST_PACE, ForeseenWork

KNOWN = {("src/a.cu", "a.cu.o"): 10.0, ("src/b.cu", "b.cu.o"): 30.0, ("other/a.cu", "a.cu.o"): 50.0}


def test_what_has_not_begun_is_to_come() -> None:
    """Count, mean and longest, until units begin."""
    work = ForeseenWork(KNOWN)
    whole = work.to_come()
    assert (whole.count, whole.mean_s, whole.longest_s) == (3, 30.0, 50.0)
    work.began("u1", "other/a.cu", "a.cu.o")
    left = work.to_come()
    assert (left.count, left.mean_s, left.longest_s) == (2, 20.0, 30.0)
    assert left.spread == pytest.approx(0.5)
    assert work.work_s("u1") == 50.0


def test_a_unit_in_another_folder_is_the_same() -> None:
    """Recipes of one checkout serve others; an output of another name is another unit."""
    work = ForeseenWork(KNOWN)
    work.began("u1", "csrc/b.cu", "b.cu.o")
    assert work.work_s("u1") == 30.0
    work.began("u2", "csrc/b.cu", "b.cu.o")
    work.began("u3", "src/a.cu", "a.sm90.o")
    assert (work.work_s("u2"), work.work_s("u3")) == (None, None)
    assert work.to_come().count == 2


def test_the_pace_is_learned() -> None:
    """All takes twice as long here: what is still to come does, too, the more surely the more has ended."""
    work = ForeseenWork({(f"src/{number}.cu", f"{number}.o"): 10.0 for number in range(50)})
    assert work.pace == 1.0
    for number in range(20):
        work.began(str(number), f"src/{number}.cu", f"{number}.o")
        work.ended(str(number), 20.0)
    assert 1.8 < work.pace < 2.0
    assert work.to_come().mean_s == pytest.approx(10.0 * work.pace)


def test_cached_units_say_nothing_of_the_pace() -> None:
    """ccache answered: no phase ran."""
    work = ForeseenWork(KNOWN)
    work.began("u1", "src/a.cu", "a.cu.o")
    work.ended("u1", 0.0)
    assert work.pace == 1.0
    assert work.to_come().count == 2


def test_nothing_known_is_nothing_to_come() -> None:
    """No earlier build, no recipe."""
    work = ForeseenWork({})
    work.began("u1", "src/a.cu", "a.cu.o")
    work.ended("u1", 5.0)
    assert (work.to_come().count, work.pace) == (0, 1.0)


FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(FLOATS, max_size=6), st.lists(FLOATS, max_size=6))
def test_any_figures_leave_the_pace_within_bounds(then_s: list[float], now_s: list[float]) -> None:
    """A damaged history, a clock that jumps."""
    work = ForeseenWork({(f"{number}.cu", "o"): each for number, each in enumerate(then_s)})
    for number, each in enumerate(now_s):
        work.began(str(number), f"{number}.cu", "o")
        work.ended(str(number), each)
    assert FASTEST_PACE <= work.pace <= SLOWEST_PACE
    assert math.isfinite(work.pace)
