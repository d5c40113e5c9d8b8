"""Run one supervised build, from prepared to summary: the event loop.

Covers: everything that a build consists of, put together in one place; socket, guardian, watch, screen and signals, in
the right order and all ended again.
Does *not* cover: deciding what runs (``scheduler``), or what is printed (``ui``).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import resource
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import builddoctor
from builddoctor.core.board import BoardState
from builddoctor.core.errors import TO_BE_CONTINUED, BuildLostError, TraceError
from builddoctor.core.events import (
    TRACE_SCHEMA,
    BuildEnded,
    BuildResult,
    Event,
    Header,
    Note,
    NoteLevel,
    StopNinja,
    Summary,
    ToolkitChosen,
)
from builddoctor.core.limits import LevelKind
from builddoctor.core.request import RunRequest
from builddoctor.core.settings import SchedulerSettings
from builddoctor.core.toolchain import Toolkit
from builddoctor.core.units import printable
from builddoctor.diagnose.from_trace import judge
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.gates.guardian import Guardian, become_subreaper, exit_code_of, hold, lock_own_pages
from builddoctor.gates.own_signals import end_in_order, heed, heed_as_usual, heed_no_more, held_back
from builddoctor.gates.protocol import Connection, serve
from builddoctor.projects.metadata import project_version
from builddoctor.recipes.shelf import Shelved
from builddoctor.runtime.activation import IDLE_S, Joined, note_supervisor, remove_notes
from builddoctor.runtime.build_environment import Fronts, build_variables, command_of, unstaged_warning
from builddoctor.runtime.decision_loop import DecisionLoop
from builddoctor.runtime.event_log import EventLog, Observer
from builddoctor.runtime.failure_capture import FailureSnapshots, InputCapture
from builddoctor.runtime.folders import history_file, run_folder, trace_file
from builddoctor.runtime.history_recorder import HistoryRecorder, TimeLeftWatch
from builddoctor.runtime.kill_evidence import KillEvidence
from builddoctor.runtime.later_toolchain import LaterToolchain
from builddoctor.runtime.output_scanner import OutputScanner
from builddoctor.runtime.phases import LivePhases
from builddoctor.runtime.prepare import Preflight, Prepared, look_ahead, prepare, settle_environment, versions_of
from builddoctor.runtime.recipe_use import RecipeUse, choose_recipe
from builddoctor.runtime.rss_recheck import RssRecheck
from builddoctor.runtime.sampler import QUIET_EVERY_S, Rules, Sampler, collector_held_back
from builddoctor.runtime.session import Session
from builddoctor.runtime.sharing import Sharing
from builddoctor.runtime.ungated_watch import UngatedWatch
from builddoctor.runtime.units import HeldUnits, project_folder
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.oom_evidence import KillCounter
from builddoctor.system.process import Processes, started_s
from builddoctor.system.root import Clock, SystemRoot, monotonic, own_pid, page_size
from builddoctor.system.scene_reader import SceneReader
from builddoctor.trace.analysis import read_build
from builddoctor.trace.board import board_state
from builddoctor.trace.masking import mask_argv
from builddoctor.trace.state import BuildState
from builddoctor.trace.words import Decisions, event_row
from builddoctor.trace.writer import TraceWriter
from builddoctor.ui.screen import Listener, Screen

if TYPE_CHECKING:
    from builddoctor.runtime.away import Elsewhere
    from builddoctor.runtime.fleet import StartedFleet
    from builddoctor.runtime.stored_phases import StoredPhases

GRACE_S = 5.0
"""After Ctrl-C a build has this long to end by itself; then it is ended. Where nothing compiles at that moment it is
left its time: a server that answers what it was asked before takes as long as that takes. A second signal ends all."""

NINJA_INTERRUPTED = (2, 130)
"""What ninja ends with after SIGINT: 130 from 1.12 on."""

SYNC_EVERY_S = 1.0
FOLLOW_EVERY_S = 0.25
STATUS_EVERY_S = 1.0


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a build went, for its last words."""

    summary: Summary
    state: BuildState
    beyond: Sequence[str] = ()
    """what it took beyond its recipe, a line each"""


MakeScreen = Callable[[Callable[[], BoardState], Callable[[str], Listener], Path], Screen]
"""From the picture now, what takes a copy of each stream of the build's output, and the trace."""


