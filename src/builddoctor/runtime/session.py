"""One supervised build's conversation with its gates, each from its first word to its last.

Covers: gate connections; phases and units from their announcement to their end, on this machine, on another, or out of
the store.
Does *not* cover: what is decided on them and carried out (``runtime.decision_loop``), what is sent to other machines
(``runtime.away``) or kept (``runtime.stored_phases``), or the build process itself (``runtime.build``).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from builddoctor.core.events import Beside, Event, PhaseAsked, PhaseEnded, PhaseStarted, UnitBegan, UnitEnded
from builddoctor.core.phase import STORE, Outcome, Phase, PhaseKind, Unit
from builddoctor.gates.fronts import answer_words
from builddoctor.gates.gate_program import GIVES_WAY, KEEP, THRIFT
from builddoctor.gates.protocol import Asked, Connection, Ended, Registered, Started
from builddoctor.runtime.decision_loop import DecisionLoop
from builddoctor.runtime.event_log import EventLog
from builddoctor.runtime.failure_capture import FailureSnapshots, InputCapture, call_of
from builddoctor.runtime.first_failure import FailedNinjas
from builddoctor.runtime.history_recorder import HistoryRecorder
from builddoctor.runtime.kill_evidence import KillEvidence
from builddoctor.runtime.phases import LivePhase, LivePhases, was_killed
from builddoctor.runtime.sent_phases import LOST, Load, Returned, load_of
from builddoctor.runtime.sharing import Sharing
from builddoctor.runtime.ungated_watch import UngatedWatch
from builddoctor.runtime.units import HeldUnits, Units
from builddoctor.system.process import Processes
from builddoctor.system.root import Clock, SystemRoot
from builddoctor.toolchain.command_lines import parse_sizes, phase_facts

if TYPE_CHECKING:
    # With it comes Dask, which builds without a cluster do not wait for.
    from builddoctor.runtime.away import Elsewhere
    from builddoctor.runtime.stored_phases import StoredPhases

FrontAnswer = Callable[[Registered], Awaitable[tuple[list[str], Mapping[str, str | None]]]]
"""Further arguments and environment for a program that runs a build."""
RightGate = Callable[[Registered], Awaitable[str]]
"""The gate that nvcc's is to become instead; empty: it is the right one."""


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


class _GateGoneError(Exception):
    """The gate is gone before its phase has ended, or says what it should not."""


