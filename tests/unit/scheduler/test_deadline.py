"""What may still start before a build has to end, and when it is stopped."""

from __future__ import annotations

import pytest

from builddoctor.core.events import (
    Admit,
    Decision,
    Fact,
    Hold,
    HoldReason,
    NinjaFailed,
    OutOfTime,
    PhaseAsked,
    ReleaseUnit,
    TimePassed,
    UnitBegan,
)
from builddoctor.core.phase import Phase, PhaseKind, Unit
from builddoctor.core.settings import SchedulerSettings
from builddoctor.scheduler.deadline import OVER_AFTER_S, Deadline
from builddoctor.scheduler.scheduler import Scheduler
from support.schedulers import handle
from unit.builders import TableEstimator, ended

UNTIL_S = 100.0


def phase(number: int, unit: str = "") -> Phase:
    return Phase(phase_id=number, unit_id=unit, kind=PhaseKind.CICC, source="", tool="cicc")


def ask(number: int, unit: str) -> PhaseAsked:
    return PhaseAsked(at_s=0.0, phase=phase(number, unit))


def feed(scheduler: Scheduler, event: Fact, now_s: float = 0.0) -> list[Decision]:
    """Hand in an event; the invariants must hold after it."""
    decisions = handle(scheduler, event, now_s)
    scheduler.check()
    return decisions


def deadline(seconds: dict[int, float], *, until_s: float | None = UNTIL_S, cores: int = 2) -> Deadline:

    def seconds_of(one: Phase) -> float:
        return seconds[one.phase_id]

    return Deadline(until_s, remaining_s=seconds_of, least_s=seconds_of, cores=cores)


def test_without_one_nothing_is_too_late() -> None:
    never = deadline({1: 1e9}, until_s=None)
    assert not never.is_set
    assert not never.is_too_late_for(phase(1), 1e9)
    assert not never.is_over(1e9, idle=True)


def test_what_would_not_end_is_not_started() -> None:
    one = deadline({1: 30.0})
    assert not one.is_too_late_for(phase(1, "a"), 70.0)
    assert one.is_too_late_for(phase(1, "b"), 70.1)


def test_units_share_the_cores_that_there_are() -> None:
    """Three of 60 s on two cores in 100: the third would end after 90 s, were the others done; a fourth would not."""
    four = deadline(dict.fromkeys(range(1, 5), 60.0))
    four.look((), (), 0.0)
    assert [four.is_too_late_for(phase(number, str(number)), 0.0) for number in range(1, 5)] == [False] * 3 + [True]


def test_a_unit_that_was_begun_goes_on_while_it_can() -> None:
    """What others still need is counted once, when a unit is begun."""
    one = deadline({1: 90.0, 2: 90.0, 3: 20.0})
    one.started(phase(3, "a"))
    one.look((phase(1, "b"), phase(2, "c")), (phase(3, "a"),), 10.0)
    assert not one.is_too_late_for(phase(3, "a"), 10.0)
    assert one.is_too_late_for(phase(3, "d"), 10.0)


def test_a_unit_that_was_begun_goes_on_while_it_may_end() -> None:
    """Where it is only guessed how long it takes, the guess may be too long; one that was not begun is left."""
    one = Deadline(UNTIL_S, remaining_s=lambda _: 120.0, least_s=lambda _: 30.0, cores=1)
    one.started(phase(1, "a"))
    assert not one.is_too_late_for(phase(1, "a"), 70.0)
    assert one.is_too_late_for(phase(1, "a"), 70.1)
    assert one.is_too_late_for(phase(2, "b"), 10.0)


def test_a_unit_that_was_begun_and_cannot_end_takes_no_time_of_others() -> None:
    """It waited for its memory for too long: its 80 s are nobody's any more."""
    one = deadline({1: 80.0, 2: 40.0}, cores=1)
    one.started(phase(1, "a"))
    one.look((), (phase(1, "a"),), 10.0)
    assert not one.has_time_for(40.0, 10.0)
    one.look((), (phase(1, "a"),), 50.0)
    assert one.has_time_for(40.0, 50.0)
    assert not one.is_too_late_for(phase(2, "b"), 50.0)


