"""How much memory a phase will take."""

from __future__ import annotations

import msgspec
import pytest

from builddoctor.core.past import Course, PastPhase, PastUnit, Seen, UnitKey
from builddoctor.core.phase import Outcome, Phase, PhaseKind
from builddoctor.estimation.estimator import MOST_UNITS, LearningEstimator
from unit.builders import phase

KEY = UnitKey(project="demo", place="src/a.cu", nvcc="13.0.88", host_arch="x86_64", archs=("sm_90",))


def finish(
    estimator: LearningEstimator, done: Phase, peak_mib: float, outcome: Outcome = Outcome.OK, wall_s: float = 10.0
) -> None:
    estimator.observe(done, outcome=outcome, peak_mib=peak_mib, wall_s=wall_s)


def past(kind: PhaseKind, *peaks_mib: float, key: UnitKey = KEY, input_mib: float = 4.0, arch: str = "") -> PastUnit:
    """A unit of which one phase is known."""
    seen = tuple(Seen(input_mib=input_mib, peak_mib=peak_mib, wall_s=10.0) for peak_mib in peaks_mib)
    return PastUnit(key=key, phases=(PastPhase(kind=kind, arch=arch, seen=seen),))


@pytest.mark.parametrize("kind", list(PhaseKind))
@pytest.mark.parametrize("input_mib", [0.0, 0.1, 5.0, 400.0])
@pytest.mark.parametrize("front_end_mib", [None, 1.0, 200.0, 4000.0])
def test_every_kind_has_an_estimate(kind: PhaseKind, input_mib: float, front_end_mib: float | None) -> None:
    """Whatever is known, the guess is a positive peak with a positive spread, and says where it comes from."""
    estimator = LearningEstimator()
    if front_end_mib is not None:
        finish(estimator, phase(kind=PhaseKind.CUDAFE), front_end_mib)
    guess = estimator.estimate(phase(kind=kind, input_mib=input_mib))
    assert guess.peak_mib > 7.9
    assert guess.spread_mib > 0
    assert guess.source


@pytest.mark.parametrize(
    ("kind", "front_end_mib", "input_mib", "truth_mib"),
    [
        (PhaseKind.CICC, 341.0, 4.1, 246.0),
        (PhaseKind.CICC, 1789.0, 7.1, 3656.0),
        (PhaseKind.PTXAS, None, 20.97, 748.0),
        (PhaseKind.PTXAS, None, 0.008, 30.0),
        (PhaseKind.CUDAFE, None, 4.0, 338.0),
    ],
)
def test_first_guesses_are_near_measured_phases(
    kind: PhaseKind, front_end_mib: float | None, input_mib: float, truth_mib: float
) -> None:
    """Phases of TransformerEngine lie within a quarter of the median, and below the bound."""
    estimator = LearningEstimator()
    if front_end_mib is not None:
        finish(estimator, phase(kind=PhaseKind.CUDAFE, input_mib=input_mib), front_end_mib)
    guess = estimator.estimate(phase(kind=kind, input_mib=input_mib))
    assert guess.peak_mib == pytest.approx(truth_mib, rel=0.25)
    assert guess.reserve_mib >= truth_mib


@pytest.mark.parametrize("truth_mib", [44.7, 118.8, 234.3])
def test_c_code_is_not_guessed_as_c_plus_plus(truth_mib: float) -> None:
    """A source of nanoarrow's that takes 45 MiB waited to run alone in 1.2 GiB, as if it might take 2 GiB."""
    guess = LearningEstimator().estimate(phase(kind=PhaseKind.HOST, input_mib=0.02, tool="cc1"))
    assert truth_mib <= guess.reserve_mib <= 400
    learned = LearningEstimator()
    for number in range(9):
        finish(learned, phase(phase_id=number, kind=PhaseKind.HOST, input_mib=0.02, tool="cc1plus"), 900.0)
    assert learned.estimate(phase(kind=PhaseKind.HOST, input_mib=0.02, tool="cc1")) == guess


