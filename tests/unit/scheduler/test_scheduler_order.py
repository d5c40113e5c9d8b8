"""In which order phases start, what is kept for whom, and what many of them may need together."""

from __future__ import annotations

import pytest

from builddoctor.core.events import Admit, Decision, Fact, PhaseAsked, ShareSettled, TimePassed, UnitBegan, UnitEnded
from builddoctor.core.phase import Estimate, Phase, PhaseKind
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.scheduler.running_set import RISK
from builddoctor.scheduler.scheduler import DRAIN_AFTER_S, LINGER_S, Scheduler
from builddoctor.scheduler.wait_queue import FAR, NEAR
from support.schedulers import handle, scheduler_of
from unit.builders import TableEstimator, asked, ended, phase, unit


class SpreadEstimator(TableEstimator):
    """Half of each bound is spread."""

    def estimate(self, phase: Phase) -> Estimate:
        bound = self.reserve_mib[phase.phase_id]
        return Estimate(peak_mib=bound / 2, spread_mib=bound / 2, source="table")


def feed(scheduler: Scheduler, event: Fact, now_s: float = 0.0) -> list[Decision]:
    """Hand in an event; the invariants must hold after it."""
    actions = handle(scheduler, event, now_s)
    scheduler.check()
    return actions


def admitted(actions: list[Decision]) -> list[int]:
    return [action.phase_id for action in actions if isinstance(action, Admit)]


def ask(phase_id: int, unit_id: str, kind: PhaseKind = PhaseKind.CICC) -> PhaseAsked:
    return PhaseAsked(phase=phase(phase_id, kind, unit_id=unit_id))


def test_whoever_looks_changes_nothing() -> None:
    """How long a unit still takes is guessed by what phases took so far, and a guess that decides stands for a while.
    One that only the screen asked for does not: a trace would not be decided alike again."""

    def left_s(*, looked_at: bool) -> float:
        scheduler = scheduler_of(LearningEstimator(), slots=1, budget_mib=1000)
        for phase_id, unit_id in ((1, "unit"), (2, "other"), (3, "unit")):
            feed(scheduler, ask(phase_id, unit_id, PhaseKind.HOST))
        feed(scheduler, ended(1), 1.0)
        if looked_at:
            scheduler.remaining_s(phase(3, PhaseKind.HOST, unit_id="unit"))
        feed(scheduler, ended(2), 2.0)
        return scheduler.remaining_s(phase(3, PhaseKind.HOST, unit_id="unit"))

    assert left_s(looked_at=True) == left_s(looked_at=False)


def giving_way(actions: list[Decision]) -> list[int]:
    return [action.phase_id for action in actions if isinstance(action, Admit) and action.gives_way]


def three_places(seconds: dict[int, float], *, units: int) -> Scheduler:
    """A build whose tool has begun so many units; the first has ended, and none came in its place."""
    scheduler = scheduler_of(TableEstimator(dict.fromkeys(seconds, 10.0), seconds), slots=3, budget_mib=1000)
    for number in range(units):
        feed(scheduler, UnitBegan(unit=unit(unit_id=f"unit{number}")))
    feed(scheduler, UnitEnded(unit_id="unit0"))
    return scheduler


def test_what_runs_beside_the_unit_that_takes_longest_gives_way_to_it() -> None:
    """Three on two cores get two thirds of one each, and the end of the build waits for that unit alone."""
    scheduler = three_places({1: 60.0, 2: 5.0, 3: 4.0, 4: 70.0}, units=5)
    assert giving_way(feed(scheduler, ask(1, "unit1"))) == []
    assert giving_way(feed(scheduler, ask(2, "unit2"))) == [2]
    assert giving_way(feed(scheduler, ask(3, "unit3"), 1.0)) == [3]
    # What takes longer still gives way to none.
    feed(scheduler, ended(2), 2.0)
    assert giving_way(feed(scheduler, ask(4, "unit4"), 2.0)) == []


