"""The scheduler when memory runs out: kills of its own and the kernel's, second tries, giving up."""

from __future__ import annotations

import pytest

from builddoctor.core.events import (
    Admit,
    Decision,
    Fact,
    GiveUp,
    HighLevel,
    Hold,
    HoldReason,
    Interrupted,
    Kill,
    KillReason,
    PhaseAsked,
    PressureSampled,
    Requeue,
    TimePassed,
    Warn,
    WarningKind,
)
from builddoctor.core.phase import Estimate, Outcome, Phase, PhaseKind
from builddoctor.scheduler.scheduler import DRAIN_AFTER_S, Scheduler
from builddoctor.trace.words import give_up_reason
from support.schedulers import handle, scheduler_of
from unit.builders import TableEstimator, asked, ended, phase, sampled


def running(
    reserve_mib: dict[int, float], *, every_s: float = 10.0, later: dict[int, float] | None = None
) -> Scheduler:
    """A scheduler with a budget of 1000 MiB that was asked for these phases, one every ten seconds.

    ``later``: estimates of phases that have not asked yet.
    """
    scheduler = scheduler_of(TableEstimator({**reserve_mib, **(later or {})}), slots=8, budget_mib=1000.0)
    for order, phase_id in enumerate(reserve_mib):
        feed(scheduler, asked(phase_id), order * every_s)
    return scheduler


def feed(scheduler: Scheduler, event: Fact, now_s: float) -> list[Decision]:
    actions = handle(scheduler, event, now_s)
    scheduler.check()
    return actions


def of_kind(actions: list[Decision], kind: type) -> list:
    return [action for action in actions if isinstance(action, kind)]


def admitted(actions: list[Decision]) -> list[int]:
    return [action.phase_id for action in of_kind(actions, Admit)]


def test_a_phase_killed_in_company_runs_again_with_more() -> None:
    """It comes back at once where there is room, with half more than it held, and need not be alone."""
    scheduler = running({1: 100, 2: 100})
    requeue, admit = feed(scheduler, ended(2, Outcome.KILLED_BY_KERNEL, 300), 20.0)
    assert isinstance(requeue, Requeue)
    assert (requeue.phase_id, requeue.solo, requeue.estimate.reserve_mib) == (2, False, 450)
    assert (admit.phase_id, admit.estimate, admit.alone) == (2, requeue.estimate, False)


def test_a_phase_killed_by_us_beyond_its_bound_runs_again_with_more() -> None:
    """Our own kill is treated as the kernel's, but never as a verdict."""
    scheduler = running({1: 100, 2: 200})
    requeue = feed(scheduler, ended(2, Outcome.KILLED_BY_US, 300), 20.0)[0]
    assert isinstance(requeue, Requeue)
    assert (requeue.estimate.reserve_mib, requeue.solo) == (450, False)


def test_a_phase_that_made_way_within_its_bound_runs_again_as_it_was() -> None:
    """It did nothing that was not expected, however often; so it need not be alone, and no more is set aside for it."""
    scheduler = running({1: 100, 2: 700})
    requeue = feed(scheduler, ended(2, Outcome.KILLED_BY_US, 650), 20.0)[0]
    assert isinstance(requeue, Requeue)
    assert (requeue.estimate.reserve_mib, requeue.solo) == (700, False)
    (requeue,) = of_kind(feed(scheduler, ended(2, Outcome.KILLED_BY_US, 650), 30.0), Requeue)
    assert (requeue.estimate.reserve_mib, requeue.solo) == (700, False)


class UnsureOfTheSecond(TableEstimator):
    """Spreads for one phase alone."""

    def estimate(self, phase: Phase) -> Estimate:
        spread_mib = self.spread_mib if phase.phase_id == 2 else 0.0
        return Estimate(peak_mib=self.reserve_mib[phase.phase_id], spread_mib=spread_mib, source="table")


