"""The governor: which phase may run now, which must end, which runs again.

Covers: admission by committed memory and slots, the progress floor, longest-first order with backfill, draining for a
phase that waited too long, requeue and solo retry after a kill, kills of its own before the kernel's, runaways.
Does *not* cover: what a phase needs (``policy.estimator``), what there is (``policy.budget``), or doing any of it.

``Governor.handle(event, now)`` is the only mutator and returns the actions to take. It keeps these invariants, which
``check`` asserts: a phase waits or runs, never both; no more run than there are slots; when more than one runs, the
last one admitted fitted beside the others.
"""

from __future__ import annotations

from builddoctor.model.phase import Estimate, Outcome, Phase, PhaseKind
from builddoctor.policy.actions import Action, Admit, GiveUp, Hold, Kill, Requeue, SetThreads, Warn
from builddoctor.policy.estimator import Estimator
from builddoctor.policy.events import (
    Event,
    PhaseAsked,
    PhaseEnded,
    Sampled,
    Tick,
    UnitEnded,
    UnitRegistered,
)
from builddoctor.policy.line import Kept, KeptPlaces, Line, Waiting
from builddoctor.policy.runaway import RunawayRules, RunawayWatch
from builddoctor.policy.running import Load, Running, load_of
from builddoctor.policy.victims import Candidate, choose

DRAIN_AFTER_S = 20.0
DRAIN_SHARE = 0.25
"""A phase that waited this long for memory stops the backfilling, so that memory drains to it: 20 s, or a quarter of
what the open units still take, whichever is more. Draining idles cores, and in a build of an hour 20 s are nothing."""

LINGER_S = 0.25
"""Between two phases of a unit nvcc, a shell and a gate need some 30 ms; then it does not ask any more."""

LAST_KINDS = frozenset((PhaseKind.HOST, PhaseKind.LINK, PhaseKind.NVLINK))
"""Nothing of the unit comes after these."""

OVERLAP_S = 2.0
"""Beyond one phase a core only those that are expected to be this short: they fill the gaps between the phases of
others (docs/adr/0007), and do not take a core from a long one."""

KILL_LATENCY_S = 0.5
"""From deciding a kill to memory coming back: sampling, signal, about 80 ms per GiB to free."""

GROWTH_MEMORY = 0.8
"""Growth seen counts on, less by a fifth from sample to sample."""

DANGER_SHARE = 0.3
"""Below this share of the reserve, headroom is no longer left to chance."""

LEAST_WORTH_MIB = 32.0
"""Ending a phase that holds less would lose its work for no memory: somebody else has it."""

