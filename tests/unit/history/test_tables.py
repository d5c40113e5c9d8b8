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
