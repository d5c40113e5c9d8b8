"""Work of units to come, by what earlier builds took."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.policy.foreseen import ForeseenWork

KNOWN = {("src/a.cu", "a.cu.o"): 10.0, ("src/b.cu", "b.cu.o"): 30.0, ("other/a.cu", "a.cu.o"): 50.0}


def test_what_has_not_begun_is_to_come() -> None:
    """Count, mean and longest, until units begin."""
    work = ForeseenWork(KNOWN)
    whole = work.to_come(1.0)
    assert (whole.count, whole.mean_s, whole.longest_s) == (3, 30.0, 50.0)
    work.began("u1", "other/a.cu", "a.cu.o")
    left = work.to_come(2.0)
    assert (left.count, left.mean_s, left.longest_s) == (2, 40.0, 60.0)
    assert left.spread == pytest.approx(0.5)
    assert work.work_s("u1", 1.5) == 75.0
    work.ended("u1")
    assert work.work_s("u1", 1.0) is None
    assert work.to_come(1.0).count == 2


def test_a_unit_in_another_folder_is_the_same() -> None:
    """Recipes of one checkout serve others; an output of another name is another unit."""
    work = ForeseenWork(KNOWN)
    work.began("u1", "csrc/b.cu", "b.cu.o")
    assert work.work_s("u1", 1.0) == 30.0
    assert work.to_come(1.0).count == 2
    work.began("u2", "csrc/b.cu", "b.cu.o")
    work.began("u3", "src/a.cu", "a.sm90.o")
    assert (work.work_s("u2", 1.0), work.work_s("u3", 1.0)) == (None, None)


def test_units_of_another_project_or_release_are_not_trusted() -> None:
    """Most that began were not foreseen: those to come are not either."""
    work = ForeseenWork(KNOWN)
    work.began("u1", "src/a.cu", "a.cu.o")
    assert work.to_come(1.0).count == 2
    work.began("u2", "src/new.cu", "new.cu.o")
    assert work.to_come(1.0).count == 0


def test_a_recipe_that_names_no_outputs_serves_any() -> None:
    """They are optional in it."""
    work = ForeseenWork({("src/a.cu", ""): 10.0})
    work.began("u1", "src/a.cu", "a.cu.o")
    assert work.work_s("u1", 1.0) == 10.0


def test_nothing_known_is_nothing_to_come() -> None:
    """No earlier build, no recipe."""
    work = ForeseenWork({})
    work.began("u1", "src/a.cu", "a.cu.o")
    work.ended("u1")
    assert work.to_come(1.0).count == 0


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=6))
def test_any_figures_are_figures(works_s: list[float]) -> None:
    """A damaged history."""
    found = ForeseenWork({(f"{number}.cu", "o"): each for number, each in enumerate(works_s)}).to_come(1.0)
    assert found.count <= len(works_s)
    assert found.mean_s >= 0
    assert not math.isnan(found.mean_s)
