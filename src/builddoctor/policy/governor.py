"""The governor: which phase may run now, which must end, which runs again.

Covers: admission in the order of priorities with backfill, the progress floor, draining for a phase that waited too
long, requeue and solo retry after a kill, verdicts, units that are opened.
Does *not* cover: whether a phase fits (``policy.room``), priorities (``policy.planning``), kills before the kernel's
(``policy.danger``), what a phase needs (``policy.estimator``), what there is (``policy.budget``), or doing any of it.

``Governor.handle(event, now)`` is the only mutator and returns the actions to take. It keeps these invariants, which
``check`` asserts: a phase waits or runs, never both; no more run than there are slots; while work waits, something
runs, or this build's share is with another; what must run alone has no company.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from builddoctor.model.phase import Estimate, Outcome, Phase, PhaseKind
from builddoctor.policy.actions import Action, Admit, GiveUp, Hold, Requeue
from builddoctor.policy.danger import Danger
from builddoctor.policy.estimator import Estimator
from builddoctor.policy.events import Event, PhaseAsked, PhaseEnded, Sampled, Tick, UnitEnded, UnitRegistered
from builddoctor.policy.growth import Growth
from builddoctor.policy.line import Kept, Line, Waiting
from builddoctor.policy.opening import TIGHT_AFTER_KILL_S, Opening
from builddoctor.policy.order import ExpectedPhase
from builddoctor.policy.planning import Planner, worth_a_search
from builddoctor.policy.rest import rest_of_units, whole_s
from builddoctor.policy.room import ALONE, Room
from builddoctor.policy.runaway import RunawayRules, RunawayWatch
from builddoctor.policy.running import Running
from builddoctor.policy.runs import Runs

DRAIN_AFTER_S = 20.0
DRAIN_SHARE = 1.0
"""A phase that waited this long for memory, first in line, stops the backfilling, so that memory drains to it: 20 s, or
as long as the open units still take, whichever is more. Draining idles cores; it is there so that nobody starves, not
to make builds faster: a quarter instead of the whole made them 1 to 4 % longer."""

OPEN_AGAIN_S = 1.0
"""What all that wait still take is added up this often."""

ESTIMATE_AGAIN_S = 2.0
LONG_LINE = 64
"""Estimates of phases that wait are made anew this often; less often where more wait, so that each has its turn. No
sum is made of more than so many: of 1,000 it kept gates waiting for 10 ms."""

LINGER_S = 0.25
"""Between two phases of a unit nvcc, a shell and a gate need some 30 ms; then it does not ask any more."""

LAST_KINDS = frozenset((PhaseKind.HOST, PhaseKind.LINK, PhaseKind.NVLINK))
"""Nothing of the unit comes after these."""

OVERLAP_S = 2.0
"""Beyond one phase a core only those that are expected to be this short: they fill the gaps between the phases of
others (docs/adr/0007), and do not take a core from a long one."""

TOO_BIG_SHARE = 0.7
"""A phase that the kernel killed while it ran alone is too big, if it held this share of the largest budget that this
build has had: other programs may have taken theirs meanwhile."""


class Governor:
    """Pure policy of one build. ``slots`` is the most phases that run at once."""

    def __init__(
        self,
        estimator: Estimator,
        *,
        slots: int,
        budget_mib: float,
        cores: int | None = None,
        runaway: RunawayRules | None = None,
        most_open: int | None = None,
        most_threads: int | None = None,
        searches: bool = True,
    ) -> None:
        self._estimator = estimator
        self._slots = max(1, slots)
        self._cores = max(1, cores or slots)
        self._budget_mib = self._most_budget_mib = budget_mib
        self._share_mib = float("inf")
        self._planner = Planner(estimator.remaining_s, slots=slots, searches=searches, pace=lambda: estimator.pace)
        self._waiting = Line(self._planner.priority)
        self._units: set[str] = set()
        self._opening = Opening(
            priority=lambda unit: self._planner.urgency(unit.unit_id, whole_s(estimator, unit)),
            expected_s=partial(whole_s, estimator),
            slots=self._slots,
            cores=self._cores,
            most_open=most_open or self._slots + 1,
            most_threads=most_threads,
        )
        self._short = False
        self._drains_to: Waiting | None = None
        self._open_s = (-math.inf, 0.0)
        self._lingering: dict[str, Kept] = {}
        self._head: tuple[int, float] | None = None
        self._running = Runs()
        self._solo: set[int] = set()
        self._outside_kills: dict[int, int] = {}
        self._runaways = RunawayWatch(runaway or RunawayRules())
        self._redone: set[int] = set()
        self._killed_s = -math.inf
        self._danger = Danger(self._running, self._runaways)
        self._growth = Growth()

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Take one event at ``now_s`` and say what to do, in order."""
        actions: list[Action] = []
        if isinstance(event, UnitRegistered):
            self._units.add(event.unit.unit_id)
            self._planner.unit_came()
            if event.held:
                self._opening.registered(event.unit)
            return self._open(now_s)
        if isinstance(event, PhaseAsked):
            self._lingering.pop(event.phase.unit_id, None)
            if event.solo:
                self._solo.add(event.phase.phase_id)
            self._waiting.add(self._as_waiting(event, now_s))
        elif isinstance(event, PhaseEnded):
            self._share_mib = min(self._share_mib, event.share_mib)
            actions += self._ended(event, now_s)
        elif isinstance(event, Sampled):
            self._budget_mib, self._share_mib = event.budget_mib, event.share_mib
            self._most_budget_mib = max(self._most_budget_mib, event.budget_mib)
            actions += self._danger.look(event, now_s)
        elif isinstance(event, UnitEnded):  # nothing of it will ask any more
            self._lingering.pop(event.unit_id, None)
            self._units.discard(event.unit_id)
            self._opening.ended(event.unit_id, now_s)
        elif not isinstance(event, Tick):
            raise TypeError(event)
        if len(self._waiting) and isinstance(event, (Sampled, Tick)):
            known = (self._running.values(), self._waiting, self._units, self._estimator)
            to_come = partial(rest_of_units, *known, evenness=self._growth.evenness, now_s=now_s)
            worth = worth_a_search(len(self._units), short=self._short)
            if self._planner.think(to_come, budget_mib=self._budget_mib, now_s=now_s, worth=worth):
                self._waiting.order_again()
                self._opening.order_anew()
        asked = event.phase.phase_id if isinstance(event, PhaseAsked) else None
        actions += self._admit(now_s, asked if self._running else None)
        return actions + self._open(now_s)

    def _open(self, now_s: float) -> list[Action]:
        tight = now_s - self._killed_s < TIGHT_AFTER_KILL_S or (self._short and len(self._waiting) > 0)
        return list(self._opening.next(now_s, running=len(self._running), waiting=len(self._waiting), tight=tight))

    def estimate(self, phase: Phase) -> Estimate:
        """What is expected of a phase now."""
        return self._estimator.estimate(phase)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def line(self) -> Line:
        """Phases that wait, first come the most urgent."""
        return self._waiting

    @property
    def committed_mib(self) -> float:
        """What running phases hold or may still take."""
        return self._running.load(self._growth.evenness).committed_mib

    @property
    def budget_mib(self) -> float:
        return self._budget_mib

    @property
    def allowed_mib(self) -> float:
        """What phases may hold together: the budget, or what other builds leave of it."""
        return min(self._budget_mib, self._share_mib)

    @property
    def looks_ahead(self) -> bool:
        """Phases have been seen to grow: their peaks together may be beyond the budget, what they hold at once not."""
        return any(self._growth.full_after(kind) > 0 for kind in PhaseKind)

    @property
    def suspects(self) -> frozenset[int]:
        """Running phases whose processor time the next ``Sampled`` should have: they may be runaways."""
        return frozenset(self._runaways.suspects)

    def check(self) -> None:
        """Assert the invariants; called by every test that drives a governor."""
        assert not self._waiting.keys() & self._running.keys(), "a phase waits and runs"
        assert len(self._running) <= self._slots
        due = [each for each in self._waiting if self._drains_to is None or each.key <= self._drains_to.key]
        assert self._running or all(each.estimate.reserve_mib > self._share_mib for each in due), (
            "work waits while nothing runs"
        )
        if any(phase_id in self._solo for phase_id in self._running):
            assert len(self._running) == 1, "a solo phase has company"

    # -- ends, kills and second tries ------------------------------------------------------------------

    def _ended(self, event: PhaseEnded, now_s: float) -> list[Action]:
        if self._waiting.leave(event.phase_id) is self._drains_to:
            self._drains_to = None
        run = self._running.end(event.phase_id)
        actions = [] if run is None else self._ended_run(run, event, now_s)
        if not any(isinstance(action, Requeue) for action in actions):
            self._runaways.forget(event.phase_id)
            self._redone.discard(event.phase_id)
            self._solo.discard(event.phase_id)
            self._outside_kills.pop(event.phase_id, None)
        return actions

    def _ended_run(self, run: Running, event: PhaseEnded, now_s: float) -> list[Action]:
        phase = run.phase
        peak_mib = max(event.peak_mib, run.rss_mib)
        self._estimator.observe(phase, outcome=event.outcome, peak_mib=peak_mib, wall_s=event.wall_s)
        killed = event.outcome in (Outcome.KILLED_BY_KERNEL, Outcome.KILLED_BY_US, Outcome.KILLED_OUTSIDE)
        if killed and run.runaway:
            if run.alone or phase.phase_id in self._redone or not phase.redoable:
                return self._give_up(phase, "runaway", run.runaway)
            return self._again(run, run.estimate, solo=True, now_s=now_s)
        if killed and not phase.redoable:
            return self._give_up(phase, "not-redoable", "killed, and it reads or writes a pipe: it cannot be run again")
        if event.outcome is Outcome.KILLED_OUTSIDE:
            self._outside_kills[phase.phase_id] = self._outside_kills.get(phase.phase_id, 0) + 1
            if self._outside_kills[phase.phase_id] > 1:
                return self._give_up(phase, "external-kill", "killed again from outside")
            return self._again(run, run.estimate, solo=phase.phase_id in self._solo, now_s=now_s)
        if event.outcome not in (Outcome.KILLED_BY_KERNEL, Outcome.KILLED_BY_US):
            if event.outcome is Outcome.OK:
                self._growth.ended(
                    phase.kind, area_mib_s=run.area_mib_s, looks=run.looks, peak_mib=peak_mib, wall_s=event.wall_s
                )
                self._linger(phase, now_s)
            return []
        self._killed_s = now_s
        alone = run.alone and event.outcome is Outcome.KILLED_BY_KERNEL  # else it gave way, to another build say
        if alone:
            was_solo = phase.phase_id in self._solo
            if was_solo or peak_mib >= TOO_BIG_SHARE * self._most_budget_mib:
                if why := self._runaways.ran_away(phase.phase_id):
                    return self._give_up(phase, "runaway", why)
                return self._give_up(phase, "too-big", f"killed at {peak_mib:.0f} MiB while it ran alone")
        estimate, reserved_mib = self._estimator.estimate(phase), run.estimate.reserve_mib
        expected = peak_mib <= min(reserved_mib, estimate.reserve_mib)
        made_way = event.outcome is Outcome.KILLED_BY_US and expected and phase.phase_id not in self._redone
        if not made_way:
            # Else it had done nothing that was not expected of it, and fits beside others as it did before.
            estimate = self._estimator.raise_after_kill(phase, peak_mib=peak_mib, reserved_mib=reserved_mib)
        # Who is strange shows alone, at the next try, what it is.
        strange = self._runaways.is_strange(phase.phase_id)
        solo = alone or strange or (not made_way and estimate.reserve_mib > self._budget_mib)
        return self._again(run, estimate, solo=solo, now_s=now_s)

    def _give_up(self, phase: Phase, verdict: str, reason: str) -> list[Action]:
        return [GiveUp(phase_id=phase.phase_id, verdict=verdict, reason=reason)]

    def _again(self, run: Running, estimate: Estimate, *, solo: bool, now_s: float) -> list[Action]:
        phase = run.phase
        self._redone.add(phase.phase_id)
        if solo:
            self._solo.add(phase.phase_id)
        # It waited its turn once already: as old as its first admission.
        self._waiting.add(Waiting(phase=phase, estimate=estimate, asked_at_s=min(now_s, run.admitted_at_s), solo=solo))
        return [Requeue(phase_id=phase.phase_id, estimate=estimate, solo=solo)]

    # -- admission ---------------------------------------------------------------------------------------

    def _admit(self, now_s: float, asked: int | None = None) -> list[Action]:
        """Start what may start: of all that wait, or only the phase that ``asked`` just now."""
        actions: list[Action] = []
        if not len(self._waiting) or len(self._running) >= self._slots:
            return actions
        self._lingering = {unit_id: kept for unit_id, kept in self._lingering.items() if kept.until_s > now_s}
        room = Room(
            self._running,
            self._lingering.values(),
            slots=self._slots,
            cores=self._cores,
            allowed_mib=self.allowed_mib,
            growth=self._growth,
            wall_s=self._estimator.wall_s,
            urgency=self._planner.urgency,
            now_s=now_s,
        )
        solo = bool(self._solo) and not self._solo.isdisjoint(self._running)
        if asked is None:
            self._short, self._drains_to = False, None
        first, grows, over_mib = asked is None or asked == self._waiting.first, self._growth.seen, room.over_mib
        again_s = now_s - ESTIMATE_AGAIN_S * max(1.0, len(self._waiting) / LONG_LINE)
        # Nothing was freed by somebody's asking: who waited before still does. Where nothing runs, somebody must start.
        whole = self._waiting.in_turn if self._running else self._waiting.__iter__
        for waiting in whole() if asked is None else self._waiting.only(asked):
            drained = self._drains_to
            if room.full or (drained is not None and waiting.key > drained.key):
                break
            if waiting.held_for == "cores" and room.has_no_core_for(waiting):
                first = False
                continue
            over = not first and waiting.held_for == "memory" and waiting.estimate.peak_mib > over_mib
            if waiting.asked_at_s <= again_s and waiting.estimated_at_s <= again_s and not (over and grows):
                room.estimate_again(waiting, self._estimator.estimate)
            if over:
                continue
            room.reach(waiting.urgency)
            reason = "another runs alone" if solo and self._running else self._blocked(waiting, room)
            if not reason:
                actions.append(self._start(waiting, now_s))
                room.taken(waiting)
                solo, over_mib = waiting.solo, room.over_mib
                continue
            over_mib = room.over_mib
            self._short = self._short or reason == "memory"
            if waiting.held_for != reason:
                waiting.held_for = reason
                needs_mib = waiting.estimate.reserve_mib
                actions.append(
                    Hold(phase_id=waiting.phase.phase_id, needs_mib=needs_mib, free_mib=room.free_mib, reason=reason)
                )
            if first and reason in ("memory", ALONE):
                self._held_first(waiting, room, reason, now_s)
            first = False
        return actions

    def _held_first(self, waiting: Waiting, room: Room, reason: str, now_s: float) -> None:
        """The first in line waits for memory, or for all others to end: nobody is to make that longer."""
        if reason == "memory" and self._planner.hangs_on(self._estimator.remaining_s(waiting.phase), now_s):
            room.keep_for(waiting)
        if self._has_waited(waiting, now_s):
            # Nothing more starts beside it: memory drains to it.
            self._drains_to = waiting

    def _blocked(self, waiting: Waiting, room: Room) -> str:
        """Why this phase cannot start now; empty when it can."""
        if not self._running and waiting.estimate.reserve_mib <= self._share_mib:
            # The progress floor: something always runs, whatever its estimate; beside other builds in its turn.
            return ""
        if waiting.solo and not self._running.killing:
            return ALONE
        return room.blocked(waiting)

    def _as_waiting(self, event: PhaseAsked, now_s: float) -> Waiting:
        estimate = event.estimate or self.estimate(event.phase)
        short = self._estimator.wall_s(event.phase) <= OVERLAP_S
        return Waiting(phase=event.phase, estimate=estimate, asked_at_s=now_s, short=short, solo=event.solo)

    def _has_waited(self, waiting: Waiting, now_s: float) -> bool:
        """The first in line has been kept out by memory for too long."""
        if self._head is None or self._head[0] != waiting.phase.phase_id:
            self._head = (waiting.phase.phase_id, now_s)
            return False
        if (waited_s := now_s - self._head[1]) < DRAIN_AFTER_S:
            return False
        if now_s - self._open_s[0] >= OPEN_AGAIN_S:
            some_s = [self._estimator.remaining_s(each.phase) for each in self._waiting.some(LONG_LINE)]
            self._open_s = (now_s, sum(some_s) * len(self._waiting) / len(some_s))
        return waited_s >= DRAIN_SHARE * self._open_s[1] / self._cores

    def _linger(self, phase: Phase, now_s: float) -> None:
        """Keep the place of a unit whose next phase is about to ask, against those that are less urgent."""
        if phase.kind in LAST_KINDS:
            return
        to_come = self._estimator.outlook(phase.unit_id, phase)
        # Where nobody knows what comes: as much as the last one.
        estimate = to_come[0].estimate if to_come else self._estimator.estimate(phase)
        urgency = self._planner.urgency(phase.unit_id, self._left_after_s(phase, to_come))
        self._lingering[phase.unit_id] = Kept(urgency, now_s + LINGER_S, estimate)

    def _left_after_s(self, phase: Phase, to_come: Sequence[ExpectedPhase]) -> float:
        """What the unit has still to do when this phase has ended."""
        if to_come:
            return sum(each.wall_s for each in to_come)
        return max(0.0, self._estimator.remaining_s(phase) - self._estimator.wall_s(phase))

    def _start(self, waiting: Waiting, now_s: float) -> Admit:
        phase_id, unit_id = waiting.phase.phase_id, waiting.phase.unit_id
        self._waiting.leave(phase_id)
        self._lingering.pop(unit_id, None)
        self._opening.started(unit_id, now_s)
        self._runaways.admitted(phase_id, expected_mib=waiting.estimate.peak_mib, kind=waiting.phase.kind)
        to_come = self._estimator.outlook(unit_id, waiting.phase)
        alone = not self._running
        run = Running(
            phase=waiting.phase,
            estimate=waiting.estimate,
            admitted_at_s=now_s,
            alone=alone,
            budget_mib=self._budget_mib,
            left_after_s=self._left_after_s(waiting.phase, to_come),
            next_mib=to_come[0].peak_mib if to_come else 0.0,
        )
        self._running.start(run)
        return Admit(phase_id=phase_id, estimate=waiting.estimate, alone=alone)
