"""Resident sizes against the memory that goes: suspicion, proof, and a smooth figure between readings."""

from __future__ import annotations

import pytest

from builddoctor.runtime.rss_recheck import CrossCheck, CrossCheckRules, Ramp

GIB = 1024.0


def looks(*readings: tuple[float, float], running: bool = True) -> list[bool]:
    """What each look of (our sum, headroom), in GiB, says."""
    check = CrossCheck(CrossCheckRules())
    return [
        check.suspicious(ours_mib=ours * GIB, headroom_mib=headroom * GIB, running=running)
        for ours, headroom in readings
    ]


@pytest.mark.trap(18)
def test_headroom_that_falls_while_our_sum_stays_is_suspicious() -> None:
    """2 GiB are gone and our phases read as nothing: the kernel may report zeroes."""
    assert looks((0, 20), (0, 19), (0.01, 18.01), (0.01, 18.0)) == [False, False, False, True]


@pytest.mark.parametrize("ours", [1.5, 2.9, 3.0, 9.0])
def test_a_sum_that_explains_half_of_the_fall_is_believed(ours: float) -> None:
    """The rest is nvcc, linkers and other people."""
    assert looks((0, 20), (ours, 17)) == [False, False]


def test_a_sum_that_explains_less_than_half_is_not() -> None:
    """Too small counts as zero does."""
    assert looks((0, 20), (1.4, 17)) == [False, True]


def test_the_reference_is_where_most_headroom_was() -> None:
    """What phases held before they ended does not count twice: from 8 GiB held and 10 free to 0 held and 18 free."""
    assert looks((8, 10), (0, 18), (0, 15)) == [False, False, True]
    assert looks((8, 10), (0, 18), (3, 15)) == [False, False, False]


def test_nothing_is_suspicious_while_nothing_runs() -> None:
    """Then the memory that goes is somebody else's for certain, and the next phase begins a new reference."""
    assert looks((0, 20), (0, 5), running=False) == [False, False]


def test_after_the_all_clear_only_a_further_fall_counts() -> None:
    """Somebody took 5 GiB; that is not looked into again every five seconds."""
    check = CrossCheck(CrossCheckRules())
    assert not check.suspicious(ours_mib=0, headroom_mib=20 * GIB, running=True)
    assert check.suspicious(ours_mib=0, headroom_mib=15 * GIB, running=True)
    check.cleared(ours_mib=0, headroom_mib=15 * GIB)
    assert not check.suspicious(ours_mib=0, headroom_mib=15 * GIB, running=True)
    assert not check.suspicious(ours_mib=0, headroom_mib=13.5 * GIB, running=True)
    assert check.suspicious(ours_mib=0, headroom_mib=13 * GIB, running=True)


@pytest.mark.trap(18)
@pytest.mark.parametrize(
    ("reported_mib", "real_mib", "zero"),
    [
        (0, 4096, True),
        (60, 4096, True),
        (0, 256, True),
        (0, 255, False),
        (0, 0, False),
        (410, 4096, False),
        (4096, 4100, False),
        (4100, 4096, False),
    ],
)
def test_only_a_large_process_that_is_reported_as_nothing_proves_the_fault(
    reported_mib: float, real_mib: float, zero: bool
) -> None:
    """A small process, or one whose figures nearly agree, proves that the memory is somebody else's."""
    check = CrossCheck(CrossCheckRules())
    assert check.reads_as_zero(reported_mib=reported_mib, real_mib=real_mib) is zero


def test_a_figure_read_every_five_seconds_is_shown_as_an_even_rise() -> None:
    """4 GiB at once would look like 80 GiB/s in one sample, and the scheduler ends what grows like that."""
    ramp = Ramp(now_s=100.0, over_s=5.0)
    assert ramp.at(100.0) == 0
    ramp.aim(4000.0, 100.0)
    assert [ramp.at(second) for second in (100.0, 101.0, 102.5, 105.0, 200.0)] == [0, 800, 2000, 4000, 4000]
    ramp.aim(1000.0, 105.0)
    assert [ramp.at(second) for second in (105.0, 106.0, 110.0)] == [4000, 3400, 1000]


def test_a_ramp_of_no_length_is_a_step() -> None:
    """Nothing is divided by zero."""
    ramp = Ramp(now_s=0.0, over_s=0.0)
    ramp.aim(7.0, 0.0)
    assert ramp.at(0.0) == 7
