"""The governor's admission: who may start, who waits, and why."""

from __future__ import annotations

import pytest

from builddoctor.model.phase import Outcome
from builddoctor.policy.actions import Action, Admit, Hold, OpenUnit
from builddoctor.policy.events import Event, Tick, UnitEnded, UnitRegistered
from builddoctor.policy.governor import DRAIN_AFTER_S, Governor
from builddoctor.policy.opening import TIGHT_AFTER_KILL_S
from unit.builders import TableEstimator, asked, ended, phase, sampled, unit


def make(
    reserve_mib: dict[int, float], *, cores: int = 8, budget_mib: float = 1000.0, remaining_s: dict | None = None
) -> Governor:
    return Governor(TableEstimator(reserve_mib, remaining_s), slots=cores, budget_mib=budget_mib)


def feed(governor: Governor, event: Event, now_s: float = 0.0) -> list[Action]:
    """Hand in an event; the invariants must hold after it."""
    actions = governor.handle(event, now_s)
    governor.check()
    return actions


def admitted(actions: list[Action]) -> list[int]:
    return [action.phase_id for action in actions if isinstance(action, Admit)]


def held(actions: list[Action]) -> list[tuple[int, str]]:
    return [(action.phase_id, action.reason) for action in actions if isinstance(action, Hold)]


def test_the_first_phase_starts_whatever_its_estimate() -> None:
    """The progress floor: with nothing running, even a phase above the budget is admitted, alone."""
    governor = make({1: 50_000})
    (action,) = feed(governor, asked(1))
    assert isinstance(action, Admit)
    assert action.alone
    assert governor.committed_mib == 50_000


def test_phases_start_together_while_they_fit() -> None:
    """The sum of what is set aside may reach the budget, and not pass it."""
    governor = make({1: 400, 2: 600, 3: 1})
    assert admitted(feed(governor, asked(1))) == [1]
    assert admitted(feed(governor, asked(2))) == [2]
    assert held(feed(governor, asked(3))) == [(3, "memory")]
    assert governor.committed_mib == governor.budget_mib == 1000
    assert (governor.running, governor.waiting) == (2, 1)


def test_a_hold_says_what_is_needed_and_what_is_free_once() -> None:
    """The same reason is not repeated at every event."""
    governor = make({1: 700, 2: 400})
    feed(governor, asked(1))
    (hold,) = feed(governor, asked(2))
    assert hold == Hold(phase_id=2, needs_mib=400, free_mib=300, reason="memory")
    assert feed(governor, Tick(), 1.0) == []
    assert feed(governor, sampled({1: 500}, headroom_mib=900), 2.0) == []


def test_no_more_run_than_there_are_cores() -> None:
    """A phase that waits for a core alone is no hold: nothing is wrong."""
    governor = make(dict.fromkeys(range(1, 6), 1.0), cores=2)
    for phase_id in range(1, 6):
        feed(governor, asked(phase_id))
    assert (governor.running, governor.waiting) == (2, 3)
    assert admitted(feed(governor, ended(1), 1.0)) == [3]


def test_a_governor_has_at_least_one_core() -> None:
    """Zero cores would never build anything."""
    assert admitted(feed(make({1: 10}, cores=0), asked(1))) == [1]


def test_small_phases_go_past_a_big_one_that_waits() -> None:
    """Backfill: memory that the big one cannot use yet is used."""
    governor = make({1: 600, 2: 900, 3: 300})
    feed(governor, asked(1))
    assert held(feed(governor, asked(2), 1.0)) == [(2, "memory")]
    assert admitted(feed(governor, asked(3), 2.0)) == [3]


def test_memory_drains_to_a_phase_that_waited_too_long() -> None:
    """After its patience is over nothing goes past it any more, and it starts when its memory is there."""
    governor = make({1: 600, 2: 900, 3: 300})
    feed(governor, asked(1))
    feed(governor, asked(2))
    feed(governor, Tick(), DRAIN_AFTER_S)
    assert admitted(feed(governor, asked(3), DRAIN_AFTER_S)) == []
    assert admitted(feed(governor, ended(1), DRAIN_AFTER_S + 1)) == [2]
    assert admitted(feed(governor, ended(2), DRAIN_AFTER_S + 2)) == [3]


def test_the_longest_way_to_go_starts_first() -> None:
    """Order of admission is by time still to go, then by age, then by number."""
    governor = make(dict.fromkeys(range(1, 6), 10.0), cores=1, remaining_s={2: 5.0, 3: 50.0, 4: 5.0, 5: 5.0})
    feed(governor, asked(1))
    for phase_id, at_s in ((5, 3.0), (4, 2.0), (3, 2.0), (2, 2.0)):
        feed(governor, asked(phase_id), at_s)
    order = [admitted(feed(governor, ended(done), 10.0)) for done in (1, 3, 2, 4)]
    assert order == [[3], [2], [4], [5]]


def test_a_phase_past_its_reservation_is_taken_to_want_more() -> None:
    """What it holds counts with a fifth on top, so nothing is admitted on memory it is about to take."""
    governor = make({1: 400, 2: 300})
    feed(governor, asked(1))
    feed(governor, sampled({1: 700}, headroom_mib=500), 1.0)
    assert governor.committed_mib == pytest.approx(840)
    assert held(feed(governor, asked(2), 2.0)) == [(2, "memory")]