TOO_BIG_SHARE = 0.7
"""A phase that the kernel killed while it ran alone is too big, if it held this share of the budget: of the one that it
was admitted with or today's, whichever is more, since other programs may have taken theirs meanwhile."""


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
    ) -> None:
        self._estimator = estimator
        self._slots = max(1, slots)
        self._cores = max(1, cores or slots)
        self._budget_mib = budget_mib
        self._waiting = Line(estimator.remaining_s)
        self._lingering: dict[str, Kept] = {}
        self._head: tuple[int, float] | None = None
        self._running: dict[int, Running] = {}
        self._solo: set[int] = set()
        self._outside_kills: dict[int, int] = {}
        self._runaways = RunawayWatch(runaway or RunawayRules())
        self._redone: set[int] = set()
        self._had_kill = False
        self._said_overdrawn = False
        self._last_total: tuple[float, float] | None = None
        self._growth_mib_s = 0.0

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Take one event at ``now_s`` and say what to do, in order."""
        actions: list[Action] = []
        if isinstance(event, UnitRegistered):
            if self._had_kill and event.unit.threads != 1:  # 0 is nvcc's word for all cores
                actions.append(SetThreads(unit_id=event.unit.unit_id, threads=1))
        elif isinstance(event, PhaseAsked):
            self._waiting.add(self._as_waiting(event.phase, self._estimator.estimate(event.phase), now_s))
        elif isinstance(event, PhaseEnded):
            actions += self._ended(event, now_s)
        elif isinstance(event, Sampled):
            actions += self._sampled(event, now_s)
        elif not isinstance(event, UnitEnded | Tick):
            raise TypeError(event)
        if isinstance(event, UnitEnded):
            # Nothing of it will ask any more.
            self._lingering.pop(event.unit_id, None)
        if isinstance(event, UnitRegistered):
            return actions
        return actions + self._admit(now_s)

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
    def committed_mib(self) -> float:
        """What running phases hold or may still take."""
        return load_of(self._running.values()).committed_mib

    @property
    def budget_mib(self) -> float:
        return self._budget_mib

    @property
    def suspects(self) -> frozenset[int]:
        """Running phases whose processor time the next ``Sampled`` should have: they may be runaways."""
        return self._runaways.suspects

    def check(self) -> None:
        """Assert the invariants; called by every test that drives a governor."""
        assert not self._waiting.keys() & self._running.keys(), "a phase waits and runs"
        assert len(self._running) <= self._slots
        assert self._running or not self._waiting, "work waits while nothing runs"
        if any(phase_id in self._solo for phase_id in self._running):
            assert len(self._running) == 1, "a solo phase has company"

    # -- ends, kills and second tries ------------------------------------------------------------------

    def _ended(self, event: PhaseEnded, now_s: float) -> list[Action]:
        self._waiting.leave(event.phase_id)
        run = self._running.pop(event.phase_id, None)
        actions = [] if run is None else self._ended_run(run, event, now_s)
        if not any(isinstance(action, Requeue) for action in actions):
            self._runaways.forget(event.phase_id)
            self._redone.discard(event.phase_id)
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
            reason = "killed, and it reads or writes a pipe: it cannot be run again"
            return self._give_up(phase, "not-redoable", reason)
        if event.outcome is Outcome.KILLED_OUTSIDE:
            tries = self._outside_kills.get(phase.phase_id, 0) + 1
            self._outside_kills[phase.phase_id] = tries
            if tries > 1:
                return self._give_up(phase, "external-kill", "killed again from outside")
            return self._again(run, run.estimate, solo=phase.phase_id in self._solo, now_s=now_s)
        if event.outcome not in (Outcome.KILLED_BY_KERNEL, Outcome.KILLED_BY_US):
            self._solo.discard(phase.phase_id)
            if event.outcome is Outcome.OK:
                self._linger(phase, peak_mib, now_s)
            return []
        self._had_kill = True
        if event.outcome is Outcome.KILLED_BY_KERNEL and run.alone:
            was_solo = phase.phase_id in self._solo
            if was_solo or peak_mib >= TOO_BIG_SHARE * max(run.budget_mib, self._budget_mib):
                if why := self._runaways.ran_away(phase.phase_id):
                    return self._give_up(phase, "runaway", why)
                return self._give_up(phase, "too-big", f"killed at {peak_mib:.0f} MiB while it ran alone")
        estimate = self._estimator.raise_after_kill(phase, peak_mib=peak_mib, reserved_mib=run.estimate.reserve_mib)
        # A suspect shows alone, at its next try, what it is.
        suspect = self._runaways.was_suspect(phase.phase_id)
        solo = run.alone or suspect or estimate.reserve_mib > self._budget_mib
        return self._again(run, estimate, solo=solo, now_s=now_s)

    def _give_up(self, phase: Phase, verdict: str, reason: str) -> list[Action]:
        self._solo.discard(phase.phase_id)
        return [GiveUp(phase_id=phase.phase_id, verdict=verdict, reason=reason)]

    def _again(self, run: Running, estimate: Estimate, *, solo: bool, now_s: float) -> list[Action]:
        phase = run.phase
        self._redone.add(phase.phase_id)
        if solo:
            self._solo.add(phase.phase_id)
        # It waited its turn once already: as old as its first admission.
        self._waiting.add(Waiting(phase=phase, estimate=estimate, asked_at_s=min(now_s, run.admitted_at_s), solo=solo))
        return [Requeue(phase_id=phase.phase_id, estimate=estimate, solo=solo)]

    def _sampled(self, event: Sampled, now_s: float) -> list[Action]:
        self._budget_mib = event.budget_mib
        total_mib = 0.0
        cpu_s = dict(event.cpu_s)
        for phase_id, rss_mib in event.rss_mib:
            total_mib += rss_mib
            if (run := self._running.get(phase_id)) is not None:
                run.rss_mib = rss_mib
                budget_mib = max(run.budget_mib, event.budget_mib)
                self._runaways.look(
                    phase_id, rss_mib=rss_mib, cpu_s=cpu_s.get(phase_id), budget_mib=budget_mib, now_s=now_s
                )
        last, self._last_total = self._last_total, (now_s, total_mib)
        # Compilers grow in steps: a flat sample between two of them is no calm.
        growth_mib_s = GROWTH_MEMORY * self._growth_mib_s
        if last is not None and now_s > last[0]:
            growth_mib_s = max(growth_mib_s, (total_mib - last[1]) / (now_s - last[0]))
        self._growth_mib_s = growth_mib_s
        overdrawn = self._overdrawn(event)
        danger_mib = max(DANGER_SHARE * event.reserve_mib, KILL_LATENCY_S * growth_mib_s)
        if any(run.killed for run in self._running.values()):
            # Memory must fall before the next kill is considered.
            return overdrawn
        if runaway := self._end_runaway():
            return runaway
        if event.headroom_mib >= danger_mib:
            return overdrawn
        suspects = self._runaways.suspects
        victim = choose(
            [
                Candidate(
                    phase_id=phase_id,
                    rss_mib=run.rss_mib,
                    age_s=now_s - run.admitted_at_s,
                    suspect=phase_id in suspects,
                )
                for phase_id, run in self._running.items()
                if run.phase.redoable
            ],
            needed_mib=danger_mib - event.headroom_mib,
        )
        if victim is None or victim.rss_mib < LEAST_WORTH_MIB:
            return overdrawn
        self._running[victim.phase_id].killed = True
        reason = event.reason or f"{event.headroom_mib:.0f} MiB left and {growth_mib_s:.0f} MiB/s growing"
        return [Kill(phase_id=victim.phase_id, reason=reason)]

    def _end_runaway(self) -> list[Action]:
        """End a phase that grows without end, though it runs alone: to give it up, or to see it do so again alone."""
        company = len(self._running) > 1
        for phase_id, run in self._running.items():
            why = self._runaways.runs_away(phase_id, company=company)
            if not why:
                continue
            run.killed, run.runaway, run.alone = True, why, not company
            what = f"{run.phase.kind.value} of {run.phase.source}"
            return [
                Warn(text=f"ends {what}, which grows without end: {why}"),
                Kill(phase_id=phase_id, reason=why),
            ]
        return []

    def _overdrawn(self, event: Sampled) -> list[Action]:
        """A phase that alone takes more than a limit which the kernel does not hold (``--memory``): said once."""
        if event.headroom_mib >= 0 or len(self._running) != 1 or self._said_overdrawn:
            return []
        self._said_overdrawn = True
        (run,) = self._running.values()
        what = f"{run.phase.kind.value} of {run.phase.source}"
        return [Warn(text=f"{what} alone holds more than the limit ({run.rss_mib:.0f} MiB): it goes on, by itself")]

    # -- admission ---------------------------------------------------------------------------------------

    def _admit(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        if not len(self._waiting) or len(self._running) >= self._slots:
            return actions
        self._lingering = {unit_id: kept for unit_id, kept in self._lingering.items() if kept.until_s > now_s}
        keeping = KeptPlaces(self._lingering)
        load = load_of(self._running.values())
        solo = any(phase_id in self._solo for phase_id in self._running)
        first = True
        for waiting in self._waiting:
            if len(self._running) >= self._slots:
                break
            keeping.reach(waiting.urgency)
            reason = "another runs alone" if solo and self._running else self._blocked(waiting, load, keeping)
            if not reason:
                actions.append(self._start(waiting, now_s))
                load = load.with_one(waiting.estimate)
                keeping.take(waiting.phase.unit_id)
                solo = waiting.solo
                continue
            if waiting.held_for != reason:
                waiting.held_for = reason
                free_mib = max(0.0, self._budget_mib - load.committed_mib)
                needs_mib = waiting.estimate.reserve_mib
                actions.append(
                    Hold(phase_id=waiting.phase.phase_id, needs_mib=needs_mib, free_mib=free_mib, reason=reason)
                )
            if first and reason == "memory" and self._has_waited(waiting, now_s):
                # Nothing more starts beside it: memory drains to it.
                break
            first = False
        return actions

    def _as_waiting(self, phase: Phase, estimate: Estimate, asked_at_s: float, *, solo: bool = False) -> Waiting:
        short = self._estimator.wall_s(phase) <= OVERLAP_S
        return Waiting(phase=phase, estimate=estimate, asked_at_s=asked_at_s, solo=solo, short=short)

    def _has_waited(self, waiting: Waiting, now_s: float) -> bool:
        """The first in line has been kept out by memory for too long."""
        if self._head is None or self._head[0] != waiting.phase.phase_id:
            self._head = (waiting.phase.phase_id, now_s)
            return False
        waited_s = now_s - self._head[1]
        if waited_s < DRAIN_AFTER_S:
            return False
        open_s = sum(self._estimator.remaining_s(each.phase) for each in self._waiting)
        return waited_s >= DRAIN_SHARE * open_s / self._cores

    def _linger(self, phase: Phase, held_mib: float, now_s: float) -> None:
        """Keep the place of a unit whose next phase is about to ask, against those that are less urgent."""
        if phase.kind not in LAST_KINDS:
            self._lingering[phase.unit_id] = Kept(self._estimator.remaining_s(phase), now_s + LINGER_S, held_mib)

    def _blocked(self, waiting: Waiting, load: Load, keeping: KeptPlaces) -> str:
        """Why this phase cannot start now; empty when it can."""
        if not load.count:
            # The progress floor: something always runs, whatever its estimate.
            return ""
        if load.killing:
            return "a kill is under way"
        if waiting.solo:
            return "it must run alone"
        places, kept_mib = keeping.beside(waiting.phase.unit_id)
        if load.count + places >= self._slots or (load.count >= self._cores and not waiting.short):
            return "cores"
        if load.with_one(waiting.estimate).committed_mib + kept_mib > self._budget_mib:
            return "memory"
        return ""

    def _start(self, waiting: Waiting, now_s: float) -> Admit:
        phase_id = waiting.phase.phase_id
        self._waiting.leave(phase_id)
        self._lingering.pop(waiting.phase.unit_id, None)
        self._runaways.admitted(phase_id, expected_mib=waiting.estimate.peak_mib)
        alone = not self._running
        for run in self._running.values():
            run.alone = False
        self._running[phase_id] = Running(
            phase=waiting.phase,
            estimate=waiting.estimate,
            admitted_at_s=now_s,
            alone=alone,
            budget_mib=self._budget_mib,
        )
        return Admit(phase_id=phase_id, estimate=waiting.estimate, alone=alone)
