"""The scheduler's admission: who may start, who waits, and why."""

from __future__ import annotations

import pytest

from builddoctor.core.events import (
    Admit,
    Decision,
    Fact,
    Hold,
    HoldReason,
    PhaseAsked,
    Queue,
    ReleaseUnit,
    TimePassed,
    UnitBegan,
    UnitEnded,
)
from builddoctor.core.past import Course, PastPhase, PastUnit, Seen, UnitKey
from builddoctor.core.phase import Estimate, Outcome, Phase, PhaseKind
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.scheduler.admission import TRIES
from builddoctor.scheduler.scheduler import DRAIN_AFTER_S, Scheduler
from support.schedulers import handle, scheduler_of
from unit.builders import TableEstimator, asked, ended, phase, sampled, unit


def make(
    reserve_mib: dict[int, float], *, cores: int = 8, budget_mib: float = 1000.0, remaining_s: dict | None = None
) -> Scheduler:
    return scheduler_of(TableEstimator(reserve_mib, remaining_s), slots=cores, budget_mib=budget_mib)


def feed(scheduler: Scheduler, event: Fact, now_s: float = 0.0) -> list[Decision]:
    """Hand in an event; the invariants must hold after it."""
    actions = handle(scheduler, event, now_s)
    scheduler.check()
    return actions


def admitted(actions: list[Decision]) -> list[int]:
    return [action.phase_id for action in actions if isinstance(action, Admit)]


def held(actions: list[Decision]) -> list[tuple[int, str]]:
    return [(action.phase_id, action.reason) for action in actions if isinstance(action, Hold)]


def test_the_first_phase_starts_whatever_its_estimate() -> None:
    """The progress floor: with nothing running, even a phase above the budget is admitted, alone."""
    scheduler = make({1: 50_000})
    (action,) = feed(scheduler, asked(1))
    assert isinstance(action, Admit)
    assert action.alone
    assert scheduler.committed_mib == 50_000


def test_phases_start_together_while_they_fit() -> None:
    """The sum of what is set aside may reach the budget, and not pass it."""
    scheduler = make({1: 400, 2: 600, 3: 1})
    assert admitted(feed(scheduler, asked(1))) == [1]
    assert admitted(feed(scheduler, asked(2))) == [2]
    assert held(feed(scheduler, asked(3))) == [(3, "memory")]
    assert scheduler.committed_mib == scheduler.budget_mib == 1000
    assert (scheduler.running, scheduler.waiting) == (2, 1)


def test_a_hold_says_what_is_needed_and_what_is_free_once() -> None:
    """The same reason is not repeated at every event."""
    scheduler = make({1: 700, 2: 400})
    feed(scheduler, asked(1))
    (hold,) = feed(scheduler, asked(2))
    assert hold == Hold(phase_id=2, needs_mib=400, free_mib=300, reason=HoldReason.MEMORY)
    assert feed(scheduler, TimePassed(), 1.0) == []
    assert feed(scheduler, sampled({1: 500}, headroom_mib=900), 2.0) == []


def test_no_more_run_than_there_are_cores() -> None:
    """A phase that waits for a core alone is no hold: nothing is wrong."""
    scheduler = make(dict.fromkeys(range(1, 6), 1.0), cores=2)
    for phase_id in range(1, 6):
        feed(scheduler, asked(phase_id))
    assert (scheduler.running, scheduler.waiting) == (2, 3)
    assert admitted(feed(scheduler, ended(1), 1.0)) == [3]


def test_a_scheduler_has_at_least_one_core() -> None:
    """Zero cores would never build anything."""
    assert admitted(feed(make({1: 10}, cores=0), asked(1))) == [1]


def test_small_phases_go_past_a_big_one_that_waits() -> None:
    """Backfill: memory that the big one cannot use yet is used."""
    scheduler = make({1: 600, 2: 900, 3: 300})
    feed(scheduler, asked(1))
    assert held(feed(scheduler, asked(2), 1.0)) == [(2, "memory")]
    assert admitted(feed(scheduler, asked(3), 2.0)) == [3]


