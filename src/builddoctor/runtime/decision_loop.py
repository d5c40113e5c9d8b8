"""The decision loop: facts to the scheduler, one after another, and its decisions carried out.

Covers: the only queue of facts, and the only place where decisions are carried out; looking at memory before anything
is decided on figures that are old.
Does *not* cover: deciding (``scheduler``), what memory there is (``runtime.sampler``), or where facts come from: gates
(``runtime.session``), nodes (``runtime.away``), the user's signals (``runtime.build``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from builddoctor.core.events import (
    Admit,
    Continue,
    Decision,
    Fact,
    GiveUp,
    Interrupted,
    Kill,
    MemorySampled,
    MemoryUnseen,
    OutOfTime,
    Pause,
    ReleaseUnit,
    Requeue,
    Resume,
    StopNinja,
    Suspend,
    SuspendRefused,
)
from builddoctor.runtime.event_log import EventLog
from builddoctor.runtime.kill_evidence import KillEvidence
from builddoctor.runtime.phases import LivePhases
from builddoctor.runtime.sampler import QUIET_EVERY_S, Sampler
from builddoctor.runtime.ungated_watch import UngatedWatch
from builddoctor.runtime.units import HeldUnits
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.system.process import Processes
from builddoctor.system.root import Clock


class DecisionLoop:
    """One build's. All methods are called in the event loop."""

    def __init__(
        self,
        scheduler: Scheduler,
        log: EventLog,
        *,
        phases: LivePhases,
        held_units: HeldUnits,
        open_units: Callable[[], int],
        sampler: Sampler,
        ungated: UngatedWatch,
        evidence: KillEvidence,
        processes: Processes,
        clock: Clock,
        out_of_time: Callable[[], None],
        stop_ninja: Callable[[StopNinja], None],
    ) -> None:
        """``open_units``: how many there are now. ``out_of_time`` and ``stop_ninja``: called when the build, or a ninja
        of it, is to be stopped."""
        self._scheduler = scheduler
        self._log = log
        self._phases = phases
        self._held_units = held_units
        self._open_units = open_units
        self._sampler = sampler
        self._ungated = ungated
        self._evidence = evidence
        self._processes = processes
        self._clock = clock
        self._out_of_time = out_of_time
        self._stop_ninja = stop_ninja
        self._facts: deque[Fact] = deque()
        self._deciding = False
        self._blind = False
        self._untold: MemorySampled | None = None
        self._told_s = float("-inf")

    def decide(self, fact: Fact) -> None:
        """Log a fact, hand it to the scheduler, log and carry out what it decides. What comes meanwhile is next."""
        if not self._deciding and not isinstance(fact, MemorySampled) and self._sampler.is_stale:
            self.look()
        if self._untold is not None:
            # What is decided now is decided on it.
            self._facts.append(self._untold)
            self._untold = None
        self._facts.append(fact)
        if self._deciding:
            return
        self._deciding = True
        try:
            while self._facts:
                fact = self._facts.popleft()
                self._log.add(fact)
                for decision in self._scheduler.handle(fact):
                    self._log.add(decision)
                    self._carry_out(decision)
        finally:
            self._deciding = False

    def look(self) -> None:
        """Look at memory, and decide on what was seen."""
        self._untold = None
        try:
            for fact in self._sampler.look(self._log.at_s(), open_units=self._open_units()):
                if isinstance(fact, MemorySampled):
                    self._evidence.looked(headroom_mib=fact.headroom_mib, reserve_mib=fact.reserve_mib)
                    if self._sampler.is_quiet and fact.at_s < self._told_s + QUIET_EVERY_S:
                        self._untold = fact
                        continue
                    self._untold, self._told_s = None, fact.at_s
                self.decide(fact)
        except Exception as error:  # noqa: BLE001 - whatever it is, the build must not go on unwatched
            self._unseen(error)

    def _unseen(self, error: Exception) -> None:
        if not self._blind:
            self._blind = True
            self._log.tell(f"memory cannot be watched ({error!r}): phases run one at a time now", warning=True)
        # Whatever is decided: nothing stays stopped while nobody looks.
        self._ungated.release()
        for live in self._phases.running:
            live.resume(self._clock())
        self.decide(MemoryUnseen(at_s=self._log.at_s(), problem=repr(error)))

    def interrupt(self, signal: int | None) -> None:
        """The build is being ended, or has ended."""
        self.decide(Interrupted(at_s=self._log.at_s(), signal=signal))
        self._ungated.end()

    def _carry_out(self, decision: Decision) -> None:
        """Do it. A phase that has just ended is passed over: the scheduler hears of that next."""
        if isinstance(decision, Admit):
            self._admit(decision)
        elif isinstance(decision, Kill | Requeue | GiveUp):
            self._end(decision)
        elif isinstance(decision, Suspend | Resume):
            self._stand(decision)
        elif isinstance(decision, OutOfTime):
            self._out_of_time()
        elif isinstance(decision, StopNinja):
            self._stop_ninja(decision)
        elif isinstance(decision, ReleaseUnit):
            self._held_units.release(decision.unit_id, decision.threads)
        elif isinstance(decision, Pause):
            if (refused := self._ungated.pause(decision, self._log.at_s())) is not None:
                self.decide(refused)
        elif isinstance(decision, Continue):
            self._ungated.go_on(decision)

    def _end(self, decision: Kill | Requeue | GiveUp) -> None:
        live = self._phases.get(decision.phase_id)
        if live is None:
            return
        if isinstance(decision, Kill):
            # False where it has ended by itself just now.
            live.kill(self._processes)
        elif isinstance(decision, Requeue):
            live.again()
        else:
            live.given_up = True
            del self._phases[decision.phase_id]

    def _stand(self, decision: Suspend | Resume) -> None:
        live, now_s = self._phases.get(decision.phase_id), self._clock()
        if isinstance(decision, Resume):
            if live is not None:
                live.resume(now_s)
        elif live is None or not live.suspend(self._processes, now_s):
            # It has just ended, or its tool is not ours to stop.
            self.decide(SuspendRefused(at_s=self._log.at_s(), phase_id=decision.phase_id))

    def _admit(self, admit: Admit) -> None:
        live = self._phases.get(admit.phase_id)
        if live is None:
            return
        live.node = admit.node
        if live.node:
            if not live.granted.done():
                live.granted.set_result(None)
            return
        now_s = live.admitted_at_s = self._clock()
        live.before = self._evidence.baseline(live.gate_pid if live.trusted else None, now_s=now_s)
        live.thrift = admit.thrift
        live.gives_way = admit.gives_way
        if not live.granted.done():
            live.granted.set_result(None)
