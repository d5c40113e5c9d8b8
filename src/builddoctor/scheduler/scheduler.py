"""The scheduler: facts of a build in, decisions out. The one place that admits, holds, suspends, ends and releases.

Covers: admission in the order of priorities with backfill, the progress floor, draining for a phase that waited too
long, requeue and solo retry after a kill, giving up, what a hanging build or other builds mean for all of that.
Does *not* cover: whether a phase fits (``scheduler.admission``), priorities (``scheduler.build_order``), kills before
the kernel's (``scheduler.oom_guard``), what a phase needs (``estimation.estimator``), what there is
(``scheduler.budget``), or doing any of it (``runtime.decision_loop``).

``Scheduler.handle(event)`` alone changes its state, and the estimator's; the same code decides in production, in the
simulator, in a replay and in property tests. It does no I/O and reads no clock: time is the events' own. It keeps these
invariants, which ``check`` asserts: a phase waits or runs, never both; no more run than there are slots; while work
waits, something runs, or this build's share is with another; what must run alone has no company.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from builddoctor.core.events import (
    Admit,
    Beside,
    ContinueReason,
    Decision,
    Event,
    Fact,
    GiveUp,
    Hold,
    HoldReason,
    Interrupted,
    Kill,
    KillReason,
    MemorySampled,
    MemoryUnseen,
    NinjaFailed,
    NodeLost,
    NodeSeen,
    OutOfTime,
    PauseRefused,
    PhaseAsked,
    PhaseEnded,
    PressureSampled,
    Queue,
    Requeue,
    ShareSettled,
    Stall,
    SuspendRefused,
    Throttled,
    TimePassed,
    UngatedGone,
    UngatedSeen,
    UnitBegan,
    UnitEnded,
    Warn,
    WarningKind,
)
from builddoctor.core.past import Course
from builddoctor.core.phase import STORE, THRIFTY_TOOLS, Estimate, ExpectedPhase, Outcome, Phase, PhaseKind, Unit
from builddoctor.core.settings import SchedulerSettings
from builddoctor.core.verdict import Verdict
from builddoctor.estimation.estimator import Estimator
from builddoctor.estimation.kind_courses import AT_ONCE, KindCourses
from builddoctor.estimation.past import RAISE_FACTOR
from builddoctor.scheduler.admission import Admission
from builddoctor.scheduler.brake import Brake
from builddoctor.scheduler.budget import budget_mib
from builddoctor.scheduler.build_order import BuildOrder, whole_s
from builddoctor.scheduler.course_forecast import Steps, ahead, with_slack
from builddoctor.scheduler.deadline import Deadline
from builddoctor.scheduler.first_failure import FirstFailures
from builddoctor.scheduler.nodes import Away, Nodes
from builddoctor.scheduler.oom_guard import (
    DANGER_SHARE,
    KILL_LATENCY_S,
    LEAST_UNGATED_MIB,
    LEAST_WORTH_MIB,
    OomGuard,
)
from builddoctor.scheduler.runaway import RunawayWatch
from builddoctor.scheduler.running_set import Running, RunningSet
from builddoctor.scheduler.sharing import ROUNDING_MIB, Demand
from builddoctor.scheduler.thrashing import HighWatch, StandstillWatch, ThrashState, ThrashWatch, is_at
from builddoctor.scheduler.ungated import UngatedPauses
from builddoctor.scheduler.unit_release import UnitRelease
from builddoctor.scheduler.wait_queue import KeptPlace, Waiting, WaitQueue

DRAIN_AFTER_S = 20.0
"""A phase that waited this long for memory, first in the queue, stops the backfilling, so that memory drains to it:
20 s, or as long as the open units still take, whichever is more. Draining idles cores; it is there so that no phase
starves, not to make builds faster: a quarter instead of the whole made them 1 to 4 % longer."""

OPEN_AGAIN_S = 1.0
"""What all waiting phases still take is added up this often."""

ESTIMATE_AGAIN_S = 2.0
LONG_QUEUE = 64
"""Estimates of waiting phases are made anew this often; less often where more wait, so that each has its turn. No sum
is made of more than so many: of 1,000 it kept gates waiting for 10 ms."""

LINGER_S = 0.25
"""Between two phases of a unit nvcc, a shell and a gate need some 30 ms; then it does not ask any more."""

LAST_KINDS = frozenset((PhaseKind.HOST, PhaseKind.LINK, PhaseKind.NVLINK))
"""Nothing of the unit comes after these."""

OVERLAP_S = 2.0
"""Beyond ``settings.cores`` (builds leave it out: as many as slots), and in the place more that nodes bring, only those
that are expected to be this short: they fill the gaps between phases of others, and take no core from a long one."""

TOO_BIG_SHARE = 0.7
"""A phase that the kernel killed while it ran alone is too big, if it held this share of the largest budget that this
build has had: other programs may have taken theirs meanwhile."""

WORTH_SENDING_S = 0.5
"""Two processes and two files more cost some 0.1 s on the way to a node and back: what is shorter waits here."""

MOST_STRAYED = 3
"""A phase whose node was lost so often, or had less than it said, stays here."""

MOST_EXCUSED = 3
"""A phase that the kernel ends beside other builds, or beside processes that no gate asked for, was not alone, and is
not called too big, this many times."""

MOST_UNGATED_S = 300.0
"""Phases with gates wait no longer than this for processes that work on and on: then the first starts all the same."""

UNGATED_LATENCY_S = 0.5
"""From deciding to end a phase to its memory being back."""

NEVER = frozenset((HoldReason.TIME, HoldReason.FAILURE))
"""What waits for these does not start any more."""

KILLED = frozenset((Outcome.KILLED_BY_KERNEL, Outcome.KILLED_BY_US, Outcome.KILLED_OUTSIDE))


class Scheduler:
    """The decider of one build."""

    def __init__(self, settings: SchedulerSettings, estimator: Estimator) -> None:
        self._estimator = estimator
        self._settings = settings
        self._slots = max(1, settings.slots)
        self._cores = max(1, settings.cores or settings.slots)
        self._budget_mib = self._most_budget_mib = settings.budget_mib
        self._lease_mib = self._pool_mib = self._ungated_share_mib = math.inf
        self._others_growth_mib_s, self._yields = 0.0, False
        self._order = BuildOrder(estimator.remaining_s, slots=self._slots)
        self._waiting = WaitQueue(self._order.priority)
        self._release = UnitRelease(
            priority=self._unit_priority,
            expected_s=partial(whole_s, estimator),
            slots=self._slots,
            cores=self._cores,
            most_open=settings.most_open or self._slots + 1,
            most_threads=settings.most_threads,
        )
        self._running = RunningSet()
        self._kinds = KindCourses()
        self._looked = False
        """phases are looked at while they run: what is more than usual shows before it is too late"""
        self._runaways = RunawayWatch(settings.runaway)
        self._brake = Brake(self._running, self._ahead)
        self._guard = OomGuard(self._running, self._runaways, self._brake)
        self._thrash = ThrashWatch(settings.thrash)
        self._thrash_state = ThrashState.NONE
        self._high = HighWatch(settings.thrash)
        self._throttled: Throttled | None = None
        self._standstills = StandstillWatch(settings.thrash)
        self._standstill: Stall | None = None
        self._high_is_set = self._at_limit = False
        self._said_stalled = False
        self._nodes = Nodes()
        self._strayed: dict[int, int] = {}
        self._ungated = UngatedPauses()
        self._ungated_since_s = 0.0
        self._last_headroom = (-math.inf, 0.0)
        self._interrupted = False
        self._deadline = Deadline(
            settings.until_s, remaining_s=estimator.remaining_s, least_s=estimator.least_s, cores=self._cores
        )
        self._failures = FirstFailures()
        self._proven_mib = 0.0
        """the most that was expected of a phase that ended well"""
        self._short = False
        self._drains_to: Waiting | None = None
        self._open_s = (-math.inf, 0.0)
        self._lingering: dict[str, KeptPlace] = {}
        self._head: tuple[int, float] | None = None
        self._solo: set[int] = set()
        self._redone: set[int] = set()
        self._thrifty: set[int] = set()
        self._outside_kills: dict[int, int] = {}
        self._excused: dict[int, int] = {}
        self._units = self._most_units = 0
        """that have begun and not ended: now, and the most at any time"""
        self._ended = 0
        """phases that ended, well or not: what thrashing is told from"""
        self._handlers: dict[type[Event], Callable[[Any], list[Decision]]] = {
            UnitBegan: self._unit_began,
            UnitEnded: self._unit_ended,
            PhaseAsked: self._phase_asked,
            PhaseEnded: self._phase_ended,
            MemorySampled: self._memory_sampled,
            MemoryUnseen: self._memory_unseen,
            PressureSampled: self._pressure_sampled,
            UngatedSeen: self._ungated_seen,
            UngatedGone: self._ungated_gone,
            PauseRefused: self._pause_refused,
            SuspendRefused: self._suspend_refused,
            ShareSettled: self._share_settled,
            NodeSeen: self._node_seen,
            NodeLost: self._node_lost,
            Interrupted: self._interrupt,
            NinjaFailed: self._ninja_failed,
            TimePassed: self._time_passed,
        }

    def handle(self, event: Fact) -> list[Decision]:
        """Take one fact and say what to do, in order. Raises TypeError for anything else."""
        handler = self._handlers.get(type(event))
        if handler is None:
            raise TypeError(event)
        return handler(event)

    # -- what others may ask -----------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def queue(self) -> WaitQueue:
        """Phases that wait, the most urgent first."""
        return self._waiting

    @property
    def committed_mib(self) -> float:
        """What running phases hold or may still take."""
        return self._running.load().committed_mib

    @property
    def budget_mib(self) -> float:
        return self._budget_mib

    @property
    def allowed_mib(self) -> float:
        """What phases may hold together: the budget, or what other builds and ungated processes leave of it."""
        return min(self._budget_mib, self._lease_mib, self._ungated_share_mib)

    @property
    def suspects(self) -> frozenset[int]:
        """Running phases whose processor time the next ``MemorySampled`` should have: they may be runaways."""
        return frozenset(self._runaways.suspects)

    @property
    def starved(self) -> bool:
        """The build hangs for memory, or is at its limit: no process can be expected to end by itself soon."""
        return self._thrash_state is ThrashState.ACT or self._at_limit

    @property
    def paused(self) -> frozenset[tuple[int, int]]:
        """Keys of processes that are stopped for a while."""
        return self._ungated.paused

    @property
    def pace(self) -> float:
        """What phases take in this build over what earlier builds or a recipe say."""
        return self._estimator.pace

    def remaining_s(self, phase: Phase) -> float:
        """Time from this phase's start to the end of its unit."""
        return self._estimator.remaining_s(phase, keep=False)

    def demand(self, *, headroom_mib: float, own_budget_mib: float, held_mib: float, reserve_mib: float) -> Demand:
        """What this build wants of memory that it shares with others. ``own_budget_mib``: were it alone."""
        running = self._running.values()
        waiting = [each.estimate.reserve_mib for each in islice(self._waiting, max(1, self._slots - len(running)))]
        committed_mib = self.committed_mib
        wants_mib = committed_mib + sum(waiting[: max(0, self._slots - len(running))])
        most_mib = self._effective(headroom_mib, own_budget_mib, held_mib, reserve_mib)[1]
        return Demand(
            committed_mib=committed_mib,
            wants_mib=max(committed_mib, min(wants_mib, most_mib)),
            first_mib=waiting[0] if waiting and not running else 0.0,
            over_mib=sum(max(0.0, run.rss_mib - run.estimate.reserve_mib) for run in running),
            yields_mib=max((run.rss_mib for run in running if run.phase.redoable), default=0.0),
            running=len(running),
            ending=self._running.killing,
        )

    def check(self) -> None:
        """Assert the invariants; called by every test that drives a scheduler."""
        assert not self._waiting.keys() & self._running.keys(), "a phase waits and runs"
        assert len(self._running) <= self._slots + self._nodes.were_there
        due = [each for each in self._waiting if self._drains_to is None or each.key <= self._drains_to.key]
        kept = {*NEVER, HoldReason.NODE} if self._nodes else NEVER
        idle = [each for each in due if each.held_for not in kept and self._in_turn(each)]
        assert self._running or not idle, "work waits while nothing runs"
        assert not any(phase_id in self._nodes for phase_id in self._running), "a phase runs in two places"
        assert not self._running or len(self._running.suspended) < len(self._running), "all phases stand still"
        if any(phase_id in self._solo for phase_id in self._running):
            assert len(self._running) == 1, "a solo phase has company"

    # -- units and phases --------------------------------------------------------------------------------------

    def _unit_began(self, event: UnitBegan) -> list[Decision]:
        unit = event.unit
        self._estimator.know(unit.unit_id, key=event.key, past=event.past, archs=unit.archs, teaches=event.teaches)
        self._units += 1
        self._most_units = max(self._most_units, self._units)
        if event.held:
            self._release.registered(unit, event.at_s)
        return self._release_units(event.at_s)

    def _unit_priority(self, unit: Unit) -> float:
        """Higher opens first."""
        if self._is_doubtful(unit.unit_id):
            return math.inf
        return self._order.urgency(unit.unit_id, whole_s(self._estimator, unit))

    def _unit_ended(self, event: UnitEnded) -> list[Decision]:
        self._units -= 1
        self._estimator.forget(event.unit_id)
        # Nothing of it will ask any more.
        self._lingering.pop(event.unit_id, None)
        self._order.ended(event.unit_id)
        self._release.ended(event.unit_id, event.at_s)
        return [*self._failures.unit_ended(event.unit_id, event.at_s), *self._admit(event.at_s)]

    def _ninja_failed(self, event: NinjaFailed) -> list[Decision]:
        at_work = {run.phase.unit_id for run in self._running.values()} | self._nodes.units
        between = {unit_id for unit_id, kept in self._lingering.items() if kept.until_s > event.at_s}
        left = self._failures.failed(event, at_work | between)
        for unit_id in left:
            self._release.ended(unit_id, event.at_s)
        warning = Warn(at_s=event.at_s, kind=WarningKind.FIRST_FAILURE, units=len(left))
        return [*([warning] if left else []), *self._admit(event.at_s)]

    def _phase_asked(self, event: PhaseAsked) -> list[Decision]:
        phase, now_s = event.phase, event.at_s
        self._lingering.pop(phase.unit_id, None)
        estimate = self._estimator.estimate(phase)
        waiting = self._wait(phase, estimate, now_s)
        queued = Queue(at_s=now_s, phase_id=phase.phase_id, estimate=_rounded(estimate))
        if phase.stored:
            # It needs no memory, and no core worth counting.
            decisions: list[Decision] = [queued]
            self._send(waiting, STORE, decisions, now_s)
            return decisions
        return [queued, *self._admit(now_s, phase.phase_id if self._running else None)]

    def _phase_ended(self, event: PhaseEnded) -> list[Decision]:
        now_s, phase_id = event.at_s, event.phase_id
        if (away := self._nodes.end(phase_id)) is not None:
            return self._came_back(away, event) + self._admit(now_s)
        if self._waiting.leave(phase_id) is self._drains_to:
            self._drains_to = None
        run = self._running.end(phase_id)
        self._brake.phase_ended(phase_id, now_s)
        # Seen of what has ended: says nothing of what runs or starts now.
        self._throttled = self._standstill = None
        self._deadline.ended(now_s)
        self._ended += event.outcome in (Outcome.OK, Outcome.FAILED)
        decisions = [] if run is None else self._ended_run(run, event)
        if any(isinstance(each, Requeue) for each in decisions):
            self._ended += 1
        else:
            self._forget(phase_id)
        return decisions + self._brake.first_alone(now_s) + self._admit(now_s)

    def _ended_run(self, run: Running, event: PhaseEnded) -> list[Decision]:
        phase, phase_id = run.phase, run.phase.phase_id
        peak_mib = max(event.peak_mib, run.rss_mib)
        self._estimator.observe(phase, outcome=event.outcome, peak_mib=peak_mib, wall_s=event.wall_s)
        if event.outcome not in KILLED:
            if event.outcome is Outcome.OK:
                self._proven_mib = max(self._proven_mib, run.estimate.peak_mib)
                held_mib_s = run.held_mib_s(event.at_s)
                self._kinds.ended(
                    phase.kind, area_mib_s=held_mib_s, looks=run.looks, peak_mib=peak_mib, wall_s=event.wall_s
                )
                self._running.set_aside(self._kinds.evenness)
                self._linger(phase, event.at_s)
            return []
        if run.runaway or run.throttled or run.standstill:
            if run.standstill and peak_mib < TOO_BIG_SHARE * self._most_budget_mib and phase_id not in self._redone:
                # Something else held the memory that it wanted.
                return self._again(run, event, run.estimate, solo=True)
            if run.alone or (run.runaway and phase_id in self._redone) or not phase.redoable:
                return self._give_up(run, event, Verdict.RUNAWAY if run.runaway else Verdict.TOO_BIG)
            return self._again(run, event, run.estimate, solo=True)
        if not phase.redoable:
            return self._give_up(run, event, Verdict.NOT_REDOABLE)
        if event.outcome is Outcome.KILLED_OUTSIDE:
            self._outside_kills[phase_id] = self._outside_kills.get(phase_id, 0) + 1
            if self._outside_kills[phase_id] > 1:
                return self._give_up(run, event, Verdict.EXTERNAL_KILL)
            return self._again(run, event, run.estimate, solo=phase_id in self._solo)
        gave_way = event.outcome is Outcome.KILLED_BY_US or self._is_excused(event)
        alone = run.alone and not gave_way
        if self._has_larger_place(phase) and peak_mib >= TOO_BIG_SHARE * self._most_budget_mib:
            reserved_mib = max(run.estimate.reserve_mib, self._most_budget_mib)
            raised = self._estimator.raise_after_kill(phase, peak_mib=peak_mib, reserved_mib=reserved_mib)
            self._solo.discard(phase_id)
            return self._again(run, event, raised, solo=False)
        if alone and (phase_id in self._solo or peak_mib >= TOO_BIG_SHARE * self._most_budget_mib):
            run.runaway = self._runaways.ran_away(phase_id)
            verdict = Verdict.RUNAWAY if run.runaway else Verdict.TOO_BIG
            return self._give_up(run, event, verdict, peak_mib=peak_mib)
        estimate, reserved_mib = self._estimator.estimate(phase), run.estimate.reserve_mib
        expected = peak_mib <= min(reserved_mib, estimate.reserve_mib)
        made_way = gave_way and expected
        if not made_way:
            # Else it had done nothing that was not expected of it, and fits beside others as it did before.
            estimate = self._estimator.raise_after_kill(phase, peak_mib=peak_mib, reserved_mib=reserved_mib)
        # A strange phase shows alone, at the next try, what it is.
        strange = self._runaways.is_strange(phase_id)
        solo = alone or strange or (not made_way and estimate.reserve_mib > self._budget_mib)
        return self._again(run, event, estimate, solo=solo)

    def _is_excused(self, event: PhaseEnded) -> bool:
        """The kernel ended it beside something else that held memory: it need not be too big."""
        others = Beside.OTHER_BUILDS in event.beside and event.peak_mib < self._pool_mib
        excused = self._excused.get(event.phase_id, 0)
        if excused >= MOST_EXCUSED or not (others or Beside.UNGATED in event.beside):
            return False
        self._excused[event.phase_id] = excused + 1
        return True

    def _give_up(
        self, run: Running, event: PhaseEnded, verdict: Verdict, *, peak_mib: float | None = None
    ) -> list[Decision]:
        size_mib = round(event.peak_mib if peak_mib is None else peak_mib, 1)
        if verdict is Verdict.TOO_BIG and self._can_save(run.phase):
            return self._with_thrift(run, event, size_mib)
        give_up = GiveUp(
            at_s=event.at_s,
            phase_id=run.phase.phase_id,
            verdict=verdict,
            peak_mib=size_mib,
            rise=run.runaway,
            throttled=run.throttled,
            standstill=run.standstill,
        )
        return [give_up]

    def _can_save(self, phase: Phase) -> bool:
        """It may be started with less memory, which was not tried yet."""
        thrifty = phase.tool in THRIFTY_TOOLS and phase.kind is not PhaseKind.PREPROCESS
        return self._settings.thrift and thrifty and phase.redoable and phase.phase_id not in self._thrifty

    def _with_thrift(self, run: Running, event: PhaseEnded, size_mib: float) -> list[Decision]:
        """Instead of giving up: once more, alone, with earlier garbage collection."""
        phase, now_s = run.phase, event.at_s
        self._forget(phase.phase_id)
        self._thrifty.add(phase.phase_id)
        # It needs about what it was killed at: nothing is to be started beside it.
        estimate = self._estimator.raise_after_kill(phase, peak_mib=event.peak_mib, reserved_mib=event.peak_mib)
        self._solo.add(phase.phase_id)
        self._wait(phase, estimate, now_s, solo=True)
        return [
            Warn(at_s=now_s, kind=WarningKind.THRIFT, phase_id=phase.phase_id, size_mib=size_mib),
            self._requeued(run, event, estimate, solo=True),
        ]

    def _again(self, run: Running, event: PhaseEnded, estimate: Estimate, *, solo: bool) -> list[Decision]:
        if self._interrupted:
            # It was ended with the build.
            return []
        phase, now_s = run.phase, event.at_s
        self._redone.add(phase.phase_id)
        if solo:
            self._solo.add(phase.phase_id)
        # It waited its turn once already: as old as its first admission.
        asked_at_s = min(now_s, run.admitted_at_s)
        waiting = Waiting(
            phase=phase,
            estimate=estimate,
            asked_at_s=asked_at_s,
            queued_at_s=now_s,
            course=self._estimator.course(phase),
            solo=solo,
            doubtful=self._is_doubtful(phase.unit_id, estimate),
        )
        self._waiting.add(waiting)
        return [self._requeued(run, event, estimate, solo=solo)]

    def _requeued(self, run: Running, event: PhaseEnded, estimate: Estimate, *, solo: bool) -> Requeue:
        return Requeue(
            at_s=event.at_s,
            phase_id=event.phase_id,
            estimate=_rounded(estimate),
            solo=solo,
            lost_s=round(run.ran_s(event.at_s), 3),
            peak_mib=round(event.peak_mib, 1),
            thrift=event.phase_id in self._thrifty,
        )

    def _forget(self, phase_id: int) -> None:
        """It is over for good, or begins anew."""
        self._runaways.forget(phase_id)
        for known in (self._redone, self._solo, self._thrifty):
            known.discard(phase_id)
        self._outside_kills.pop(phase_id, None)
        self._strayed.pop(phase_id, None)
        self._excused.pop(phase_id, None)

    def _wait(self, phase: Phase, estimate: Estimate, now_s: float, *, solo: bool = False) -> Waiting:
        wall_s = self._estimator.wall_s(phase)
        if not self._estimator.outlook(phase.unit_id, None):
            own = ExpectedPhase(estimate.peak_mib, estimate.spread_mib, wall_s)
            to_come = self._estimator.outlook(phase.unit_id, phase)
            self._order.weigh(phase.unit_id, (own, *to_come), budget_mib=self._budget_mib)
        waiting = Waiting(
            phase=phase,
            estimate=estimate,
            asked_at_s=now_s,
            queued_at_s=now_s,
            course=self._estimator.course(phase),
            short=phase.urgent or wall_s <= OVERLAP_S,
            solo=solo,
            doubtful=self._is_doubtful(phase.unit_id, estimate),
        )
        self._waiting.add(waiting)
        return waiting

    def _steps(self, waiting: Waiting) -> Steps:
        """What it would hold from now on."""
        wall_s, peak_mib = self._estimator.wall_s(waiting.phase), waiting.estimate.peak_mib
        return ahead(self._course(waiting), now_mib=0.0, peak_mib=peak_mib, elapsed_s=0.0, wall_s=wall_s)

    def _course(self, waiting: Waiting) -> Course:
        """What it will hold while it runs, with slack."""
        wall_s, peak_mib = self._estimator.wall_s(waiting.phase), waiting.estimate.peak_mib
        course = waiting.course
        if not course:
            usual = self._kinds.course(waiting.phase.kind, peak_mib=peak_mib, wall_s=wall_s)
            course = usual if self._looked else AT_ONCE
        return with_slack(course, wall_s)

    # -- other machines ----------------------------------------------------------------------------------------

    def _node_seen(self, event: NodeSeen) -> list[Decision]:
        self._nodes.seen(event)
        return self._admit(event.at_s)

    def _node_lost(self, event: NodeLost) -> list[Decision]:
        self._nodes.lost(event.node)
        return self._admit(event.at_s)

    def _has_larger_place(self, phase: Phase) -> bool:
        """Some node may hold what this machine cannot."""
        return phase.portable and self._nodes.largest_mib(phase.tool) > self._most_budget_mib

    @property
    def _places(self) -> int:
        """Phases that may run here at once. With nodes one more, of the short ones alone: nodes wait for some."""
        return self._slots + bool(self._nodes)

    def _keeps_a_place(self) -> bool:
        """One, for what can run nowhere else: preprocessing is what all nodes wait for. Without it 3 nodes brought 2.3
        times the speed of one machine, with it 3.9 (docs/results/cluster.md)."""
        return sum(run.phase.portable for run in self._running.values()) >= max(1, self._slots - 1)

    def _belongs_elsewhere(self, waiting: Waiting) -> bool:
        """Here it might have to be ended. Without another place it would be tried all the same."""
        return self._has_larger_place(waiting.phase) and self._may_not_fit(waiting.estimate.reserve_mib)

    def _send_away(self, decisions: list[Decision], now_s: float) -> None:
        """What waits here goes where there is room: the most urgent first."""
        for waiting in self._waiting.in_turn():
            phase, elsewhere = waiting.phase, self._belongs_elsewhere(waiting)
            if not phase.portable or waiting.held_for in NEVER or self._interrupted:
                continue
            worth = elsewhere or self._estimator.wall_s(phase) >= WORTH_SENDING_S
            node = self._nodes.place_for(waiting, at_any_price=elsewhere) if worth else None
            if node is not None:
                self._send(waiting, node, decisions, now_s)
            elif elsewhere and waiting.held_for is not HoldReason.NODE:
                waiting.held_for = HoldReason.NODE
                decisions.append(
                    Hold(
                        at_s=now_s,
                        phase_id=phase.phase_id,
                        needs_mib=round(waiting.estimate.reserve_mib, 1),
                        free_mib=round(max(0.0, self.allowed_mib - self.committed_mib), 1),
                        reason=HoldReason.NODE,
                    )
                )

    def _send(self, waiting: Waiting, node: str, decisions: list[Decision], now_s: float) -> None:
        phase, phase_id = waiting.phase, waiting.phase.phase_id
        if self._waiting.leave(phase_id) is self._drains_to:
            self._drains_to = None
        # Alone is here: there it is by itself, or beside what that machine has room for.
        self._solo.discard(phase_id)
        self._lingering.pop(phase.unit_id, None)
        self._release.started(phase.unit_id, now_s)
        self._deadline.started(phase)
        self._nodes.send(waiting, node, now_s)
        decisions.append(
            Admit(
                at_s=now_s,
                phase_id=phase_id,
                estimate=_rounded(waiting.estimate),
                waited_s=round(now_s - waiting.queued_at_s, 3),
                running=len(self._running) + len(self._nodes),
                expected_s=round(self._estimator.wall_s(phase), 1),
                node=node,
            )
        )

    def _came_back(self, away: Away, event: PhaseEnded) -> list[Decision]:
        """From a node: done, or to be run again."""
        phase, estimate, now_s = away.waiting.phase, away.waiting.estimate, event.at_s
        self._deadline.ended(now_s)
        self._ended += 1
        if event.outcome not in (Outcome.NODE_LOST, Outcome.KILLED_THERE):
            self._estimator.observe(phase, outcome=event.outcome, peak_mib=event.peak_mib, wall_s=event.wall_s)
            if event.outcome is Outcome.OK:
                self._linger(phase, now_s)
            self._forget(phase.phase_id)
            return []
        if self._interrupted:
            return []
        if event.outcome is Outcome.KILLED_THERE:
            budget = self._nodes.budget_mib(away.node)
            if budget < max(self._nodes.largest_mib(phase.tool), self._most_budget_mib):
                # It was alone there, or the node has less than it said: only a larger one will do.
                reserved_mib = max(estimate.reserve_mib, budget / RAISE_FACTOR)
                estimate = self._estimator.raise_after_kill(phase, peak_mib=event.peak_mib, reserved_mib=reserved_mib)
            elif event.peak_mib >= TOO_BIG_SHARE * budget:
                verdict, size_mib = Verdict.TOO_BIG, round(event.peak_mib, 1)
                return [GiveUp(at_s=now_s, phase_id=phase.phase_id, verdict=verdict, peak_mib=size_mib)]
            else:
                # The largest has less than it said, and will say so: the phase has done nothing wrong.
                phase = self._strayed_once(phase)
        elif away.node == STORE:
            phase = msgspec.structs.replace(phase, stored=False)
        else:
            phase = self._strayed_once(phase)
        waiting = Waiting(
            phase=phase,
            estimate=estimate,
            asked_at_s=min(now_s, away.sent_at_s),
            queued_at_s=now_s,
            course=away.waiting.course,
            short=away.waiting.short,
            doubtful=self._is_doubtful(phase.unit_id, estimate),
        )
        self._waiting.add(waiting)
        return [
            Requeue(
                at_s=now_s,
                phase_id=phase.phase_id,
                estimate=_rounded(estimate),
                solo=False,
                lost_s=round(now_s - away.sent_at_s, 3),
                peak_mib=round(event.peak_mib, 1),
            )
        ]

    def _strayed_once(self, phase: Phase) -> Phase:
        """It came back for its node's sake. Often enough, and it stays here."""
        self._strayed[phase.phase_id] = self._strayed.get(phase.phase_id, 0) + 1
        if self._strayed[phase.phase_id] < MOST_STRAYED:
            return phase
        return msgspec.structs.replace(phase, portable=False)

    # -- memory ------------------------------------------------------------------------------------------------

    def _memory_sampled(self, event: MemorySampled) -> list[Decision]:
        now_s = event.at_s
        self._looked = self._looked or bool(event.rss_mib)
        headroom_mib, budget = self._effective(event.headroom_mib, event.budget_mib, event.held_mib, event.reserve_mib)
        self._ungated_share_mib = self._share_beside_ungated(budget, now_s)
        self._budget_mib = min(budget, event.held_mib) if self._thrash_state is ThrashState.HOLD else budget
        self._most_budget_mib = max(self._most_budget_mib, self._budget_mib)
        stall = self._thrash.stall if self._thrash_state is ThrashState.ACT else None
        decisions = self._guard.look(
            event,
            headroom_mib=headroom_mib,
            stall=stall,
            throttled=self._throttled,
            standstill=self._standstill,
            enforced=self._high_is_set,
            others_wait=len(self._waiting) > 0,
        )
        if not self._running.killing:
            decisions += self._last_phase_gives_way(event, headroom_mib)
        self._last_headroom = (now_s, headroom_mib)
        return decisions + self._admit(now_s)

    def _effective(
        self, headroom_mib: float, own_budget_mib: float, held_mib: float, reserve_mib: float
    ) -> tuple[float, float]:
        """Headroom and budget as they count: nothing is left while the build hangs, and what ungated processes need is
        theirs."""
        if self._thrash_state is ThrashState.ACT:
            headroom_mib = min(0.0, headroom_mib)
            own_budget_mib = budget_mib(headroom_mib, held_mib, reserve_mib)
        return headroom_mib, max(0.0, own_budget_mib - self._ungated.need_mib)

    def _last_phase_gives_way(self, event: MemorySampled, headroom_mib: float) -> list[Decision]:
        """To another build, whose turn it is to go on, or to processes that no gate asked for; or to a machine that has
        room for it."""
        now_s = event.at_s
        largest = max(self._running.values(), key=lambda run: run.rss_mib, default=None) if self._nodes else None
        if largest is not None and self._has_larger_place(largest.phase):
            killed = self._guard.give_way(
                KillReason.LARGER_PLACE,
                headroom_mib=headroom_mib,
                danger_mib=max(DANGER_SHARE * event.reserve_mib, KILL_LATENCY_S * largest.growth_mib_s),
                least_mib=LEAST_WORTH_MIB,
                now_s=now_s,
            )
            if killed:
                return killed
        if self._yields:
            danger_mib = max(DANGER_SHARE * event.reserve_mib, KILL_LATENCY_S * self._others_growth_mib_s)
            killed = self._guard.give_way(
                KillReason.OTHER_BUILD,
                headroom_mib=headroom_mib,
                danger_mib=danger_mib,
                least_mib=LEAST_WORTH_MIB,
                now_s=now_s,
            )
            if killed:
                return killed
        if not self._ungated.working:
            return []
        last_s, last_mib = self._last_headroom
        falls_mib_s = (last_mib - headroom_mib) / (now_s - last_s) if now_s > last_s else 0.0
        return self._guard.give_way(
            KillReason.UNGATED,
            headroom_mib=headroom_mib,
            danger_mib=max(DANGER_SHARE * event.reserve_mib, UNGATED_LATENCY_S * falls_mib_s),
            least_mib=LEAST_UNGATED_MIB,
            now_s=now_s,
        )

    def _ahead(self, run: Running, now_s: float) -> Steps:
        return ahead(
            run.course,
            now_mib=run.rss_mib,
            peak_mib=run.expected_mib,
            elapsed_s=run.ran_s(now_s),
            wall_s=self._estimator.wall_s(run.phase),
        )

    def _share_beside_ungated(self, budget: float, now_s: float) -> float:
        """What phases may be promised beside ungated processes that work, the first one included; infinite when there
        are none: alone, one phase always runs, whatever it needs; beside these it would be one too many."""
        if not self._ungated.working or self._running or not len(self._waiting):
            self._ungated_since_s = now_s
        if not self._ungated.working or now_s - self._ungated_since_s > MOST_UNGATED_S:
            return math.inf
        return budget

    def _memory_unseen(self, event: MemoryUnseen) -> list[Decision]:
        """Nothing new starts beside what runs, until memory can be looked at."""
        self._budget_mib, self._ungated_share_mib = 0.0, math.inf
        continued: list[Decision] = list(self._ungated.end(ContinueReason.UNSEEN, event.at_s))
        continued += self._brake.release(ContinueReason.UNSEEN, event.at_s)
        return continued + self._admit(event.at_s)

    def _pressure_sampled(self, event: PressureSampled) -> list[Decision]:
        running = len(self._running)
        self._thrash_state = self._thrash.look(event, ended=self._ended, running=running)
        self._throttled = self._high.look(event, ended=self._ended, running=running)
        self._standstill = self._standstills.look(
            event,
            hangs=self._thrash_state is ThrashState.ACT,
            ended=self._ended,
            running=running,
            held_mib=sum(run.rss_mib for run in self._running.values()),
        )
        self._high_is_set = event.high is not None
        at_high = event.high is not None and is_at(event.high, self._settings.thrash)
        self._at_limit = at_high or event.headroom_share < self._settings.thrash.high_headroom_share
        if self._thrash_state is not ThrashState.ACT or self._said_stalled:
            return []
        self._said_stalled = True
        return [Warn(at_s=event.at_s, kind=WarningKind.STALLED, stall=self._thrash.stall)]

    def _ungated_seen(self, event: UngatedSeen) -> list[Decision]:
        if self._interrupted:
            return []
        promised_mib = max(0.0, self.committed_mib - event.phases_mib)
        free_mib = event.headroom_mib - promised_mib - DANGER_SHARE * event.reserve_mib
        return list(self._ungated.look(event, free_mib=free_mib))

    def _ungated_gone(self, event: UngatedGone) -> list[Decision]:  # noqa: ARG002 - that it happened is all
        self._ungated.forget_all()
        return []

    def _pause_refused(self, event: PauseRefused) -> list[Decision]:
        self._ungated.refused(event.process)
        return []

    def _suspend_refused(self, event: SuspendRefused) -> list[Decision]:
        return list(self._brake.refused(event.phase_id, event.at_s))

    def _share_settled(self, event: ShareSettled) -> list[Decision]:
        """Used from the next sample, or the next end of a phase, on."""
        self._lease_mib = math.inf if event.lease_mib is None else event.lease_mib
        self._pool_mib = math.inf if event.pool_mib is None else event.pool_mib
        self._others_growth_mib_s, self._yields = event.growth_mib_s, event.yields
        return []

    def _interrupt(self, event: Interrupted) -> list[Decision]:
        self._interrupted = True
        gone: list[Decision] = list(self._ungated.end(ContinueReason.BUILD_ENDS, event.at_s))
        gone += self._brake.release(ContinueReason.BUILD_ENDS, event.at_s)
        if not self.starved:
            return gone
        for phase_id in self._running:
            self._running.kill(phase_id)
            gone.append(Kill(at_s=event.at_s, phase_id=phase_id, reason=KillReason.INTERRUPTED))
        return gone

    def _time_passed(self, event: TimePassed) -> list[Decision]:
        return self._admit(event.at_s)

    # -- admission ---------------------------------------------------------------------------------------------

    def _admit(self, now_s: float, asked: int | None = None) -> list[Decision]:
        """Start what may start, of all that wait or only the phase that ``asked`` just now; then release units."""
        decisions: list[Decision] = []
        if len(self._waiting) and len(self._running) < self._places:
            self._pass_along_queue(decisions, now_s, asked)
        if self._nodes and len(self._waiting):
            self._send_away(decisions, now_s)
        return decisions + self._release_units(now_s) + self._out_of_time(now_s)

    def _out_of_time(self, now_s: float) -> list[Decision]:
        if self._interrupted or not self._deadline.is_set:
            return []
        idle = not self._running and not len(self._nodes) and len(self._waiting) + self._release.held > 0
        idle = idle and all(each.held_for in NEVER for each in self._waiting)
        # Where all are left for a failure, ninja ends with that.
        late = [each for each in self._waiting if each.held_for is HoldReason.TIME]
        idle = idle and (bool(late) or not len(self._waiting))
        idle = idle and not self._release.has_one(partial(self._deadline.has_time_for, now_s=now_s))
        return [OutOfTime(at_s=now_s)] if self._deadline.is_over(now_s, idle=idle) else []

    def _pass_along_queue(self, decisions: list[Decision], now_s: float, asked: int | None) -> None:
        self._lingering = {unit_id: kept for unit_id, kept in self._lingering.items() if kept.until_s > now_s}
        admission = Admission(
            self._running,
            self._lingering.values(),
            slots=self._places,
            cores=self._cores,
            allowed_mib=self.allowed_mib,
            budget_mib=self._budget_mib,
            steps=self._steps,
            ahead=self._ahead,
            urgency=self._order.urgency,
            now_s=now_s,
        )
        solo = bool(self._solo) and not self._solo.isdisjoint(self._running)
        self._look_at_deadline(now_s)
        if asked is None:
            self._short, self._drains_to = False, None
        first = asked is None or asked == self._waiting.first
        over_mib, sure_mib = admission.over_mib, admission.sure_mib
        again_s = now_s - ESTIMATE_AGAIN_S * max(1.0, len(self._waiting) / LONG_QUEUE)
        # A question frees nothing: what waited before still does. Where nothing runs, something must start.
        whole = self._waiting.in_turn if self._running else self._waiting.__iter__
        for waiting in whole() if asked is None else self._waiting.only(asked):
            drained = self._drains_to
            if admission.full or (drained is not None and waiting.key > drained.key):
                break
            if waiting.held_for is HoldReason.CORES and admission.has_no_core_for(waiting):
                first = False
                continue
            held = not first and waiting.held_for is HoldReason.MEMORY
            due = waiting.asked_at_s <= again_s and waiting.estimated_at_s <= again_s
            if due and not (held and waiting.estimate.peak_mib > sure_mib):
                admission.estimate_again(waiting, self._estimator.estimate)
            if held and waiting.estimate.peak_mib > over_mib:
                self._short = True
                continue
            admission.reach(waiting.urgency)
            if self._deadline.is_too_late_for(waiting.phase, now_s):
                reason: HoldReason | None = HoldReason.TIME
                self._release.too_late(waiting.phase.unit_id)
            elif self._failures.is_left(waiting.phase.unit_id):
                reason = HoldReason.FAILURE
            else:
                reason = HoldReason.OTHER_ALONE if solo and self._running else self._blocked(waiting, admission)
            if reason is None:
                self._start(waiting, decisions, now_s)
                admission.taken(waiting)
                solo = waiting.solo
                over_mib, sure_mib = admission.over_mib, admission.sure_mib
                continue
            over_mib, sure_mib = admission.over_mib, admission.sure_mib
            self._short = self._short or reason is HoldReason.MEMORY
            if waiting.held_for is not reason and reason is not HoldReason.NODE:
                # Of that one it is said when it cannot be sent (``_send_away``).
                waiting.held_for = reason
                decisions.append(
                    Hold(
                        at_s=now_s,
                        phase_id=waiting.phase.phase_id,
                        needs_mib=round(waiting.estimate.reserve_mib, 1),
                        free_mib=round(admission.free_mib, 1),
                        reason=reason,
                    )
                )
            if first and reason in (HoldReason.MEMORY, HoldReason.ALONE) and self._has_waited(waiting, now_s):
                # Nothing more starts beside it: memory drains to it.
                self._drains_to = waiting
            first = False

    def _blocked(self, waiting: Waiting, admission: Admission) -> HoldReason | None:
        """Why this phase cannot start now; None when it can."""
        if self._belongs_elsewhere(waiting):
            return HoldReason.NODE
        if self._nodes and waiting.phase.portable and self._keeps_a_place():
            return HoldReason.CORES
        if not self._running and self._in_turn(waiting):
            # The progress floor: something always runs, whatever its estimate; beside other builds in its turn.
            return None
        if waiting.solo and not self._running.killing:
            return HoldReason.ALONE
        if self._brake.on:
            # What it takes would be missing to what stands still.
            return HoldReason.MEMORY
        return admission.blocked(waiting)

    def _in_turn(self, waiting: Waiting) -> bool:
        """Our share is as large as this phase. One is not asked for again for less than ``ROUNDING_MIB``, so for that
        none waits: it would for ever."""
        return waiting.estimate.reserve_mib <= min(self._lease_mib, self._ungated_share_mib) + ROUNDING_MIB

    def _is_doubtful(self, unit_id: str, estimate: Estimate | None = None) -> bool:
        """This phase, or what is known to come in its unit, may need more than there is."""
        to_come = [each.peak_mib for each in self._estimator.outlook(unit_id, None)]
        return self._may_not_fit(max([*to_come, estimate.peak_mib if estimate is not None else 0.0], default=0.0))

    def _may_not_fit(self, peak_mib: float) -> bool:
        """More than this build ever had; unless as much was expected of another phase, and it ended well."""
        return peak_mib > max(self._most_budget_mib, self._proven_mib)

    def _has_waited(self, waiting: Waiting, now_s: float) -> bool:
        """The first phase of the queue has been kept out by memory for too long."""
        if self._may_not_fit(waiting.estimate.peak_mib):
            # Found out now, it costs what was built so far; found out in the end, everything.
            return True
        if self._head is None or self._head[0] != waiting.phase.phase_id:
            self._head = (waiting.phase.phase_id, now_s)
            return False
        if (waited_s := now_s - self._head[1]) < DRAIN_AFTER_S:
            return False
        if now_s - self._open_s[0] >= OPEN_AGAIN_S:
            some_s = [self._estimator.remaining_s(each.phase) for each in self._waiting.some(LONG_QUEUE)]
            self._open_s = (now_s, sum(some_s) * len(self._waiting) / len(some_s))
        return waited_s >= self._open_s[1] / self._cores

    def _gives_way(self, run: Running, now_s: float) -> bool:
        """Another unit that runs takes longer than all others that are left, on all places: the end of the build
        depends on it, and with more phases than cores it would have a part of a core only (docs/adr/0040). While the
        build tool starts a unit for each that ends, nobody knows what is left."""
        if self._units >= self._most_units:
            return False
        waiting_s = self._waiting.work_s + self._release.held_s
        return self._running.decisive_end_s(waiting_s, places=self._slots, now_s=now_s) > run.unit_ends_s

    def _linger(self, phase: Phase, now_s: float) -> None:
        """Keep the place of a unit whose next phase is about to ask, against those that are less urgent."""
        if phase.kind in LAST_KINDS:
            return
        to_come = self._estimator.outlook(phase.unit_id, phase)
        # Where it is not known what comes: as much as the last one.
        estimate = to_come[0].estimate if to_come else self._estimator.estimate(phase)
        urgency = self._order.urgency(phase.unit_id, self._left_after_s(phase, to_come))
        self._lingering[phase.unit_id] = KeptPlace(urgency, now_s + LINGER_S, estimate)

    def _left_after_s(self, phase: Phase, to_come: Sequence[ExpectedPhase]) -> float:
        """What the unit has still to do when this phase has ended."""
        if to_come:
            return sum(each.wall_s for each in to_come)
        return max(0.0, self._estimator.remaining_s(phase) - self._estimator.wall_s(phase))

    def _start(self, waiting: Waiting, decisions: list[Decision], now_s: float) -> None:
        phase, phase_id, unit_id = waiting.phase, waiting.phase.phase_id, waiting.phase.unit_id
        self._waiting.leave(phase_id)
        self._lingering.pop(unit_id, None)
        self._release.started(unit_id, now_s)
        self._deadline.started(phase)
        self._runaways.admitted(phase_id, expected_mib=waiting.estimate.peak_mib, kind=phase.kind)
        to_come = self._estimator.outlook(unit_id, phase)
        alone = not self._running
        expected_mib = waiting.estimate.peak_mib
        if alone and expected_mib > self._budget_mib and self._can_save(phase):
            self._thrifty.add(phase_id)
            size_mib, there_mib = round(expected_mib, 1), round(self._budget_mib, 1)
            warning = Warn(
                at_s=now_s, kind=WarningKind.THRIFT, phase_id=phase_id, size_mib=size_mib, budget_mib=there_mib
            )
            decisions.append(warning)
        wall_s, left_after_s = self._estimator.wall_s(phase), self._left_after_s(phase, to_come)
        run = Running(
            phase=phase,
            estimate=waiting.estimate,
            admitted_at_s=now_s,
            alone=alone,
            budget_mib=self._budget_mib,
            course=self._course(waiting),
            left_after_s=left_after_s,
            unit_ends_s=now_s + wall_s + left_after_s,
        )
        self._running.start(run)
        decisions.append(
            Admit(
                at_s=now_s,
                phase_id=phase_id,
                estimate=_rounded(waiting.estimate),
                alone=alone,
                waited_s=round(now_s - waiting.queued_at_s, 3),
                running=len(self._running),
                expected_s=round(wall_s, 1),
                thrift=phase_id in self._thrifty,
                gives_way=self._gives_way(run, now_s),
            )
        )

    def _release_units(self, now_s: float) -> list[Decision]:
        if self._interrupted or not self._release.held:
            return []
        # Memory is short as well while a phase that had to be ended has not ended well.
        tight = bool(self._redone) or (self._short and len(self._waiting) > 0)
        self._look_at_deadline(now_s)
        released = self._release.next(
            now_s,
            running=len(self._running) + len(self._nodes),
            waiting=len(self._waiting),
            tight=tight,
            cores_elsewhere=self._nodes.cores,
            has_time=partial(self._deadline.has_time_for, now_s=now_s),
        )
        return list(released)

    def _look_at_deadline(self, now_s: float) -> None:
        if self._deadline.is_set:
            running = [run.phase for run in self._running.values()]
            self._deadline.look(running, [each.phase for each in self._waiting], now_s)


def _rounded(estimate: Estimate) -> Estimate:
    """As a decision says it."""
    return Estimate(
        peak_mib=round(estimate.peak_mib, 1), spread_mib=round(estimate.spread_mib, 1), source=estimate.source
    )
