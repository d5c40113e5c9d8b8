"""Sizing as the literature has it: each formula by hand, and builds that are sized so."""

from __future__ import annotations

import math

import pytest

from builddoctor.core.phase import PhaseKind
from builddoctor.simulate.result import Host, Rules
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload
from support.published import Allocation, KsPlus, Ran, Sizey, Tovar, accuracy, line, reserving, rising, tree

GROWS = Rules(growth="ramp")
STEP = ((0.5, 100 / 900), (0.5, 1.0))
"""Of a peak of 900 MiB: 100 in the first half, all in the second."""


def ran(
    peak_mib: float, wall_s: float = 10.0, input_mib: float = 1.0, looks: tuple[tuple[float, float], ...] = ()
) -> Ran:
    return Ran(input_mib=input_mib, peak_mib=peak_mib, wall_s=wall_s, looks=looks)


def units(*phases: PhaseWork) -> Workload:
    made = tuple(UnitWork(name=f"{at}", phases=(phase,)) for at, phase in enumerate(phases))
    return Workload(name="made", units=made)


def cicc(peak_mib: float, curve: tuple[tuple[float, float], ...] = ((0.0, 1.0),), wall_s: float = 10.0) -> PhaseWork:
    return PhaseWork(kind=PhaseKind.CICC, peak_mib=peak_mib, wall_s=wall_s, curve=curve, input_mib=1.0)


def test_tovars_aims_differ_where_few_are_large_and_slow() -> None:
    """Three of 100 MiB and 1 s, one of 1000 MiB and 100 s. Waste: 100 x 103 + 1000 x 100 is more than 1000 x 103.
    Throughput: 31 tasks in 203 s are more than 4 in 103 s."""
    for aim, expected in (("waste", 1000.0), ("throughput", 100.0)):
        sizer = Tovar(aim)  # type: ignore[arg-type]
        for each in (ran(100, 1), ran(100, 1), ran(100, 1), ran(1000, 100)):
            sizer.learn(each)
        assert sizer.first(1.0).at(0.0) == expected


def test_tovar_gives_the_largest_seen_and_then_everything() -> None:
    """And everything at once while nothing is known."""
    sizer = Tovar("throughput")
    assert sizer.first(1.0).at(0.0) == math.inf
    for each in (ran(100), ran(100), ran(300)):
        sizer.learn(each)
    first = sizer.first(1.0)
    again = sizer.again(first, 2.0)
    assert (first.at(0.0), again.at(0.0), sizer.again(again, 2.0).at(0.0)) == (100.0, 300.0, math.inf)


def test_sizey_takes_the_model_that_was_right() -> None:
    """Peaks in proportion to inputs: beyond all that was seen the line goes on, as neighbours and trees cannot."""
    sizer = Sizey(alpha=0.0, mixes=False, offset="dynamic")
    for size in range(1, 21):
        sizer.learn(ran(100.0 * size, input_mib=size))
    assert 3000 <= sizer.first(30.0).at(0.0) <= 3200
    assert sizer.again(Allocation(((math.inf, 500.0),)), 1.0).at(0.0) == 2000.0
    assert sizer.again(Allocation(((math.inf, 1950.0),)), 1.0).at(0.0) == 3900.0


def test_models_are_judged_by_what_they_did_not_see() -> None:
    """Two sorts of task: a tree tells them apart, a line does not, and one that knew all answers would not be told."""
    points = [(float(x), 100.0 if x < 10 else 900.0) for x in range(20)]
    assert accuracy(line, points) < 0.8 < accuracy(tree(3), points) < 1.0
    assert (tree(1)(points)(3.0), tree(1)(points)(12.0)) == (100.0, 900.0)


def test_segments_rise_and_the_least_difference_is_merged() -> None:
    """100, 120 and 900 in two: the first two. A phase that never rises has the same segment twice."""
    looks = ((1.0, 100.0), (2.0, 120.0), (3.0, 900.0), (3.5, 300.0))
    assert rising(ran(900, 4.0, looks=looks), 2) == [(2.0, 120.0), (4.0, 900.0)]
    assert rising(ran(500, 4.0), 2) == [(4.0, 500.0), (4.0, 500.0)]


def test_ks_plus_predicts_ends_and_peaks_and_moves_what_failed() -> None:
    """By lines over the input, 15 % earlier and 10 % higher; the next segment comes when one is outgrown."""
    sizer = KsPlus(segments=2, early=0.85, high=1.1)
    for size in (1.0, 2.0):
        looks = ((4.0 * size, 100.0 * size), (10.0 * size, 900.0 * size))
        sizer.learn(ran(900 * size, 10 * size, size, looks))
    first = sizer.first(3.0)
    assert [round(figure, 6) for step in first.steps for figure in step] == [10.2, 330.0, 25.5, 2970.0]
    assert (first.at(10.0), first.at(10.3), first.end_s) == pytest.approx((330.0, 2970.0, 30.0))
    sooner = sizer.again(first, 5.1)
    assert (sooner.at(4.8), sooner.at(4.9)) == pytest.approx((330.0, 2970.0))
    assert sizer.again(first, 12.0).at(12.0) == pytest.approx(1.2 * 2970.0)


def test_what_outgrows_its_allocation_is_ended_and_no_other() -> None:
    """Three of 100 MiB, then one of 900 beside one that fits: it is redone, the kernel does nothing."""
    build = units(*[cicc(100, wall_s=1.0)] * 3, cicc(900, ((0.0, 0.1), (0.5, 1.0))), cicc(100, wall_s=30.0))
    result = reserving(build, lambda: Tovar("throughput"), Host(cores=2, limit_mib=950.0), GROWS)
    assert (result.completed, result.kernel_kills) == (True, 0)
    assert [(run.unit, run.tries) for run in result.phases if run.tries > 1] == [("3", 2)]


def test_a_second_build_overlaps_what_rises_late() -> None:
    """Two that hold 100 MiB for half of their time and 900 then, in 1000: by peaks 20 s, by their courses 15."""
    build, host = units(cicc(900, STEP), cicc(900, STEP)), Host(cores=2, limit_mib=1000.0)
    peaks = reserving(build, lambda: Tovar("waste"), host, GROWS, earlier=build)
    courses = reserving(
        build, lambda: KsPlus(segments=2, early=1.0, high=1.0), host, GROWS, earlier=build, by_unit=True
    )
    assert peaks.makespan_s == pytest.approx(20.0)
    assert courses.makespan_s == pytest.approx(15.0, abs=0.5)
    assert courses.kernel_kills == 0