def test_a_phase_that_made_way_need_not_be_alone_for_a_bound_beyond_the_budget() -> None:
    """It ran beside others with that bound before, as not all go to theirs at once; at its second end as well."""
    scheduler = scheduler_of(UnsureOfTheSecond({1: 20, 2: 500}, spread_mib=510), slots=8, budget_mib=1000.0)
    assert admitted(feed(scheduler, asked(1), 0.0)) == [1]
    assert admitted(feed(scheduler, asked(2), 1.0)) == [2]
    requeue, admit = feed(scheduler, ended(2, Outcome.KILLED_BY_US, 450), 20.0)
    assert isinstance(requeue, Requeue)
    assert (requeue.estimate.reserve_mib, requeue.solo, admit.phase_id) == (1010, False, 2)
    (requeue,) = of_kind(feed(scheduler, ended(2, Outcome.KILLED_BY_US, 450), 30.0), Requeue)
    assert (requeue.estimate.reserve_mib, requeue.solo) == (1010, False)


def test_who_gave_way_to_another_build_need_not_run_alone_in_this_one() -> None:
    """The scheduler never ends the only phase of its build; who does it for others says nothing about its size."""
    scheduler = running({1: 100, 2: 100})
    requeue, admit = feed(scheduler, ended(1, Outcome.KILLED_BY_US, 90), 20.0)
    assert (requeue.solo, admit.phase_id) == (False, 1)


@pytest.mark.parametrize(("peak_mib", "gives_up"), [(699, False), (700, True), (1400, True)])
def test_a_phase_killed_alone_near_the_budget_is_too_big(peak_mib: float, gives_up: bool) -> None:
    """Fewer jobs cannot help it; below that share somebody else took the memory, and it may try again, alone."""
    scheduler = running({1: 100})
    actions = feed(scheduler, ended(1, Outcome.KILLED_BY_KERNEL, peak_mib), 10.0)
    if gives_up:
        assert [(each.verdict, each.phase_id) for each in of_kind(actions, GiveUp)] == [("too-big", 1)]
        assert actions[0].peak_mib == peak_mib
        assert (scheduler.running, scheduler.waiting) == (0, 0)
    else:
        assert [each.solo for each in of_kind(actions, Requeue)] == [True]
        assert admitted(actions) == [1]


def test_a_phase_killed_a_second_time_alone_is_too_big() -> None:
    """One try alone is evidence enough."""
    scheduler = running({1: 100})
    feed(scheduler, ended(1, Outcome.KILLED_BY_KERNEL, 200), 10.0)
    actions = feed(scheduler, ended(1, Outcome.KILLED_BY_KERNEL, 210), 20.0)
    assert [each.verdict for each in of_kind(actions, GiveUp)] == ["too-big"]


def test_a_phase_that_ran_alone_for_a_part_of_its_time_did_not_run_alone() -> None:
    """Company that came or went meanwhile could have taken the memory."""
    scheduler = running({1: 100, 2: 100})
    feed(scheduler, ended(2), 20.0)
    actions = feed(scheduler, ended(1, Outcome.KILLED_BY_KERNEL, 900), 30.0)
    assert of_kind(actions, GiveUp) == []
    assert [each.solo for each in of_kind(actions, Requeue)] == [True]


def test_a_phase_raised_above_the_budget_runs_alone() -> None:
    """Half more than it held is more than there is: it waits until nothing else runs."""
    scheduler = running({1: 100, 2: 100})
    actions = feed(scheduler, ended(2, Outcome.KILLED_BY_KERNEL, 800), 20.0)
    assert [each.solo for each in of_kind(actions, Requeue)] == [True]
    assert [each.reason for each in of_kind(actions, Hold)] == [HoldReason.ALONE]
    assert admitted(feed(scheduler, ended(1), 30.0)) == [2]


def test_nothing_starts_beside_a_phase_that_runs_alone() -> None:
    """However small it is."""
    scheduler = running({1: 100, 2: 1})
    feed(scheduler, ended(2), 11.0)
    feed(scheduler, ended(1, Outcome.KILLED_BY_KERNEL, 680), 20.0)
    (hold,) = feed(scheduler, asked(2), 21.0)
    assert hold.reason is HoldReason.OTHER_ALONE
    assert admitted(feed(scheduler, ended(1), 30.0)) == [2]


