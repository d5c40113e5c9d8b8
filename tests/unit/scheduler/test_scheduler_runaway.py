"""The scheduler and phases that grow without end: ended, tried once more alone, given up."""

from __future__ import annotations

import pytest

from builddoctor.core.events import (
    Admit,
    Decision,
    Fact,
    GiveUp,
    Kill,
    KillReason,
    MemorySampled,
    PhaseAsked,
    PressureSampled,
    Requeue,
    Stall,
)
from builddoctor.core.phase import Outcome, PhaseKind
from support.schedulers import handle, scheduler_of
from unit.builders import TableEstimator, asked, ended, phase

RATE_MIB_S = 235.0
BUDGET_MIB = 1.5e6


class World:
    """A scheduler, with phases that grow at 0.23 GiB/s or hold what they hold, sampled once a second."""

    def __init__(self, *, budget_mib: float = BUDGET_MIB, spread_mib: float = 0.0) -> None:
        estimator = TableEstimator({1: 1000, 2: 1000, 3: 1000}, spread_mib=spread_mib)
        self.scheduler = scheduler_of(estimator, slots=8, budget_mib=budget_mib)
        self.budget_mib = budget_mib
        self.now_s = 0.0
        self.since_s: dict[int, float] = {}
        self.growing = {1}
        self.actions: list[Decision] = []

    def feed(self, event: Fact) -> list[Decision]:
        actions = handle(self.scheduler, event, self.now_s)
        self.scheduler.check()
        self.actions += actions
        for action in actions:
            if isinstance(action, Admit):
                self.since_s[action.phase_id] = self.now_s
        return actions

    def held_mib(self, phase_id: int) -> float:
        return RATE_MIB_S * (self.now_s - self.since_s[phase_id]) if phase_id in self.growing else 500.0

    def sample(self, seconds: int, *, headroom_mib: float | None = None) -> None:
        """Sample until something is ended, or so long."""
        for _ in range(seconds):
            self.now_s += 1.0
            rss = tuple((phase_id, self.held_mib(phase_id)) for phase_id in self.since_s)
            free_mib = self.budget_mib - sum(size for _, size in rss) if headroom_mib is None else headroom_mib
            cpu_s = tuple((each, self.now_s) for each in self.scheduler.suspects)
            actions = self.feed(
                MemorySampled(
                    rss_mib=rss, headroom_mib=free_mib, budget_mib=self.budget_mib, reserve_mib=1000.0, cpu_s=cpu_s
                )
            )
            if any(isinstance(action, Kill) for action in actions):
                return

    def end(self, phase_id: int, outcome: Outcome) -> list[Decision]:
        peak_mib = self.held_mib(phase_id)
        del self.since_s[phase_id]
        return self.feed(ended(phase_id, outcome, peak_mib))

    def three_run_out(self, kind: PhaseKind, after_s: int) -> list[int]:
        """Who is ended when memory runs out so long after three have started, of which the first grows."""
        for phase_id in (1, 2, 3):
            self.feed(PhaseAsked(phase=phase(phase_id, kind=kind)))
        self.sample(after_s)
        assert self.seen(Kill) == []
        assert self.scheduler.suspects == {1}
        self.sample(1, headroom_mib=50.0)
        return [kill.phase_id for kill in self.seen(Kill)]

    def seen(self, kind: type) -> list:
        return [action for action in self.actions if isinstance(action, kind)]


@pytest.mark.trap(36)
def test_a_runaway_that_runs_alone_is_ended_and_given_up() -> None:
    """The only running phase is never ended for memory; for this it is, once, and nobody waits for a second try."""
    world = World()
    world.feed(asked(1))
    world.sample(600)
    (kill,) = world.seen(Kill)
    assert kill.phase_id == 1
    assert world.now_s < 200
    assert kill.reason is KillReason.RUNAWAY
    (give_up,) = world.end(1, Outcome.KILLED_BY_US)
    assert isinstance(give_up, GiveUp)
    assert (give_up.verdict, give_up.rise) == ("runaway", kill.rise)
    assert (world.scheduler.running, world.scheduler.waiting) == (0, 0)


@pytest.mark.trap(36)
def test_a_runaway_in_company_is_tried_once_more_alone() -> None:
    """It does the same again, without anybody to blame: given up, after one retry."""
    world = World()
    for phase_id in (1, 2):
        world.feed(asked(phase_id))
    world.sample(600)
    assert [kill.phase_id for kill in world.seen(Kill)] == [1]
    assert [each.solo for each in world.end(1, Outcome.KILLED_BY_US) if isinstance(each, Requeue)] == [True]
    assert 1 not in world.since_s
    world.end(2, Outcome.OK)
    assert list(world.since_s) == [1]
    world.sample(600)
    assert [each.verdict for each in world.end(1, Outcome.KILLED_BY_US)] == ["runaway"]
    assert len(world.seen(Requeue)) == 1