@pytest.mark.parametrize(("small_mib", "starts"), [(500.0, True), (501.0, False)])
def test_behind_many_that_do_not_fit_one_that_does_starts(small_mib: float, starts: bool) -> None:
    """However many are passed over by one comparison: it is made against all that is left, to the last MiB."""

    class Guesses(TableEstimator):
        def course(self, phase: Phase) -> Course:
            del phase
            return ()

    last = TRIES + 5
    table = Guesses({1: 500.0, 2: 400.0} | dict.fromkeys(range(3, last), 600.0) | {last: small_mib})
    scheduler = scheduler_of(table, slots=8, budget_mib=1000.0)
    for each in range(1, last + 1):
        feed(scheduler, asked(each))
    assert scheduler.waiting == last - 2
    assert admitted(feed(scheduler, ended(2), 1.0)) == ([last] if starts else [])


def test_memory_drains_to_a_phase_that_waited_too_long() -> None:
    """After its patience is over nothing goes past it any more, and it starts when its memory is there."""
    scheduler = make({1: 600, 2: 900, 3: 300})
    feed(scheduler, asked(1))
    feed(scheduler, asked(2))
    feed(scheduler, TimePassed(), DRAIN_AFTER_S)
    assert admitted(feed(scheduler, asked(3), DRAIN_AFTER_S)) == []
    assert admitted(feed(scheduler, ended(1), DRAIN_AFTER_S + 1)) == [2]
    assert admitted(feed(scheduler, ended(2), DRAIN_AFTER_S + 2)) == [3]


def test_what_may_not_fit_is_tried_first() -> None:
    """More is expected of 3 than there is: whatever else has longer to go waits, and memory drains to it at once."""
    scheduler = make({1: 100, 2: 100, 3: 1500, 4: 100}, remaining_s={2: 90.0, 3: 1.0, 4: 90.0})
    feed(scheduler, asked(1))
    assert held(feed(scheduler, asked(3))) == [(3, "memory")]
    assert admitted(feed(scheduler, asked(2))) == []
    assert admitted(feed(scheduler, asked(4))) == []
    assert admitted(feed(scheduler, ended(1), 1.0)) == [3]


def test_what_is_as_large_as_one_that_fitted_waits_in_line() -> None:
    """As much was expected of 1, and it ended well: 3 is no reason to let cores rest."""
    scheduler = make({1: 1500, 2: 100, 3: 1500, 4: 100}, remaining_s={2: 90.0, 4: 90.0})
    feed(scheduler, asked(1))
    feed(scheduler, asked(2))
    assert admitted(feed(scheduler, ended(1), 1.0)) == [2]
    assert held(feed(scheduler, asked(3), 2.0)) == [(3, "memory")]
    assert admitted(feed(scheduler, asked(4), 3.0)) == [4]


def test_a_unit_that_may_not_fit_comes_first_with_its_first_phases() -> None:
    """Its history says that its cicc takes more than there is: its front end is not left to wait for longer units."""

    def began(unit_id: str, cicc_mib: float, wall_s: float) -> UnitBegan:
        key = UnitKey(project="demo", place=unit_id)
        phases = tuple(
            PastPhase(kind=kind, tool="", seen=(Seen(input_mib=1.0, peak_mib=peak_mib, wall_s=wall_s),))
            for kind, peak_mib in ((PhaseKind.CUDAFE, 200.0), (PhaseKind.CICC, cicc_mib))
        )
        past = PastUnit(key=key, phases=phases)
        return UnitBegan(unit=unit(unit_id=unit_id), held=True, key=key, past=past)

    scheduler = scheduler_of(LearningEstimator(), slots=1, budget_mib=1000.0)
    released: list[Decision] = []
    for each in (began("u1", 300.0, 10.0), began("u2", 300.0, 90.0), began("u3", 1800.0, 5.0)):
        released += feed(scheduler, each)
    assert [each.unit_id for each in released if isinstance(each, ReleaseUnit)] == ["u1", "u2"]
    feed(scheduler, PhaseAsked(phase=phase(1, PhaseKind.CUDAFE, unit_id="u1", input_mib=1.0)))
    released = feed(scheduler, TimePassed(), 1.0)
    feed(scheduler, PhaseAsked(phase=phase(2, PhaseKind.CUDAFE, unit_id="u2", input_mib=1.0)), 1.0)
    feed(scheduler, PhaseAsked(phase=phase(3, PhaseKind.CUDAFE, unit_id="u3", input_mib=1.0)), 1.0)
    assert admitted(feed(scheduler, ended(1), 2.0)) == [3]