def test_the_front_end_of_a_unit_predicts_its_cicc_and_no_other_units() -> None:
    """What cudafe++ took moves the estimates of the same unit's later phases, and leaves those of others."""
    estimator = LearningEstimator()
    other = estimator.estimate(phase(unit_id="u2"))
    host = estimator.estimate(phase(kind=PhaseKind.HOST, input_mib=5.0))
    finish(estimator, phase(kind=PhaseKind.CUDAFE), 2000.0)
    assert estimator.estimate(phase()).peak_mib > 3000
    assert estimator.estimate(phase(kind=PhaseKind.HOST, input_mib=5.0)).peak_mib > 3 * host.peak_mib
    assert estimator.estimate(phase(unit_id="u2")) == other


def test_cicc_predicts_the_host_compile_better_than_the_front_end() -> None:
    """Once cicc has run, the host compile's bound is nearer to its median."""
    estimator = LearningEstimator()
    finish(estimator, phase(kind=PhaseKind.CUDAFE), 400.0)
    before = estimator.estimate(phase(kind=PhaseKind.HOST, input_mib=5.0))
    finish(estimator, phase(arch="sm_90"), 800.0)
    after = estimator.estimate(phase(kind=PhaseKind.HOST, input_mib=5.0))
    assert after.reserve_mib / after.peak_mib < before.reserve_mib / before.peak_mib
    assert after.source == "cicc of the unit"


def test_host_code_of_like_size_holds_a_bound_down_where_cicc_says_nothing() -> None:
    """The example's host compiles take 300 to 1250 MiB after a cicc of 110: 8 times a like guess, after one of 2 GiB,
    would be more than any machine has to spare."""
    estimator = LearningEstimator()
    for number, took_mib in enumerate((702.0, 928.0, 1247.0, 606.0)):
        finish(estimator, phase(unit_id=f"u{number}", arch="sm_90"), 112.0)
        finish(estimator, phase(unit_id=f"u{number}", kind=PhaseKind.HOST, input_mib=1.56), took_mib)
    finish(estimator, phase(unit_id="large", arch="sm_90"), 2178.0)
    guess = estimator.estimate(phase(unit_id="large", kind=PhaseKind.HOST, input_mib=1.6))
    assert 1000 < guess.reserve_mib < 3000


def test_another_arch_of_a_unit_raises_what_is_expected_of_the_next() -> None:
    """The same code for another arch is evidence beside the front end."""
    estimator = LearningEstimator()
    finish(estimator, phase(kind=PhaseKind.CUDAFE), 400.0)
    before = estimator.estimate(phase(arch="sm_100"))
    finish(estimator, phase(arch="sm_90"), 4 * before.peak_mib)
    assert estimator.estimate(phase(arch="sm_100")).peak_mib > 1.3 * before.peak_mib


def test_units_alike_teach_more_than_units_unlike() -> None:
    """A front end of the same input size as three big ones is expected to be big; one of another size hardly more."""
    estimator = LearningEstimator()
    alike, unlike = (phase(kind=PhaseKind.CUDAFE, unit_id="new", input_mib=size) for size in (7.0, 4.0))
    before = estimator.estimate(unlike)
    for unit_id in ("a", "b", "c", "d"):
        finish(estimator, phase(kind=PhaseKind.CUDAFE, unit_id=unit_id, input_mib=7.02), 1720.0)
    assert estimator.estimate(alike).peak_mib == pytest.approx(1720, rel=0.1)
    assert estimator.estimate(unlike).peak_mib < 1.2 * before.peak_mib


def test_a_bound_comes_nearer_as_phases_alike_agree() -> None:
    """Twenty units that agree leave a bound within a tenth of the median."""
    estimator = LearningEstimator()
    wide = estimator.estimate(phase(kind=PhaseKind.CUDAFE, unit_id="new", input_mib=4.0))
    for number in range(40):
        finish(estimator, phase(kind=PhaseKind.CUDAFE, unit_id=f"u{number}", input_mib=4.0), 340.0 + number % 3)
    narrow = estimator.estimate(phase(kind=PhaseKind.CUDAFE, unit_id="new", input_mib=4.0))
    assert narrow.spread_mib < 0.1 * narrow.peak_mib < 0.5 * wide.spread_mib


