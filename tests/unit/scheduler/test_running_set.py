"""How fast a running phase is taken to grow, and what all running phases add up to."""

from __future__ import annotations

import math
import random

import pytest

from builddoctor.core.phase import Estimate, Phase, PhaseKind
from builddoctor.scheduler.running_set import RISK, RISK_GROWING, Load, Running, RunningSet, risk_share
from unit.builders import phase


def watched(looks: list[tuple[float, float]], *, peak_mib: float = 200.0, spread_mib: float = 50.0) -> Running:
    """A phase that was admitted at 100 s; ``looks``: (seconds since, MiB)."""
    estimate = Estimate(peak_mib=peak_mib, spread_mib=spread_mib, source="told")
    run = Running(phase=phase(1), estimate=estimate, admitted_at_s=100.0, alone=False, budget_mib=3000.0)
    for after_s, rss_mib in looks:
        run.sampled(rss_mib, 100.0 + after_s)
    return run


def test_what_a_front_end_takes_at_its_start_is_a_burst() -> None:
    """Looks 80 ms apart, as in a build of the example: 128 MiB came between two of them."""
    run = watched([(0.085, 19.5), (0.167, 147.8)])
    assert run.growth_mib_s == pytest.approx(147.8 / 0.3)


def test_a_hog_is_known_within_three_tenths_of_a_second() -> None:
    """2 GB/s, at 20 looks a second."""
    looks = [(0.05 * place, 100.0 * place) for place in range(1, 7)]
    assert not watched(looks[:5]).too_fast
    assert watched(looks).growth_mib_s == pytest.approx(2000.0)
    assert watched(looks).too_fast


def test_growth_is_told_over_three_tenths_of_a_second() -> None:
    """However often it is looked at: a step up, and flat since."""
    often = [(0.5, 100.0), *((1.0 + 0.05 * place, 100.0 if place < 1 else 180.0) for place in range(20))]
    assert watched(often[:3]).growth_mib_s == pytest.approx(80.0 / 0.3)
    assert watched(often[:7]).growth_mib_s == pytest.approx(80.0 / 0.3)
    assert watched(often).growth_mib_s == 0.0


def test_between_two_looks_a_phase_grows_evenly() -> None:
    """Looks further apart than that: what came within the last three tenths is as much of the rise."""
    assert watched([(1.0, 100.0), (2.0, 300.0)]).growth_mib_s == pytest.approx(200.0)
    assert watched([(1.0, 100.0), (2.0, 100.0), (2.2, 180.0)]).growth_mib_s == pytest.approx(80.0 / 0.3)


def test_a_hog_that_rested_is_known_as_soon() -> None:
    """What it did before the rest says nothing."""
    looks = [(1.0, 100.0), (2.0, 100.0), *((2.0 + 0.05 * place, 100.0 + 100.0 * place) for place in range(1, 7))]
    assert not watched(looks[:6]).too_fast
    assert watched(looks).growth_mib_s == pytest.approx(2000.0)


def test_two_looks_at_one_moment_are_one() -> None:
    """What a phase held when it was first seen is no growth of the moment after."""
    run = watched([(0.0, 50.0), (0.0, 90.0), (0.007, 90.0)])
    assert run.growth_mib_s == 0.0


def test_a_moment_is_no_time_to_tell_growth_from() -> None:
    """A look 7 ms after the start sees 100 MiB: that is not 14 GB/s."""
    assert watched([(0.007, 100.0)]).growth_mib_s == pytest.approx(100.0 / 0.3)


def test_only_a_known_size_ends_growth() -> None:
    """50 MiB are left of a guess of 200 and of a size that an earlier build saw: what was guessed may go on."""
    looks = [(1.0, 50.0), (1.5, 150.0)]
    assert watched(looks, spread_mib=0.0).growth_within_mib(0.5) == pytest.approx(50.0)
    assert watched(looks, spread_mib=80.0).growth_within_mib(0.5) == pytest.approx(100.0)


def test_what_stood_goes_on_as_it_grew_before() -> None:
    """The time that it stood is none: at the next look it has grown for three tenths of a second all the same."""
    run = watched([(1.0, 50.0), (1.5, 150.0)])
    run.suspended_at_s = 101.5
    run.goes_on(109.0)
    run.sampled(160.0, 109.1)
    assert run.growth_mib_s == pytest.approx((0.2 * 200.0 + 10.0) / 0.3)
    assert (run.stood_s, run.held_mib_s(109.1)) == (pytest.approx(7.5), pytest.approx(50.0 + 75.0 + 16.0))