def test_a_runaway_that_was_redone_before_is_not_tried_a_third_time() -> None:
    """Whoever ended it at first; and though it has company."""
    world = World()
    for phase_id in (1, 2):
        world.feed(asked(phase_id))
    world.end(1, Outcome.KILLED_OUTSIDE)
    world.sample(600)
    assert [each.verdict for each in world.end(1, Outcome.KILLED_BY_US) if isinstance(each, GiveUp)] == ["runaway"]


@pytest.mark.trap(36)
def test_a_runaway_that_the_kernel_ends_alone_is_not_called_too_big() -> None:
    """On 8 GiB it never becomes big enough for us; how it rose up to its end tells it."""
    world = World(budget_mib=8000.0)
    world.feed(asked(1))
    world.sample(33)
    assert world.seen(Kill) == []
    assert [each.verdict for each in world.end(1, Outcome.KILLED_BY_KERNEL)] == ["runaway"]


@pytest.mark.trap(36)
def test_memory_that_runs_out_takes_the_suspect_and_not_the_others() -> None:
    """The oldest and biggest, on a machine where 60 s are not to be had; then alone, whatever its estimate says."""
    world = World(budget_mib=8000.0)
    assert world.three_run_out(PhaseKind.CICC, after_s=28) == [1]
    world.growing.clear()  # its memory is seen to come back before its end is heard of
    world.sample(2)
    assert [each.solo for each in world.end(1, Outcome.KILLED_BY_US) if isinstance(each, Requeue)] == [True]


@pytest.mark.parametrize("kind", [PhaseKind.CICC, PhaseKind.CUDAFE])
def test_a_suspect_that_may_be_on_its_way_to_its_peak_is_not_taken_for_strange_at_once(kind: PhaseKind) -> None:
    """Compilers pass three times what a cold build expects of them: the oldest goes on, and the youngest makes way.
    What a front end takes follows from its input, so it is strange at once."""
    world = World(budget_mib=8000.0, spread_mib=1000.0)
    assert world.three_run_out(kind, after_s=20) == [1 if kind is PhaseKind.CUDAFE else 3]


def test_one_that_is_known_from_the_past_and_far_beyond_it_is_strange() -> None:
    """No ten seconds are needed where nothing has to be learned."""
    assert World(budget_mib=8000.0).three_run_out(PhaseKind.CICC, after_s=20) == [1]


@pytest.mark.trap(37)
def test_a_big_phase_that_comes_to_rest_is_left_alone() -> None:
    """20 GiB where one was expected, and the kernel's end of it alone is too-big."""
    world = World(budget_mib=22000.0)
    world.feed(asked(1))
    world.sample(85)
    world.growing.clear()
    world.held_mib = lambda _: 85 * RATE_MIB_S  # type: ignore[method-assign]
    world.sample(300)
    assert world.seen(Kill) == []
    assert [each.verdict for each in world.end(1, Outcome.KILLED_BY_KERNEL)] == ["too-big"]


def test_a_runaway_that_reads_a_pipe_is_given_up_as_one() -> None:
    """It cannot be tried again, and need not be."""
    world = World()
    world.feed(PhaseAsked(phase=phase(1, redoable=False)))
    world.feed(asked(2))
    world.sample(600)
    assert [kill.phase_id for kill in world.seen(Kill)] == [1]
    assert [each.verdict for each in world.end(1, Outcome.KILLED_BY_US) if isinstance(each, GiveUp)] == ["runaway"]


def test_a_runaway_that_ends_well_after_all_is_no_failure() -> None:
    """It was done in the moment it was to be ended."""
    world = World()
    world.feed(asked(1))
    world.sample(600)
    assert world.end(1, Outcome.OK) == []


def test_while_a_runaway_is_being_ended_nothing_else_is() -> None:
    """Memory must come back before the next one is considered."""
    world = World()
    world.growing = {1, 2}
    for phase_id in (1, 2):
        world.feed(asked(phase_id))
    world.sample(600)
    world.sample(5)
    assert len(world.seen(Kill)) == 1


def test_the_reason_for_a_headroom_of_nothing_is_the_reason_of_the_kill() -> None:
    """0 MiB left would not be true: the build hangs."""
    scheduler = scheduler_of(TableEstimator({1: 100, 2: 100}), slots=4, budget_mib=1000.0)
    for phase_id in (1, 2):
        handle(scheduler, asked(phase_id), 0.0)
    for now_s in range(1, 12):
        handle(scheduler, PressureSampled(full_s=0.9 * now_s, headroom_share=0.1), float(now_s))
    sampled = MemorySampled(
        rss_mib=((1, 100.0), (2, 100.0)), held_mib=200.0, headroom_mib=400.0, budget_mib=500.0, reserve_mib=100.0
    )
    (kill,) = [each for each in handle(scheduler, sampled, 12.0) if isinstance(each, Kill)]
    assert kill.reason is KillReason.STALL
    assert kill.stall == Stall(over_s=10.0, full_share=0.9)