def test_a_reservation_stands_while_a_phase_is_still_small() -> None:
    """A phase that holds little now may still take all that was set aside."""
    governor = make({1: 800, 2: 300})
    feed(governor, asked(1))
    feed(governor, sampled({1: 5}, headroom_mib=995), 1.0)
    assert held(feed(governor, asked(2), 2.0)) == [(2, "memory")]


def test_a_higher_budget_admits_what_waits() -> None:
    """Memory that others gave back is used at the next sample."""
    governor = make({1: 800, 2: 600})
    feed(governor, asked(1))
    feed(governor, asked(2))
    actions = feed(governor, sampled({1: 700}, headroom_mib=900, budget_mib=1500), 1.0)
    assert admitted(actions) == [2]
    assert governor.budget_mib == 1500


def test_a_lower_budget_stops_admission_but_ends_nothing() -> None:
    """What runs goes on while headroom lasts; the next one waits."""
    governor = make({1: 400, 2: 400})
    feed(governor, asked(1))
    assert feed(governor, sampled({1: 400}, headroom_mib=300, budget_mib=700), 1.0) == []
    assert held(feed(governor, asked(2), 2.0)) == [(2, "memory")]
    assert governor.running == 1


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.FAILED, Outcome.WITHDRAWN])
def test_an_end_makes_room(outcome: Outcome) -> None:
    """However a phase ended, its memory goes to who waits."""
    governor = make({1: 900, 2: 900})
    feed(governor, asked(1))
    feed(governor, asked(2))
    assert admitted(feed(governor, ended(1, outcome), 1.0)) == [2]


def test_a_phase_that_is_withdrawn_while_it_waits_is_forgotten() -> None:
    """Its gate went away: it is never admitted."""
    governor = make({1: 900, 2: 900})
    feed(governor, asked(1))
    feed(governor, asked(2))
    assert feed(governor, ended(2, Outcome.WITHDRAWN), 1.0) == []
    assert feed(governor, ended(1), 2.0) == []
    assert (governor.running, governor.waiting) == (0, 0)


def test_the_end_of_an_unknown_phase_is_nothing() -> None:
    """A second word about a phase that is gone changes nothing, and teaches nothing."""
    estimator = TableEstimator({})
    governor = Governor(estimator, slots=1, budget_mib=1000)
    assert feed(governor, ended(99)) == []
    assert estimator.observed == []


def test_the_estimator_learns_the_most_a_phase_held() -> None:
    """The sampled memory counts where the reported peak is lower."""
    estimator = TableEstimator({1: 100})
    governor = Governor(estimator, slots=1, budget_mib=1000)
    feed(governor, asked(1))
    feed(governor, sampled({1: 640}, headroom_mib=300), 1.0)
    feed(governor, ended(1, peak_mib=500), 2.0)
    assert estimator.observed == [(1, Outcome.OK, 640)]


def test_units_alone_admit_nothing() -> None:
    """A unit that begins or ends is no phase."""
    governor = make({})
    assert feed(governor, UnitRegistered(unit=unit(threads=8))) == []
    assert feed(governor, UnitEnded(unit_id="u1")) == []


@pytest.mark.parametrize(("threads", "lowered"), [(1, 0), (2, 1), (8, 1), (0, 1)])
def test_after_a_kill_new_units_get_one_thread(threads: int, lowered: int) -> None:
    """``--threads`` goes to 1 where it was more; nvcc's 0 means one for each core. An answer of 0 leaves it alone."""
    governor = make({1: 100, 2: 100})
    feed(governor, asked(1))
    feed(governor, asked(2))
    feed(governor, ended(2, Outcome.KILLED_BY_KERNEL), 1.0)
    actions = feed(governor, UnitRegistered(unit=unit(unit_id="u9", threads=threads), held=True), 2.0)
    assert actions == [OpenUnit(unit_id="u9", threads=lowered)]


def test_a_kill_long_ago_takes_no_threads_away() -> None:
    """What has been learned since counts: an hour's build does not go on with one thread a unit for a kill in its first
    minute. 0: as the build says."""
    governor = make({1: 100, 2: 100})
    feed(governor, asked(1))
    feed(governor, asked(2))
    feed(governor, ended(2, Outcome.KILLED_BY_KERNEL), 1.0)
    later = feed(governor, UnitRegistered(unit=unit(unit_id="u9", threads=2), held=True), 1.0 + TIGHT_AFTER_KILL_S)
    assert later == [OpenUnit(unit_id="u9", threads=0)]


def test_what_is_no_event_is_an_error_of_the_caller() -> None:
    """The governor does not guess."""
    with pytest.raises(TypeError):
        make({}).handle("tick", 0.0)  # type: ignore[arg-type]


def test_an_estimate_can_be_asked_for_without_asking_to_start() -> None:
    """The trace says what is expected of a phase before it is decided on."""
    governor = make({1: 123})
    assert governor.estimate(phase(1)).reserve_mib == 123
    assert governor.waiting == 0
