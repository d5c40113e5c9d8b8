"""The governor: which phase may run now, which must end, which runs again.

Covers: admission by committed memory and slots, the progress floor, longest-first order with backfill, draining for a
phase that waited too long, requeue and solo retry after a kill, kills of its own before the kernel's, runaways.
Does *not* cover: what a phase needs (``policy.estimator``), what there is (``policy.budget``), or doing any of it.

``Governor.handle(event, now)`` is the only mutator and returns the actions to take. It keeps these invariants, which
``check`` asserts: a phase waits or runs, never both; no more run than there are slots; when more than one runs, the
last one admitted fitted beside the others.
"""

from __future__ import annotations

import msgspec

from builddoctor.model.phase import Estimate, Outcome, Phase
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
from builddoctor.policy.runaway import RunawayRules, RunawayWatch
from builddoctor.policy.victims import Candidate, choose

DRAIN_AFTER_S = 20.0
"""A phase that waited this long for memory stops the backfilling, so that memory drains to it."""

KILL_LATENCY_S = 0.5
"""From deciding a kill to memory coming back: sampling, signal, about 80 ms per GiB to free."""

GROWTH_MEMORY = 0.8
"""Growth seen counts on, less by a fifth from sample to sample."""

DANGER_SHARE = 0.3
"""Below this share of the reserve, headroom is no longer left to chance."""

LEAST_WORTH_MIB = 32.0
"""Ending a phase that holds less would lose its work for no memory: somebody else has it."""

OVERRUN_FACTOR = 1.2
"""A phase past its reservation is taken to want this much of what it holds."""

TOO_BIG_SHARE = 0.7
"""A phase that the kernel killed while it ran alone is too big, if it held this share of the budget: of the one that it
was admitted with or today's, whichever is more, since other programs may have taken theirs meanwhile."""


class _Waiting(msgspec.Struct):
    phase: Phase
    estimate: Estimate
    asked_at_s: float
    solo: bool = False
    held_for: str = ""


class _Running(msgspec.Struct):
    phase: Phase
    estimate: Estimate
    admitted_at_s: float
    alone: bool
    budget_mib: float
    """the budget when it was admitted"""
    rss_mib: float = 0.0
    killed: bool = False
    runaway: str = ""
    """why we ended it as one"""

    @property
    def committed_mib(self) -> float:
        if self.rss_mib <= self.estimate.reserve_mib:
            return self.estimate.reserve_mib
        return self.rss_mib * OVERRUN_FACTOR


class Governor:
    """Pure policy of one build. ``slots`` is the most phases that run at once."""

    def __init__(
        self, estimator: Estimator, *, slots: int, budget_mib: float, runaway: RunawayRules | None = None
    ) -> None:
        self._estimator = estimator
        self._slots = max(1, slots)
        self._budget_mib = budget_mib
        self._waiting: dict[int, _Waiting] = {}
        self._running: dict[int, _Running] = {}
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
            self._waiting[event.phase.phase_id] = _Waiting(
                phase=event.phase, estimate=self._estimator.estimate(event.phase), asked_at_s=now_s
            )
        elif isinstance(event, PhaseEnded):
            actions += self._ended(event, now_s)
        elif isinstance(event, Sampled):
            actions += self._sampled(event, now_s)
        elif not isinstance(event, UnitEnded | Tick):
            raise TypeError(event)
        if isinstance(event, UnitRegistered | UnitEnded):
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
        return sum(each.committed_mib for each in self._running.values())

    @property
    def budget_mib(self) -> float:
        return self._budget_mib

    @property
    def suspects(self) -> frozenset[int]:
        """Running phases whose processor time the next ``Sampled`` should have: they may be runaways."""
        return self._runaways.suspects

    def check(self) -> None:
        """Assert the invariants; called by every test that drives a governor."""
        assert not self._waiting.keys() & self._running.keys()
        assert len(self._running) <= self._slots
        assert self._running or not self._waiting, "work waits while nothing runs"
        if any(phase_id in self._solo for phase_id in self._running):
            assert len(self._running) == 1, "a solo phase has company"

    # -- ends, kills and second tries ------------------------------------------------------------------

    def _ended(self, event: PhaseEnded, now_s: float) -> list[Action]:
        self._waiting.pop(event.phase_id, None)
        run = self._running.pop(event.phase_id, None)
        actions = [] if run is None else self._ended_run(run, event, now_s)
        if not any(isinstance(action, Requeue) for action in actions):
            self._runaways.forget(event.phase_id)
            self._redone.discard(event.phase_id)
        return actions

    def _ended_run(self, run: _Running, event: PhaseEnded, now_s: float) -> list[Action]:
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

    def _again(self, run: _Running, estimate: Estimate, *, solo: bool, now_s: float) -> list[Action]:
        phase = run.phase
        self._redone.add(phase.phase_id)
        if solo:
            self._solo.add(phase.phase_id)
        # It waited its turn once already: as old as its first admission.
        self._waiting[phase.phase_id] = _Waiting(
            phase=phase, estimate=estimate, asked_at_s=min(now_s, run.admitted_at_s), solo=solo
        )
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
        order = sorted(
            self._waiting.values(),
            key=lambda each: (-self._estimator.remaining_s(each.phase), each.asked_at_s, each.phase.phase_id),
        )
        starving = [each for each in order if now_s - each.asked_at_s >= DRAIN_AFTER_S]
        order.sort(key=lambda each: 0 if each in starving else 1)
        for waiting in order:
            if len(self._running) >= self._slots:
                break
            reason = self._blocked(waiting)
            if not reason:
                actions.append(self._start(waiting, now_s))
                continue
            if waiting.held_for != reason:
                waiting.held_for = reason
                free_mib = max(0.0, self._budget_mib - self.committed_mib)
                needs_mib = waiting.estimate.reserve_mib
                actions.append(
                    Hold(phase_id=waiting.phase.phase_id, needs_mib=needs_mib, free_mib=free_mib, reason=reason)
                )
            if waiting in starving:
                break
        return actions

    def _blocked(self, waiting: _Waiting) -> str:
        """Why this phase cannot start now; empty when it can."""
        if not self._running:
            # The progress floor: something always runs, whatever its estimate.
            return ""
        if any(run.killed for run in self._running.values()):
            return "a kill is under way"
        if waiting.solo:
            return "it must run alone"
        if any(phase_id in self._solo for phase_id in self._running):
            return "another runs alone"
        if self.committed_mib + waiting.estimate.reserve_mib > self._budget_mib:
            return "memory"
        return ""

    def _start(self, waiting: _Waiting, now_s: float) -> Admit:
        phase_id = waiting.phase.phase_id
        del self._waiting[phase_id]
        self._runaways.admitted(phase_id, expected_mib=waiting.estimate.peak_mib)
        alone = not self._running
        for run in self._running.values():
            run.alone = False
        self._running[phase_id] = _Running(
            phase=waiting.phase,
            estimate=waiting.estimate,
            admitted_at_s=now_s,
            alone=alone,
            budget_mib=self._budget_mib,
        )
        return Admit(phase_id=phase_id, estimate=waiting.estimate, alone=alone)
