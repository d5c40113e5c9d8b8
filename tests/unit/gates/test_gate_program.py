"""What a gate knows of the command in its place."""

from __future__ import annotations

import pytest

from builddoctor.gates.gate_program import can_run_again


@pytest.mark.parametrize(
    ("name", "args", "again"),
    [
        ("cc1plus", ["a.cpp", "-o", "a.s"], True),
        ("cc1plus", ["-E", "a.cpp"], False),
        ("cc1plus", ["a.cpp", "-o", "-"], False),
        ("cicc", ["a.ii"], True),
        ("clang++", ["-c", "a.cpp"], True),
        ("clang++", ["-E", "a.cpp", "-o", "a.ii"], True),
        ("clang++", ["-E", "a.cpp"], False),
        ("clang-18", ["-MM", "a.cpp"], False),
    ],
)
def test_what_writes_to_its_output_is_not_run_again(name: str, args: list[str], again: bool) -> None:
    """What a pipe has taken cannot be taken back."""
    assert can_run_again(name, args) is again
