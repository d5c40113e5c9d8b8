"""The OOM guard: which running phase has to stand still or end before the kernel ends one. Pure.

Covers: growth against headroom, the choice of a victim, runaways, the last phase that gives way to other builds and to
processes that cannot be run again, and a limit that the kernel does not keep.
Does *not* cover: who can stand still, and for how long (``scheduler.brake``); what becomes of a phase that was ended
(``scheduler.scheduler``).

The only phase that runs is ended for none of its own growth, but where it would stand still for ever.

Rules for a victim: a phase that grows beyond all expectation first, since the others would be ended for nothing; else
never the oldest while another will do; among the rest the one that frees most memory for the least lost work.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from builddoctor.core.events import Decision, Kill, KillReason, MemorySampled, Stall, Throttled, Warn, WarningKind
from builddoctor.scheduler.brake import Brake
from builddoctor.scheduler.runaway import RunawayWatch
from builddoctor.scheduler.running_set import Running, RunningSet

KILL_LATENCY_S = 0.5
"""From deciding a kill to memory coming back: sampling, signal, and freeing."""

SIGNAL_S = 0.3
FREEING_S_PER_GIB = 0.08
"""And where that takes longer: without freeing, and for each GiB of the largest (docs/adr/0015)."""

DANGER_SHARE = 0.3
"""Below this share of the reserve, headroom is no longer left to chance."""

NEAR = 6.0
"""What is left is looked at ahead when so many times that would be taken before an end frees memory."""

LEAST_WORTH_MIB = 32.0
"""Ending a phase that holds less would lose its work for no memory: something else has it."""

LEAST_UNGATED_MIB = 64.0
"""The same beside processes that no gate asked for."""

FAR_BEYOND = 3.0
"""A phase that holds this many times a bound known from the past is the one to end, however old: the younger have done
nothing. Where nothing is known it may be on its way to a peak that could not be expected: `cicc` of attention kernels
takes ten times what the priors say."""


class OomGuard:
    """Watches over ``running``, which is the scheduler's own and changes between looks."""

    def __init__(self, running: RunningSet, runaways: RunawayWatch, brake: Brake) -> None:
        self._running = running
        self._runaways = runaways
        self._brake = brake
        self._said_overdrawn = False
        # Of hundreds most rest: those that grow are not looked for among all, at each sample.
        self._growing: dict[int, Running] = {}

    def look(
        self,
        sample: MemorySampled,
        *,
        headroom_mib: float,
        stall: Stall | None,
        throttled: Throttled | None = None,
        standstill: Stall | None = None,
        enforced: bool = False,
        others_wait: bool = False,
    ) -> list[Decision]:
        """Take in what each phase holds; say what must stand still or end now. At most one ends at a time.

        ``headroom_mib``: what counts as left, which is nothing while the build hangs (``stall``). ``throttled``: phases
        get no further at ``memory.high``; ``standstill``: nor does the only one, at a limit where the kernel kills
        nothing. ``enforced``: there is one, and what is beyond it does not simply go on. ``others_wait``: for memory.
        """
        self._take_in(sample)
        overdrawn = [] if enforced else self._overdrawn(headroom_mib, sample.at_s)
        if self._running.killing:
            # Memory must fall before the next kill is considered.
            return overdrawn
        if runaway := self._end_runaway(sample.at_s):
            return [runaway]
        if throttled is not None:
            return self._end_throttled(throttled, sample.at_s)
        if standstill is not None and len(self._running) == 1:
            return self._end_standstill(standstill, sample.at_s)
        self._growing = {phase_id: run for phase_id, run in self._growing.items() if self._grows(phase_id, run)}
        latency_s = self._latency_s() if self._growing else KILL_LATENCY_S
        growth_mib = sum([run.growth_within_mib(latency_s) for run in self._growing.values()])
        least_mib = DANGER_SHARE * sample.reserve_mib
        left_mib, danger_mib = headroom_mib - least_mib, max(least_mib, growth_mib)
        if left_mib < NEAR * growth_mib and stall is None and not self._suspects():
            # Before it comes to that: what stands still frees nothing. What grows for ever is no better for it.
            suspended = self._brake.suspend(
                left_mib=left_mib, growth_mib=growth_mib, latency_s=latency_s, now_s=sample.at_s
            )
            if suspended:
                return [*overdrawn, *suspended]
        if headroom_mib >= danger_mib:
            return [*overdrawn, *self._let_go(latency_s, left_mib, sample.at_s, others_wait=others_wait)]
        victim = self._victim(danger_mib - headroom_mib, sample.at_s)
        if victim is None:
            return overdrawn
        self._running.kill(victim)
        kill = Kill(
            at_s=sample.at_s,
            phase_id=victim,
            reason=KillReason.HEADROOM if stall is None else KillReason.STALL,
            headroom_mib=round(headroom_mib, 1),
            growth_mib_s=round(growth_mib / latency_s, 1),
            stall=stall,
        )
        return [kill]

    def _let_go(self, latency_s: float, left_mib: float, now_s: float, *, others_wait: bool) -> list[Decision]:
        """Memory is there: what stands goes on where it fits, or is ended where nothing gets on."""
        if not self._brake.on:
            return []
        if resumed := self._brake.resume(left_mib=left_mib, latency_s=latency_s, now_s=now_s):
            return [*resumed]
        if (run := self._brake.stuck(now_s, others_wait=others_wait)) is None:
            return []
        phase_id = run.phase.phase_id
        self._running.kill(phase_id)
        return [Kill(at_s=now_s, phase_id=phase_id, reason=KillReason.STOOD, headroom_mib=round(left_mib, 1))]

    def give_way(
        self, reason: KillReason, *, headroom_mib: float, danger_mib: float, least_mib: float, now_s: float
    ) -> list[Decision]:
        """End the only phase that holds memory, though no other phase is there. The build's last phase is never ended
        for its own sake; beside what cannot be run again, or another build, it has to be, as it can be redone."""
        if headroom_mib >= danger_mib:
            return []
        holding = [run for run in self._running.values() if run.rss_mib >= least_mib]
        if len(holding) != 1 or holding[0].killed or not holding[0].phase.redoable:
            # Among several the guard has chosen; one that has hardly begun frees nothing.
            return []
        phase_id = holding[0].phase.phase_id
        self._running.kill(phase_id)
        return [Kill(at_s=now_s, phase_id=phase_id, reason=reason, headroom_mib=round(headroom_mib, 1))]

    def _latency_s(self) -> float:
        largest_mib = max([run.rss_mib for run in self._running.values()], default=0.0)
        return max(KILL_LATENCY_S, SIGNAL_S + FREEING_S_PER_GIB * largest_mib / 1024.0)

    def _grows(self, phase_id: int, run: Running) -> bool:
        """This run of the phase has not ended, and works; the next one is another."""
        return self._running.get(phase_id) is run and run.suspended_at_s is None

    def _take_in(self, sample: MemorySampled) -> None:
        now_s, cpu_s = sample.at_s, dict(sample.cpu_s)
        for phase_id, rss_mib in sample.rss_mib:
            if (run := self._running.get(phase_id)) is None:
                continue
            self._running.sampled(run, rss_mib, now_s)
            if run.growth_mib_s:
                self._growing[phase_id] = run
            else:
                self._growing.pop(phase_id, None)
            if not self._runaways.rests(phase_id, rss_mib, now_s):
                budget_mib = max(run.budget_mib, sample.budget_mib)
                self._runaways.look(
                    phase_id, rss_mib=rss_mib, cpu_s=cpu_s.get(phase_id), budget_mib=budget_mib, now_s=now_s
                )

    def _suspects(self) -> frozenset[int]:
        """Phases that are not as was expected of them, and the ones to end."""
        strange = (each for each in self._runaways.suspects if self._runaways.is_strange(each))
        return frozenset([*strange, *(phase_id for phase_id, run in self._running.items() if _stands_out(run))])

    def _victim(self, needed_mib: float, now_s: float) -> int | None:
        suspects = self._suspects()
        victim = choose_victim(
            [
                Candidate(
                    phase_id=phase_id,
                    rss_mib=run.rss_mib,
                    age_s=run.ran_s(now_s),
                    suspect=phase_id in suspects,
                    redoable=run.phase.redoable,
                )
                for phase_id, run in self._running.items()
            ],
            needed_mib=needed_mib,
        )
        return None if victim is None or victim.rss_mib < LEAST_WORTH_MIB else victim.phase_id

    def _end_runaway(self, now_s: float) -> Kill | None:
        """End a phase that grows without end, though it runs alone: to give it up, or to see it do so again alone."""
        company = len(self._running) > 1
        for phase_id in sorted(self._runaways.suspects & self._running.keys()):
            rise = self._runaways.runs_away(phase_id, company=company)
            if rise is None:
                continue
            run = self._running.kill(phase_id)
            run.runaway, run.alone = rise, not company
            return Kill(at_s=now_s, phase_id=phase_id, reason=KillReason.RUNAWAY, rise=rise)
        return None

    def _end_throttled(self, throttled: Throttled, now_s: float) -> list[Decision]:
        """End a phase that ``memory.high`` holds back, though it runs alone: nothing would go on for ever."""
        if not self._running:
            return []
        largest = max(self._running, key=lambda each: (self._running[each].rss_mib, each))
        victim = self._victim(0.0, now_s)
        run = self._running.kill(largest if victim is None else victim)
        run.throttled, run.alone = throttled, len(self._running) == 1
        return [Kill(at_s=now_s, phase_id=run.phase.phase_id, reason=KillReason.THROTTLED, throttled=throttled)]

    def _end_standstill(self, standstill: Stall, now_s: float) -> list[Decision]:
        """End the only phase: it would stand still for ever."""
        (phase_id,) = self._running
        run = self._running.kill(phase_id)
        run.standstill, run.alone = standstill, True
        return [Kill(at_s=now_s, phase_id=phase_id, reason=KillReason.STALL, stall=standstill)]

    def _overdrawn(self, headroom_mib: float, now_s: float) -> list[Decision]:
        """A phase that alone takes more than a limit which the kernel does not keep (``--memory``): said once."""
        if headroom_mib >= 0 or len(self._running) != 1 or self._said_overdrawn:
            return []
        self._said_overdrawn = True
        (run,) = self._running.values()
        size_mib = round(run.rss_mib, 1)
        return [Warn(at_s=now_s, kind=WarningKind.OVERDRAWN, phase_id=run.phase.phase_id, size_mib=size_mib)]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A running phase as a possible victim."""

    phase_id: int
    rss_mib: float
    age_s: float
    suspect: bool = False
    """it may be a runaway (``scheduler.runaway``)"""
    redoable: bool = True
    """ended, it can be run again: nothing else is ever ended for memory"""


def choose_victim(candidates: Sequence[Candidate], *, needed_mib: float = 0.0) -> Candidate | None:
    """The victim, or None when fewer than two run: the only running phase is never ended for memory.

    Where none frees ``needed_mib``, the one that frees most; the next look decides on another.
    """
    if len(candidates) < 2:
        return None
    redoable = [each for each in candidates if each.redoable]
    if suspects := [each for each in redoable if each.suspect]:
        return max(suspects, key=lambda each: (each.rss_mib, each.phase_id))
    oldest = max(candidates, key=lambda each: (each.age_s, -each.phase_id))
    # Beside one that cannot be redone the oldest has to go when no other may: the kernel would take either.
    others = [each for each in redoable if each.phase_id != oldest.phase_id] or redoable
    enough = [each for each in others if each.rss_mib >= needed_mib]
    if not enough:
        return max(others, key=lambda each: (each.rss_mib, each.phase_id), default=None)
    return max(enough, key=lambda each: (each.rss_mib / (each.age_s + 1.0), each.phase_id))


def _stands_out(run: Running) -> bool:
    """It is not as was expected of it: far beyond a bound that was sure, or past it and faster than any compiler."""
    bound_mib = run.estimate.reserve_mib
    return (run.sure and run.rss_mib > FAR_BEYOND * bound_mib) or (run.too_fast and run.rss_mib > bound_mib)
