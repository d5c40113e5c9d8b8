"""Versions as the tools compare them, and which toolkit knows which architecture."""

from __future__ import annotations

import pytest

from builddoctor.doctor.tool_versions import log_version, numbers, short
from builddoctor.projects.archs import parse_archs
from builddoctor.projects.nvcc_archs import knows, span


def test_versions_are_compared_as_numbers() -> None:
    """And what is no version is none."""
    assert numbers("1.13.0.git.kitware.jobserver-pipe-1") == (1, 13, 0)
    assert [numbers(text) for text in ("", "x1", "v2")] == [(), (), ()]
    assert (short("3.26.0-rc1"), short("odd")) == ("3.26.0", "odd")
    assert [log_version(text) for text in ("1.5.3", "1.11.9", "1.12", "1.13.2", "2.0", "1", "")] == [
        5,
        5,
        6,
        7,
        7,
        None,
        None,
    ]


# -- architectures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "version", "known"),
    [
        ("100", "12.8.61", True),
        ("100f", "12.8.61", False),
        ("100f", "12.9.41", True),
        ("90a", "11.8.89", False),
        ("90", "11.8.89", True),
        ("75", "13.0.88", True),
        ("72", "12.9.86", True),
        ("72", "13.0.48", False),
        ("37", "12.0.0", False),
        ("123", "13.0.88", None),
        ("90", "", None),
        ("90", "12." + "9" * 5000, None),
    ],
)
def test_the_table_knows_when_architectures_came_and_went(arch: str, version: str, known: bool | None) -> None:
    """Variants came later than the plain ones; None where neither nvcc nor the table says."""
    assert knows((), version, parse_archs(arch)[0]) is known


def test_a_renamed_architecture_keeps_its_suffix() -> None:
    """sm_101f is sm_110f."""
    assert [getattr(span(arch), "now_called", None) for arch in parse_archs("101,101a,101f")] == [
        "sm_110",
        "sm_110a",
        "sm_110f",
    ]