def test_the_longest_way_to_go_starts_first() -> None:
    """Order of admission is by time still to go, then by age, then by number."""
    scheduler = make(dict.fromkeys(range(1, 6), 10.0), cores=1, remaining_s={2: 5.0, 3: 50.0, 4: 5.0, 5: 5.0})
    feed(scheduler, asked(1))
    for phase_id, at_s in ((5, 3.0), (4, 2.0), (3, 2.0), (2, 2.0)):
        feed(scheduler, asked(phase_id), at_s)
    order = [admitted(feed(scheduler, ended(done), 10.0)) for done in (1, 3, 2, 4)]
    assert order == [[3], [2], [4], [5]]


def test_a_phase_past_its_reservation_is_taken_to_want_more() -> None:
    """What it holds counts with a fifth on top, so nothing is admitted on memory it is about to take."""
    scheduler = make({1: 400, 2: 300})
    feed(scheduler, asked(1))
    feed(scheduler, sampled({1: 700}, headroom_mib=500), 1.0)
    assert scheduler.committed_mib == pytest.approx(840)
    assert held(feed(scheduler, asked(2), 2.0)) == [(2, "memory")]


def test_a_reservation_stands_while_a_phase_is_still_small() -> None:
    """A phase that holds little now may still take all that was set aside."""
    scheduler = make({1: 800, 2: 300})
    feed(scheduler, asked(1))
    feed(scheduler, sampled({1: 5}, headroom_mib=995), 1.0)
    assert held(feed(scheduler, asked(2), 2.0)) == [(2, "memory")]


def test_a_higher_budget_admits_what_waits() -> None:
    """Memory that others gave back is used at the next sample."""
    scheduler = make({1: 800, 2: 600})
    feed(scheduler, asked(1))
    feed(scheduler, asked(2))
    actions = feed(scheduler, sampled({1: 700}, headroom_mib=900, budget_mib=1500), 1.0)
    assert admitted(actions) == [2]
    assert scheduler.budget_mib == 1500


def test_a_lower_budget_stops_admission_but_ends_nothing() -> None:
    """What runs goes on while headroom lasts; the next one waits."""
    scheduler = make({1: 400, 2: 400})
    feed(scheduler, asked(1))
    assert feed(scheduler, sampled({1: 400}, headroom_mib=300, budget_mib=700), 1.0) == []
    assert held(feed(scheduler, asked(2), 2.0)) == [(2, "memory")]
    assert scheduler.running == 1


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.FAILED, Outcome.WITHDRAWN])
def test_an_end_makes_room(outcome: Outcome) -> None:
    """However a phase ended, its memory goes to who waits."""
    scheduler = make({1: 900, 2: 900})
    feed(scheduler, asked(1))
    feed(scheduler, asked(2))
    assert admitted(feed(scheduler, ended(1, outcome), 1.0)) == [2]


def test_a_phase_that_is_withdrawn_while_it_waits_is_forgotten() -> None:
    """Its gate went away: it is never admitted."""
    scheduler = make({1: 900, 2: 900})
    feed(scheduler, asked(1))
    feed(scheduler, asked(2))
    assert feed(scheduler, ended(2, Outcome.WITHDRAWN), 1.0) == []
    assert feed(scheduler, ended(1), 2.0) == []
    assert (scheduler.running, scheduler.waiting) == (0, 0)


def test_the_end_of_an_unknown_phase_is_nothing() -> None:
    """A second word about a phase that is gone changes nothing, and teaches nothing."""
    estimator = TableEstimator({})
    scheduler = scheduler_of(estimator, slots=1, budget_mib=1000)
    assert feed(scheduler, ended(99)) == []
    assert estimator.observed == []


def test_the_estimator_learns_the_most_a_phase_held() -> None:
    """The sampled memory counts where the reported peak is lower."""
    estimator = TableEstimator({1: 100})
    scheduler = scheduler_of(estimator, slots=1, budget_mib=1000)
    feed(scheduler, asked(1))
    feed(scheduler, sampled({1: 640}, headroom_mib=300), 1.0)
    feed(scheduler, ended(1, peak_mib=500), 2.0)
    assert estimator.observed == [(1, Outcome.OK, 640)]


def test_units_alone_admit_nothing() -> None:
    """A unit that begins or ends is no phase."""
    scheduler = make({})
    assert feed(scheduler, UnitBegan(unit=unit(threads=8))) == []
    assert feed(scheduler, UnitEnded(unit_id="u1")) == []


