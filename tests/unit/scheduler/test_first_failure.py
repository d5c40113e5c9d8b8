"""What is left of a ninja after its first failure, and when it is ended."""

from __future__ import annotations

from builddoctor.core.events import (
    Admit,
    Decision,
    Fact,
    Hold,
    HoldReason,
    NinjaFailed,
    PhaseAsked,
    ReleaseUnit,
    StopNinja,
    TimePassed,
    UnitBegan,
    UnitEnded,
)
from builddoctor.core.phase import Outcome, Phase, PhaseKind, Unit
from builddoctor.scheduler.scheduler import Scheduler
from support.schedulers import handle, scheduler_of
from unit.builders import TableEstimator, ended

NINJA = 700


def feed(scheduler: Scheduler, event: Fact, now_s: float = 0.0) -> list[Decision]:
    """Hand in an event; the invariants must hold after it."""
    decisions = handle(scheduler, event, now_s)
    scheduler.check()
    return decisions


def building(units: int, *, slots: int = 2) -> Scheduler:
    """Units u1, u2 … that were registered, each with phase 1, 2 … of those that were opened."""
    numbers = range(1, 2 * units + 1)
    table = TableEstimator(dict.fromkeys(numbers, 10), dict.fromkeys(numbers, 50.0))
    scheduler = scheduler_of(table, slots=slots, budget_mib=1000)
    opened: list[str] = []
    for number in range(1, units + 1):
        decisions = feed(scheduler, UnitBegan(unit=Unit(unit_id=f"u{number}", source="", archs=()), held=True))
        opened += [each.unit_id for each in decisions if isinstance(each, ReleaseUnit)]
    for unit_id in opened:
        feed(scheduler, ask(int(unit_id[1:]), unit_id))
    assert scheduler.running == slots
    return scheduler


def ask(number: int, unit_id: str) -> PhaseAsked:
    return PhaseAsked(phase=Phase(phase_id=number, unit_id=unit_id, kind=PhaseKind.CICC, source="", tool="cicc"))


def failed(unit_id: str, units: int) -> NinjaFailed:
    return NinjaFailed(pid=NINJA, unit_id=unit_id, units=tuple(f"u{number}" for number in range(1, units + 1)))


def begins(decisions: list[Decision]) -> list[Decision]:
    return [each for each in decisions if isinstance(each, Admit | ReleaseUnit)]


def test_what_runs_is_built_to_its_end_and_nothing_else_is_begun() -> None:
    scheduler = building(9)
    told = feed(scheduler, failed("u1", 9))
    assert {each.reason for each in told if isinstance(each, Hold)} <= {HoldReason.FAILURE}
    assert begins(told) == []
    assert begins(feed(scheduler, ended(1, Outcome.FAILED))) == []
    assert begins(feed(scheduler, UnitEnded(unit_id="u1"))) == []
    assert begins(feed(scheduler, ended(2))) == []
    (next_phase,) = begins(feed(scheduler, ask(10, "u2")))
    assert isinstance(next_phase, Admit)
    assert begins(feed(scheduler, TimePassed(), 60.0)) == []


def test_ninja_is_ended_once_with_the_last_that_is_built() -> None:
    scheduler = building(9)
    feed(scheduler, failed("u1", 9))
    feed(scheduler, ended(1, Outcome.FAILED))
    assert [each for each in feed(scheduler, UnitEnded(unit_id="u1")) if isinstance(each, StopNinja)] == []
    feed(scheduler, ended(2))
    (stop,) = [each for each in feed(scheduler, UnitEnded(unit_id="u2"), 9.0) if isinstance(each, StopNinja)]
    assert stop == StopNinja(at_s=9.0, pid=NINJA, units=tuple(f"u{number}" for number in range(3, 10)))
    gone = [feed(scheduler, UnitEnded(unit_id=unit_id)) for unit_id in stop.units]
    assert not any(isinstance(each, StopNinja) for decisions in gone for each in decisions)


def test_a_unit_between_two_of_its_phases_is_built_to_its_end() -> None:
    """Its next phase asks in a moment."""
    scheduler = building(9)
    feed(scheduler, ended(2), 1.0)
    told = feed(scheduler, failed("u1", 9), 1.1)
    assert begins(told) == []
    assert [each.phase_id for each in begins(feed(scheduler, ask(10, "u2"), 1.2)) if isinstance(each, Admit)] == [10]


def test_a_ninja_that_waits_for_nothing_else_ends_by_itself() -> None:
    scheduler = building(2)
    feed(scheduler, failed("u1", 2))
    feed(scheduler, ended(1, Outcome.FAILED))
    feed(scheduler, ended(2))
    decisions = feed(scheduler, UnitEnded(unit_id="u1")) + feed(scheduler, UnitEnded(unit_id="u2"))
    assert not any(isinstance(each, StopNinja) for each in decisions)


def test_another_ninja_goes_on() -> None:
    """Units that the failed one has not started are no matter of its."""
    scheduler = building(9)
    begun = begins(feed(scheduler, failed("u1", 4)) + feed(scheduler, ended(1, Outcome.FAILED)))
    assert begun
    assert not any(isinstance(each, ReleaseUnit) and each.unit_id in ("u3", "u4") for each in begun)