def test_host_code_of_its_own_learns_what_such_code_takes_in_this_build() -> None:
    """Nothing is known of plain C++ before it ran; after some units of 1.2 GiB the next is expected to be so, too."""
    estimator = LearningEstimator()
    first = estimator.estimate(phase(kind=PhaseKind.HOST, tool="cc1plus"))
    assert first.reserve_mib > 1500
    for number in range(6):
        finish(estimator, phase(kind=PhaseKind.HOST, tool="cc1plus", unit_id=f"u{number}"), 1250.0)
    assert estimator.estimate(phase(kind=PhaseKind.HOST, tool="cc1plus", unit_id="u9")).peak_mib == pytest.approx(
        1250, rel=0.1
    )


def test_the_past_of_a_unit_decides() -> None:
    """A unit built three times alike is expected to take what it took, within a few per cent."""
    estimator = LearningEstimator()
    estimator.know("u1", key=KEY, past=past(PhaseKind.CUDAFE, 1800.0, 1810.0, 1805.0))
    guess = estimator.estimate(phase(kind=PhaseKind.CUDAFE, input_mib=4.0))
    assert guess.peak_mib == pytest.approx(1805, rel=0.05)
    assert guess.reserve_mib < 1.15 * 1805
    assert guess.source == "history"


@pytest.mark.parametrize(
    "then",
    [
        {"nvcc": "12.8.93"},
        {"nvcc": "13.1.10"},
        {"options": "other"},
        {"host_arch": "aarch64"},
        {"archs": ("sm_80", "sm_90")},
    ],
)
def test_a_past_that_is_not_quite_the_same_has_a_wider_bound(then: dict[str, object]) -> None:
    """Another nvcc, other options, another machine, other architectures: the median stays near, the bound goes away."""
    bounds = []
    for key in (KEY, UnitKey(**{**{name: getattr(KEY, name) for name in KEY.__struct_fields__}, **then})):
        estimator = LearningEstimator()
        estimator.know("u1", key=KEY, past=past(PhaseKind.CUDAFE, 1800.0, 1800.0, key=key))
        guess = estimator.estimate(phase(kind=PhaseKind.CUDAFE, input_mib=4.0))
        assert guess.peak_mib > 900
        bounds.append(guess.reserve_mib / guess.peak_mib)
    assert bounds[1] > bounds[0]


def test_a_unit_that_differs_from_its_past_is_trusted_less_from_then_on() -> None:
    """Its front end takes three times what it took: what the past says of the host compile is doubted."""
    known = PastUnit(
        key=KEY,
        phases=(
            *past(PhaseKind.CUDAFE, 500.0, 500.0).phases,
            *past(PhaseKind.HOST, 400.0, 400.0).phases,
        ),
    )
    fresh = LearningEstimator()
    fresh.know("u1", key=KEY, past=known)
    trusted = fresh.estimate(phase(kind=PhaseKind.HOST, input_mib=4.0))
    finish(fresh, phase(kind=PhaseKind.CUDAFE, input_mib=4.0), 1500.0)
    doubted = fresh.estimate(phase(kind=PhaseKind.HOST, input_mib=4.0))
    assert doubted.reserve_mib > 1.5 * trusted.reserve_mib


def test_ptx_that_has_grown_since_takes_more() -> None:
    """The past of ptxas is carried over to the size of today's PTX."""
    estimator = LearningEstimator()
    estimator.know("u1", key=KEY, past=past(PhaseKind.PTXAS, 400.0, 400.0, input_mib=10.0))
    assert estimator.estimate(phase(kind=PhaseKind.PTXAS, input_mib=20.0)).peak_mib == pytest.approx(740, rel=0.1)


