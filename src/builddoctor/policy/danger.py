"""Looks at memory while phases run: which of them has to end before the kernel ends one. Pure.

Covers: growth against headroom, the choice of a victim, runaways, and a limit that nobody enforces.
Does *not* cover: what becomes of a phase that was ended (``policy.governor``).
"""

from __future__ import annotations

from builddoctor.policy.actions import Action, Kill, Warn
from builddoctor.policy.events import Sampled
from builddoctor.policy.runaway import RunawayWatch
from builddoctor.policy.running import Running
from builddoctor.policy.runs import Runs
from builddoctor.policy.victims import Candidate, choose

KILL_LATENCY_S = 0.5
"""From deciding a kill to memory coming back: sampling, signal, and freeing."""

SIGNAL_S = 0.3
FREEING_S_PER_GIB = 0.08
"""And where that takes longer: without freeing, and for each GiB of the largest (memory.md, experiment 9)."""

DANGER_SHARE = 0.3
"""Below this share of the reserve, headroom is no longer left to chance."""

LEAST_WORTH_MIB = 32.0
"""Ending a phase that holds less would lose its work for no memory: somebody else has it."""

FAR_BEYOND = 3.0
"""A phase that holds this many times a bound known from the past is the one to end, however old: the younger have done
nothing. Where nothing is known it may be on its way to a peak that nobody could expect: `cicc` of attention kernels
takes ten times what the priors say."""


class Danger:
    """Watches over ``running``, which is the governor's own and changes between looks."""

    def __init__(self, running: Runs, runaways: RunawayWatch) -> None:
        self._running = running
        self._runaways = runaways
        self._said_overdrawn = False
        self._samples = 0
        # Of hundreds most rest: those that grow are not looked for among all, at each sample.
        self._growing: dict[int, Running] = {}

    def look(self, event: Sampled, now_s: float) -> list[Action]:
        """Take in what each phase holds; say what must end now. At most one phase at a time."""
        self._take_in(event, now_s)
        overdrawn = self._overdrawn(event)
        if self._running.killing:
            # Memory must fall before the next kill is considered.
            return overdrawn
        if runaway := self._end_runaway():
            return runaway
        self._growing = {phase_id: run for phase_id, run in self._growing.items() if self._runs(phase_id, run)}
        latency_s = self._latency_s() if self._growing else KILL_LATENCY_S
        growth_mib = sum([run.growth_within_mib(latency_s) for run in self._growing.values()])
        danger_mib = max(DANGER_SHARE * event.reserve_mib, growth_mib)
        if event.headroom_mib >= danger_mib:
            return overdrawn
        victim = self._victim(danger_mib - event.headroom_mib, now_s)
        if victim is None:
            return overdrawn
        self._running.kill(victim)
        reason = event.reason or f"{event.headroom_mib:.0f} MiB left and {growth_mib / latency_s:.0f} MiB/s growing"
        return [Kill(phase_id=victim, reason=reason)]

    def _latency_s(self) -> float:
        largest_mib = max([run.rss_mib for run in self._running.values()], default=0.0)
        return max(KILL_LATENCY_S, SIGNAL_S + FREEING_S_PER_GIB * largest_mib / 1024.0)

    def _runs(self, phase_id: int, run: Running) -> bool:
        """This run of the phase has not ended; the next one is another."""
        return self._running.get(phase_id) is run

    def _take_in(self, event: Sampled, now_s: float) -> None:
        self._samples += 1
        cpu_s = dict(event.cpu_s)
        for phase_id, rss_mib in event.rss_mib:
            if (run := self._running.get(phase_id)) is None:
                continue
            self._running.sampled(run, rss_mib, now_s, self._samples)
            if run.growth_mib_s:
                self._growing[phase_id] = run
            else:
                self._growing.pop(phase_id, None)
            if not self._runaways.rests(phase_id, rss_mib, now_s):
                budget_mib = max(run.budget_mib, event.budget_mib)
                self._runaways.look(
                    phase_id, rss_mib=rss_mib, cpu_s=cpu_s.get(phase_id), budget_mib=budget_mib, now_s=now_s
                )

    def _victim(self, needed_mib: float, now_s: float) -> int | None:
        suspects = {each for each in self._runaways.suspects if self._runaways.is_strange(each)}
        victim = choose(
            [
                Candidate(
                    phase_id=phase_id,
                    rss_mib=run.rss_mib,
                    age_s=now_s - run.admitted_at_s,
                    suspect=phase_id in suspects or _stands_out(run),
                    redoable=run.phase.redoable,
                )
                for phase_id, run in self._running.items()
            ],
            needed_mib=needed_mib,
        )
        return None if victim is None or victim.rss_mib < LEAST_WORTH_MIB else victim.phase_id

    def _end_runaway(self) -> list[Action]:
        """End a phase that grows without end, though it runs alone: to give it up, or to see it do so again alone."""
        company = len(self._running) > 1
        for phase_id in sorted(self._runaways.suspects & self._running.keys()):
            why = self._runaways.runs_away(phase_id, company=company)
            if not why:
                continue
            run = self._running.kill(phase_id)
            run.runaway, run.alone = why, not company
            what = f"{run.phase.kind.value} of {run.phase.source}"
            return [
                Warn(text=f"runaway: ends {what}, which grows without end: {why}"),
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


def _stands_out(run: Running) -> bool:
    """It is not as it was taken to be: far beyond a bound that was sure, or past it and faster than any compiler."""
    bound_mib = run.estimate.reserve_mib
    return (run.sure and run.rss_mib > FAR_BEYOND * bound_mib) or (run.too_fast and run.rss_mib > bound_mib)
