"""One supervised build's conversation with its gates: events to the governor, its actions carried out.

Covers: gate connections, phases and units, requeues, the trace of all that, what the screen shows.
Does *not* cover: sampling memory (``supervise.sampler``), the build process itself (``supervise.build``).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Awaitable, Callable

from builddoctor.intercept.command_lines import parse_sizes, phase_facts
from builddoctor.intercept.fronts import answer_words
from builddoctor.intercept.protocol import Asked, Connection, Ended, Registered, Started
from builddoctor.model.board import EventRow
from builddoctor.model.evidence import KillCause
from builddoctor.model.phase import Outcome, Phase, Unit
from builddoctor.policy.actions import Action, Admit, GiveUp, Hold, Kill, OpenUnit, Requeue, Warn
from builddoctor.policy.estimator import Estimator
from builddoctor.policy.events import Event, PhaseAsked, PhaseEnded, Sampled, UnitEnded, UnitRegistered
from builddoctor.policy.governor import Governor
from builddoctor.policy.kill_cause import describe as describe_cause
from builddoctor.sensors.process import Processes
from builddoctor.sensors.root import Clock, SystemRoot
from builddoctor.supervise.accounts import Accounts
from builddoctor.supervise.holding import Holding
from builddoctor.supervise.kill_evidence import KillEvidence
from builddoctor.supervise.phases import LivePhase, describe, was_killed
from builddoctor.supervise.remedying import Remedying
from builddoctor.supervise.remembering import Remembering
from builddoctor.supervise.units import Units
from builddoctor.trace import records
from builddoctor.trace.writer import TraceWriter
from builddoctor.units import format_mib

EVENTS_SHOWN = 6

BY_US = "builddoctor, before the kernel would"

FrontAnswer = Callable[[Registered], Awaitable[tuple[list[str], dict[str, str | None]]]]
"""Further arguments and environment for a program that runs a build."""


class Session:
    """State of the build while it runs. All methods are called in the event loop."""

    def __init__(
        self,
        *,
        governor: Governor,
        trace: TraceWriter,
        accounts: Accounts,
        evidence: KillEvidence,
        root: SystemRoot,
        page_bytes: int,
        clock: Clock,
        answer_front: FrontAnswer,
        remembering: Remembering | None = None,
        holds_units: bool = False,
        estimator: Estimator | None = None,
    ) -> None:
        self.governor = governor
        self.trace = trace
        self.accounts = accounts
        self.evidence = evidence
        self.root = root
        self.page_bytes = page_bytes
        self.processes = Processes(root)
        self.live: dict[int, LivePhase] = {}
        self.remembering = remembering
        self.estimator = estimator
        """asked for times only; sizes are the governor's"""
        self.units = Units(
            self.processes,
            began=self._unit_began,
            ended=self._unit_ended,
            called=remembering.unit_began if remembering is not None else lambda *_: None,
        )
        self.holding = Holding(clock)
        self.remedying: Remedying | None = None
        self.verdict: GiveUp | None = None
        self.given_up: LivePhase | None = None
        self.events: deque[EventRow] = deque(maxlen=EVENTS_SHOWN)
        self.on_event: Callable[[EventRow], None] = lambda _: None
        self.as_seen: Callable[[LivePhase, PhaseEnded], PhaseEnded] = lambda _, ended: ended
        self.look_around: Callable[[LivePhase, int | None, float], None] = lambda *_: None
        """a phase ended: its tool's pid, and what all phases held; its gate still waits"""
        self.catch_up: Callable[[], None] = lambda: None
        self.before_return: Callable[[LivePhase, int, bool], Awaitable[None]] | None = None
        """a phase failed with this wait status, and was given up or not: its gate still holds its driver"""
        self._clock = clock
        self._answer_front = answer_front
        self._holds_units = holds_units
        self._last_phase_id = 0

    def at_s(self) -> float:
        """Seconds since the build began."""
        return round(self._clock() - self.accounts.start_s, 4)

    def tell(self, text: str, *, warning: bool = False) -> None:
        """Put something into the trace and onto the screen."""
        event = EventRow(at_s=self.at_s(), text=text, warning=warning)
        self.trace.write(records.Note(at_s=event.at_s, text=text, level="warning" if warning else "info"))
        self.events.append(event)
        self.on_event(event)

    def decide(self, event: Event) -> None:
        """Hand an event to the governor and carry out what it wants."""
        if isinstance(event, Sampled):
            self.evidence.looked(headroom_mib=event.headroom_mib, reserve_mib=event.reserve_mib)
        else:
            self.catch_up()
        for action in self.governor.handle(event, self._clock()):
            self.carry_out(action)
        self.accounts.jobs_changed(self.governor.running, self._clock())

    async def converse(self, connection: Connection) -> None:
        """Serve one gate until it is gone."""
        message = await connection.receive()
        if isinstance(message, Asked):
            live = self.take_up(message, trusted=connection.peer_pid == message.gate_pid)
            # A thousand gates may wait, each with its command line.
            del message
            await self._phase(connection, live)
        elif isinstance(message, Registered):
            self.accounts.gate_ended(cpu_s=message.gate_cpu_s, peak_kib=message.gate_peak_kib)
            if message.role == "unit":
                unit = self.units.register_nvcc(connection.peer_pid, message.argv, message.cwd)
                threads = await self.holding.threads(unit.unit_id)
                connection.send("go", unit.unit_id, str(threads))
            else:
                connection.send("go", *answer_words(*await self._answer_front(message)))

    # -- phases ------------------------------------------------------------------------------------------

    async def _phase(self, connection: Connection, live: LivePhase) -> None:
        began = time.thread_time()
        try:
            self.announce(live)
            self.accounts.answer_s += time.thread_time() - began
            await self._see_through(connection, live)
        finally:
            if self.live.pop(live.phase.phase_id, None) is not None:
                # Its gate died: nobody waits for the tool any more, and it must not grow unseen.
                live.kill(self.processes)
                ended = PhaseEnded(
                    phase_id=live.phase.phase_id, outcome=Outcome.WITHDRAWN, peak_mib=live.peak_mib, wall_s=0.0
                )
                self._finish(live, ended, None)
                self.decide(ended)
            live.tool_gone()
            self.units.leave(live.phase.unit_id)

    def take_up(self, asked: Asked, *, trusted: bool) -> LivePhase:
        """A phase as its gate tells it, in its unit; ``trusted``: the kernel vouches for the gate's pid."""
        uncaught = self.units.uncaught
        unit_id = self.units.of(asked)
        if self.units.uncaught != uncaught:
            self.tell(
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
            input_mib=facts.input_mib,
            tool=asked.tool,
            redoable=asked.redoable,
        )
        live = LivePhase(phase, gate_pid=asked.gate_pid, trusted=trusted, asked_at_s=self._clock())
        live.cwd = asked.cwd
        live.argv_digest = hashlib.sha256("\0".join(asked.argv).encode(errors="replace")).hexdigest()[:16]
        self.units.enter(unit_id)
        return live

    def announce(self, live: LivePhase) -> None:
        """It asks the governor."""
        phase = live.phase
        self.live[phase.phase_id] = live
        self.accounts.phases += 1
        live.estimate = self.governor.estimate(phase)
        self.trace.write(records.phase_queued(self.at_s(), phase, live.estimate, live.argv_digest))
        self.decide(PhaseAsked(phase=phase, estimate=live.estimate))

    async def _see_through(self, connection: Connection, live: LivePhase) -> None:
        """Grant, start, end; and again as often as the governor wants."""
        word = "go"
        while live.granted.done() or await self._granted(connection, live):
            if not live.granted.result():
                connection.send("return")
                return
            connection.send(word, *live.extra)
            word, ended = "again", await self._run_once(connection, live)
            if ended is None:
                return
            if live.phase.phase_id not in self.live:
                if ended.status != 0:
                    if self.before_return is not None:
                        await self.before_return(live, ended.status, self.given_up is live)
                    connection.send("return")
                return

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
            live.tool_started(message.pid, self.root, self.processes, self.page_bytes)
            self.trace.write(records.PhaseStarted(at_s=self.at_s(), phase_id=live.phase.phase_id, pid=message.pid))
            message = await connection.receive()
        if not isinstance(message, Ended):
            return None
        began = time.thread_time()
        self._ended(live, message)
        self.accounts.answer_s += time.thread_time() - began
        return message

    def _ended(self, live: LivePhase, message: Ended) -> None:
        self.accounts.cpu_s += message.cpu_s
        live.peak_mib = max(live.peak_mib, self.root.high_water_mib(message.peak_kib))
        self.accounts.peak_mib = max(self.accounts.peak_mib, live.peak_mib)
        # A thousand may wait: their sizes are added up for those alone that failed.
        held_mib = sum([other.rss_mib for other in self.live.values()]) if message.status else 0.0
        tool_pid = live.tool_pid
        live.tool_gone()
        started_s = live.admitted_at_s if live.admitted_at_s is not None else self._clock()
        ended = PhaseEnded(
            phase_id=live.phase.phase_id,
            outcome=self._outcome(live, message.status),
            peak_mib=live.peak_mib,
            wall_s=self._clock() - started_s,
        )
        live.outcome = ended.outcome
        self.accounts.works.phase_ran(live.phase.unit_id, ended.wall_s)
        self._finish(live, ended, message)
        self.look_around(live, tool_pid, held_mib)
        if self.remembering is not None and not live.extra:
            self.remembering.phase_ended(
                live.phase, outcome=ended.outcome, peak_mib=ended.peak_mib, wall_s=ended.wall_s
            )
        if ended.outcome in (Outcome.OK, Outcome.FAILED):
            self._gate_done(live, message)
            self.accounts.phases_done += 1
        self.decide(self.as_seen(live, ended))
        if live.phase.phase_id not in self.live and ended.outcome not in (Outcome.OK, Outcome.FAILED):
            self._gate_done(live, message)

    def _gate_done(self, live: LivePhase, message: Ended) -> None:
        self.live.pop(live.phase.phase_id, None)
        self.accounts.gate_ended(cpu_s=message.gate_cpu_s, peak_kib=message.gate_peak_kib)

    def _outcome(self, live: LivePhase, status: int) -> Outcome:
        if status == 0:
            return Outcome.OK
        if was_killed(status):
            if live.killed_by_us:
                return Outcome.KILLED_BY_US
            live.cause = self.evidence.claim(live.before)
            return Outcome.KILLED_BY_KERNEL if live.cause.by_kernel else Outcome.KILLED_OUTSIDE
        if live.killed_by_us:
            return Outcome.KILLED_BY_US
        # collect2 and clang report the death of their own child as a failure of theirs.
        if live.phase.tool == "collect2" or live.phase.tool.startswith("clang"):
            cause = self.evidence.claim(live.before)
            if cause.by_kernel:
                live.cause = cause
                return Outcome.KILLED_BY_KERNEL
        return Outcome.FAILED

    def _finish(self, live: LivePhase, ended: PhaseEnded, message: Ended | None) -> None:
        code = signal = None
        if message is not None:
            signal = message.status & 0x7F or None
            code = None if signal else message.status >> 8
        if live.admitted_at_s is None:
            return
        self.trace.write(
            records.PhaseFinished(
                at_s=self.at_s(),
                phase_id=ended.phase_id,
                outcome=ended.outcome.value,
                exit_code=code,
                signal=signal,
                cause=live.cause.value if live.cause is not None else "",
                peak_mib=round(ended.peak_mib, 1),
                wall_s=round(ended.wall_s, 3),
                cpu_s=round(message.cpu_s, 3) if message is not None else 0.0,
            )
        )

    # -- units -------------------------------------------------------------------------------------------

    def _unit_began(self, unit: Unit, digest: str, at_gate: bool) -> None:
        self.accounts.units += unit.counted
        # Questions, links and what configure steps try out are never held.
        held = at_gate and unit.counted and self._holds_units
        if held:
            self.holding.hold(unit.unit_id)
        self.trace.write(records.unit_began(self.at_s(), unit, digest))
        self.decide(UnitRegistered(unit=unit, held=held))

    def _unit_ended(self, unit: Unit) -> None:
        self.holding.forget(unit.unit_id)
        self.accounts.units_done += unit.counted
        self.accounts.works.unit_ended(unit.unit_id, counted=unit.counted)
        self.trace.write(records.UnitDone(at_s=self.at_s(), unit_id=unit.unit_id))
        if self.remembering is not None:
            self.remembering.unit_ended(unit)
        self.decide(UnitEnded(unit_id=unit.unit_id))

    # -- the governor's wishes -----------------------------------------------------------------------------

    def carry_out(self, action: Action) -> None:
        """Do it. What has just ended is passed over: the governor hears of it next."""
        if not isinstance(action, OpenUnit | Warn) and action.phase_id not in self.live:
            return
        if isinstance(action, Admit):
            self._admit(action)
        elif isinstance(action, Hold):
            live = self.live[action.phase_id]
            live.hold = action
            needs, free = format_mib(action.needs_mib), format_mib(action.free_mib)
            text = f"waits: {describe(live.phase)} needs {needs}, {free} free ({action.reason})"
            self.trace.write(records.Note(at_s=self.at_s(), text=text, level="hold"))
        elif isinstance(action, Kill):
            live = self.live[action.phase_id]
            # It may have ended by itself just now.
            if live.kill(self.processes):
                self.trace.write(records.Killed(at_s=self.at_s(), phase_id=action.phase_id, reason=action.reason))
                self.accounts.killed += 1
        elif isinstance(action, Requeue):
            self._requeue(action)
        elif isinstance(action, GiveUp):
            self._give_up(action)
        elif isinstance(action, OpenUnit):
            if (waited_s := self.holding.open(action.unit_id, action.threads)) is not None:
                self.trace.write(records.unit_opened(self.at_s(), action.unit_id, action.threads, waited_s))
        elif isinstance(action, Warn):
            self.tell(action.text, warning=True)

    def _admit(self, action: Admit) -> None:
        live = self.live[action.phase_id]
        now_s = self._clock()
        live.admitted_at_s = now_s
        live.before = self.evidence.baseline(live.gate_pid if live.trusted else None, now_s=now_s)
        live.estimate = action.estimate
        if self.remedying is not None:
            self.remedying.admitted(live, action, budget_mib=self.governor.budget_mib)
        waited_s, running = now_s - live.asked_at_s, self.governor.running
        estimate = action.estimate
        self.trace.write(records.phase_admitted(self.at_s(), action.phase_id, estimate, waited_s, running=running))
        if not live.granted.done():
            live.granted.set_result(True)

    def _requeue(self, action: Requeue) -> None:
        live = self.live[action.phase_id]
        lost_s = self._clock() - (live.admitted_at_s if live.admitted_at_s is not None else self._clock())
        by = BY_US if live.outcome is Outcome.KILLED_BY_US else describe_cause(live.cause or KillCause.UNKNOWN)
        self.accounts.requeued += 1
        live.asked_at_s = self._clock()
        again = records.phase_requeued(self.at_s(), action.phase_id, action.estimate, solo=action.solo, lost_s=lost_s)
        self.trace.write(again)
        alone = ", now alone" if action.solo else ""
        self.tell(
            f"redoes {describe(live.phase)}: ended by {by} at {format_mib(live.peak_mib)}; {lost_s:.0f} s lost{alone}",
            warning=True,
        )
        live.again()

    def _give_up(self, action: GiveUp) -> None:
        live = self.live[action.phase_id]
        if self.remedying is not None and self.remedying.rescued(live, action):
            estimate = self.governor.estimate(live.phase)
            self._requeue(Requeue(phase_id=action.phase_id, estimate=estimate, solo=True))
            self.decide(PhaseAsked(phase=live.phase, solo=True))
            return
        del self.live[action.phase_id]
        self.verdict, self.given_up = action, live
        self.accounts.runaways += action.verdict == "runaway"
        self.trace.write(
            records.GaveUp(at_s=self.at_s(), phase_id=action.phase_id, verdict=action.verdict, reason=action.reason)
        )
        self.tell(f"gives up on {describe(live.phase)}: {action.reason}", warning=True)