@pytest.mark.parametrize(
    "outcome",
    [Outcome.KILLED_BY_KERNEL, Outcome.KILLED_BY_US, Outcome.KILLED_OUTSIDE, Outcome.WITHDRAWN],
)
def test_a_phase_that_did_not_finish_teaches_no_peak(outcome: Outcome) -> None:
    """What a killed phase held is no evidence of what it needs."""
    estimator = LearningEstimator()
    before = estimator.estimate(phase())
    finish(estimator, phase(kind=PhaseKind.CUDAFE), 10.0, outcome)
    finish(estimator, phase(), 10.0, outcome)
    assert estimator.estimate(phase()) == before


@pytest.mark.parametrize("peak_mib", [0.0, -1.0, float("nan"), float("inf"), 1e12])
def test_a_peak_that_is_no_size_teaches_nothing(peak_mib: float) -> None:
    """A counter that read as nothing, or absurd, changes no estimate."""
    estimator = LearningEstimator()
    before = estimator.estimate(phase())
    finish(estimator, phase(unit_id="u2"), peak_mib)
    assert estimator.estimate(phase()) == before


@pytest.mark.parametrize(("peak_mib", "reserved_mib"), [(20000.0, 1000.0), (1000.0, 20000.0)])
def test_a_kill_raises_by_half_what_was_held_or_expected(peak_mib: float, reserved_mib: float) -> None:
    """Whichever is more counts, and later estimates of the same phase keep it."""
    estimator = LearningEstimator()
    raised = estimator.raise_after_kill(phase(), peak_mib=peak_mib, reserved_mib=reserved_mib)
    assert raised.reserve_mib == 30000
    assert estimator.estimate(phase(7)) == raised
    assert estimator.estimate(phase(arch="sm_80")) != raised


@pytest.mark.parametrize(("peak_mib", "reserved_mib", "teaches"), [(4000.0, 1000.0, True), (4000.0, 5000.0, False)])
def test_one_that_outgrew_its_room_teaches_others(peak_mib: float, reserved_mib: float, teaches: bool) -> None:
    """They need not be ended to learn it. One that was ended for others shows nothing."""
    estimator = LearningEstimator()
    before = estimator.estimate(phase(2, unit_id="u2"))
    raised = estimator.raise_after_kill(phase(), peak_mib=peak_mib, reserved_mib=reserved_mib)
    after = estimator.estimate(phase(2, unit_id="u2"))
    assert raised.reserve_mib >= 6000
    assert (after.reserve_mib > before.reserve_mib) == teaches
    assert (after == before) != teaches


def test_what_a_configure_step_tries_out_teaches_nothing_when_it_is_ended_either() -> None:
    """It is like no unit of the build."""
    estimator = LearningEstimator()
    estimator.know("u1", teaches=False)
    before = estimator.estimate(phase(2, unit_id="u2"))
    estimator.raise_after_kill(phase(), peak_mib=4000.0, reserved_mib=1000.0)
    assert estimator.estimate(phase(2, unit_id="u2")) == before


def test_a_second_kill_never_lowers_an_estimate() -> None:
    """Later estimates of a phase that died for memory are no lower, whatever the second kill looked like."""
    estimator = LearningEstimator()
    first = estimator.raise_after_kill(phase(), peak_mib=4000.0, reserved_mib=1000.0)
    second = estimator.raise_after_kill(phase(), peak_mib=600.0, reserved_mib=700.0)
    assert second.reserve_mib >= first.reserve_mib


def test_a_raise_below_what_is_known_changes_nothing() -> None:
    """Better evidence than the kill stands."""
    estimator = LearningEstimator()
    finish(estimator, phase(kind=PhaseKind.CUDAFE), 2000.0)
    known = estimator.estimate(phase())
    assert estimator.raise_after_kill(phase(), peak_mib=10.0, reserved_mib=10.0) == known


def test_no_more_units_are_kept_in_mind_than_a_build_can_have_open() -> None:
    """A build of any length keeps notes on so many units; the ones touched longest ago go."""
    estimator = LearningEstimator()
    finish(estimator, phase(kind=PhaseKind.CUDAFE, unit_id="old"), 4000.0)
    known = estimator.estimate(phase(unit_id="old"))
    for number in range(MOST_UNITS):
        estimator.know(f"n{number}")
    assert estimator.estimate(phase(unit_id="old")).reserve_mib < known.reserve_mib