def test_a_phase_killed_from_outside_runs_again_as_it_was() -> None:
    """No counter rose: it was not memory, so nothing is raised; a second time it is given up."""
    scheduler = running({1: 100})
    requeue, admit = feed(scheduler, ended(1, Outcome.KILLED_OUTSIDE, 900), 10.0)
    assert isinstance(requeue, Requeue)
    assert (requeue.estimate.reserve_mib, requeue.solo, admit.phase_id) == (100, False, 1)
    (give_up,) = feed(scheduler, ended(1, Outcome.KILLED_OUTSIDE, 900), 20.0)
    assert isinstance(give_up, GiveUp)
    assert give_up.verdict == "external-kill"


def test_a_phase_that_must_run_alone_still_must_after_a_kill_from_outside() -> None:
    """Somebody's kill is no evidence that it would now stand company."""
    estimator = TableEstimator({1: 100, 2: 100}, remaining_s={2: 60.0})
    scheduler = scheduler_of(estimator, slots=4, budget_mib=1000.0)
    feed(scheduler, asked(1), 0.0)
    feed(scheduler, ended(1, Outcome.KILLED_BY_KERNEL, 300), 10.0)
    feed(scheduler, asked(2), 11.0)
    feed(scheduler, ended(1, Outcome.KILLED_OUTSIDE, 100), 12.0)
    assert scheduler.running == 1


def test_low_headroom_ends_the_one_that_lost_least() -> None:
    """Below the danger line the youngest, biggest phase is killed, and never the oldest."""
    scheduler = running({1: 300, 2: 300, 3: 300})
    actions = feed(scheduler, sampled({1: 400, 2: 290, 3: 310}, headroom_mib=20), 30.0)
    assert [each.phase_id for each in of_kind(actions, Kill)] == [3]
    assert (actions[0].reason, actions[0].headroom_mib) == (KillReason.HEADROOM, 20)


def test_fast_growth_is_danger_before_headroom_is_gone() -> None:
    """At 1000 MiB/s, 300 MiB are less than a third of a second, and killing takes longer."""
    scheduler = running({1: 300, 2: 300})
    assert feed(scheduler, sampled({1: 100, 2: 100}, headroom_mib=700), 20.0) == []
    actions = feed(scheduler, sampled({1: 100, 2: 500}, headroom_mib=120), 20.4)
    assert [each.phase_id for each in of_kind(actions, Kill)] == [2]


@pytest.mark.parametrize("headroom_mib", [30, 100, 5000])
def test_enough_headroom_ends_nothing(headroom_mib: float) -> None:
    """At or above the danger line every phase goes on."""
    scheduler = running({1: 300, 2: 300})
    assert feed(scheduler, sampled({1: 290, 2: 290}, headroom_mib=headroom_mib), 20.0) == []


def test_the_only_running_phase_is_never_ended() -> None:
    """Killing it would only start it again."""
    scheduler = running({1: 300})
    assert feed(scheduler, sampled({1: 990}, headroom_mib=0), 10.0) == []


@pytest.mark.trap(32)
def test_memory_falls_before_the_next_kill_is_considered() -> None:
    """One kill at a time; the next only when the victim is gone and headroom is still low."""
    scheduler = running({1: 300, 2: 300, 3: 300}, every_s=0.0)
    first = feed(scheduler, sampled({1: 300, 2: 300, 3: 300}, headroom_mib=0), 30.0)
    assert [each.phase_id for each in of_kind(first, Kill)] == [3]
    assert feed(scheduler, sampled({1: 300, 2: 300, 3: 300}, headroom_mib=0), 30.1) == []
    feed(scheduler, ended(3, Outcome.WITHDRAWN), 30.2)
    second = feed(scheduler, sampled({1: 300, 2: 300}, headroom_mib=0), 30.3)
    assert [each.phase_id for each in of_kind(second, Kill)] == [2]


