"""Estimates for any phases in any order."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.past import PastPhase, PastUnit, Seen, UnitKey
from builddoctor.core.phase import Estimate, Outcome, Phase, PhaseKind
from builddoctor.estimation.error_model import LARGEST_RESIDUAL, Book
from builddoctor.estimation.estimator import EXTRA_MIB, LARGEST_MIB, MOST_UP, LearningEstimator
from support.examples import examples

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)
SIZES = st.one_of(st.floats(0, 1e5), ANY_FLOAT)
PHASES = st.builds(
    Phase,
    phase_id=st.integers(0, 9),
    unit_id=st.sampled_from(["u1", "u2"]),
    kind=st.sampled_from(PhaseKind),
    source=st.just("a.cu"),
    arch=st.sampled_from(["", "sm_90", "sm_100"]),
    input_mib=SIZES,
    tool=st.sampled_from(["cc1plus", "cicc"]),
)
ENDS = st.tuples(PHASES, st.sampled_from(Outcome), SIZES, SIZES)
KEYS = st.builds(
    UnitKey,
    project=st.just("p"),
    place=st.just("a.cu"),
    options=st.sampled_from("ab"),
    nvcc=st.sampled_from(["", "12.8", "13.0.88", "x"]),
    archs=st.sampled_from([(), ("sm_90",), ("sm_80", "sm_90")]),
)
PASTS = st.builds(
    PastUnit,
    key=KEYS,
    phases=st.lists(
        st.builds(
            PastPhase,
            kind=st.sampled_from(PhaseKind),
            arch=st.sampled_from(["", "sm_90"]),
            tool=st.sampled_from(["cc1plus", "cicc"]),
            seen=st.lists(
                st.builds(Seen, input_mib=st.floats(0, 1e4), peak_mib=st.floats(0.01, 1e6), wall_s=st.floats(0, 1e5)),
                max_size=3,
            ).map(tuple),
            origin=st.sampled_from(["history", "recipe"]),
            distance=st.floats(0, 10),
            spread=st.floats(0, 10),
        ),
        max_size=4,
    ).map(tuple),
)


def check(guess: Estimate) -> None:
    """A size, with a bound that is no nearer than it may be and no further."""
    assert math.isfinite(guess.peak_mib)
    assert math.isfinite(guess.spread_mib)
    assert 0 < guess.peak_mib <= LARGEST_MIB
    assert 0 <= guess.spread_mib <= guess.peak_mib * math.exp(MOST_UP) + EXTRA_MIB
    assert guess.source


@examples(2000)
@given(ends=st.lists(ENDS, max_size=12), asked=PHASES, key=st.none() | KEYS, past=st.none() | PASTS)
def test_an_estimate_is_a_size_whatever_was_observed(
    ends: list[tuple[Phase, Outcome, float, float]], asked: Phase, key: UnitKey | None, past: PastUnit | None
) -> None:
    """Any phases, any outcomes, any figures, any past, in any order: finite, positive, the spread bounded, time too."""
    estimator = LearningEstimator()
    estimator.know("u1", key=key, past=past, archs=("sm_90", "sm_100"))
    for done, outcome, peak_mib, wall_s in ends:
        check(estimator.estimate(done))
        estimator.observe(done, outcome=outcome, peak_mib=peak_mib, wall_s=wall_s)
    check(estimator.estimate(asked))
    assert estimator.estimate(asked) == estimator.estimate(asked)
    assert 0 <= estimator.remaining_s(asked) < math.inf
    assert 0 <= estimator.wall_s(asked) < math.inf


@examples(2000)
@given(
    ends=st.lists(ENDS, max_size=10),
    asked=PHASES,
    kills=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=5),
)
def test_estimates_never_fall_from_one_kill_to_the_next(
    ends: list[tuple[Phase, Outcome, float, float]], asked: Phase, kills: list[tuple[float, float]]
) -> None:
    """Each is at least half as much again as what the phase held, and no lower than the one before."""
    estimator = LearningEstimator()
    for done, outcome, peak_mib, wall_s in ends:
        estimator.observe(done, outcome=outcome, peak_mib=peak_mib, wall_s=wall_s)
    last_mib = estimator.estimate(asked).reserve_mib
    for peak_mib, reserved_mib in kills:
        raised = estimator.raise_after_kill(asked, peak_mib=peak_mib, reserved_mib=reserved_mib)
        check(raised)
        assert raised.reserve_mib >= last_mib
        assert raised.reserve_mib >= 1.5 * max(peak_mib, reserved_mib)
        assert estimator.estimate(asked) == raised
        last_mib = raised.reserve_mib


@examples(2000)
@given(
    peaks_mib=st.lists(st.floats(50, 5000), min_size=1, max_size=12),
    order=st.randoms(use_true_random=False),
)
def test_the_order_in_which_units_end_does_not_matter(peaks_mib: list[float], order: object) -> None:
    """The same phases of other units, shuffled, give the same estimate."""
    guesses = []
    for shuffled in (False, True):
        ends = list(enumerate(peaks_mib))
        if shuffled:
            order.shuffle(ends)  # type: ignore[attr-defined]
        estimator = LearningEstimator()
        for number, peak_mib in ends:
            done = Phase(phase_id=number, unit_id=f"n{number}", kind=PhaseKind.CUDAFE, source="a.cu", input_mib=4.0)
            estimator.observe(done, outcome=Outcome.OK, peak_mib=peak_mib, wall_s=1.0)
        asked = Phase(phase_id=99, unit_id="u", kind=PhaseKind.CUDAFE, source="a.cu", input_mib=4.0)
        guesses.append(estimator.estimate(asked))
    assert math.isclose(guesses[0].peak_mib, guesses[1].peak_mib, rel_tol=1e-9)
    assert math.isclose(guesses[0].reserve_mib, guesses[1].reserve_mib, rel_tol=1e-9)


@examples(2000)
@given(
    residuals=st.lists(st.floats(-4, 4), max_size=80),
    features=st.lists(st.floats(-5, 5), min_size=1, max_size=80),
    asked=st.floats(-10, 10),
    widen=st.floats(0, 2),
)
def test_a_bound_lies_between_what_was_seen_and_what_the_prior_allows(
    residuals: list[float], features: list[float], asked: float, widen: float
) -> None:
    """Median and bound are residuals of the prior or of phases seen, and the bound is not below the median."""
    book = Book((-0.5, 0.0, 0.7), prior_weight=1.5, bandwidth=(0.3,))
    for residual, feature in zip(residuals, features, strict=False):
        book.add((feature,), residual)
    median, bound = book.spread((asked,), widen=widen)
    assert min(-0.5 - widen - 0.01, *residuals, 0.0) <= median <= bound
    assert bound <= min(LARGEST_RESIDUAL, max(0.7 + widen + 0.011, *residuals, 0.0))