def test_where_no_unit_takes_longer_than_all_others_together_none_gives_way() -> None:
    """Then the cores are busy until the end, whoever gets them, and nobody is slower beside other programs."""
    scheduler = three_places({1: 20.0} | dict.fromkeys(range(2, 13), 10.0), units=13)
    for number in range(1, 13):
        feed(scheduler, ask(number, f"unit{number}"))
    begun = feed(scheduler, ended(2), 2.0)
    assert (admitted(begun), giving_way(begun)) == ([4], [])


def test_a_unit_that_takes_longer_than_expected_does_not_make_others_shorter() -> None:
    """Of 95 s of work on three places 30 are no third; that one of those that run is 25 s late changes nothing."""
    scheduler = three_places({1: 60.0, 2: 5.0, 3: 1.0, 4: 27.5, 5: 27.5, 6: 10.0}, units=7)
    for number in range(1, 7):
        feed(scheduler, ask(number, f"unit{number}"))
    begun = feed(scheduler, ended(3), 30.0)
    assert (admitted(begun), giving_way(begun)) == ([4], [])


def test_while_the_build_tool_starts_more_none_gives_way() -> None:
    """What is still to come is not known."""
    scheduler = three_places({1: 60.0, 2: 5.0}, units=3)
    feed(scheduler, UnitBegan(unit=unit(unit_id="unit3")))
    feed(scheduler, ask(1, "unit1"))
    begun = feed(scheduler, ask(2, "unit2"))
    assert (admitted(begun), giving_way(begun)) == ([2], [])


def test_the_places_beyond_cores_are_for_short_phases() -> None:
    """They fill gaps between the phases of others; a long one would take a core from those that run."""
    table = TableEstimator(dict.fromkeys(range(1, 5), 10.0), {1: 60.0, 2: 60.0, 3: 60.0, 4: 1.0})
    scheduler = scheduler_of(table, slots=3, cores=2, budget_mib=1000)
    assert [admitted(feed(scheduler, asked(each))) for each in (1, 2, 3, 4)] == [[1], [2], [], [4]]


def test_a_place_is_kept_for_the_next_phase_of_a_more_urgent_unit() -> None:
    """Between two phases it asks again in some 30 ms; what is less urgent does not take its place and memory."""
    table = TableEstimator({1: 600, 2: 500, 3: 10, 4: 600}, {1: 50.0, 2: 5.0, 3: 5.0, 4: 40.0})
    scheduler = scheduler_of(table, slots=2, budget_mib=1000)
    feed(scheduler, ask(1, "urgent", PhaseKind.CUDAFE))
    feed(scheduler, ask(3, "small"))
    feed(scheduler, ask(2, "other"))
    assert admitted(feed(scheduler, ended(1), 1.0)) == []
    assert admitted(feed(scheduler, ask(4, "urgent"), 1.03)) == [4]


def test_a_kept_place_is_given_up_when_nobody_asks() -> None:
    """After a quarter of a second the unit has nothing more to compile."""
    table = TableEstimator({1: 600, 2: 500, 3: 10}, {1: 50.0, 2: 5.0, 3: 5.0})
    scheduler = scheduler_of(table, slots=2, budget_mib=1000)
    feed(scheduler, ask(1, "urgent", PhaseKind.CUDAFE))
    feed(scheduler, ask(3, "small"))
    feed(scheduler, ask(2, "other"))
    assert admitted(feed(scheduler, ended(1), 1.0)) == []
    assert admitted(feed(scheduler, TimePassed(), 1.0 + LINGER_S / 2)) == []
    assert admitted(feed(scheduler, TimePassed(), 1.0 + 2 * LINGER_S)) == [2]


