"""Sizes and durations."""

from __future__ import annotations

import pytest

from builddoctor.core.errors import UsageError
from builddoctor.core.units import format_clock, format_gib, format_mib, parse_size_mib


@pytest.mark.parametrize(
    ("text", "size_mib"),
    [
        ("24GiB", 24576),
        ("24G", 24576),
        ("24g", 24576),
        (" 24 GiB ", 24576),
        ("512M", 512),
        ("512MiB", 512),
        ("1.5T", 1572864),
        (".5G", 512),
        ("131072K", 128),
        ("131072KiB", 128),
        ("134217728", 128),
        ("134217728B", 128),
        ("1GB", 1e9 / 2**20),
        ("100MB", 1e8 / 2**20),
        ("100000KB", 1e8 / 2**20),
        ("1TB", 1e12 / 2**20),
        ("64M", 64),
    ],
)
def test_sizes_are_read_as_people_type_them(text: str, size_mib: float) -> None:
    """Binary and decimal units, in either case, come out as MiB."""
    assert parse_size_mib(text) == pytest.approx(size_mib)


@pytest.mark.parametrize("text", ["", "G", "12XB", "24 GiB extra", "-4G", "1e9", "4G4", "4,5G", "0x10", "inf", "nan"])
def test_what_is_no_size_is_a_usage_error_that_shows_how(text: str) -> None:
    """Anything else is refused, with the value in the message and an example in the hint."""
    with pytest.raises(UsageError, match="not a memory size") as error:
        parse_size_mib(text)
    assert repr(text) in str(error.value)
    assert "--memory 24GiB" in error.value.hint


@pytest.mark.parametrize("text", ["0", "0G", "63M", "24", "1"])
def test_a_size_in_which_no_compiler_runs_is_refused(text: str) -> None:
    """Zero, and what was probably meant in GiB, is refused before a build starts."""
    with pytest.raises(UsageError, match="no room for any compiler"):
        parse_size_mib(text)


@pytest.mark.parametrize(
    ("size_mib", "text"),
    [(0, "0 MiB"), (412.4, "412 MiB"), (1023, "1023 MiB"), (1024, "1.0 GiB"), (3481.6, "3.4 GiB"), (-2048, "-2.0 GiB")],
)
def test_sizes_are_written_as_people_read_them(size_mib: float, text: str) -> None:
    """MiB below one GiB, GiB with one decimal from there on."""
    assert format_mib(size_mib) == text


def test_bare_gib_has_one_decimal() -> None:
    """Where the unit is named once, the figure stands alone."""
    assert format_gib(19660.8) == "19.2"


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [(0, "0:00"), (-3, "0:00"), (21.4, "0:21"), (59.6, "1:00"), (761, "12:41"), (3599.6, "1:00:00"), (3723, "1:02:03")],
)
def test_durations_are_clocks(duration_s: float, text: str) -> None:
    """Minutes and seconds; hours where there are any; never below zero."""
    assert format_clock(duration_s) == text