def supervise(
    request: RunRequest,
    env: Mapping[str, str],
    make_screen: MakeScreen,
    *,
    root: SystemRoot | None = None,
    clock: Clock = monotonic,
    rules: Rules | None = None,
    ready: Callable[[], None] = lambda: None,
    say: Callable[[Sequence[str]], None] = lambda _: None,
    named_recipe: Shelved | None = None,
    joined: Joined | None = None,
) -> Finished:
    """Run ``request`` to its end. Raises BuildDoctorError when it cannot be started or was lost.

    ``rules``: other thresholds than production's. ``ready``: called when nothing is in the way of the start.
    ``say``: given what to print before it. ``named_recipe``: what ``request.recipe`` names, where it was read before.
    ``joined``: the build runs already, without us: its gates are served, and nothing else of it is touched. How it
    ended is not known: it failed where a compiler failed, and it has no trace where nothing was compiled.
    """
    system = root or SystemRoot()
    remedied = request.cwd if request.auto_remedy else ""
    seen = settle_environment(env, system, own_homes=request.need_toolkit, remedy_for=remedied)
    env = seen.env
    sensor = MemorySensor(system, env=env, user_limit_mib=request.memory_mib, clock=clock)
    with contextlib.ExitStack() as stack:
        stack.callback(heed_as_usual)
        end_in_order()
        with held_back():
            folder = stack.enter_context(run_folder(env, system))
        fleet = _fleet(request, env, folder)
        if fleet is not None:
            stack.callback(fleet.close)
            fleet.meet()
        prepared = prepare(request, env, system, sensor, fleet=fleet)
        if request.doctor:
            ahead = look_ahead(request, {**env, **dict(request.extra_env)}, system, prepared.toolkit)
            seen = msgspec.structs.replace(seen, warnings=tuple(ahead))
        room_mib = math.inf if prepared.cluster is not None or fleet is not None else prepared.reading.free_mib
        recipe = choose_recipe(request, named_recipe, prepared.toolchain, env, room_mib=room_mib)
        if recipe is not None:
            seen = msgspec.structs.replace(seen, recipe=recipe)
            say(recipe.lines)
        ready()
        trace_id = uuid.uuid4().hex[:6]
        stamp = datetime.now(timezone.utc)
        trace = TraceWriter(trace_file(env, request.trace, trace_id, stamp.strftime("%Y%m%d-%H%M%S.%f")[:-3]))
        stack.callback(trace.close)
        become_subreaper()
        build = _Build(request, seen, prepared, trace, sensor, system, clock, folder, rules or Rules(), joined, fleet)
        finished = asyncio.run(build.run(build.header(trace_id, stamp), make_screen))
        if joined is not None and not finished.summary.units:
            trace.path.unlink(missing_ok=True)
        return finished


def _fleet(request: RunRequest, env: Mapping[str, str], folder: Path) -> StartedFleet | None:
    """Nodes that come with the build, where the user wants some."""
    if request.fleet is None:
        return None
    # Only here: Dask takes half a second to load.
    from builddoctor.runtime.fleet import StartedFleet

    return StartedFleet(request.fleet, request.cluster_keys, env, folder)


