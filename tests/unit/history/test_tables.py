"""Rows of the history that no build wrote."""

from __future__ import annotations

import pytest

from builddoctor.history.tables import seen_of


@pytest.mark.parametrize(
    "row", ["[-0.5, 100, 1]", "[1, 0, 1]", "[1, 1e300, 1]", "[1, 100, -1]", "[1, 100, 1e308]", "[1e300, 100, 1]"]
)
def test_figures_that_no_compiler_has_are_left_out(row: str) -> None:
    """A damaged or edited file must not end in a division by zero or an endless time."""
    assert [each.peak_mib for each in seen_of(f"[[1.0, 500.0, 2.0], {row}]")] == [500.0]


def test_a_row_may_have_a_course() -> None:
    """What builds before courses wrote has none."""
    without, with_one = seen_of("[[1.0, 500.0, 2.0], [1.0, 500.0, 2.0, [[0.4, 200.0], [1.0, 500.0]]]]")
    assert without.course == ()
    assert with_one.course == ((0.4, 200.0), (1.0, 500.0))


@pytest.mark.parametrize(
    "course",
    ["[[0.4, 200]]", "[[0.4, 200], [0.4, 300], [1, 9]]", "[[0, 5], [1, 9]]", "[[1, -5]]", "[[1, 0]]", "[[1, 1e300]]"],
)
def test_a_course_that_cannot_be_is_none(course: str) -> None:
    """The row's other figures stand."""
    (row,) = seen_of(f"[[1.0, 500.0, 2.0, {course}]]")
    assert (row.peak_mib, row.course) == (500.0, ())
