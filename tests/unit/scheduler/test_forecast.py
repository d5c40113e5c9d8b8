"""What phases hold from now on, how they grow, and whether one more fits in time."""

from __future__ import annotations

import math

import pytest

from builddoctor.core.phase import Estimate, Phase, PhaseKind
from builddoctor.estimation.growth import CAUTION, LEAST_OF_KIND, LEAST_SEEN, Growth
from builddoctor.scheduler.forecast import LATE_S, LATE_SHARE, LEAST_LEFT, Forecast, Ramp, ramp
from builddoctor.scheduler.running_set import RISK, RISK_GROWING, Load, Running, RunningSet, risk_share


def test_a_phase_grows_evenly_and_then_holds() -> None:
    """From what it holds to what it will, over the time that is left for it."""
    each = Ramp(100.0, 500.0, 8.0, 20.0)
    assert [each.at_mib(after_s) for after_s in (0, 4, 8, 15)] == [100, 300, 500, 500]


def test_a_phase_that_is_not_known_to_grow_is_full_at_once() -> None:
    """So nothing is gained by looking ahead."""
    each = ramp(now_mib=10.0, full_mib=500.0, elapsed_s=0.0, wall_s=10.0, full_after=0.0)
    assert each.at_mib(0.0) == 500.0


def test_a_phase_ends_late_and_is_never_almost_done() -> None:
    """What takes longer than expected takes long."""
    early = ramp(now_mib=0.0, full_mib=1.0, elapsed_s=4.0, wall_s=10.0, full_after=0.5)
    late = ramp(now_mib=0.0, full_mib=1.0, elapsed_s=99.0, wall_s=10.0, full_after=0.5)
    assert early.end_s == pytest.approx(6 * LATE_SHARE + LATE_S)
    assert late.end_s == pytest.approx(10 * LEAST_LEFT * LATE_SHARE + LATE_S)


def test_what_ends_soon_makes_room_for_what_has_yet_to_grow() -> None:
    """800 MiB end at 5 s, when the newcomer of 800 is at 400: 1200 at most, not 1600."""
    ahead = Forecast([Ramp(800.0, 800.0, 0.0, 5.0)])
    assert ahead.most_mib(Ramp(0.0, 800.0, 10.0, 30.0)) == 1200.0


def test_what_goes_on_makes_none() -> None:
    """It outlives the newcomer."""
    ahead = Forecast([Ramp(800.0, 800.0, 0.0, 60.0)])
    assert ahead.most_mib(Ramp(0.0, 800.0, 10.0, 30.0)) == 1600.0


def test_many_ends_are_rounded_to_later_ones() -> None:
    """Nothing is counted as gone before its end: the answer is never less than with each end by itself."""
    ramps = [Ramp(10.0 * each, 20.0 * each, 3.0, 1.0 + each) for each in range(40)]
    newcomer = Ramp(0.0, 500.0, 20.0, 30.0)

    def exact() -> float:
        moments = sorted({each.end_s for each in ramps} | {newcomer.end_s})
        return max(
            newcomer.at_mib(moment) + sum(each.at_mib(moment) for each in ramps if each.end_s >= moment)
            for moment in moments
            if moment <= newcomer.end_s
        )

    assert Forecast(ramps).most_mib(newcomer) >= exact()


def test_nobody_runs() -> None:
    """The newcomer's own size is the most."""
    assert Forecast([]).most_mib(Ramp(0.0, 300.0, 5.0, 9.0)) == 300.0


def grown(*means: float, kind: PhaseKind = PhaseKind.CICC, growth: Growth | None = None) -> Growth:
    found = growth or Growth()
    for mean in means:
        found.ended(kind, area_mib_s=mean * 1000 * 10, looks=50, peak_mib=1000.0, wall_s=10.0)
    return found


def test_nothing_is_assumed_of_growth() -> None:
    """Before phases have been watched, each is taken to be full from its start on."""
    assert Growth().full_after(PhaseKind.CICC) == 0.0
    assert grown(*[0.5] * (LEAST_SEEN - 1)).full_after(PhaseKind.CICC) == 0.0