def test_nothing_starts_while_a_kill_is_under_way() -> None:
    """The memory of the victim is not there yet."""
    scheduler = running({1: 300, 2: 300}, later={3: 10})
    kill = feed(scheduler, sampled({1: 300, 2: 300}, headroom_mib=0), 20.0)
    assert [each.phase_id for each in of_kind(kill, Kill)] == [2]
    (hold,) = feed(scheduler, asked(3), 20.1)
    assert hold.reason is HoldReason.FREEING
    assert 3 in admitted(feed(scheduler, ended(2, Outcome.KILLED_BY_US, 300), 20.2))


def test_a_victim_that_frees_too_little_is_not_chosen_over_one_that_frees_enough() -> None:
    """When a young small phase would not help, the bigger one is ended; else the kernel would choose."""
    scheduler = running({1: 300, 2: 300, 3: 300}, every_s=50.0)
    actions = feed(scheduler, sampled({1: 600, 2: 500, 3: 25}, headroom_mib=0), 101.0)
    assert [each.phase_id for each in of_kind(actions, Kill)] == [2]


def test_a_kill_that_frees_nothing_is_not_made() -> None:
    """Ending phases that hold nothing would lose their work for no memory: somebody else has it."""
    scheduler = running({1: 300, 2: 300})
    assert feed(scheduler, sampled({1: 5, 2: 5}, headroom_mib=0), 20.0) == []


def test_beside_one_that_cannot_be_redone_the_other_makes_way() -> None:
    """The kernel would take either, and the build with the first."""
    scheduler = scheduler_of(TableEstimator({1: 400, 2: 400}), slots=8, budget_mib=1000.0)
    feed(scheduler, PhaseAsked(phase=phase(1, redoable=False)), 0.0)
    feed(scheduler, asked(2), 10.0)
    actions = feed(scheduler, sampled({1: 500, 2: 480}, headroom_mib=5), 20.0)
    assert [kill.phase_id for kill in of_kind(actions, Kill)] == [2]


def test_the_kernel_s_end_of_a_small_phase_is_no_verdict_when_others_have_the_memory() -> None:
    """Another program left nothing: 120 MiB are all of a budget of 0, and no size."""
    scheduler = running({1: 100})
    feed(scheduler, sampled({1: 100}, headroom_mib=0, budget_mib=0), 1.0)
    feed(scheduler, ended(1), 2.0)
    feed(scheduler, asked(1), 3.0)
    actions = feed(scheduler, ended(1, Outcome.KILLED_BY_KERNEL, 120), 4.0)
    assert of_kind(actions, GiveUp) == []
    assert [each.solo for each in of_kind(actions, Requeue)] == [True]


def test_who_must_run_alone_has_the_others_end_for_him() -> None:
    """Small ones that keep asking would put him off for ever; and whether he fits at all is to be known soon."""
    scheduler = running({1: 100, 2: 100}, later={3: 100})
    actions = feed(scheduler, ended(2, Outcome.KILLED_BY_KERNEL, 800), 20.0)
    assert [(each.phase_id, each.solo) for each in of_kind(actions, Requeue)] == [(2, True)]
    assert admitted(feed(scheduler, asked(3), 21.0)) == []
    assert admitted(feed(scheduler, ended(1), 22.0)) == [2]
    assert admitted(feed(scheduler, ended(2), 23.0)) == [3]


def test_a_compiler_that_is_tried_once_more_with_less_memory_runs_alone() -> None:
    """What would not fit beside nothing is not to have company now."""
    scheduler = scheduler_of(TableEstimator({1: 100, 2: 100}), slots=8, budget_mib=1000.0, thrift=True)
    feed(scheduler, PhaseAsked(phase=phase(1, tool="cc1plus", kind=PhaseKind.HOST)), 0.0)
    warn, requeue, admit = feed(scheduler, ended(1, Outcome.KILLED_BY_KERNEL, 800), 10.0)
    assert (warn.kind, warn.size_mib) == (WarningKind.THRIFT, 800)
    assert (requeue.thrift, requeue.solo, admit.thrift) == (True, True, True)
    assert admitted(feed(scheduler, asked(2), 11.0)) == []
    assert admitted(feed(scheduler, ended(1), 12.0)) == [2]


