"""One supervised build's conversation with its gates: facts to the scheduler, its decisions carried out.

Covers: gate connections, phases and units from their announcement to their end, the only queue of facts, the only place
where decisions are carried out, and the log, whose observers are told of every event: nothing else is, and none
subscribes later.
Does *not* cover: deciding (``scheduler``), looking at memory (``runtime.sampler``), the build process itself
(``runtime.build``), or what is shown and kept: observers do that.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from builddoctor.core.events import (
    Admit,
    Beside,
    Continue,
    Decision,
    Event,
    Fact,
    GiveUp,
    Interrupted,
    Kill,
    MemorySampled,
    MemoryUnseen,
    Note,
    NoteLevel,
    OutOfTime,
    Pause,
    PhaseAsked,
    PhaseEnded,
    PhaseStarted,
    ReleaseUnit,
    Requeue,
    UnitBegan,
    UnitEnded,
)
from builddoctor.core.phase import STORE, Outcome, Phase, PhaseKind, Unit
from builddoctor.gates.fronts import answer_words
from builddoctor.gates.gate_program import KEEP, THRIFT
from builddoctor.gates.protocol import Asked, Connection, Ended, Registered, Started
from builddoctor.runtime.failure_capture import FailureSnapshots, InputCapture, call_of
from builddoctor.runtime.history_recorder import HistoryRecorder
from builddoctor.runtime.kill_evidence import KillEvidence
from builddoctor.runtime.phases import LivePhase, LivePhases, was_killed
from builddoctor.runtime.sampler import QUIET_EVERY_S, Sampler
from builddoctor.runtime.sent_phases import LOST, Load, Returned, load_of
from builddoctor.runtime.sharing import Sharing
from builddoctor.runtime.ungated_watch import UngatedWatch
from builddoctor.runtime.units import HeldUnits, Units
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.system.process import Processes
from builddoctor.system.root import Clock, SystemRoot
from builddoctor.toolchain.command_lines import parse_sizes, phase_facts

if TYPE_CHECKING:
    # With it comes Dask, which builds without a cluster do not wait for.
    from builddoctor.runtime.away import Elsewhere
    from builddoctor.runtime.stored_phases import StoredPhases

Observer = Callable[[Event], None]

FrontAnswer = Callable[[Registered], Awaitable[tuple[list[str], dict[str, str | None]]]]
"""Further arguments and environment for a program that runs a build."""


class EventLog:
    """What happens in one build, each event once, to all that want to know: trace, state, screen, what is learned.

    Called in the event loop. Observers are told in their order, and must not log anything themselves.
    """

    def __init__(self, clock: Clock, observers: Sequence[Observer], *, start_s: float | None = None) -> None:
        self._clock = clock
        self._observers = tuple(observers)
        self.start_s = clock() if start_s is None else start_s

    def at_s(self) -> float:
        """Seconds since the build began, as events have it."""
        return round(self._clock() - self.start_s, 4)

    def add(self, *events: Event | None) -> None:
        """These happened, in this order; None for nothing."""
        for event in events:
            if event is not None:
                for observer in self._observers:
                    observer(event)

    def tell(self, text: str, *, warning: bool = False) -> None:
        """A line for a person."""
        self.add(Note(at_s=self.at_s(), text=text, level=NoteLevel.WARNING if warning else NoteLevel.INFO))


class GateCosts:
    """What gates and the answers to them cost."""

    def __init__(self) -> None:
        self.gates = 0
        self.cpu_s = 0.0
        """of gates, and of answering them"""
        self.peak_mib = 0.0

    def gate_ended(self, *, cpu_s: float, peak_kib: int) -> None:
        """A gate said what it cost itself."""
        self.gates += 1
        self.cpu_s += cpu_s
        self.peak_mib = max(self.peak_mib, peak_kib / 1024)


class Session:
    """State of the conversation. All methods are called in the event loop."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        log: EventLog,
        phases: LivePhases,
        sampler: Sampler,
        sharing: Sharing,
        ungated: UngatedWatch,
        evidence: KillEvidence,
        processes: Processes,
        root: SystemRoot,
        clock: Clock,
        answer_front: FrontAnswer,
        recorder: HistoryRecorder,
        elsewhere: Elsewhere | None,
        stored: StoredPhases | None,
        snapshots: FailureSnapshots,
        capture: InputCapture,
        holds_units: bool,
        out_of_time: Callable[[], None],
    ) -> None:
        """``elsewhere``: other machines that phases may be sent to; ``stored``: results of earlier builds. None: none.

        ``out_of_time``: called when the scheduler says that the build is to be stopped.
        """
        self.costs = GateCosts()
        self.phases = phases
        self.units = Units(processes, began=self._unit_began, ended=self._unit_ended)
        self.held_units = HeldUnits()
        self._scheduler = scheduler
        self._log = log
        self._sampler = sampler
        self._sharing = sharing
        self._ungated = ungated
        self._evidence = evidence
        self._processes = processes
        self._root = root
        self._page_bytes = root.page_bytes()
        self._clock = clock
        self._answer_front = answer_front
        self._recorder = recorder
        self._elsewhere = elsewhere
        self._stored = stored
        self._snapshots = snapshots
        self._capture = capture
        self._holds_units = holds_units
        self._out_of_time = out_of_time
        self._facts: deque[Fact] = deque()
        self._deciding = False
        self._blind = False
        self._untold: MemorySampled | None = None
        self._told_s = float("-inf")
        self._last_phase_id = 0

    # -- facts and decisions -----------------------------------------------------------------------------------

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
            for fact in self._sampler.look(self._log.at_s(), open_units=len(self.units.open)):
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
        self._ungated.release()
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
        elif isinstance(decision, OutOfTime):
            self._out_of_time()
        elif isinstance(decision, ReleaseUnit):
            self.held_units.release(decision.unit_id, decision.threads)
        elif isinstance(decision, Pause):
            if (refused := self._ungated.pause(decision, self._log.at_s())) is not None:
                self.decide(refused)
        elif isinstance(decision, Continue):
            self._ungated.go_on(decision)

    def _end(self, decision: Kill | Requeue | GiveUp) -> None:
        live = self.phases.get(decision.phase_id)
        if live is None:
            return
        if isinstance(decision, Kill):
            # False where it has ended by itself just now.
            live.kill(self._processes)
        elif isinstance(decision, Requeue):
            live.again()
        else:
            live.given_up = True
            del self.phases[decision.phase_id]

    def _admit(self, admit: Admit) -> None:
        live = self.phases.get(admit.phase_id)
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
        if not live.granted.done():
            live.granted.set_result(None)

    # -- gates -------------------------------------------------------------------------------------------------

    async def converse(self, connection: Connection) -> None:
        """Serve one gate until it is gone."""
        message = await connection.receive()
        if isinstance(message, Asked):
            live = self.take_up(message, trusted=connection.peer_pid == message.gate_pid)
            digest = _digest(message.argv)
            # A thousand gates may wait, each with its command line.
            del message
            await self._phase(connection, live, digest)
        elif isinstance(message, Registered):
            self.costs.gate_ended(cpu_s=message.gate_cpu_s, peak_kib=message.gate_peak_kib)
            if message.role == "unit":
                unit = self.units.register_nvcc(connection.peer_pid, message.argv, message.cwd)
                threads = await self.held_units.threads(unit.unit_id)
                connection.send("go", unit.unit_id, str(threads))
            else:
                connection.send("go", *answer_words(*await self._answer_front(message)))

    async def _phase(self, connection: Connection, live: LivePhase, digest: str) -> None:
        try:
            if self._stored is not None and live.trusted and not await self._look_up(connection, live):
                return
            began = time.thread_time()
            self.announce(live, digest)
            self.costs.cpu_s += time.thread_time() - began
            await self._see_through(connection, live)
        finally:
            self._let_go(live)
            if live.to_remove:
                with contextlib.suppress(OSError):
                    os.unlink(live.to_remove)
            self.units.leave(live.phase.unit_id)

    def _let_go(self, live: LivePhase) -> None:
        """It is over, or its gate died: then its tool has no reader any more, and must not grow unseen."""
        if self.phases.pop(live.phase.phase_id, None) is not None:
            live.kill(self._processes)
            self.decide(
                PhaseEnded(
                    at_s=self._log.at_s(),
                    phase_id=live.phase.phase_id,
                    outcome=Outcome.WITHDRAWN,
                    peak_mib=round(live.peak_mib, 1),
                    wall_s=0.0,
                )
            )
        live.tool_gone()

    def take_up(self, asked: Asked, *, trusted: bool) -> LivePhase:
        """A phase as its gate tells it, in its unit; ``trusted``: the kernel vouches for the gate's pid."""
        uncaught = self.units.uncaught
        unit_id = self.units.of(asked)
        if self.units.uncaught != uncaught:
            self._log.tell(
                f"{self.units.uncaught} is called by its own path: its cudafe++, cicc and ptxas start unasked; let the "
                "build take nvcc from PATH or $CUDACXX",
                warning=True,
            )
        facts = phase_facts(asked.tool, asked.argv, parse_sizes(asked.sizes))
        unit = self.units.open.get(unit_id)
        self._last_phase_id += 1
        phase = Phase(
            phase_id=self._last_phase_id,
            unit_id=unit_id,
            kind=facts.kind,
            source=(unit.source or unit.output) if unit is not None and (unit.source or unit.output) else facts.source,
            arch=facts.arch,
            input_mib=round(facts.input_mib, 4),
            tool=asked.tool,
            redoable=asked.redoable,
            portable=trusted and self._elsewhere is not None and self._elsewhere.can_send(asked),
        )
        self.units.enter(unit_id)
        return LivePhase(phase, gate_pid=asked.gate_pid, trusted=trusted, cwd=asked.cwd)

    def announce(self, live: LivePhase, argv_digest: str = "") -> None:
        """It asks."""
        self.phases[live.phase.phase_id] = live
        self.decide(PhaseAsked(at_s=self._log.at_s(), phase=live.phase, argv_digest=argv_digest))

    async def _see_through(self, connection: Connection, live: LivePhase) -> None:
        """Grant, start, end; and again as often as the scheduler wants."""
        word = "go"
        while live.granted.done() or await self._granted(connection, live):
            if live.node:
                granted = live.granted
                if (returned := await self._run_elsewhere(connection, live)) is None:
                    return
                if live.phase.phase_id not in self.phases:
                    printed = os.fsdecode(returned.printed.replace(b"\0", b""))
                    connection.send("done", str(returned.status), printed)
                    return
                if live.granted is granted:
                    # It is not to run again: the build is being ended.
                    return
                continue
            keeps = (KEEP,) if live.sought is not None and live.sought.likeness.may_be_kept else ()
            connection.send(word, *(THRIFT if live.thrift else ()), *keeps)
            word, ended = "again", await self._run_once(connection, live)
            if ended is None:
                return
            if live.phase.phase_id not in self.phases:
                if ended.status != 0:
                    self._add_now(await self._capture.keep(live, ended.status, given_up=live.given_up))
                elif ended.printed is not None:
                    said, cpu_s = os.fsencode(ended.printed), ended.cpu_s
                    returned = Returned(outcome=Outcome.OK, printed=said, peak_mib=live.peak_mib, cpu_s=cpu_s)
                    await self._keep(live, returned)
                if ended.status != 0 or keeps:
                    connection.send("return")
                return

    async def _run_elsewhere(self, connection: Connection, live: LivePhase) -> Returned | None:
        """On another machine, or out of the store, to its end; None when the gate is gone before."""
        returned, began_s = await self._prepared(connection, live), self._clock()
        if returned is None:
            return None
        if returned.outcome is Outcome.OK:
            returned = await self._while_gate_waits(connection, self._away(live))
        if returned is None:
            return None
        if live.node != STORE and returned.outcome in (Outcome.OK, Outcome.FAILED):
            returned = msgspec.structs.replace(returned, printed=live.warned + returned.printed)
        if live.node != STORE and returned.outcome is Outcome.OK:
            await self._keep(live, returned)
        live.outcome = returned.outcome
        if returned.outcome in (Outcome.OK, Outcome.FAILED):
            self.phases.pop(live.phase.phase_id, None)
        away_s = self._clock() - began_s
        self.decide(returned.ended(live.phase.phase_id, live.node, at_s=self._log.at_s(), away_s=away_s))
        return returned

    def _away(self, live: LivePhase) -> Awaitable[Returned]:
        if live.node == STORE:
            assert self._stored is not None, "only with a store is anything stored"
            assert live.sought is not None, "only what was found there is taken"
            return self._stored.take(live.sought)
        assert self._elsewhere is not None, "only where there are nodes is anything sent"
        assert live.load is not None, "only what may be sent is"
        return self._elsewhere.run(live.load, live.node)

    async def _prepared(self, connection: Connection, live: LivePhase) -> Returned | None:
        """All that the phase reads is here, preprocessed where it has to be, and its ``load`` known: ``Outcome.OK``.

        Another outcome where it has none, or its source cannot be preprocessed: then the compile itself would fail in
        the same way. None when the gate is gone."""
        if live.load is None:
            call = call_of(live.gate_pid, self._root)
            load = load_of(call, live.phase.phase_id) if call is not None else None
            if load is None:
                return LOST
            if load.before:
                ended = await self._preprocess(connection, live, load)
                if ended is None or ended.status != 0:
                    return None if ended is None else Returned(outcome=Outcome.FAILED, status=ended.status)
                live.warned = os.fsencode(ended.printed or "")
            live.load = load
        return Returned(outcome=Outcome.OK)

    async def _look_up(self, connection: Connection, live: LivePhase) -> bool:
        """In the store; False when there is nothing more to do for this gate."""
        assert self._stored is not None
        if not live.phase.redoable:
            return True
        prepared = await self._prepared(connection, live)
        if prepared is None:
            return False
        if prepared.outcome is Outcome.FAILED:
            # It has said why.
            connection.send("done", str(prepared.status), "")
            return False
        if live.load is not None:
            live.sought = await self._stored.look_up(live.load)
            found = live.sought is not None and live.sought.result is not None
            live.phase = msgspec.structs.replace(live.phase, stored=found)
        return True

    async def _keep(self, live: LivePhase, returned: Returned) -> None:
        """Put what it wrote into the store, where there is one: its gate waits meanwhile."""
        if self._stored is not None and live.sought is not None:
            await self._stored.keep(live.sought, returned)

    async def _preprocess(self, connection: Connection, live: LivePhase, load: Load) -> Ended | None:
        """A compile's own program preprocesses its source here, as a phase of its own. None: its gate is gone."""
        # Also what is written by halves goes with the phase.
        live.to_remove = os.path.join(load.cwd, load.preprocessed)
        of = live.phase
        self._last_phase_id += 1
        phase = Phase(
            phase_id=self._last_phase_id,
            unit_id=of.unit_id,
            kind=PhaseKind.PREPROCESS,
            source=of.source,
            input_mib=of.input_mib,
            tool=of.tool,
        )
        before = LivePhase(phase, gate_pid=live.gate_pid, trusted=live.trusted, cwd=live.cwd)
        self.announce(before)
        try:
            while before.granted.done() or await self._granted(connection, before):
                connection.send("before", *load.before)
                ended = await self._run_once(connection, before)
                if ended is None or phase.phase_id not in self.phases:
                    return ended
            return None
        finally:
            self._let_go(before)

    async def _while_gate_waits(self, connection: Connection, work: Awaitable[Returned]) -> Returned | None:
        """The work's result; None, and the work is cancelled, when the gate is gone before."""
        working, receiving = asyncio.ensure_future(work), asyncio.ensure_future(connection.receive())
        try:
            await asyncio.wait((receiving, working), return_when=asyncio.FIRST_COMPLETED)
            return None if receiving.done() else working.result()
        finally:
            receiving.cancel()
            working.cancel()

    def _add_now(self, events: Sequence[Event]) -> None:
        """Events that carry no time of their own."""
        at_s = self._log.at_s()
        self._log.add(*(msgspec.structs.replace(event, at_s=at_s) for event in events))

    async def _granted(self, connection: Connection, live: LivePhase) -> bool:
        """Wait for its turn; False when the gate is gone before, or says what it should not."""
        receiving = asyncio.ensure_future(connection.receive())
        try:
            await asyncio.wait((receiving, live.granted), return_when=asyncio.FIRST_COMPLETED)
        finally:
            receiving.cancel()
        return live.granted.done()

    async def _run_once(self, connection: Connection, live: LivePhase) -> Ended | None:
        message = await connection.receive()
        while isinstance(message, Started):
            live.tool_started(message.pid, self._root, self._processes, self._page_bytes)
            self._log.add(PhaseStarted(at_s=self._log.at_s(), phase_id=live.phase.phase_id, pid=message.pid))
            message = await connection.receive()
        if not isinstance(message, Ended):
            return None
        began = time.thread_time()
        self._ended(live, message)
        self.costs.cpu_s += time.thread_time() - began
        return message

    def _ended(self, live: LivePhase, message: Ended) -> None:
        live.peak_mib = max(live.peak_mib, self._root.high_water_mib(message.peak_kib))
        # A thousand may wait: their sizes are added up for those alone that failed.
        held_mib = self.phases.held_mib if message.status else 0.0
        tool_pid = live.tool_pid
        live.tool_gone()
        at_s, now_s = self._log.at_s(), self._clock()
        started_s = live.admitted_at_s if live.admitted_at_s is not None else now_s
        outcome = live.outcome = self._outcome(live, message.status)
        ended = PhaseEnded(
            at_s=at_s,
            phase_id=live.phase.phase_id,
            outcome=outcome,
            peak_mib=round(live.peak_mib, 1),
            wall_s=round(now_s - started_s, 3),
            cpu_s=round(message.cpu_s, 3),
            exit_code=None if message.status & 0x7F else message.status >> 8,
            signal=message.status & 0x7F or None,
            cause=live.cause,
            beside=self._beside(started_s) if outcome is Outcome.KILLED_BY_KERNEL else (),
        )
        unit = self.units.open.get(live.phase.unit_id)
        self._log.add(self._snapshots.phase_ended(live, unit, tool_pid=tool_pid, ours_mib=held_mib, at_s=at_s))
        over = outcome in (Outcome.OK, Outcome.FAILED)
        if over:
            self.phases.pop(live.phase.phase_id, None)
        if (share := self._sharing.phase_ended(self.phases.held_mib, at_s)) is not None:
            self.decide(share)
        self.decide(ended)
        if live.phase.phase_id not in self.phases:
            self.costs.gate_ended(cpu_s=message.gate_cpu_s, peak_kib=message.gate_peak_kib)

    def _beside(self, since_s: float) -> tuple[Beside, ...]:
        """What else held memory under our limit, at that time (on the clock) or later."""
        seen = (
            (Beside.OTHER_BUILDS, self._sharing.had_company(since_s)),
            (Beside.UNGATED, self._ungated.seen_since(since_s)),
        )
        return tuple(each for each, there in seen if there)

    def _outcome(self, live: LivePhase, status: int) -> Outcome:
        if status == 0:
            return Outcome.OK
        if live.killed_by_us:
            return Outcome.KILLED_BY_US
        if was_killed(status):
            live.cause = self._evidence.claim(live.before)
            return Outcome.KILLED_BY_KERNEL if live.cause.by_kernel else Outcome.KILLED_OUTSIDE
        # collect2 and clang report the death of their own child as a failure of theirs.
        if live.phase.tool == "collect2" or live.phase.tool.startswith("clang"):
            cause = self._evidence.claim(live.before)
            if cause.by_kernel:
                live.cause = cause
                return Outcome.KILLED_BY_KERNEL
        return Outcome.FAILED

    # -- units -------------------------------------------------------------------------------------------------

    def _unit_began(self, unit: Unit, argv: Sequence[str], cwd: str, at_gate: bool) -> None:
        at_s = self._log.at_s()
        # Questions, links and what configure steps try out are never held.
        held = at_gate and unit.counted and self._holds_units
        if held:
            self.held_units.hold(unit.unit_id)
        self._log.add(self._capture.unit_called(unit, argv, cwd, at_s=at_s))
        known = self._recorder.unit_called(unit, argv, cwd)
        self.decide(
            UnitBegan(
                at_s=at_s,
                unit=unit,
                held=held,
                argv_digest=_digest(argv),
                key=known.key,
                target=known.target,
                source_digest=known.source_digest,
                past=known.past,
                teaches=known.teaches,
            )
        )

    def _unit_ended(self, unit: Unit) -> None:
        # Its gate died while it waited, or it has ended as nvcc.
        self.held_units.release(unit.unit_id)
        self.decide(UnitEnded(at_s=self._log.at_s(), unit_id=unit.unit_id))


def _digest(argv: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(argv).encode(errors="replace")).hexdigest()[:16]