class Session:
    """State of the conversation. All methods are called in the event loop."""

    def __init__(
        self,
        *,
        decisions: DecisionLoop,
        log: EventLog,
        phases: LivePhases,
        held_units: HeldUnits,
        sharing: Sharing,
        ungated: UngatedWatch,
        evidence: KillEvidence,
        processes: Processes,
        root: SystemRoot,
        clock: Clock,
        answer_front: FrontAnswer,
        right_gate: RightGate,
        recorder: HistoryRecorder,
        elsewhere: Elsewhere | None,
        stored: StoredPhases | None,
        snapshots: FailureSnapshots,
        capture: InputCapture,
        holds_units: bool,
    ) -> None:
        """``elsewhere``: other machines that phases may be sent to; ``stored``: results of earlier builds. None: none.

        ``holds_units``: their nvcc waits until it is released.
        """
        self.costs = GateCosts()
        self.phases = phases
        self.units = Units(processes, began=self._unit_began, ended=self._unit_ended)
        self.failures = FailedNinjas(self.units, processes)
        self._decisions = decisions
        self._log = log
        self._held_units = held_units
        self._sharing = sharing
        self._ungated = ungated
        self._evidence = evidence
        self._processes = processes
        self._root = root
        self._page_bytes = root.page_bytes()
        self._clock = clock
        self._answer_front = answer_front
        self._right_gate = right_gate
        self._recorder = recorder
        self._elsewhere = elsewhere
        self._stored = stored
        self._snapshots = snapshots
        self._capture = capture
        self._holds_units = holds_units
        self._last_phase_id = 0

    # -- gates -------------------------------------------------------------------------------------------------

    async def converse(self, connection: Connection) -> None:
        """Serve one gate until it is gone."""
        with contextlib.suppress(_GateGoneError):
            await self._serve(connection)

    async def _serve(self, connection: Connection) -> None:
        message = await connection.receive()
        if isinstance(message, Asked):
            live = self.take_up(message, trusted=connection.peer_pid == message.gate_pid)
            digest = _digest(message.argv)
            # A thousand gates may wait, each with its command line.
            del message
            await self._phase(connection, live, digest)
        elif isinstance(message, Registered):
            self.costs.gate_ended(cpu_s=message.gate_cpu_s, peak_kib=message.gate_peak_kib)
            # By the kernel's word, as with a unit's number.
            message = msgspec.structs.replace(message, pid=connection.peer_pid)
            if message.role == "unit" and (instead := await self._right_gate(message)):
                connection.send("instead", instead)
            elif message.role == "unit":
                unit = self.units.register_nvcc(connection.peer_pid, message.argv, message.cwd)
                threads = await self._held_units.threads(unit.unit_id)
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
            self._decisions.decide(
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
            self._log.tell(_uncaught(self.units.uncaught), warning=True)
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
        self._decisions.decide(PhaseAsked(at_s=self._log.at_s(), phase=live.phase, argv_digest=argv_digest))

    async def _see_through(self, connection: Connection, live: LivePhase) -> None:
        """Grant, start, end; and again as often as the scheduler wants."""
        word = "go"
        while True:
            await self._granted(connection, live)
            if live.node:
                granted = live.granted
                returned = await self._run_elsewhere(connection, live)
                if live.phase.phase_id not in self.phases:
                    if returned.status != 0:
                        self._failed(live)
                    printed = os.fsdecode(returned.printed.replace(b"\0", b""))
                    connection.send("done", str(returned.status), printed)
                    return
                if live.granted is granted:
                    # It is not to run again: the build is being ended.
                    return
                continue
            keeps = (KEEP,) if live.sought is not None and live.sought.likeness.may_be_kept else ()
            gives_way = (GIVES_WAY,) if live.gives_way else ()
            connection.send(word, *(THRIFT if live.thrift else ()), *keeps, *gives_way)
            word, ended = "again", await self._run_once(connection, live)
            if live.phase.phase_id not in self.phases:
                if ended.status != 0:
                    self._failed(live)
                    self._add_now(await self._capture.keep(live, ended.status, given_up=live.given_up))
                elif ended.printed is not None:
                    said, cpu_s = os.fsencode(ended.printed), ended.cpu_s
                    returned = Returned(outcome=Outcome.OK, printed=said, peak_mib=live.peak_mib, cpu_s=cpu_s)
                    await self._keep(live, returned)
                if ended.status != 0 or keeps:
                    connection.send("return")
                return

    async def _run_elsewhere(self, connection: Connection, live: LivePhase) -> Returned:
        """On another machine, or out of the store, to its end."""
        returned, began_s = await self._unprepared(connection, live), self._clock()
        if returned is None:
            returned = await self._while_gate_waits(connection, self._away(live))
        if live.node != STORE and returned.outcome in (Outcome.OK, Outcome.FAILED):
            returned = msgspec.structs.replace(returned, printed=live.warned + returned.printed)
        if live.node != STORE and returned.outcome is Outcome.OK:
            await self._keep(live, returned)
        live.outcome = returned.outcome
        if returned.outcome in (Outcome.OK, Outcome.FAILED):
            self.phases.pop(live.phase.phase_id, None)
        away_s = self._clock() - began_s
        self._decisions.decide(returned.ended(live.phase.phase_id, live.node, at_s=self._log.at_s(), away_s=away_s))
        return returned

    def _away(self, live: LivePhase) -> Awaitable[Returned]:
        if live.node == STORE:
            assert self._stored is not None, "only with a store is anything stored"
            assert live.sought is not None, "only what was found there is taken"
            return self._stored.take(live.sought)
        assert self._elsewhere is not None, "only where there are nodes is anything sent"
        assert live.load is not None, "only what may be sent is"
        return self._elsewhere.run(live.load, live.node)

    async def _unprepared(self, connection: Connection, live: LivePhase) -> Returned | None:
        """Find its ``load``, and preprocess its source where it has to be: None once all that it reads is here.

        Else what it has come to: it has no load, or its source cannot be preprocessed, and the compile itself would
        fail in the same way.
        """
        if live.load is not None:
            return None
        call = call_of(live.gate_pid, self._root)
        load = load_of(call, live.phase.phase_id) if call is not None else None
        if load is None:
            return LOST
        if load.before:
            ended = await self._preprocess(connection, live, load, urgent=bool(live.node))
            if ended.status != 0:
                return Returned(outcome=Outcome.FAILED, status=ended.status)
            live.warned = os.fsencode(ended.printed or "")
        live.load = load
        return None

    async def _look_up(self, connection: Connection, live: LivePhase) -> bool:
        """In the store; False when there is nothing more to do for this gate."""
        assert self._stored is not None
        # While the store is left alone, preprocessing for a key would be for nothing.
        if not live.phase.redoable or self._stored.resting:
            return True
        returned = await self._unprepared(connection, live)
        if returned is not None and returned.outcome is Outcome.FAILED:
            # It has said why.
            self._failed(live)
            connection.send("done", str(returned.status), "")
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

    async def _preprocess(self, connection: Connection, live: LivePhase, load: Load, *, urgent: bool) -> Ended:
        """A compile's own program preprocesses its source here, as a phase of its own. ``urgent``: a node waits."""
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
            urgent=urgent,
        )
        before = LivePhase(phase, gate_pid=live.gate_pid, trusted=live.trusted, cwd=live.cwd)
        self.announce(before)
        try:
            while True:
                await self._granted(connection, before)
                connection.send("before", *load.before)
                ended = await self._run_once(connection, before)
                if phase.phase_id not in self.phases:
                    return ended
        finally:
            self._let_go(before)

    async def _while_gate_waits(self, connection: Connection, work: Awaitable[Returned]) -> Returned:
        """The work's result; it is cancelled when the gate is gone before."""
        working, receiving = asyncio.ensure_future(work), asyncio.ensure_future(connection.receive())
        try:
            await asyncio.wait((receiving, working), return_when=asyncio.FIRST_COMPLETED)
            if receiving.done():
                raise _GateGoneError
            return working.result()
        finally:
            receiving.cancel()
            working.cancel()

    def _add_now(self, events: Sequence[Event]) -> None:
        """Events that carry no time of their own."""
        at_s = self._log.at_s()
        self._log.add(*(msgspec.structs.replace(event, at_s=at_s) for event in events))

    async def _granted(self, connection: Connection, live: LivePhase) -> None:
        """Wait for its turn."""
        if live.granted.done():
            return
        receiving = asyncio.ensure_future(connection.receive())
        try:
            await asyncio.wait((receiving, live.granted), return_when=asyncio.FIRST_COMPLETED)
        finally:
            receiving.cancel()
        if not live.granted.done():
            raise _GateGoneError

    async def _run_once(self, connection: Connection, live: LivePhase) -> Ended:
        message = await connection.receive()
        while isinstance(message, Started):
            live.tool_started(message.pid, self._root, self._processes, self._page_bytes)
            self._log.add(PhaseStarted(at_s=self._log.at_s(), phase_id=live.phase.phase_id, pid=message.pid))
            message = await connection.receive()
        if not isinstance(message, Ended):
            raise _GateGoneError
        began = time.thread_time()
        self._ended(live, message)
        self.costs.cpu_s += time.thread_time() - began
        return message

    def _ended(self, live: LivePhase, message: Ended) -> None:
        live.peak_mib = max(live.peak_mib, self._root.high_water_mib(message.peak_kib))
        # A thousand may wait: their sizes are added up for those alone that failed.
        held_mib = self.phases.held_mib if message.status else 0.0
        tool_pid = live.tool_pid
        at_s, now_s = self._log.at_s(), self._clock()
        live.resume(now_s)
        live.tool_gone()
        started_s = live.admitted_at_s if live.admitted_at_s is not None else now_s
        outcome = live.outcome = self._outcome(live, message.status)
        ended = PhaseEnded(
            at_s=at_s,
            phase_id=live.phase.phase_id,
            outcome=outcome,
            peak_mib=round(live.peak_mib, 1),
            wall_s=round(now_s - started_s - live.stood_s, 3),
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
        if outcome is Outcome.FAILED:
            # Before another phase takes its place.
            self._failed(live)
        if (share := self._sharing.phase_ended(self.phases.held_mib, at_s)) is not None:
            self._decisions.decide(share)
        self._decisions.decide(ended)
        if live.phase.phase_id not in self.phases:
            self.costs.gate_ended(cpu_s=message.gate_cpu_s, peak_kib=message.gate_peak_kib)

    def _failed(self, live: LivePhase) -> None:
        """For good, and its gate has not said so yet: whatever started its unit is still there."""
        unit = self.units.open.get(live.phase.unit_id)
        failed = self.failures.of(unit.unit_id, self._log.at_s()) if unit is not None and unit.counted else None
        if failed is not None:
            self._decisions.decide(failed)

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
            self._held_units.hold(unit.unit_id)
        self._log.add(self._capture.unit_called(unit, argv, cwd, at_s=at_s))
        known = self._recorder.unit_called(unit, argv, cwd)
        self._decisions.decide(
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
        self._held_units.release(unit.unit_id)
        self._decisions.decide(UnitEnded(at_s=self._log.at_s(), unit_id=unit.unit_id))


def _uncaught(nvcc: str) -> str:
    """What to say of an nvcc that no gate stands before, as it was called."""
    missed = "its cudafe++, cicc and ptxas start unasked"
    if "/" in nvcc:
        return (
            f"{nvcc} is called by its own path: {missed}; let the build take nvcc from PATH or $CUDACXX, or from "
            '$CUDA_HOME in an activated shell: eval "$(builddoctor activate)"'
        )
    return (
        f"{nvcc} is one that was put on PATH since the build began: {missed}; load the modules before builddoctor is "
        'called, or say behind them in the script: eval "$(builddoctor activate)"'
    )


def _digest(argv: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(argv).encode(errors="replace")).hexdigest()[:16]