def test_a_compiler_that_does_not_fit_with_less_memory_either_is_given_up() -> None:
    """Once; and one that collects no garbage is not tried at all."""
    scheduler = scheduler_of(TableEstimator({1: 100, 2: 100}), slots=8, budget_mib=1000.0, thrift=True)
    feed(scheduler, PhaseAsked(phase=phase(1, tool="cc1plus", kind=PhaseKind.HOST)), 0.0)
    feed(scheduler, ended(1, Outcome.KILLED_BY_KERNEL, 800), 10.0)
    again = feed(scheduler, ended(1, Outcome.KILLED_BY_KERNEL, 800), 20.0)
    assert [each.verdict for each in of_kind(again, GiveUp)] == ["too-big"]
    feed(scheduler, PhaseAsked(phase=phase(2, tool="cicc")), 21.0)
    cicc = feed(scheduler, ended(2, Outcome.KILLED_BY_KERNEL, 800), 30.0)
    assert [each.verdict for each in of_kind(cicc, GiveUp)] == ["too-big"]


def test_a_withdrawn_giant_keeps_nobody_out() -> None:
    """Memory was drained for it, and its gate is gone."""
    scheduler = running({1: 600, 2: 900}, every_s=0.0, later={3: 300})
    feed(scheduler, TimePassed(), 60 * DRAIN_AFTER_S)
    feed(scheduler, ended(2, Outcome.WITHDRAWN), 60 * DRAIN_AFTER_S + 1)
    assert admitted(feed(scheduler, asked(3), 60 * DRAIN_AFTER_S + 2)) == [3]


HIGH = HighLevel(source="/sys/fs/cgroup/a/memory.high", limit_mib=800, headroom_mib=-10)


def held_back(scheduler: Scheduler, rss_mib: dict[int, float], *, from_s: float) -> list[Decision]:
    """Eleven seconds in which the kernel holds the phases back, then a look at memory."""
    for second in range(12):
        pressure = PressureSampled(
            headroom_share=-0.01,
            some_s=0.9 * second,
            high_events=50 * second,
            high=HIGH,
            held_mib=sum(rss_mib.values()),
        )
        feed(scheduler, pressure, from_s + second)
    return feed(scheduler, sampled(rss_mib, headroom_mib=-10), from_s + 12)


@pytest.mark.trap(8)
def test_the_only_phase_stuck_at_memory_high_is_ended_and_given_up() -> None:
    """For want of memory the only phase is never ended: here the kernel neither kills it nor lets it go on."""
    scheduler = running({1: 100})
    decisions = held_back(scheduler, {1: 790}, from_s=20.0)
    # It does not go on by itself, as beyond a limit that the kernel does not keep: that is not said.
    assert not of_kind(decisions, Warn)
    (kill,) = of_kind(decisions, Kill)
    assert (kill.phase_id, kill.reason) == (1, KillReason.THROTTLED)
    assert of_kind(feed(scheduler, sampled({1: 790}, headroom_mib=-10), 32.1), Kill) == []
    (give_up,) = of_kind(feed(scheduler, ended(1, Outcome.KILLED_BY_US, 790), 32.2), GiveUp)
    assert give_up.verdict == "too-big"
    assert give_up.throttled.source == HIGH.source


def at_the_limit(scheduler: Scheduler, rss_mib: dict[int, float], seconds: int, *, from_s: float) -> list[Decision]:
    """So long at a limit where a third of a GiB a second is read in again; then a look at memory."""
    for second in range(seconds):
        reading = PressureSampled(
            full_s=0.4 * second, refault_mib=330.0 * second, fullness=1.0, headroom_share=0.0007, some_s=0.5 * second
        )
        feed(scheduler, reading, from_s + second)
    return feed(scheduler, sampled(rss_mib, headroom_mib=1), from_s + seconds)