@pytest.mark.parametrize(("now_s", "idle", "over"), [(99.0, False, False), (100.0, False, True), (50.0, True, True)])
def test_it_is_over_when_time_is_up_or_nothing_can_end(now_s: float, idle: bool, over: bool) -> None:
    one = deadline({})
    one.ended(50.0 - OVER_AFTER_S)
    assert one.is_over(now_s, idle=idle) is over
    assert not (over and one.is_over(now_s, idle=idle))


def test_a_unit_between_two_phases_is_waited_for() -> None:
    one = deadline({})
    one.ended(50.0)
    assert not one.is_over(50.0 + OVER_AFTER_S / 2, idle=True)
    assert one.is_over(50.0 + OVER_AFTER_S, idle=True)


def scheduler_until(table: TableEstimator) -> Scheduler:
    return Scheduler(SchedulerSettings(slots=2, budget_mib=1000, until_s=UNTIL_S), table)


def kinds(decisions: list[Decision]) -> list[type]:
    return [type(each) for each in decisions if isinstance(each, Admit | Hold | OutOfTime)]


def test_the_scheduler_holds_for_time_and_then_says_that_it_is_over() -> None:
    """Also where nothing runs: the one exception from something always running."""
    scheduler = scheduler_until(TableEstimator({1: 10, 2: 10}, {1: 50.0, 2: 70.0}))
    assert kinds(feed(scheduler, ask(1, "a"), 10.0)) == [Admit]
    (held,) = [each for each in feed(scheduler, ask(2, "b"), 40.0) if isinstance(each, Hold)]
    assert held.reason is HoldReason.TIME
    assert kinds(feed(scheduler, ended(1), 60.0)) == []
    assert kinds(feed(scheduler, TimePassed(), 60.0 + OVER_AFTER_S)) == [OutOfTime]
    assert kinds(feed(scheduler, TimePassed(), UNTIL_S + 1)) == []


def test_a_unit_that_waits_to_be_opened_may_still_end() -> None:
    """What was opened is too late. Of the next nothing is known: it is opened, and nothing is over."""
    scheduler = scheduler_until(TableEstimator({1: 10, 2: 10, 3: 10}, {1: 200.0, 2: 200.0, 3: 200.0}))
    for number in range(1, 4):
        feed(scheduler, UnitBegan(unit=Unit(unit_id=f"u{number}", source="", archs=()), held=True))
        feed(scheduler, ask(number, f"u{number}"))
    released = feed(scheduler, UnitBegan(unit=Unit(unit_id="u4", source="", archs=()), held=True), OVER_AFTER_S + 1)
    assert [each.unit_id for each in released if isinstance(each, ReleaseUnit)] == ["u4"]
    assert not [each for each in released if isinstance(each, OutOfTime)]


def test_what_still_runs_when_time_is_up_is_stopped() -> None:
    """It took longer than was expected."""
    scheduler = scheduler_until(TableEstimator({1: 10}, {1: 50.0}))
    feed(scheduler, ask(1, "a"))
    assert kinds(feed(scheduler, TimePassed(), UNTIL_S - 1)) == []
    assert kinds(feed(scheduler, TimePassed(), UNTIL_S)) == [OutOfTime]


def test_a_failure_is_no_want_of_time() -> None:
    """What waits is left for it: ninja ends with its failure, and the build is not to be continued."""
    scheduler = scheduler_until(TableEstimator({1: 900, 2: 900}, {1: 10.0, 2: 10.0}))
    feed(scheduler, ask(1, "a"))
    feed(scheduler, ask(2, "b"))
    feed(scheduler, NinjaFailed(pid=7, unit_id="a", units=("a", "b")), 5.0)
    feed(scheduler, ended(1), 5.0)
    assert kinds(feed(scheduler, TimePassed(), 5.0 + 2 * OVER_AFTER_S)) == []
