"""A scheduler in a world of random events: whatever happens, in whatever order, its promises hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import Phase as Stage
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from builddoctor.core.events import (
    Admit,
    Decision,
    Fact,
    GiveUp,
    Kill,
    MemorySampled,
    PhaseAsked,
    PhaseEnded,
    Requeue,
    Resume,
    ShareSettled,
    Suspend,
    SuspendRefused,
    TimePassed,
    UnitBegan,
    UnitEnded,
)
from builddoctor.core.phase import Outcome, Phase, PhaseKind, Unit
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.estimation.kind_courses import LEAST_OF_KIND
from builddoctor.scheduler.scheduler import TOO_BIG_SHARE
from support.examples import examples
from support.schedulers import handle, scheduler_of

SLACK_MIB = 0.1
"""Decisions are told rounded to this."""
INFINITE = float("inf")
CORES = st.integers(1, 4)
BUDGETS = st.sampled_from([0.0, 300.0, 1000.0, 2500.0, 6000.0])
MEMORY = st.sampled_from([0.0, 50.0, 400.0, 900.0, 3000.0])
HEADROOM = st.sampled_from([-500.0, 0.0, 100.0, 900.0, 9000.0])
SHARES = st.sampled_from([INFINITE, INFINITE, 0.0, 500.0, 2000.0])
PASSED = st.sampled_from([0.0, 0.1, 5.0, 30.0])
OF_ITS_OWN = st.sampled_from([Outcome.OK, Outcome.FAILED, Outcome.WITHDRAWN])
ARCHS = st.sampled_from(["", "sm_80", "sm_90"])
UNITS = st.sampled_from(["u1", "u2", "u3"])
KINDS = st.sampled_from([PhaseKind.CUDAFE, PhaseKind.CICC, PhaseKind.PTXAS, PhaseKind.HOST, PhaseKind.PREPROCESS])
INPUTS = st.sampled_from([0.0, 1.0, 5.0, 20.0])


@dataclass
class Runs:
    """What the world knows of a running phase."""

    reserve_mib: float
    since_s: float
    alone: bool
    solo: bool
    rss_mib: float = 0.0
    killed: bool = False
    suspended_at_s: float | None = None
    stood_s: float = 0.0

    @property
    def suspended(self) -> bool:
        return self.suspended_at_s is not None

    def worked_s(self, now_s: float) -> float:
        stands_s = now_s - self.suspended_at_s if self.suspended_at_s is not None else 0.0
        return now_s - self.since_s - self.stood_s - stands_s


@dataclass
class World:
    """The gates' side: who runs and who waits, by the decisions alone."""

    running: dict[int, Runs] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    solo: set[int] = field(default_factory=set)
    outside: set[int] = field(default_factory=set)

    def carry_out(self, decision: Decision, now_s: float, suspects: frozenset[int]) -> None:
        if isinstance(decision, Admit):
            assert decision.phase_id in self.waiting, "admitted without asking"
            self.waiting.remove(decision.phase_id)
            assert decision.alone == (not self.running)
            assert not any(run.suspended for run in self.running.values()), "admitted while one stands still"
            for run in self.running.values():
                run.alone = False
            solo = decision.phase_id in self.solo
            self.running[decision.phase_id] = Runs(decision.estimate.reserve_mib, now_s, decision.alone, solo)
        elif isinstance(decision, Requeue):
            assert decision.phase_id not in self.running
            self.waiting.add(decision.phase_id)
            if decision.solo:
                self.solo.add(decision.phase_id)
        elif isinstance(decision, Kill):
            assert len(self.running) > 1, "the only running phase was to be ended"
            assert not any(run.killed for run in self.running.values()), "a second kill before the first is done"
            oldest = max(self.running, key=lambda phase_id: (self.running[phase_id].worked_s(now_s), -phase_id))
            far = self.running[decision.phase_id]
            beyond = far.rss_mib > far.reserve_mib
            assert decision.phase_id != oldest or oldest in suspects or beyond, "the oldest was to be ended"
            self.running[decision.phase_id].killed = True
        elif isinstance(decision, Suspend):
            assert not self.running[decision.phase_id].suspended, "suspended twice"
            self.running[decision.phase_id].suspended_at_s = now_s
        elif isinstance(decision, Resume):
            run = self.running[decision.phase_id]
            assert run.suspended_at_s is not None, "it did not stand still"
            run.stood_s, run.suspended_at_s = run.stood_s + now_s - run.suspended_at_s, None