def test_a_unit_that_ended_is_forgotten() -> None:
    """Unit ids may come again; nothing of the one before sticks to them."""
    estimator = LearningEstimator()
    finish(estimator, phase(kind=PhaseKind.CUDAFE), 4000.0)
    known = estimator.estimate(phase())
    estimator.forget("u1")
    assert estimator.estimate(phase()).reserve_mib < known.reserve_mib


@pytest.mark.parametrize("what", ["a phase ended", "one had to be ended", "more architectures", "the unit ended"])
def test_what_a_unit_has_still_to_do_is_guessed_anew_once_something_is_learned(what: str) -> None:
    """Asked twice in a row it is one guess; never one of before."""
    estimator = LearningEstimator()
    host = phase(kind=PhaseKind.HOST, unit_id="other", input_mib=4.0, tool="cc1plus")
    for unit_id in ("u", "other"):
        finish(estimator, phase(kind=PhaseKind.CUDAFE, unit_id=unit_id, input_mib=4.0), 400.0)
    asked = phase(kind=PhaseKind.CICC, unit_id="u", input_mib=4.0, tool="cicc")
    before = estimator.outlook("u", asked)
    assert len(before) == 1
    assert estimator.outlook("u", asked) == before
    if what == "a phase ended":
        finish(estimator, host, 2000.0)
    elif what == "one had to be ended":
        estimator.raise_after_kill(host, peak_mib=2000.0, reserved_mib=400.0)
    elif what == "more architectures":
        estimator.know("u", archs=("sm_90", "sm_100"))
    else:
        estimator.forget("u")
    assert estimator.outlook("u", asked) != before


def test_phases_whose_unit_nobody_knows_teach_each_other_nothing() -> None:
    """One huge cicc without a unit does not make every small host compile huge."""
    estimator = LearningEstimator()
    small = phase(1, PhaseKind.HOST, unit_id="", source="small.cpp")
    before = estimator.estimate(small).peak_mib
    huge = phase(2, PhaseKind.CICC, unit_id="", source="huge.cu")
    estimator.observe(huge, outcome=Outcome.OK, peak_mib=20_000.0, wall_s=90.0)
    assert estimator.estimate(small).peak_mib < 2 * before


def courses(*, now: UnitKey = KEY, distance: float = 0.0, cudafe_mib: float = 1000.0) -> tuple[Course, ...]:
    """Of a phase with a course, before and after the unit's front end took so much."""
    seen = Seen(input_mib=4.0, peak_mib=2000.0, wall_s=10.0, course=((0.5, 500.0), (1.0, 2000.0)))
    front_end = Seen(input_mib=4.0, peak_mib=1000.0, wall_s=5.0)
    known = PastUnit(
        key=KEY,
        phases=(
            PastPhase(kind=PhaseKind.CICC, arch="sm_90", seen=(seen,), distance=distance),
            PastPhase(kind=PhaseKind.CUDAFE, seen=(front_end,), distance=distance),
        ),
    )
    estimator = LearningEstimator()
    estimator.know("u1", key=now, past=known, archs=("sm_90",))
    asks = phase(arch="sm_90", input_mib=4.0, tool="")
    before = estimator.course(asks)
    finish(estimator, phase(kind=PhaseKind.CUDAFE, input_mib=4.0, tool=""), cudafe_mib)
    return before, estimator.course(asks)


def test_a_course_is_that_of_the_past_however_far() -> None:
    """In shares of the peak, of whatever height: another nvcc, another version, a source that has changed since."""
    course = ((0.5, 0.25), (1.0, 1.0))
    assert courses() == (course, course)
    assert courses(now=msgspec.structs.replace(KEY, nvcc="13.1.0")) == (course, course)
    assert courses(distance=0.3, cudafe_mib=1500.0) == (course, course)
