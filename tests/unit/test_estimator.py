"""How much memory a phase will take."""

from __future__ import annotations

import pytest

from builddoctor.model.phase import Outcome, Phase, PhaseKind
from builddoctor.policy.estimator import MB_PER_MIB, PriorEstimator, prior
from unit.builders import phase


@pytest.mark.parametrize("kind", list(PhaseKind))
@pytest.mark.parametrize("input_mib", [0.0, 0.1, 5.0, 400.0])
@pytest.mark.parametrize("front_end_mib", [None, 0.0, 200.0, 4000.0])
def test_every_kind_has_a_prior(kind: PhaseKind, input_mib: float, front_end_mib: float | None) -> None:
    """Whatever is known, the first guess is a positive peak with a positive spread, and says where it comes from."""
    guess = prior(phase(kind=kind, input_mib=input_mib), front_end_mib)
    assert guess.peak_mib >= 45
    assert guess.spread_mib > 0
    assert guess.source


@pytest.mark.parametrize(
    ("kind", "front_end_mib", "input_mb", "peak_mib"),
    [
        (PhaseKind.CICC, 1000.0, 0.0, 1820.0),
        (PhaseKind.CICC, 100.0, 0.0, 180.0),
        (PhaseKind.HOST, 1000.0, 0.0, 851.0),
        (PhaseKind.HOST, 100.0, 0.0, 190.0),
        (PhaseKind.PTXAS, None, 10.0, 337.0),
        (PhaseKind.CUDAFE, None, 10.0, 946.0),
    ],
)
def test_priors_are_the_measured_fits(
    kind: PhaseKind, front_end_mib: float | None, input_mb: float, peak_mib: float
) -> None:
    """Front end to cicc and host compile, PTX to ptxas: the fits of the measured phases, sizes in MB."""
    guess = prior(phase(kind=kind, input_mib=input_mb / MB_PER_MIB), front_end_mib)
    assert guess.peak_mib == pytest.approx(peak_mib)


def finish(estimator: PriorEstimator, done: Phase, peak_mib: float, outcome: Outcome = Outcome.OK) -> None:
    estimator.observe(done, outcome=outcome, peak_mib=peak_mib, wall_s=10.0)


def test_the_front_end_of_a_unit_predicts_its_cicc_and_no_other_units() -> None:
    """What cudafe++ took is evidence for the same unit alone."""
    estimator = PriorEstimator()
    other = estimator.estimate(phase(unit_id="u2"))
    finish(estimator, phase(kind=PhaseKind.CUDAFE), 2000.0)
    assert estimator.estimate(phase()).peak_mib == pytest.approx(2.37 * 2000 - 550)
    assert estimator.estimate(phase(kind=PhaseKind.HOST)).peak_mib == pytest.approx(0.90 * 2000 - 49)
    assert estimator.estimate(phase(unit_id="u2")) == other


def test_another_arch_of_a_unit_is_expected_to_take_what_the_first_took() -> None:
    """The same code for another arch: the most seen so far, whichever came first."""
    estimator = PriorEstimator()
    for arch, peak_mib in (("sm_80", 1500.0), ("sm_90", 900.0)):
        finish(estimator, phase(arch=arch), peak_mib)
    guess = estimator.estimate(phase(arch="sm_100"))
    assert guess.peak_mib == 1500
    assert guess.source == "the unit's other arch"


@pytest.mark.parametrize(
    "outcome", [Outcome.KILLED_BY_KERNEL, Outcome.KILLED_BY_US, Outcome.KILLED_OUTSIDE, Outcome.WITHDRAWN]
)
def test_a_phase_that_did_not_finish_teaches_no_peak(outcome: Outcome) -> None:
    """What a killed phase held is no evidence of what it needs."""
    estimator = PriorEstimator()
    before = estimator.estimate(phase())
    finish(estimator, phase(kind=PhaseKind.CUDAFE), 10.0, outcome)
    finish(estimator, phase(), 10.0, outcome)
    assert estimator.estimate(phase()) == before


@pytest.mark.parametrize(("peak_mib", "reserved_mib"), [(2000.0, 1000.0), (1000.0, 2000.0)])
def test_a_kill_raises_by_half_what_was_held_or_expected(peak_mib: float, reserved_mib: float) -> None:
    """Whichever is more counts, and later estimates of the same phase keep it."""
    estimator = PriorEstimator()
    raised = estimator.raise_after_kill(phase(), peak_mib=peak_mib, reserved_mib=reserved_mib)
    assert raised.reserve_mib == 3000
    assert estimator.estimate(phase(7)) == raised
    assert estimator.estimate(phase(arch="sm_80")) != raised


def test_a_second_kill_never_lowers_an_estimate() -> None:
    """Later estimates of a phase that died for memory are no lower, whatever the second kill looked like."""
    estimator = PriorEstimator()
    first = estimator.raise_after_kill(phase(), peak_mib=4000.0, reserved_mib=1000.0)
    second = estimator.raise_after_kill(phase(), peak_mib=600.0, reserved_mib=700.0)
    assert second.reserve_mib >= first.reserve_mib


def test_a_raise_below_what_is_known_changes_nothing() -> None:
    """Better evidence than the kill stands."""
    estimator = PriorEstimator()
    finish(estimator, phase(kind=PhaseKind.CUDAFE), 2000.0)
    known = estimator.estimate(phase())
    assert estimator.raise_after_kill(phase(), peak_mib=10.0, reserved_mib=10.0) == known


def test_the_unit_with_the_longest_way_to_go_comes_first() -> None:
    """The front end's time stands for the rest of the unit; earlier phases have more of it before them."""
    estimator = PriorEstimator()
    estimator.observe(phase(kind=PhaseKind.CUDAFE, unit_id="slow"), outcome=Outcome.OK, peak_mib=500, wall_s=60)
    estimator.observe(phase(kind=PhaseKind.CUDAFE, unit_id="fast"), outcome=Outcome.OK, peak_mib=500, wall_s=2)
    order = [PhaseKind.CUDAFE, PhaseKind.CICC, PhaseKind.PTXAS, PhaseKind.HOST, PhaseKind.PREPROCESS]
    slow = [estimator.remaining_s(phase(kind=kind, unit_id="slow")) for kind in order]
    assert slow == sorted(slow, reverse=True)
    assert slow[1] > estimator.remaining_s(phase(unit_id="fast")) > 0
    assert estimator.remaining_s(phase(unit_id="new", input_mib=5.0)) > estimator.remaining_s(phase(unit_id="new"))