@pytest.mark.parametrize(("threads", "lowered"), [(1, 0), (2, 1), (8, 1), (0, 1)])
def test_until_a_phase_that_was_ended_has_run_new_units_get_one_thread(threads: int, lowered: int) -> None:
    """``--threads`` goes to 1 where it was more; nvcc's 0 means one for each core. An answer of 0 leaves it alone."""
    scheduler = make({1: 100, 2: 100})
    feed(scheduler, asked(1))
    feed(scheduler, asked(2))
    feed(scheduler, ended(2, Outcome.KILLED_BY_KERNEL), 1.0)
    actions = feed(scheduler, UnitBegan(unit=unit(unit_id="u9", threads=threads), held=True), 2.0)
    assert actions == [ReleaseUnit(at_s=2.0, unit_id="u9", threads=lowered)]


def test_a_kill_takes_threads_away_until_its_phase_has_run() -> None:
    """What has been learned since counts: an hour's build does not go on with one thread a unit for a kill in its first
    minute. 0: as the build says."""
    scheduler = make({1: 100, 2: 100})
    feed(scheduler, asked(1))
    feed(scheduler, asked(2))
    feed(scheduler, ended(2, Outcome.KILLED_BY_KERNEL), 1.0)
    feed(scheduler, ended(1), 2.0)
    feed(scheduler, ended(2), 3.0)
    later = feed(scheduler, UnitBegan(unit=unit(unit_id="u9", threads=2), held=True), 4.0)
    assert later == [ReleaseUnit(at_s=4.0, unit_id="u9", threads=0)]


def test_what_is_no_event_is_an_error_of_the_caller() -> None:
    """The scheduler does not guess."""
    with pytest.raises(TypeError):
        make({}).handle("tick")  # type: ignore[arg-type]


def test_what_is_expected_of_a_phase_is_said_when_it_asks() -> None:
    """The trace has it, whether the phase may start at once or waits."""
    first = make({1: 123}).handle(asked(1))[0]
    assert first == Queue(phase_id=1, estimate=Estimate(peak_mib=123, spread_mib=0.0, source="table"))


class FirstBuild(TableEstimator):
    """No earlier build shows what its phases hold."""

    def course(self, phase: Phase) -> Course:
        return ()


@pytest.mark.parametrize(("looked", "started"), [(True, [2]), (False, [])])
def test_a_first_build_goes_by_what_is_usual_while_phases_are_looked_at(*, looked: bool, started: list[int]) -> None:
    """`cicc` has given back half of its 900 MiB by nine tenths of its time. Unseen it counts with all of them."""
    scheduler = scheduler_of(FirstBuild({1: 900, 2: 500}, {1: 40.0, 2: 2.0}), slots=2, budget_mib=1000.0)
    if looked:
        feed(scheduler, sampled({7: 0.0}, headroom_mib=1000))
    feed(scheduler, asked(1))
    if looked:
        feed(scheduler, sampled({1: 450}, headroom_mib=650), 18.0)
    assert admitted(feed(scheduler, asked(2), 18.0)) == started


def test_what_is_too_short_to_be_watched_counts_with_its_peak() -> None:
    """The same, but that what waits takes half a second: it may hold all of it at once, beside what is held now."""
    scheduler = scheduler_of(FirstBuild({1: 900, 2: 600}, {1: 40.0, 2: 1.0}), slots=2, budget_mib=1000.0)
    feed(scheduler, sampled({7: 0.0}, headroom_mib=1000))
    feed(scheduler, asked(1))
    feed(scheduler, sampled({1: 450}, headroom_mib=650), 18.0)
    assert admitted(feed(scheduler, asked(2), 18.0)) == []


@pytest.mark.parametrize(
    ("estimator", "started"),
    [(TableEstimator, [5]), (FirstBuild, [4])],
    ids=["courses are known", "a first build"],
)
def test_room_is_promised_to_the_most_urgent_phase_that_waits_for_it(
    estimator: type[TableEstimator], started: list[int]
) -> None:
    """650 MiB will be there in ten seconds. What holds 90 of them for twenty waits, what is over by then does not; a
    guess is no promise."""
    peaks_mib = {1: 600, 2: 300, 3: 650, 4: 90, 5: 90, 9: 10}
    walls_s = {1: 10.0, 2: 100.0, 3: 50.0, 4: 20.0, 5: 5.0, 9: 1.0}
    scheduler = scheduler_of(estimator(peaks_mib, walls_s), slots=3, budget_mib=1000.0)
    for phase_id in (1, 2, 9, 3, 4, 5):
        feed(scheduler, asked(phase_id))
    assert admitted(feed(scheduler, ended(9), 1.0)) == started