def test_the_only_phase_that_stands_still_at_the_limit_is_ended_and_given_up() -> None:
    """The kernel reads in again what it drops, kills nothing, and the phase would stand there for ever."""
    scheduler = running({1: 1000})
    feed(scheduler, sampled({1: 900}, headroom_mib=1), 19.0)
    assert not of_kind(at_the_limit(scheduler, {1: 900}, 100, from_s=20.0), Kill)
    (kill,) = of_kind(at_the_limit(scheduler, {1: 900}, 140, from_s=120.0), Kill)
    assert (kill.phase_id, kill.reason) == (1, KillReason.STALL)
    assert kill.stall is not None
    (give_up,) = of_kind(feed(scheduler, ended(1, Outcome.KILLED_BY_US, 900), 261.0), GiveUp)
    assert give_up.verdict == "too-big"
    assert "alone it stood still at 900 MiB: 330 MiB/s are read in again" in give_up_reason(give_up)


def test_a_small_phase_that_stands_still_is_run_again_once() -> None:
    """What it wanted was held by something else: that may be gone."""
    scheduler = running({1: 300})
    feed(scheduler, sampled({1: 200}, headroom_mib=1), 19.0)
    assert of_kind(at_the_limit(scheduler, {1: 200}, 240, from_s=20.0), Kill)
    (again,) = of_kind(feed(scheduler, ended(1, Outcome.KILLED_BY_US, 200), 261.0), Requeue)
    assert again.solo
    feed(scheduler, TimePassed(), 262.0)
    feed(scheduler, sampled({1: 200}, headroom_mib=1), 263.0)
    assert of_kind(at_the_limit(scheduler, {1: 200}, 240, from_s=300.0), Kill)
    assert of_kind(feed(scheduler, ended(1, Outcome.KILLED_BY_US, 200), 541.0), GiveUp)


@pytest.mark.trap(8)
def test_of_several_phases_stuck_at_memory_high_one_is_run_again_alone() -> None:
    """The others may go on once it is gone; alone it will show whether it fits."""
    scheduler = running({1: 100, 2: 100})
    (kill,) = of_kind(held_back(scheduler, {1: 20, 2: 770}, from_s=20.0), Kill)
    assert kill.phase_id == 2
    requeue = feed(scheduler, ended(2, Outcome.KILLED_BY_US, 770), 32.2)[0]
    assert isinstance(requeue, Requeue)
    assert requeue.solo
    # What was seen before is not held against the one that is left.
    assert not of_kind(feed(scheduler, sampled({1: 20}, headroom_mib=500), 32.3), Kill)


@pytest.mark.trap(8)
def test_what_is_ended_with_the_build_is_not_run_again() -> None:
    """At a limit a signal ends all phases at once, since none would end by itself; elsewhere they are asked."""
    scheduler = running({1: 100, 2: 100})
    feed(scheduler, PressureSampled(headroom_share=0.1), 20.0)
    assert of_kind(feed(scheduler, Interrupted(signal=15), 20.0), Kill) == []
    scheduler = running({1: 100, 2: 100})
    feed(scheduler, PressureSampled(headroom_share=0.01), 20.0)
    assert len(of_kind(feed(scheduler, Interrupted(signal=15), 21.0), Kill)) == 2
    scheduler = running({1: 100, 2: 100})
    pressure = PressureSampled(headroom_share=-0.01, some_s=0.0, high_events=1, high=HIGH, held_mib=790)
    feed(scheduler, pressure, 20.0)
    kills = of_kind(feed(scheduler, Interrupted(signal=15), 21.0), Kill)
    assert [(each.phase_id, each.reason) for each in kills] == [(1, "interrupted"), (2, "interrupted")]
    assert feed(scheduler, ended(1, Outcome.KILLED_BY_US, 90), 21.1) == []
    assert feed(scheduler, ended(2, Outcome.KILLED_BY_US, 700), 21.2) == []