def test_an_even_ramp_is_full_at_its_end() -> None:
    """Mean 50 % of the peak; caution takes some of it off."""
    assert grown(*[0.5] * LEAST_OF_KIND).full_after(PhaseKind.CICC) == pytest.approx(CAUTION)


def test_the_hasty_of_a_kind_decide_when_it_may_be_full() -> None:
    """A standard deviation above the mean; who takes all at once in half of all cases is trusted in none."""
    assert grown(0.4, 0.6, 0.4, 0.6).full_after(PhaseKind.CICC) == pytest.approx(CAUTION * 2 * (1 - 0.6))
    assert grown(0.5, 1.0, 0.5, 1.0).full_after(PhaseKind.CICC) == 0.0


def test_the_usual_of_a_kind_decide_what_is_risked() -> None:
    """The median: one odd phase changes little of what is set aside, and more of when its kind may be full."""
    growth = grown(0.5, 0.5, 0.5, 1.0)
    assert growth.evenness(PhaseKind.CICC) == 1.0
    assert growth.full_after(PhaseKind.CICC) < 0.6 * CAUTION


def test_a_kind_of_which_little_was_seen_is_as_hasty_as_any() -> None:
    """And is judged by itself when enough was."""
    growth = grown(*[0.9] * LEAST_OF_KIND, kind=PhaseKind.HOST)
    assert growth.full_after(PhaseKind.CICC) == pytest.approx(CAUTION * 0.2)
    assert grown(*[0.5] * LEAST_OF_KIND, growth=growth).full_after(PhaseKind.CICC) == pytest.approx(CAUTION)


@pytest.mark.parametrize("changed", [{"wall_s": 0.3}, {"peak_mib": 20.0}, {"looks": 2}])
def test_short_and_small_phases_show_nothing(changed: dict[str, float]) -> None:
    """Between two samples anything may have happened."""
    growth = Growth()
    for _ in range(5):
        growth.ended(PhaseKind.CICC, **{"area_mib_s": 5.0, "looks": 50, "peak_mib": 1000.0, "wall_s": 10.0, **changed})  # type: ignore[arg-type]
    assert growth.full_after(PhaseKind.CICC) == 0.0


def test_how_evenly_a_kind_grows_is_its_own() -> None:
    """An even ramp is 1, all at the start 0; a kind of which little was seen is as hasty as the most hasty."""
    growth = grown(*[0.5] * LEAST_OF_KIND)
    grown(*[1.0] * LEAST_OF_KIND, kind=PhaseKind.PTXAS, growth=growth)
    assert growth.evenness(PhaseKind.CICC) == 1.0
    assert growth.evenness(PhaseKind.PTXAS) == growth.evenness(PhaseKind.HOST) == 0.0


def test_less_is_set_aside_for_phases_that_show_in_time_what_they_take() -> None:
    """Of spreads of 300 and 400 MiB: all of ``RISK`` where both may be full at once, less for the one that grows."""
    runs, first = RunningSet(), running(1, PhaseKind.CICC, spread_mib=300.0)
    runs.start(first)
    runs.start(running(2, PhaseKind.PTXAS, spread_mib=400.0))
    at_once = runs.load(lambda kind: 0.0)
    one_grows = runs.load(lambda kind: 1.0 if kind is PhaseKind.CICC else 0.0)
    assert at_once.committed_mib == pytest.approx(2000.0 + RISK * 500.0)
    assert one_grows.risk_mib == pytest.approx(math.hypot(RISK_GROWING * 300.0, RISK * 400.0))
    assert Load().with_one(first.estimate, risk_share(0.5)).risk_mib == pytest.approx((RISK + RISK_GROWING) / 2 * 300.0)


def running(phase_id: int, kind: PhaseKind, *, spread_mib: float) -> Running:
    return Running(
        phase=Phase(phase_id=phase_id, unit_id="u1", kind=kind, source="a.cu"),
        estimate=Estimate(peak_mib=1000.0, spread_mib=spread_mib, source="test"),
        admitted_at_s=0.0,
        alone=False,
        budget_mib=9000.0,
    )