class SchedulerMachine(RuleBasedStateMachine):
    """Every rule is something that gates, the sampler or the kernel can do."""

    def __init__(self) -> None:
        super().__init__()
        self.cores = 0
        self.now_s = 0.0
        self.asked = 0
        self.share_mib = self.next_share_mib = INFINITE
        self.world = World()
        self.journal: list[tuple[Fact, float, list[Decision]]] = []
        self.scheduler = scheduler_of(LearningEstimator(), slots=1, budget_mib=0.0)

    def feed(self, event: Fact) -> list[Decision]:
        if isinstance(event, ShareSettled):
            self.share_mib = INFINITE if event.lease_mib is None else event.lease_mib
        decisions = handle(self.scheduler, event, self.now_s)
        self.journal.append((event, self.now_s, decisions))
        for decision in decisions:
            self.world.carry_out(decision, self.now_s, self.scheduler.suspects)
        self.conserved([decision for decision in decisions if isinstance(decision, Admit)])
        return decisions

    def conserved(self, admitted: list[Admit]) -> None:
        """Nothing starts beyond this build's share; beyond the budget only the first, where it has the machine."""
        if not admitted or (admitted[-1].alone and self.share_mib == INFINITE):
            return
        budget_mib = INFINITE if admitted[-1].alone else self.scheduler.budget_mib
        allowed_mib = min(budget_mib, self.share_mib) + SLACK_MIB
        # Peaks that come one after the other may add up to more; what is held now may not.
        held_mib = sum(run.rss_mib for run in self.world.running.values())
        assert held_mib <= allowed_mib, "admitted beside more than there is"

    def end(self, phase_id: int, outcome: Outcome, peak_mib: float) -> tuple[Runs, list[Decision]]:
        run = self.world.running.pop(phase_id)
        wall_s = self.now_s - run.since_s
        if self.next_share_mib < self.share_mib:
            self.others_take(self.next_share_mib)
        return run, self.feed(PhaseEnded(phase_id=phase_id, outcome=outcome, peak_mib=peak_mib, wall_s=wall_s))

    def pick(self, data: st.DataObject, among: set[int]) -> int:
        return data.draw(st.sampled_from(sorted(among)), label="phase")

    @initialize(cores=CORES, budget_mib=st.sampled_from([1000.0, 2500.0, 6000.0]), watched=st.booleans())
    def begin(self, cores: int, budget_mib: float, watched: bool) -> None:
        self.cores = cores
        self.budget_at_start = self.most_budget_mib = budget_mib
        self.scheduler = scheduler_of(LearningEstimator(), slots=cores, budget_mib=budget_mib)
        for _ in range(LEAST_OF_KIND if watched else 0):
            self.grows_evenly(budget_mib)

    def grows_evenly(self, budget_mib: float) -> None:
        """A phase from its start to its end: from a few of them the scheduler learns how those of its kind grow."""
        self.asked += 1
        self.world.waiting.add(self.asked)
        self.feed(PhaseAsked(phase=Phase(phase_id=self.asked, unit_id="", kind=PhaseKind.CICC, source="a.cu")))
        for held_mib in (0.0, 100.0, 200.0, 300.0, 400.0):
            self.now_s += 1.0
            self.world.running[self.asked].rss_mib = held_mib
            self.feed(self.looked(((self.asked, held_mib),), 9000.0, budget_mib))
        self.end(self.asked, Outcome.OK, 400.0)

    @rule(asking=st.lists(st.tuples(KINDS, UNITS, ARCHS, INPUTS), min_size=1, max_size=3), passed_s=PASSED)
    def ask(self, asking: list[tuple[PhaseKind, str, str, float]], passed_s: float) -> None:
        self.now_s += passed_s
        self.feed(TimePassed())
        for kind, unit, arch, input_mib in asking:
            self.feed(UnitBegan(unit=Unit(unit_id=unit, source="a.cu", threads=4)))
            self.asked += 1
            phase = Phase(phase_id=self.asked, unit_id=unit, kind=kind, source="a.cu", arch=arch, input_mib=input_mib)
            self.world.waiting.add(phase.phase_id)
            self.feed(PhaseAsked(phase=phase))

    @rule(data=st.data(), headroom_mib=HEADROOM, budget_mib=BUDGETS, share_mib=SHARES, passed_s=PASSED)
    def sample(
        self, data: st.DataObject, headroom_mib: float, budget_mib: float, share_mib: float, passed_s: float
    ) -> None:
        self.others_take(share_mib)
        self.now_s += passed_s
        for run in self.world.running.values():
            if not run.suspended:
                run.rss_mib = data.draw(MEMORY, label="rss")
        rss = tuple((phase_id, run.rss_mib) for phase_id, run in self.world.running.items())
        self.most_budget_mib = max(self.most_budget_mib, budget_mib)
        self.feed(self.looked(rss, headroom_mib, budget_mib))

    def looked(self, rss: tuple[tuple[int, float], ...], headroom_mib: float, budget_mib: float) -> MemorySampled:
        return MemorySampled(rss_mib=rss, headroom_mib=headroom_mib, budget_mib=budget_mib, reserve_mib=400.0)

    @rule(share_mib=SHARES)
    def others_will_take(self, share_mib: float) -> None:
        """What the next end of a phase finds of this build's share."""
        self.next_share_mib = share_mib

    def others_take(self, share_mib: float) -> None:
        """Other builds leave this much to ours; it counts from the sample or the end that comes next."""
        self.feed(ShareSettled(lease_mib=None if share_mib == INFINITE else share_mib))

    @precondition(lambda self: self.world.running)
    @rule(data=st.data(), outcome=OF_ITS_OWN, peak_mib=MEMORY)
    def ends(self, data: st.DataObject, outcome: Outcome, peak_mib: float) -> None:
        phase_id = self.pick(data, set(self.world.running))
        _, decisions = self.end(phase_id, outcome, peak_mib)
        self.feed(UnitEnded(unit_id="u1"))
        assert not [decision for decision in decisions if isinstance(decision, Requeue | GiveUp)]

    @precondition(lambda self: self.world.running)
    @rule(data=st.data(), peak_mib=MEMORY)
    def kernel_kills(self, data: st.DataObject, peak_mib: float) -> None:
        phase_id = self.pick(data, set(self.world.running))
        run, decisions = self.end(phase_id, Outcome.KILLED_BY_KERNEL, peak_mib)
        held_mib = max(peak_mib, run.rss_mib)
        if run.alone and (run.solo or held_mib >= TOO_BIG_SHARE * self.most_budget_mib):
            assert isinstance(decisions[0], GiveUp)
            assert decisions[0].phase_id == phase_id
            # Half a minute of growth that nobody expected, in this run of it or an earlier one, is another verdict; and
            # so is a front end that is far beyond its bound.
            grew = run.solo or self.now_s - run.since_s >= 30 or held_mib > run.reserve_mib
            assert decisions[0].verdict == "too-big" or (decisions[0].verdict == "runaway" and grew)
        else:
            self.expect_more(decisions[0], phase_id, run, held_mib)

    @precondition(lambda self: any(run.killed for run in self.world.running.values()))
    @rule(peak_mib=MEMORY)
    def our_kill_arrives(self, peak_mib: float) -> None:
        (phase_id,) = [each for each, run in self.world.running.items() if run.killed]
        run, decisions = self.end(phase_id, Outcome.KILLED_BY_US, peak_mib)
        held_mib = max(peak_mib, run.rss_mib)
        if held_mib <= run.reserve_mib:
            self.expect_enough(decisions[0], phase_id, run, held_mib)
        else:
            self.expect_more(decisions[0], phase_id, run, held_mib)

    def expect_enough(self, decision: Decision, phase_id: int, run: Runs, held_mib: float) -> None:
        """It made way within its bound: never less than it held, and alone if it was so before. A bound beyond the
        budget is no reason: it ran beside others with it."""
        assert isinstance(decision, Requeue)
        assert decision.phase_id == phase_id
        assert decision.estimate.reserve_mib >= held_mib - SLACK_MIB
        assert decision.solo or not run.solo

    def expect_more(self, decision: Decision, phase_id: int, run: Runs, held_mib: float) -> None:
        """Half more than it held, and more than was set aside; what did not fit the budget runs alone."""
        assert isinstance(decision, Requeue)
        assert decision.phase_id == phase_id
        reserve_mib = decision.estimate.reserve_mib
        assert reserve_mib >= 1.5 * held_mib - SLACK_MIB
        if run.reserve_mib <= self.scheduler.budget_mib:
            assert reserve_mib > run.reserve_mib
        else:
            assert decision.solo
        if run.solo or reserve_mib > self.scheduler.budget_mib:
            assert decision.solo

    @precondition(lambda self: self.world.running)
    @rule(data=st.data(), peak_mib=MEMORY)
    def somebody_kills(self, data: st.DataObject, peak_mib: float) -> None:
        phase_id = self.pick(data, set(self.world.running))
        run, decisions = self.end(phase_id, Outcome.KILLED_OUTSIDE, peak_mib)
        if phase_id in self.world.outside:
            assert isinstance(decisions[0], GiveUp)
            assert decisions[0].verdict == "external-kill"
        else:
            assert isinstance(decisions[0], Requeue)
            assert decisions[0].estimate.reserve_mib == run.reserve_mib
        self.world.outside.add(phase_id)

    @precondition(lambda self: any(run.suspended for run in self.world.running.values()))
    @rule(data=st.data())
    def cannot_be_stopped(self, data: st.DataObject) -> None:
        phase_id = self.pick(data, {each for each, run in self.world.running.items() if run.suspended})
        self.feed(SuspendRefused(phase_id=phase_id))
        assert not self.world.running[phase_id].suspended

    @precondition(lambda self: self.world.waiting)
    @rule(data=st.data())
    def gate_goes_away(self, data: st.DataObject) -> None:
        phase_id = self.pick(data, self.world.waiting)
        self.world.waiting.remove(phase_id)
        self.feed(PhaseEnded(phase_id=phase_id, outcome=Outcome.WITHDRAWN, peak_mib=0.0, wall_s=0.0))

    @invariant()
    def promises_hold(self) -> None:
        self.scheduler.check()
        assert (self.scheduler.running, self.scheduler.waiting) == (len(self.world.running), len(self.world.waiting))
        assert len(self.world.running) <= max(1, self.cores)
        if not self.world.running:
            # Where all wait for other builds: nobody behind the first may keep what it claims from being free.
            beyond = [each.estimate.reserve_mib > self.share_mib for each in self.scheduler.queue]
            assert not beyond or beyond[0], "something waits and nothing runs"
        if any(run.solo for run in self.world.running.values()):
            assert len(self.world.running) == 1, "a phase that must run alone has company"

    def teardown(self) -> None:
        """Everything that waits is admitted once those that run end well and no other build is there any more; and it
        all happens alike again."""
        self.next_share_mib = INFINITE
        if self.cores:
            self.others_take(INFINITE)
            self.feed(self.looked((), 9000.0, self.scheduler.budget_mib))
        for _ in range(len(self.world.running) + len(self.world.waiting)):
            self.end(min(self.world.running), Outcome.OK, 10.0)
            self.promises_hold()
        assert not self.world.waiting
        assert not self.world.running
        if self.cores:
            again = scheduler_of(LearningEstimator(), slots=self.cores, budget_mib=self.budget_at_start)
            for event, now_s, decisions in self.journal:
                assert handle(again, event, now_s) == decisions


TestSchedulerMachine = SchedulerMachine.TestCase
# Shrinking takes minutes; add Stage.shrink for a shorter story of a failure.
TestSchedulerMachine.settings = examples(
    2000, stateful_step_count=40, phases=[Stage.explicit, Stage.reuse, Stage.generate]
)