@pytest.mark.parametrize("kind", [PhaseKind.HOST, PhaseKind.LINK])
def test_nothing_is_kept_after_a_units_last_phase(kind: PhaseKind) -> None:
    """After the host compile nobody asks."""
    table = TableEstimator({1: 600, 2: 500, 3: 10}, {1: 50.0, 2: 5.0, 3: 5.0})
    scheduler = scheduler_of(table, slots=2, budget_mib=1000)
    feed(scheduler, ask(1, "urgent", kind))
    feed(scheduler, ask(3, "small"))
    feed(scheduler, ask(2, "other"))
    assert admitted(feed(scheduler, ended(1), 1.0)) == [2]


def test_a_kept_place_does_not_hold_up_a_build_of_which_nothing_runs() -> None:
    """On one core the place of a more urgent unit is all there is; the next in line is beyond this build's share."""
    table = TableEstimator({1: 100, 2: 500, 3: 10}, {1: 50.0, 2: 9.0, 3: 5.0})
    scheduler = scheduler_of(table, slots=1, budget_mib=1000)
    feed(scheduler, ask(1, "urgent", PhaseKind.CUDAFE))
    feed(scheduler, ask(2, "large"))
    feed(scheduler, ask(3, "small"))
    feed(scheduler, ShareSettled(lease_mib=200))
    assert admitted(feed(scheduler, ended(1), 1.0)) == [3]


@pytest.mark.parametrize(("lease_mib", "admits"), [(2627.2, [1]), (2626.4, [1]), (2626.0, [])])
def test_a_phase_that_needs_all_of_a_share_does_not_wait_for_what_a_rounding_took(
    lease_mib: float, admits: list[int]
) -> None:
    """No more is wished for to get the last MiB, so it was waited for as long as both builds were there."""
    scheduler = scheduler_of(TableEstimator({1: 2627.25}, {1: 1.0}), slots=2, budget_mib=3000)
    feed(scheduler, ShareSettled(lease_mib=0))
    assert admitted(feed(scheduler, ask(1, "all"))) == []
    # Used from the next sample on.
    scheduler.handle(ShareSettled(at_s=1.0, lease_mib=lease_mib))
    assert admitted(feed(scheduler, TimePassed(), 2.0)) == admits


def test_spreads_add_by_their_squares() -> None:
    """Nine phases of 100 to 200 MiB do not all take 200: 900 and most of the root of nine squares are set aside."""
    scheduler = scheduler_of(SpreadEstimator(dict.fromkeys(range(1, 10), 200.0)), slots=16, budget_mib=900 + RISK * 300)
    for phase_id in range(1, 10):
        feed(scheduler, asked(phase_id))
    assert scheduler.running == 9
    assert scheduler.committed_mib == pytest.approx(900 + RISK * 300)


def test_memory_does_not_drain_to_what_waits_for_its_turn() -> None:
    """A small phase at the end of the line waits long by right: what is before it goes on."""
    table = TableEstimator({1: 500, 2: 600, 3: 700, 4: 400}, {1: 90.0, 2: 1.0, 3: 80.0, 4: 70.0})
    scheduler = scheduler_of(table, slots=8, budget_mib=1000)
    feed(scheduler, ask(1, "a"))
    feed(scheduler, ask(2, "b"))
    feed(scheduler, ask(3, "c"), DRAIN_AFTER_S)
    assert admitted(feed(scheduler, ask(4, "d"), DRAIN_AFTER_S + 1)) == [4]


def test_a_question_is_no_turn_of_the_others() -> None:
    """Who waited before is not looked at for it, and a long line is gone through in turn by passes alone."""
    count = NEAR + 3 * FAR
    scheduler = scheduler_of(
        TableEstimator({1: 900.0} | dict.fromkeys(range(2, count + 3), 200.0)), slots=8, budget_mib=1000
    )
    for each in range(1, count + 2):
        feed(scheduler, asked(each))
    before = [each.phase.phase_id for each in scheduler.queue.in_turn()]
    feed(scheduler, asked(count + 2))
    after = [each.phase.phase_id for each in scheduler.queue.in_turn()]
    assert after[:NEAR] == before[:NEAR]
    assert after[NEAR] == before[-1] + 1