EVENNESS = {kind: place / 10 for place, kind in enumerate(PhaseKind)}


def running(
    phase_id: int,
    kind: PhaseKind = PhaseKind.CICC,
    *,
    alone: bool = False,
    mib: float = 100.0,
    spread_mib: float = 30.0,
    budget_mib: float = 9000.0,
) -> Running:
    return Running(
        phase=Phase(phase_id=phase_id, unit_id=f"u{phase_id}", kind=kind, source="a.cu"),
        estimate=Estimate(peak_mib=mib + phase_id, spread_mib=spread_mib + phase_id / 7, source="test"),
        admitted_at_s=0.0,
        alone=alone,
        budget_mib=budget_mib,
    )


def test_the_sum_is_that_of_all_that_run_whatever_came_and_went() -> None:
    """Not one bit is lost by adding and taking off, in any order; evenness changes on the way."""
    chance, runs, kinds = random.Random(1), RunningSet(), list(PhaseKind)
    for number in range(500):
        runs.start(running(number, kinds[number % len(kinds)]))
        if chance.random() < 0.7:
            runs.end(chance.choice(list(runs)))
        for run in runs.values():
            runs.sampled(run, chance.choice((run.rss_mib, 300.0 * chance.random())), float(number))
        even = EVENNESS if number % 50 < 25 else dict.fromkeys(kinds, 0.0)
        runs.set_aside(even)
        load = runs.load()
        assert (load.count, load.killing) == (len(runs), False)
        assert load.expected_mib == sum(run.expected_mib for run in runs.values())
        risks_mib = [risk_share(even[run.phase.kind]) * run.spread_mib for run in runs.values()]
        assert load.risk_mib == math.sqrt(sum(each**2 for each in risks_mib))
    assert len(runs) > 100


def test_a_kill_is_under_way_until_the_phase_has_ended() -> None:
    runs = RunningSet()
    runs.start(running(1))
    runs.start(running(2))
    assert runs.kill(2) is runs[2]
    assert runs[2].killed
    assert runs.load().killing
    assert runs.end(1) is not None
    assert runs.killing
    assert runs.end(2) is not None
    assert not runs.killing
    assert runs.end(2) is None


@pytest.mark.parametrize("more", [1, 3])
def test_who_ran_alone_has_company_now(more: int) -> None:
    runs, first = RunningSet(), running(1, alone=True)
    runs.start(first)
    assert first.alone
    for phase_id in range(2, 2 + more):
        runs.start(running(phase_id))
    assert not any(run.alone for run in runs.values())


def test_less_is_set_aside_for_phases_that_show_in_time_what_they_take() -> None:
    """Of spreads of 300 and 400 MiB: all of ``RISK`` where both may be full at once, less for the one that grows."""
    first = running(1, PhaseKind.CICC, spread_mib=300.0 - 1 / 7)
    runs = RunningSet()
    runs.start(first)
    runs.start(running(2, PhaseKind.PTXAS, spread_mib=400.0 - 2 / 7))
    at_once = runs.load()
    runs.set_aside({**dict.fromkeys(PhaseKind, 0.0), PhaseKind.CICC: 1.0})
    one_grows = runs.load()
    assert at_once.risk_mib == pytest.approx(RISK * 500.0)
    assert one_grows.risk_mib == pytest.approx(math.hypot(RISK_GROWING * 300.0, RISK * 400.0))
    between = Load().with_one(first.estimate, risk_share(0.5), budget_mib=1e6)
    assert between.risk_mib == pytest.approx((RISK + RISK_GROWING) / 2 * 300.0)


def test_nothing_is_set_aside_beyond_the_budget() -> None:
    """A guess of 3 GiB at most 6 in 4 GiB runs beside small phases: it cannot take the 2 GiB that are not there."""
    run = running(1, mib=2999.0, spread_mib=3000.0, budget_mib=4000.0)
    runs = RunningSet()
    runs.start(run)
    at_most = RISK * 1000.0
    assert runs.load().risk_mib == pytest.approx(at_most)
    assert Load().with_one(run.estimate, risk_share(0.0), budget_mib=4000.0).risk_mib == pytest.approx(at_most)
    assert Load().with_one(run.estimate, risk_share(0.0), budget_mib=2000.0).risk_mib == 0.0
