"""Run one supervised build, from prepared to summary: the event loop.

Covers: socket, guardian, sampler, screen and signals of one build, in the right order and all ended again.
Does *not* cover: deciding what runs (``policy``), or what is printed (``render``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import msgspec

import builddoctor
from builddoctor.errors import BuildLostError
from builddoctor.intercept.guardian import Guardian, become_subreaper, exit_code_of, heeded_signals
from builddoctor.intercept.protocol import Connection, serve
from builddoctor.model.request import RunRequest
from builddoctor.model.summary import Summary
from builddoctor.policy.estimator import LearningEstimator
from builddoctor.policy.governor import Governor
from builddoctor.policy.rules import Rules
from builddoctor.recipes.shelf import Shelved
from builddoctor.sensors.limits import KillCounter, MemorySensor
from builddoctor.sensors.project_version import project_version
from builddoctor.sensors.root import Clock, SystemRoot, monotonic, page_size
from builddoctor.sensors.surroundings import Surveyor
from builddoctor.supervise.accounts import Accounts
from builddoctor.supervise.build_variables import build_variables
from builddoctor.supervise.folders import history_file, run_folder, trace_file
from builddoctor.supervise.foresight import Foresight, look_ahead, settle_environment
from builddoctor.supervise.fronts import Fronts
from builddoctor.supervise.judging import judged
from builddoctor.supervise.keeping import Keeping
from builddoctor.supervise.kill_evidence import KillEvidence
from builddoctor.supervise.looking import Looking
from builddoctor.supervise.naming import Naming
from builddoctor.supervise.pausing import Pausing
from builddoctor.supervise.prepare import Prepared, prepare
from builddoctor.supervise.recalling import Recalling
from builddoctor.supervise.recipe_choice import choose_recipe
from builddoctor.supervise.remedying import Remedying
from builddoctor.supervise.remembering import Remembering
from builddoctor.supervise.sampler import Sampler
from builddoctor.supervise.screen import Screen
from builddoctor.supervise.session import Session
from builddoctor.supervise.sharing import open_sharing
from builddoctor.supervise.staged import WHY_PAUSED, command_of, tell_if_unstaged
from builddoctor.supervise.unit_keys import project_folder
from builddoctor.supervise.versions import toolchain, versions
from builddoctor.trace.masking import mask_argv
from builddoctor.trace.records import TRACE_SCHEMA, End, Header, Note
from builddoctor.trace.writer import TraceWriter
from builddoctor.units import printable

GRACE_S = 5.0
"""After Ctrl-C the build has this long to end by itself; then it is ended."""


class Finished:
    """How a build went, for whoever prints it."""

    def __init__(self, summary: Summary, session: Session, prepared: Prepared, beyond: Sequence[str] = ()) -> None:
        self.summary = summary
        self.beyond = beyond
        """what it took beyond its recipe, a line each"""
        self.session = session
        self.prepared = prepared


def supervise(
    request: RunRequest,
    env: Mapping[str, str],
    make_screen: Callable[[Session, Prepared, Fronts], Screen],
    *,
    root: SystemRoot | None = None,
    clock: Clock = monotonic,
    rules: Rules | None = None,
    ready: Callable[[], None] = lambda: None,
    say: Callable[[Sequence[str]], None] = lambda _: None,
    named_recipe: Shelved | None = None,
) -> Finished:
    """Run ``request`` to its end. Raises BuildDoctorError when it cannot be started or was lost.

    ``rules``: other thresholds than production's. ``ready``: called when nothing is in the way of the start.
    ``say``: given what to print before it. ``named_recipe``: what ``request.recipe`` names, where it was read before.
    """
    system = root or SystemRoot()
    remedied = request.cwd if request.auto_remedy else ""
    seen = settle_environment(env, system, own_homes=request.need_toolkit, remedy_for=remedied)
    env = seen.env
    sensor = MemorySensor(system, env=env, user_limit_mib=request.memory_mib, clock=clock)
    prepared = prepare(request, env, system, sensor)
    if request.doctor:
        ahead = look_ahead(request, {**env, **dict(request.extra_env)}, system, prepared.toolkit)
        seen = msgspec.structs.replace(seen, warnings=tuple(ahead))
    if (recipe := choose_recipe(request, named_recipe, toolchain(prepared), env)) is not None:
        seen = msgspec.structs.replace(seen, recipe=recipe)
        say(recipe.lines)
    ready()
    trace_id = uuid.uuid4().hex[:6]
    stamp = datetime.now(timezone.utc)
    trace = TraceWriter(trace_file(env, request.trace, trace_id, stamp.strftime("%Y%m%d-%H%M%S.%f")[:-3]))
    folder = run_folder(env)
    try:
        become_subreaper()
        build = _Build(request, seen, prepared, trace, sensor, system, clock, folder, rules or Rules())
        trace.write(build.header(trace_id, stamp))
        return asyncio.run(build.run(make_screen))
    finally:
        trace.close()
        shutil.rmtree(folder, ignore_errors=True)


class _Build:
    def __init__(
        self,
        request: RunRequest,
        seen: Foresight,
        prepared: Prepared,
        trace: TraceWriter,
        sensor: MemorySensor,
        root: SystemRoot,
        clock: Clock,
        folder: Path,
        rules: Rules,
    ) -> None:
        self.request = request
        self.seen = seen
        self.env = seen.env
        self.prepared = prepared
        self.folder = folder
        self.sensor = sensor
        self.clock = clock
        self.rules = rules
        self.root = root
        self.fronts = Fronts(prepared, seen.env, keep_going=request.keep_going)
        estimator = LearningEstimator()
        self.remembering = Remembering(
            estimator,
            history_file(seen.env),
            cwd=project_folder(request.command, request.cwd),
            tools=toolchain(prepared),
            recalling=Recalling(seen.recipe) if seen.recipe is not None else None,
            archs=request.archs,
        )
        self.session = Session(
            governor=Governor(
                estimator,
                slots=prepared.slots,
                budget_mib=prepared.budget_mib,
                runaway=rules.runaway,
                most_open=prepared.most_open,
                most_threads=prepared.most_threads,
            ),
            trace=trace,
            accounts=Accounts(clock()),
            evidence=KillEvidence(root),
            root=root,
            page_bytes=root.page_bytes(),
            clock=clock,
            answer_front=self.fronts.answer,
            remembering=self.remembering,
            holds_units=True,
            estimator=estimator,
        )
        self.keeping = Keeping(
            root,
            trace=trace.path,
            write=trace.write,
            tell=self.session.tell,
            at_s=self.session.at_s,
            free_mib=lambda: sensor.read(0.0).tightest.headroom_mib,
            versions=versions(prepared),
        )
        self.looking = Looking(
            Surveyor(root, seen.env),
            trace,
            self.session.evidence,
            units=self.session.units.open,
            cwd=request.cwd,
            clock=clock,
            at_s=self.session.at_s,
        )
        if request.auto_remedy:
            self.session.remedying = Remedying(self.session.tell, estimator)
        self.session.look_around = self.looking.phase_ended
        self.session.before_return = self.keeping.keep
        self.session.units.also_called = self.keeping.unit_called
        self.remembering.named = Naming(trace.write, self.session.at_s).unit_named
        self.signalled: int | None = None
        self._guardian: Guardian | None = None
        self._pausing: Pausing | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._screen: Screen | None = None

    def header(self, trace_id: str, stamp: datetime) -> Header:
        prepared, toolkit = self.prepared, self.prepared.toolkit
        return Header(
            at_s=0.0,
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
            project=self.remembering.project.name,
            project_version=project_version(self.remembering.project.folder),
            host_compiler=toolchain(prepared).host_compiler,
            host_arch=toolchain(prepared).host_arch,
        )

    async def run(self, make_screen: Callable[[Session, Prepared, Fronts], Screen]) -> Finished:
        socket = self.folder / "socket"
        server = await serve(socket, self._converse)
        sharing = open_sharing(self.session, self.env, slots=self.prepared.slots, root=self.root, clock=self.clock)
        sampler = Sampler(
            self.session,
            self.sensor,
            clock=self.clock,
            reading=self.prepared.reading,
            rules=self.rules,
            sharing=sharing,
            planned=lambda: self.fronts.planned,
        )
        self._pausing = sampler.pausing
        if self.request.stages:
            sampler.pausing.why = WHY_PAUSED
        screen = self._screen = make_screen(self.session, self.prepared, self.fronts)
        screen.watch(sampler)
        ended = asyncio.Event()
        self._tell_start()
        self.looking.begin()
        loop = asyncio.get_running_loop()
        # Before the build starts: what comes meanwhile is heard below, when there is something to end.
        for number in heeded_signals():
            loop.add_signal_handler(number, self._interrupted, number)
        guardian = self._guardian = Guardian(
            command_of(self.request, self.prepared),
            env=build_variables(
                self.request, self.prepared, self.env, self.fronts, socket=socket, run_folder=self.folder
            ),
            cwd=self.request.cwd,
            cleanup=self.folder,
            stdout=screen.stdout_fd,
            stderr=screen.stderr_fd,
        )
        _raise_descriptor_limit()
        problem: list[BaseException] = []

        def hear() -> None:
            try:
                guardian.hear()
            except Exception as error:  # noqa: BLE001 - handed to the waiting side, whatever it is
                problem.append(error)
            if problem or guardian.ended:
                loop.remove_reader(guardian.fileno())
                ended.set()

        loop.add_reader(guardian.fileno(), hear)
        tasks = [asyncio.create_task(sampler.run()), *screen.start()]
        try:
            await ended.wait()
        finally:
            if self._ending is not None:
                self._ending.cancel()
            sampler.pausing.end()
            wall_s = self.session.at_s()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            server.close()
            guardian.close()
            sharing.close()
            self.keeping.close()
            self.session.units.close()
            self.remembering.close(lambda text: self.session.tell(text, warning=True))
            beyond = self.remembering.beyond_recipe(self.session.trace.path)
            for line in beyond:
                self.session.trace.write(Note(at_s=self.session.at_s(), text=line, level="warning"))
            await screen.stop()
        if problem:
            raise problem[0]
        if guardian.lost:
            raise BuildLostError(
                "the process that guards the build was killed; the build has been ended with it",
                hint="if the system ran out of memory, `--memory` with a lower limit keeps more of it free",
            )
        if guardian.left:
            self.session.tell(f"ended {guardian.left} processes that the build had left behind")
        tell_if_unstaged(self.request, self.session, run_folder=self.folder)
        summary = self._summary(guardian, wall_s)
        screen.hearing.end(failed=summary.result == "failed")
        self.looking.end(failed=summary.result != "ok", named=screen.hearing.named)
        summary = judged(summary, self.session.trace)
        self.session.trace.write(End(at_s=self.session.at_s(), summary=summary))
        return Finished(summary, self.session, self.prepared, beyond)

    async def _converse(self, connection: Connection) -> None:
        with contextlib.suppress(ConnectionError):
            await self.session.converse(connection)

    def _tell_start(self) -> None:
        for line in self.seen.recipe.lines if self.seen.recipe is not None else ():
            self.session.trace.write(Note(at_s=self.session.at_s(), text=line))
        for note in self.seen.notes:
            self.session.tell(note)
        for warning in self.seen.warnings:
            self.session.tell(warning, warning=True)
        if self.remembering.problem:
            self.session.tell(self.remembering.problem, warning=True)
        if self.prepared.knobs.caps:
            caps = ", ".join(self.prepared.knobs.caps)
            self.session.tell(f"keeps your {caps} as an upper bound (`--ignore-caps` to let memory alone decide)")
        if self.prepared.uncaught:
            self.session.tell(
                f"{self.prepared.uncaught} finds its compiler beside itself: what it compiles starts unasked",
                warning=True,
            )
        if self.prepared.toolkit_problem:
            self.session.tell(f"supervises host compilers only: {self.prepared.toolkit_problem}", warning=True)

    def _interrupted(self, number: int) -> None:
        """First a chance to end in order, then the end; a second signal comes straight to that."""
        if self._guardian is None:
            return
        if self._screen is not None:
            self._screen.hurry.set()
        if self.signalled is None:
            self.signalled = number
            self.session.tell(f"{signal.Signals(number).name}: the build is being ended")
            if self._pausing is not None:
                self._pausing.end()
            self.session.holding.close()
            self._guardian.signal_build(number)
            self._ending = asyncio.get_running_loop().call_later(GRACE_S, self._guardian.end_all)
        else:
            self._guardian.end_all()

    def _summary(self, guardian: Guardian, wall_s: float) -> Summary:
        session, accounts = self.session, self.session.accounts
        exit_code = exit_code_of(guardian.status or 0)
        if self.signalled is not None:
            exit_code = 128 + self.signalled
        result = "interrupted" if self.signalled is not None else "ok" if exit_code == 0 else "failed"
        verdict = session.verdict.verdict if session.verdict is not None and result == "failed" else None
        return Summary(
            result=result,
            exit_code=exit_code,
            verdict=verdict,
            wall_s=round(wall_s, 3),
            cpu_s=round(accounts.cpu_s, 3),
            budget_mib=round(session.governor.budget_mib, 1),
            limit_mib=round(self.prepared.reading.limit_mib, 1),
            peak_mib=round(accounts.peak_mib, 1),
            kernel_oom_kills=session.evidence.total(),
            requeued=accounts.requeued,
            killed=accounts.killed,
            runaways=accounts.runaways,
            remedied=session.remedying.remedied if session.remedying is not None else 0,
            paused=accounts.paused,
            units=accounts.units,
            phases=accounts.phases,
            effective_jobs_mean=round(accounts.jobs_mean(self.clock()), 2),
            effective_jobs_max=accounts.jobs_max,
            gate_overhead_s=round(accounts.gate_overhead_s, 3),
            gate_peak_mib=round(accounts.gate_peak_mib, 1),
            gates=accounts.gates,
            trace=printable(os.fspath(session.trace.path)),
        )


def _raise_descriptor_limit() -> None:
    """Each waiting gate takes two descriptors of ours. The guardian runs already: the build keeps its own limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
