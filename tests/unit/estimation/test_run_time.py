"""How long a unit still has to go."""

from __future__ import annotations

from builddoctor.core.past import PastPhase, PastUnit, Seen, UnitKey
from builddoctor.core.phase import Outcome, PhaseKind
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.estimation.run_time import MOST_TOO_LONG, SLOWEST_PACE
from unit.builders import phase

ORDER = [PhaseKind.CUDAFE, PhaseKind.CICC, PhaseKind.PTXAS, PhaseKind.HOST]
KEY = UnitKey(project="demo", place="a.cu")


def observed(kind: PhaseKind, unit_id: str, wall_s: float) -> LearningEstimator:
    estimator = LearningEstimator()
    estimator.observe(phase(kind=kind, unit_id=unit_id), outcome=Outcome.OK, peak_mib=500.0, wall_s=wall_s)
    return estimator


def test_earlier_phases_have_more_of_the_unit_before_them() -> None:
    """From cudafe++ to the host compile, what remains grows less."""
    estimator = LearningEstimator()
    left_s = [estimator.remaining_s(phase(index, kind=kind, input_mib=4.0)) for index, kind in enumerate(ORDER)]
    assert left_s == sorted(left_s, reverse=True)
    assert left_s[-1] > 0


def test_the_unit_with_the_slower_front_end_comes_first() -> None:
    """The front end's time stands for the rest of the unit."""
    estimator = observed(PhaseKind.CUDAFE, "slow", 60.0)
    estimator.observe(phase(kind=PhaseKind.CUDAFE, unit_id="fast"), outcome=Outcome.OK, peak_mib=500, wall_s=2)
    slow_s, fast_s = (estimator.remaining_s(phase(n, unit_id=name)) for n, name in enumerate(("slow", "fast")))
    assert slow_s > 5 * fast_s > 0


def test_a_larger_input_takes_longer_before_anything_ran() -> None:
    """Before it ran, the input's size has to do."""
    estimator = LearningEstimator()
    large, small = (phase(n, kind=PhaseKind.CUDAFE, input_mib=size) for n, size in enumerate((20.0, 2.0)))
    assert estimator.remaining_s(large) > 3 * estimator.remaining_s(small)


def test_each_further_architecture_adds_its_time() -> None:
    """Six architectures take about three times as long from cudafe++ on as two."""
    left_s = []
    for archs in (("sm_80", "sm_90"), ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100")):
        estimator = LearningEstimator()
        estimator.know("u1", archs=archs)
        left_s.append(estimator.remaining_s(phase(kind=PhaseKind.CUDAFE, input_mib=8.0)))
    assert 2 < left_s[1] / left_s[0] < 4


def test_the_past_says_what_the_unit_still_has_to_go() -> None:
    """Own time and all later phases as they were; phases that this build has done are not counted again."""
    walls = {PhaseKind.CUDAFE: 5.0, PhaseKind.CICC: 40.0, PhaseKind.PTXAS: 30.0, PhaseKind.HOST: 100.0}
    past = PastUnit(
        key=KEY,
        phases=tuple(
            PastPhase(kind=kind, seen=(Seen(input_mib=0.0, peak_mib=100.0, wall_s=wall_s),))
            for kind, wall_s in walls.items()
        ),
    )
    estimator = LearningEstimator()
    estimator.know("u1", key=KEY, past=past)
    left_s = [estimator.remaining_s(phase(index, kind=kind)) for index, kind in enumerate(ORDER)]
    assert left_s[0] == 175
    assert left_s[3] == 100
    assert estimator.wall_s(phase(kind=PhaseKind.CICC)) == 40
    estimator.observe(phase(9, kind=PhaseKind.CICC), outcome=Outcome.OK, peak_mib=100.0, wall_s=40.0)
    assert estimator.remaining_s(phase(10, kind=PhaseKind.PTXAS)) == 130
    assert estimator.least_s(phase(10, kind=PhaseKind.PTXAS)) == 130


def test_what_is_only_guessed_may_be_much_too_long() -> None:
    """A deadline goes by the least that it may be, where something of a unit would be lost."""
    estimator = observed(PhaseKind.CUDAFE, "u1", 10.0)
    cicc = phase(kind=PhaseKind.CICC, unit_id="u1", input_mib=4.0)
    assert estimator.least_s(cicc) == estimator.remaining_s(cicc) / MOST_TOO_LONG


def test_a_slower_machine_is_noticed() -> None:
    """After ten front ends at ten times the expected pace, the next is expected to take several times as long."""
    estimator = LearningEstimator()
    before_s = estimator.wall_s(phase(kind=PhaseKind.CUDAFE, input_mib=4.0))
    for number in range(10):
        done = phase(kind=PhaseKind.CUDAFE, unit_id=f"n{number}", input_mib=4.0)
        estimator.observe(done, outcome=Outcome.OK, peak_mib=300.0, wall_s=10 * before_s)
    assert estimator.wall_s(phase(kind=PhaseKind.CUDAFE, input_mib=4.0)) > 4 * before_s


def test_the_pasts_pace_is_learned() -> None:
    """A recipe says processor time, and three phases share two cores: all that is known takes that much longer."""
    past = PastUnit(
        key=KEY,
        phases=tuple(
            PastPhase(kind=kind, tool=kind.value, seen=(Seen(input_mib=1.0, peak_mib=100.0, wall_s=10.0),))
            for kind in ORDER
        ),
    )
    estimator = LearningEstimator()
    assert estimator.pace == 1.0
    for number in range(12):
        estimator.know(f"u{number}", key=KEY, past=past)
        done = phase(kind=PhaseKind.CICC, unit_id=f"u{number}", input_mib=1.0, tool="cicc")
        estimator.observe(done, outcome=Outcome.OK, peak_mib=100.0, wall_s=15.0)
    assert 1.45 < estimator.pace < 1.5
    estimator.know("next", key=KEY, past=past)
    front = phase(kind=PhaseKind.CUDAFE, unit_id="next", input_mib=1.0, tool="cudafe++")
    assert estimator.wall_s(front) == 10 * estimator.pace
    assert estimator.remaining_s(front) == 40 * estimator.pace
    assert [each.wall_s for each in estimator.outlook("next", None)] == [10 * estimator.pace] * 4


def test_the_pace_has_bounds() -> None:
    """A clock that jumped says nothing of compilers."""
    past = PastUnit(
        key=KEY, phases=(PastPhase(kind=PhaseKind.HOST, seen=(Seen(input_mib=0.0, peak_mib=100.0, wall_s=1.0),)),)
    )
    estimator = LearningEstimator()
    estimator.know("u1", key=KEY, past=past)
    for _ in range(300):
        estimator.observe(phase(kind=PhaseKind.HOST), outcome=Outcome.OK, peak_mib=100.0, wall_s=1000.0)
    assert estimator.pace == SLOWEST_PACE