class _Build:
    """What one build consists of: each part is given what it works with, and nothing is set from outside later."""

    def __init__(
        self,
        request: RunRequest,
        seen: Preflight,
        prepared: Prepared,
        trace: TraceWriter,
        sensor: MemorySensor,
        root: SystemRoot,
        clock: Clock,
        folder: Path,
        rules: Rules,
        joined: Joined | None,
        fleet: StartedFleet | None,
    ) -> None:
        self.request = request
        self.fleet = fleet
        self.joined = joined
        self.seen = seen
        self.env = seen.env
        self.prepared = prepared
        self.trace = trace
        self.folder = folder
        self.sensor = sensor
        self.clock = clock
        self.rules = rules
        self.root = root
        processes = Processes(root)
        ticks = joined.start_ticks if joined is not None else processes.start_ticks(own_pid(root) or 0)
        later = LaterToolchain(
            prepared,
            seen.env,
            fixed=bool(request.toolkit),
            began_s=started_s(ticks or 0),
            tell=self._tell,
            chosen=self._toolkit_chosen,
        )
        self.fronts = Fronts(prepared, seen.env, later, processes, keep_going=request.keep_going)
        self.state = BuildState(rows=False)
        self.held_units = HeldUnits()
        self.evidence = KillEvidence(root)
        self.snapshots = FailureSnapshots(
            SceneReader(root, seen.env),
            self.evidence,
            traces=str(trace.path.absolute().parent),
            cwd=request.cwd,
            clock=clock,
        )
        self.capture = InputCapture(
            root,
            trace=trace.path,
            free_mib=lambda: sensor.read(0.0).tightest.headroom_mib,
            versions=lambda: versions_of(self.recorder.tools),
        )
        self.recorder = HistoryRecorder(
            history_file(seen.env),
            cwd=project_folder(request.command, request.cwd),
            tools=prepared.toolchain,
            recipe=RecipeUse(seen.recipe) if seen.recipe is not None else None,
            archs=request.archs,
        )
        self.settings = SchedulerSettings(
            slots=prepared.slots,
            budget_mib=round(prepared.budget_mib, 1),
            most_open=prepared.most_open,
            most_threads=prepared.most_threads,
            until_s=request.until_s,
            thrift=request.auto_remedy,
            runaway=rules.runaway,
            thrash=rules.thrash,
        )
        self.scheduler = Scheduler(self.settings, LearningEstimator())
        self.time_left = TimeLeftWatch(self.state, self.scheduler, self.recorder.foreseen)
        self.signalled: int | None = None
        self._left_s: float | None = None
        """what the rest would take, once time is up"""
        self._stopped_ninja = False
        self._session: Session | None = None
        self._decisions: DecisionLoop | None = None
        self._log: EventLog | None = None
        self._guardian: Guardian | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._screen: Screen | None = None
        self._ended: asyncio.Event | None = None

    def header(self, trace_id: str, stamp: datetime) -> Header:
        prepared, toolkit, project = self.prepared, self.prepared.toolkit, self.recorder.project
        return Header(
            schema=TRACE_SCHEMA,
            builddoctor=builddoctor.__version__,
            trace_id=trace_id,
            started_at=stamp.isoformat(timespec="seconds"),
            command=mask_argv(self.request.command),
            cwd=self.request.cwd,
            title=self.request.title,
            archs=list(self.request.archs),
            cores=prepared.cores,
            window=prepared.knobs.window,
            budget_mib=round(prepared.budget_mib, 1),
            limit_mib=round(prepared.reading.limit_mib, 1),
            limited_by=prepared.reading.tightest.source,
            page_kib=page_size() // 1024,
            toolkit=toolkit.home if toolkit else "",
            nvcc=toolkit.version if toolkit else "",
            caps=list(prepared.knobs.caps),
            boot_id=(self.root.text("/proc/sys/kernel/random/boot_id") or "").strip(),
            oom_kills=KillCounter(self.root).host(),
            threads=prepared.knobs.threads,
            project=project.name,
            project_version=project_version(project.folder),
            host_compiler=prepared.toolchain.host_compiler,
            host_arch=prepared.toolchain.host_arch,
            staged=bool(self.request.stages),
            settings=self.settings,
        )

    async def run(self, header: Header, make_screen: MakeScreen) -> Finished:
        scanner = OutputScanner(self._at_s)
        screen = self._screen = make_screen(self._picture, scanner.listener, self.trace.path)
        log = self._log = EventLog(
            self.clock,
            (self.trace.write, self.time_left.saw, self._show(screen), self.recorder.saw),
        )
        log.add(header)
        elsewhere, stored = self._elsewhere(log), self._stored(log)
        session, decisions, sampler, sharing = self._parts(log, elsewhere, stored)
        if self.joined is not None:
            # What a supervisor that died has left: its gates come here.
            self.joined.socket.unlink(missing_ok=True)
        socket = self.joined.socket if self.joined is not None else self.folder / "socket"
        server = await serve(socket, self._converse)
        ended = self._ended = asyncio.Event()
        self._tell_start(log)
        log.add(msgspec.structs.replace(self.snapshots.begin(), at_s=log.at_s()))
        # Before the build starts: what comes meanwhile is handled below, when there is something to end.
        heed(asyncio.get_running_loop(), self._interrupted)
        problem: list[BaseException] = []
        guardian = self._guardian = self._guard(screen, socket) if self.joined is None else None
        _raise_descriptor_limit()
        tasks = [*self._watches(decisions, sampler, log, elsewhere), *screen.start()]
        if guardian is not None:
            self._listen(guardian, ended, problem)
        elif self.joined is not None:
            tasks.append(asyncio.create_task(self._follow(self.joined, session, sampler, ended)))
        self._stay_resident(guardian)
        try:
            await ended.wait()
        finally:
            if self._ending is not None:
                self._ending.cancel()
            decisions.interrupt(None)
            wall_s = log.at_s()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.joined is not None:
                # Before the server closes: a gate that is answered by none starts the next supervisor.
                remove_notes(self.joined)
            server.close()
            if guardian is not None:
                guardian.close()
            sharing.close()
            if stored is not None:
                stored.close()
            self.capture.close()
            session.units.close()
            self.recorder.close(lambda text: log.tell(text, warning=True))
            beyond = self.recorder.beyond_recipe(self.trace.path)
            for line in beyond:
                # The build's last words say it: it is only kept here.
                self.trace.write(Note(at_s=log.at_s(), text=line, level=NoteLevel.WARNING))
            await screen.stop()
            heed_no_more()
        if problem:
            raise problem[0]
        return self._finished(guardian, session, scanner, log, wall_s, beyond)

    def _guard(self, screen: Screen, socket: Path) -> Guardian:
        """Start the build."""
        return Guardian(
            command_of(self.request, self.prepared),
            env=build_variables(
                self.request, self.prepared, self.env, self.fronts, socket=socket, run_folder=self.folder
            ),
            cwd=self.request.cwd,
            cleanup=self.folder,
            stdout=screen.stdout_fd,
            stderr=screen.stderr_fd,
        )

    def _listen(self, guardian: Guardian, ended: asyncio.Event, problem: list[BaseException]) -> None:
        """To the guardian, until the build has ended."""
        loop = asyncio.get_running_loop()

        def hear() -> None:
            try:
                guardian.hear()
            except Exception as error:  # noqa: BLE001 - handed to the waiting side, whatever it is
                problem.append(error)
            if problem or guardian.ended:
                loop.remove_reader(guardian.fileno())
                ended.set()

        loop.add_reader(guardian.fileno(), hear)

    async def _follow(self, joined: Joined, session: Session, sampler: Sampler, ended: asyncio.Event) -> None:
        """A build that others started, until it is over."""
        processes = Processes(self.root)
        note_supervisor(
            joined, self.request.title, str(self.trace.path), datetime.now(timezone.utc).isoformat(), processes
        )
        joined.listening()
        gone = _end_of(joined.pid)
        while sampler.quiet_s < IDLE_S and (
            session.phases or session.units.open or processes.lives(joined.pid, joined.start_ticks)
        ):
            if gone.done():
                await asyncio.sleep(FOLLOW_EVERY_S)
            else:
                # A container ends with that process: the trace's last words are to be written at once.
                await asyncio.wait((gone,), timeout=FOLLOW_EVERY_S)
        ended.set()

    def _finished(
        self,
        guardian: Guardian | None,
        session: Session,
        scanner: OutputScanner,
        log: EventLog,
        wall_s: float,
        beyond: Sequence[str],
    ) -> Finished:
        """All has ended: what is to be said of it."""
        if guardian is not None and guardian.lost:
            raise BuildLostError(
                "the process that guards the build was killed; the build has been ended with it",
                hint="if the system ran out of memory, `--memory` with a lower limit keeps more of it free",
            )
        if guardian is not None and guardian.left and self.signalled is None:
            log.tell(f"ended {guardian.left} processes that the build had left behind")
        if warning := unstaged_warning(self.request, run_folder=self.folder):
            log.tell(warning, warning=True)
        summary = self._summary(guardian, session, wall_s)
        log.add(*scanner.end(failed=summary.result is BuildResult.FAILED))
        log.add(self.snapshots.end(failed=summary.result is not BuildResult.OK, named=scanner.named, at_s=log.at_s()))
        summary = judged(summary, self.trace)
        log.add(BuildEnded(at_s=log.at_s(), summary=summary))
        return Finished(summary=summary, state=self.state, beyond=beyond)

    def _elsewhere(self, log: EventLog) -> Elsewhere | None:
        """Other machines, where the user named some."""
        if self.prepared.cluster is None:
            return None
        from builddoctor.runtime.away import Elsewhere

        return Elsewhere(self.prepared.cluster, tell=lambda text: log.tell(text, warning=True))

    def _stored(self, log: EventLog) -> StoredPhases | None:
        """Results of earlier builds, where the user named a store."""
        if self.prepared.store is None:
            return None
        from builddoctor.runtime.stored_phases import StoredPhases

        return StoredPhases(self.prepared.store, tell=lambda text: log.tell(text, warning=True))

    def _parts(
        self, log: EventLog, elsewhere: Elsewhere | None, stored: StoredPhases | None
    ) -> tuple[Session, DecisionLoop, Sampler, Sharing]:
        """Those that need the log."""
        phases, processes = LivePhases(), Processes(self.root)

        def warn(text: str) -> None:
            log.tell(text, warning=True)

        sharing = Sharing(self.env, phases, root=self.root, clock=self.clock, tell=log.tell, warn=warn)
        # Nothing of a build that others started is paused.
        top = own_pid(self.root) if self.joined is None else None
        ungated = UngatedWatch(
            self.scheduler,
            phases,
            processes,
            root=self.root,
            clock=self.clock,
            top=top,
            apart=self.fleet.pids if self.fleet is not None else tuple,
        )
        recheck = RssRecheck(phases, processes, self.rules.crosscheck, clock=self.clock, tell=warn)
        sampler = Sampler(
            self.scheduler,
            phases,
            self.sensor,
            recheck=recheck,
            ungated=ungated,
            sharing=sharing,
            processes=processes,
            root=self.root,
            clock=self.clock,
            reading=self.prepared.reading,
            rules=self.rules,
        )
        decisions = self._decisions = DecisionLoop(
            self.scheduler,
            log,
            phases=phases,
            held_units=self.held_units,
            open_units=lambda: len(self.state.open_units),
            sampler=sampler,
            ungated=ungated,
            evidence=self.evidence,
            processes=processes,
            clock=self.clock,
            out_of_time=self._out_of_time,
            stop_ninja=self._stop_ninja,
        )
        session = self._session = Session(
            decisions=decisions,
            log=log,
            phases=phases,
            held_units=self.held_units,
            sharing=sharing,
            ungated=ungated,
            evidence=self.evidence,
            processes=processes,
            root=self.root,
            clock=self.clock,
            answer_front=self.fronts.answer,
            right_gate=self.fronts.instead,
            recorder=self.recorder,
            elsewhere=elsewhere,
            stored=stored,
            snapshots=self.snapshots,
            capture=self.capture,
            holds_units=True,
        )
        return session, decisions, sampler, sharing

    # -- while it runs ---------------------------------------------------------------------------------------------

    def _watches(
        self, decisions: DecisionLoop, sampler: Sampler, log: EventLog, elsewhere: Elsewhere | None
    ) -> Iterator[asyncio.Task[None]]:
        yield asyncio.create_task(self._watch(decisions, sampler, log))
        if elsewhere is not None:
            yield asyncio.create_task(elsewhere.watch(decisions.decide, log.at_s))

    async def _watch(self, decisions: DecisionLoop, sampler: Sampler, log: EventLog) -> None:
        """Look at memory for ever; once a second say how it stands, and sync the trace."""
        status_s, next_sync_s = float("-inf"), 0.0
        sync: asyncio.Future[None] | None = None
        told_problem = False
        loop = asyncio.get_running_loop()
        with collector_held_back():
            while True:
                killed = self.state.kill_decisions
                decisions.look()
                at_s = log.at_s()
                if at_s >= status_s + (QUIET_EVERY_S if sampler.is_quiet else STATUS_EVERY_S):
                    status_s = at_s
                    self._say_status(sampler, log)
                # A pressure edge: what led to it must survive whatever comes next.
                due = at_s >= next_sync_s or self.state.kill_decisions > killed
                if due and (sync is None or sync.done()):
                    next_sync_s = at_s + SYNC_EVERY_S
                    with contextlib.suppress(RuntimeError):
                        # In a thread: a slow disk must not hold up the event loop. Where no thread can be started,
                        # memory is watched all the same.
                        sync = loop.run_in_executor(None, self.trace.sync)
                if self.trace.problem and not told_problem:
                    told_problem = True
                    text = f"the trace cannot be written ({self.trace.problem}); the build goes on without it"
                    log.tell(text, warning=True)
                await asyncio.sleep(sampler.period_s / self.rules.pace)

    def _say_status(self, sampler: Sampler, log: EventLog) -> None:
        at_s, planned = log.at_s(), self.fronts.planned
        try:
            left = self.time_left.left(planned, at_s)
        except Exception:  # noqa: BLE001 - memory is watched here: no figure for a screen may end that
            left = None
        log.add(
            sampler.status(
                at_s,
                open_units=len(self.state.open_units),
                held_units=len(self.held_units),
                oom_kills=self.evidence.total(),
                planned=planned,
                left_s=None if left is None else (round(left.low_s, 1), round(left.high_s, 1)),
            )
        )

    def _at_s(self) -> float:
        return self._log.at_s() if self._log is not None else 0.0

    def _picture(self) -> BoardState:
        return board_state(self.state, now_s=self._at_s())

    def _show(self, screen: Screen) -> Observer:
        """An observer: into the state, and what a person wants to know of onto the screen."""

        decisions = Decisions(self.state) if screen.every_decision else None

        def observe(event: Event) -> None:
            happening = self.state.apply(event)
            row = event_row(happening) if happening is not None else None
            if row is None and decisions is not None:
                row = decisions.row(event)
            if row is not None:
                screen.event(row)

        return observe

    def _stay_resident(self, guardian: Guardian | None) -> None:
        """At a limit of cgroup v2 the kernel drops the pages of programs before it kills (at ``memory.high`` it never
        kills), and reads them in again: without this, ours too. With cc1plus at 702 MiB of a ``memory.max`` of 700, one
        look at memory was made in 80 s, and SIGTERM was not heard for 200."""
        if any(level.throttles or level.kind is LevelKind.CGROUP_V2 for level in self.prepared.reading.levels):
            lock_own_pages()
            if guardian is not None:
                guardian.lock_pages()

    async def _converse(self, connection: Connection) -> None:
        assert self._session is not None, "gates are served once the session is there"
        with contextlib.suppress(ConnectionError):
            await self._session.converse(connection)

    def _tell(self, text: str, *, warning: bool = False) -> None:
        if self._log is not None:
            self._log.tell(text, warning=warning)

    def _toolkit_chosen(self, toolkit: Toolkit) -> None:
        if self._log is not None:
            self._log.add(ToolkitChosen(at_s=self._log.at_s(), toolkit=toolkit.home, nvcc=toolkit.version))

    def _tell_start(self, log: EventLog) -> None:
        for line in self.seen.recipe.lines if self.seen.recipe is not None else ():
            # It was said before the build began.
            self.trace.write(Note(at_s=log.at_s(), text=line))
        for note in self.seen.notes:
            log.tell(note)
        for warning in self.seen.warnings:
            log.tell(warning, warning=True)
        if self.recorder.problem:
            log.tell(self.recorder.problem, warning=True)
        if self.prepared.knobs.caps:
            caps = ", ".join(self.prepared.knobs.caps)
            log.tell(f"keeps your {caps} as an upper bound (`--ignore-caps` to let memory alone decide)")
        if self.prepared.uncaught:
            log.tell(
                f"{self.prepared.uncaught} finds its compiler beside itself: what it compiles starts unasked",
                warning=True,
            )
        if self.prepared.toolkit_problem:
            log.tell(f"supervises host compilers only: {self.prepared.toolkit_problem}", warning=True)

    def _out_of_time(self) -> None:
        if self._log is None or self.signalled is not None:
            return
        left = self.time_left.left(self.fronts.planned, self._log.at_s())
        self._left_s = 0.0 if left is None else (left.low_s + left.high_s) / 2
        self._log.tell("no more of it can end in time: the build is stopped, to be continued")
        # Ninja then ends its compilers, and removes what they had begun to write.
        asyncio.get_running_loop().call_soon(self._interrupted, signal.SIGINT)

    def _stop_ninja(self, decision: StopNinja) -> None:
        assert self._session is not None, "units are heard of through it"
        self._stopped_ninja = True
        self._session.failures.end(decision.pid, decision.units)

    def _interrupted(self, number: int) -> None:
        """First a chance to end in order, then the end; a second signal comes straight to that."""
        if self.joined is not None and self._ended is not None:
            # The build goes on: its gates ask the next supervisor.
            self._ended.set()
        if self._guardian is None or self._decisions is None or self._log is None:
            return
        if self._screen is not None:
            self._screen.hurry()
        if self.signalled is None:
            self.signalled = number
            # Where nothing compiles, memory was short for a phase that is gone.
            starved = self.scheduler.starved and self._compiles
            if starved:
                # Whatever is asked to end would wait for memory first, and so would we.
                self._guardian.end_all()
            if self._left_s is None:
                self._log.tell(f"{signal.Signals(number).name}: the build is being ended")
            self._decisions.interrupt(number)
            if starved:
                return
            self._guardian.signal_build(number)
            self._ending = asyncio.get_running_loop().call_later(GRACE_S, self._grace_is_over)
        else:
            self._guardian.end_all()

    @property
    def _compiles(self) -> bool:
        return self._session is not None and bool(self._session.units.open or self._session.phases)

    def _grace_is_over(self) -> None:
        if self._guardian is None or self._session is None or self._log is None:
            return
        if self._compiles:
            self._guardian.end_all()
        else:
            self._log.tell("nothing compiles, so it is left to end by itself; a second signal ends it at once")

    def _summary(self, guardian: Guardian | None, session: Session, wall_s: float) -> Summary:
        state, counts, costs = self.state, self.state.counts, session.costs
        exit_code = exit_code_of(guardian.status or 0) if guardian is not None else int(state.has_failed_unit)
        if self._stopped_ninja and exit_code in NINJA_INTERRUPTED:
            # What it would have ended with by itself.
            exit_code = 1
        result = BuildResult.OK if exit_code == 0 else BuildResult.FAILED
        if self.signalled is not None and exit_code != 0:
            # With 0 the command says itself that it ended in order: a server, or a build that was done.
            exit_code, result = 128 + self.signalled, BuildResult.INTERRUPTED
            if self._left_s is not None:
                exit_code = TO_BE_CONTINUED
        verdict = state.last_give_up.verdict.value if state.last_give_up and result is BuildResult.FAILED else None
        return Summary(
            result=result,
            exit_code=exit_code,
            verdict=verdict,
            wall_s=round(wall_s, 3),
            cpu_s=round(counts.cpu_s, 3),
            budget_mib=round(self.scheduler.budget_mib, 1),
            limit_mib=round(self.prepared.reading.limit_mib, 1),
            peak_mib=round(counts.peak_mib, 1),
            kernel_oom_kills=self.evidence.total(),
            requeued=counts.requeued,
            killed=counts.killed,
            runaways=counts.runaways,
            left_s=None if self._left_s is None or result is BuildResult.OK else round(self._left_s, 1),
            remedied=len(state.remedied),
            suspended=counts.suspended,
            paused=counts.paused,
            units=counts.units,
            phases=counts.phases,
            stored=counts.stored,
            stored_s=round(counts.stored_s, 1),
            effective_jobs_mean=round(state.jobs.mean(wall_s), 2),
            effective_jobs_max=state.jobs.most,
            gate_overhead_s=round(costs.cpu_s, 3),
            gate_peak_mib=round(costs.peak_mib, 1),
            gates=costs.gates,
            trace=printable(os.fspath(self.trace.path)),
        )


def _raise_descriptor_limit() -> None:
    """Each waiting gate takes two descriptors of ours. The guardian runs already: the build keeps its own limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _end_of(pid: int) -> asyncio.Future[None]:
    """Done when the process has ended; never where processes cannot be held."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    try:
        held = hold(pid)
    except OSError:
        return gone

    def ended() -> None:
        loop.remove_reader(held)
        os.close(held)
        gone.set_result(None)

    loop.add_reader(held, ended)
    return gone


def judged(summary: Summary, trace: TraceWriter) -> Summary:
    """The summary with its verdict; as it was for a build that went well, and where the trace cannot be read."""
    if summary.result is BuildResult.OK:
        return summary
    try:
        report = read_build(trace.path)
    except (TraceError, OSError, ValueError):
        return summary
    report.summary, report.whole = summary, True
    verdict = judge(report).verdict
    return summary if verdict is None else msgspec.structs.replace(summary, verdict=verdict)
