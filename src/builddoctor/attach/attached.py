"""One build that was started without us: looked at until it ends, kept as a trace, and guarded where that is wanted.

Covers: the order of looks, the log with its observers, the board's picture, the end and its summary; with ``guard``,
the scheduler's pauses carried out.
Does *not* cover: what is shown (``cli.attach``), which processes are stopped and when (``scheduler.ungated``).

Nothing of the build is touched without ``guard``. With it, compilers are stopped for a while and let go on again, by us
or, should we be killed, by the keeper (``gates.stopping``). None is ended.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import deque
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec

import builddoctor
from builddoctor.attach.compilers import OTHER_MIB, Compilers
from builddoctor.attach.find import Top
from builddoctor.attach.outlook import GROWTH_OVER_S, Outlook, Surroundings, outlook
from builddoctor.attach.progress import Progress
from builddoctor.core.board import BoardState, EventRow
from builddoctor.core.events import (
    TRACE_SCHEMA,
    BuildEnded,
    BuildResult,
    Continue,
    Event,
    Header,
    Interrupted,
    MemorySampled,
    Pause,
    PauseRefused,
    Status,
    Summary,
    UngatedProcess,
    UngatedSeen,
)
from builddoctor.core.limits import MemoryReading
from builddoctor.core.settings import SchedulerSettings
from builddoctor.core.units import printable
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.gates.stopping import Keeper, Stopped
from builddoctor.runtime.event_log import EventLog
from builddoctor.runtime.folders import history_file, trace_file
from builddoctor.runtime.history_recorder import HistoryRecorder
from builddoctor.runtime.kill_evidence import KillEvidence
from builddoctor.runtime.units import Toolchain
from builddoctor.scheduler.budget import Allowance, allowance
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.scheduler.ungated import may_be_stopped
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.platform import usable_cores
from builddoctor.system.pressure import PressureSensor
from builddoctor.system.process import Processes
from builddoctor.system.root import Clock, SeenFrom, SystemRoot, page_size, since_boot
from builddoctor.trace.board import board_state
from builddoctor.trace.masking import mask_argv
from builddoctor.trace.state import BuildState
from builddoctor.trace.words import event_row
from builddoctor.trace.writer import TraceWriter

EVERY_S = 1.0
"""Between two looks: of 40 processes one takes 3 ms."""

SHORTEST_S = 0.1
FILL_MIB_S = 1000.0
"""With ``guard`` the next look comes before memory could be full, were it taken this fast (four looks in that time)."""

PRESSURE_OVER_S = 10.0


class Attached:
    """One build. ``look`` until it gives False, then ``end``."""

    def __init__(
        self,
        top: Top,
        env: Mapping[str, str],
        *,
        guard: bool,
        trace: str = "",
        path: Path = Path("/"),
        clock: Clock = since_boot,
    ) -> None:
        """``path``: the system's root. ``clock``: goes on while the machine sleeps, as start times of processes do."""
        self._top = top
        self._clock = clock
        self._root = SystemRoot(path)
        theirs = SeenFrom(path, top.pid)
        self._processes = Processes(self._root)
        ticks = os.sysconf("SC_CLK_TCK")
        age_s = max(0.0, since_boot() - top.start_ticks / ticks)
        self._sensor = MemorySensor(theirs, env=env, clock=clock)
        self._pressure = PressureSensor(theirs, page_bytes=self._root.page_bytes())
        self._evidence = KillEvidence(theirs)
        self._kills = 0
        self._recorder = HistoryRecorder(history_file(env), cwd=top.cwd or "/", tools=Toolchain())
        estimator = LearningEstimator()
        self._compilers = Compilers(
            top.pid,
            boot_s=top.start_ticks / ticks,
            root=self._root,
            estimator=estimator,
            recorder=self._recorder,
        )
        self.state = BuildState(rows=False)
        self.fresh: list[EventRow] = []
        """what happened and was not shown yet; whoever shows it takes it from here"""
        trace_id, now = uuid.uuid4().hex[:6], datetime.now(timezone.utc)
        self.trace = TraceWriter(trace_file(env, trace, trace_id, now.strftime("%Y%m%d-%H%M%S.%f")[:-3]))
        start_s = clock() - age_s
        self._progress = Progress(root=self._root, now_s=lambda: clock() - start_s, time_of_day=time.time)
        self._log = EventLog(clock, (self.trace.write, self._progress.saw, self._tell), start_s=start_s)
        self._said = False
        """that a ninja's folder cannot be read"""
        self._held: deque[tuple[float, float]] = deque()
        self._stalls: deque[tuple[float, float]] = deque()
        self._cpu = (0.0, self._log.at_s())
        self._outlook = Outlook(verdict="")
        self._cores = usable_cores(theirs)
        self._reading = self._sensor.read(0.0)
        allowed = allowance(self._reading, 0.0)
        self._scheduler: Scheduler | None = None
        self._keeper: Keeper | None = None
        if guard:
            settings = SchedulerSettings(slots=self._cores, budget_mib=round(allowed.budget_mib, 1))
            self._scheduler = Scheduler(settings, LearningEstimator())
            self._keeper = Keeper()
        self._stopped = Stopped(self._processes, self._keeper)
        self.every_s = EVERY_S
        """until the next look"""
        self._log.add(self._header(trace_id, now - timedelta(seconds=age_s), allowed))

    def _header(self, trace_id: str, began: datetime, allowed: Allowance) -> Header:
        top = self._top
        return Header(
            schema=TRACE_SCHEMA,
            builddoctor=builddoctor.__version__,
            trace_id=trace_id,
            started_at=began.isoformat(timespec="seconds"),
            command=mask_argv(top.argv),
            cwd=top.cwd,
            title=top.title,
            archs=[],
            cores=self._cores,
            window=0,
            budget_mib=round(allowed.budget_mib, 1),
            limit_mib=round(self._reading.limit_mib, 1),
            limited_by=self._reading.tightest.source,
            page_kib=page_size() // 1024,
            boot_id=(self._root.text("/proc/sys/kernel/random/boot_id") or "").strip(),
            project=self._recorder.project.name,
            attached=True,
        )

    @property
    def undone(self) -> int:
        """Units that ninja has not done."""
        return self._progress.undone

    def picture(self) -> BoardState:
        """For the board."""
        state = board_state(self.state, now_s=self._log.at_s())
        return msgspec.structs.replace(state, verdict=self._outlook.verdict, threat=self._outlook.threat)

    def look(self) -> bool:
        """Look at all of it; False once the build has ended."""
        if not self._processes.lives(self._top.pid, self._top.start_ticks):
            return False
        at_s = self._log.at_s()
        kills = self._evidence.total()
        found = self._compilers.look(at_s, kernel_kills=kills - self._kills)
        self._kills = kills
        seen = self._progress.look(self._compilers.tree, self._compilers.outputs, self._compilers.began_s)
        self._log.add(*seen, *found)
        if self._progress.unread and not self._said:
            self._said = True
            self._log.tell(self._progress.unread, warning=True)
        held_mib = self._compilers.held_mib
        self._reading = reading = self._sensor.read(held_mib)
        allowed = allowance(reading, held_mib)
        self._log.add(self._sampled(at_s, allowed), self._status(at_s, reading, allowed))
        growth_mib_s = self._growth_mib_s(at_s, held_mib)
        self._outlook = outlook(
            list(self._compilers.running.values()),
            at_s,
            self._around(at_s, reading, allowed, growth_mib_s),
            paused=frozenset(pid for _, pid in self._paused),
        )
        if self._scheduler is not None:
            self._guard(self._scheduler, at_s, allowed, held_mib)
        return True

    def end(self, *, left: bool = False) -> Summary:
        """Let all go, and close the trace. ``left``: the build goes on, and we do not watch it any more."""
        at_s = self._log.at_s()
        if self._scheduler is not None:
            self._log.add(*self._scheduler.handle(Interrupted(at_s=at_s)))
        self._stopped.release()
        if self._keeper is not None:
            self._keeper.close()
        if not left:
            # What was done since the last look.
            kills = self._evidence.total()
            ended = self._compilers.look(at_s, kernel_kills=kills - self._kills)
            self._kills = kills
            self._log.add(*self._progress.look((), self._compilers.outputs, self._compilers.began_s), *ended)
        summary = self._summary(at_s, left=left)
        self._log.add(BuildEnded(at_s=at_s, summary=summary))
        self._recorder.close()
        self.trace.close()
        return summary

    # -- one look ----------------------------------------------------------------------------------------------

    def _sampled(self, at_s: float, allowed: Allowance) -> MemorySampled:
        running = self._compilers.running.values()
        return MemorySampled(
            at_s=at_s,
            rss_mib=tuple((each.phase.phase_id, round(each.rss_mib, 1)) for each in running),
            held_mib=round(self._compilers.held_mib, 1),
            headroom_mib=round(allowed.kill_headroom_mib, 1),
            budget_mib=round(allowed.budget_mib, 1),
            reserve_mib=round(allowed.reserve_mib, 1),
        )

    def _status(self, at_s: float, reading: MemoryReading, allowed: Allowance) -> Status:
        left = self._progress.left()
        return Status(
            at_s=at_s,
            budget_mib=round(allowed.budget_mib, 1),
            limit_mib=round(reading.limit_mib, 1),
            headroom_mib=round(reading.tightest.headroom_mib, 1),
            ours_mib=round(self._compilers.held_mib, 1),
            running=len(self._compilers.running),
            waiting=0,
            open_units=len(self.state.open_units),
            oom_kills=self._kills,
            planned=self._progress.planned,
            left_s=None if left is None else (round(left.low_s, 1), round(left.high_s, 1)),
            committed_mib=round(self._compilers.held_mib, 1),
            limited_by=reading.tightest.source,
        )

    def _growth_mib_s(self, at_s: float, held_mib: float) -> float:
        self._held.append((at_s, held_mib))
        while at_s - self._held[0][0] > GROWTH_OVER_S:
            self._held.popleft()
        then_s, then_mib = self._held[0]
        return (held_mib - then_mib) / (at_s - then_s) if at_s > then_s else 0.0

    def _around(self, at_s: float, reading: MemoryReading, allowed: Allowance, growth_mib_s: float) -> Surroundings:
        cpu_s = sum(each.cpu_s for each in self._compilers.tree)
        if cpu_s != self._cpu[0]:
            self._cpu = (cpu_s, at_s)
        leaves = [each for each in self._compilers.tree if each.is_leaf]
        return Surroundings(
            headroom_mib=allowed.kill_headroom_mib,
            limit_mib=reading.tightest.limit_mib,
            limited_by=reading.tightest.source,
            reserve_mib=allowed.reserve_mib,
            growth_mib_s=growth_mib_s,
            stalled_share=self._stalled_share(at_s),
            kernel_kills=self._kills,
            compilers_killed=self._compilers.killed,
            others_idle_s=at_s - self._cpu[1],
            waits_in=f"{leaves[0].name} (pid {leaves[0].pid})" if leaves else f"pid {self._top.pid} itself",
            guarded=self._scheduler is not None,
        )

    def _stalled_share(self, at_s: float) -> float | None:
        full_s = self._pressure.read().full_s
        if full_s is None:
            return None
        self._stalls.append((at_s, full_s))
        while at_s - self._stalls[0][0] > PRESSURE_OVER_S:
            self._stalls.popleft()
        then_s, then_full_s = self._stalls[0]
        return (full_s - then_full_s) / (at_s - then_s) if at_s - then_s >= PRESSURE_OVER_S / 2 else None

    # -- the guard ---------------------------------------------------------------------------------------------

    @property
    def _paused(self) -> frozenset[tuple[int, int]]:
        return self._scheduler.paused if self._scheduler is not None else frozenset()

    def _guard(self, scheduler: Scheduler, at_s: float, allowed: Allowance, held_mib: float) -> None:
        """The scheduler decides as it does of processes that no gate caught: all of these are."""
        processes = tuple(
            UngatedProcess(
                pid=each.pid,
                start_ticks=each.start_ticks,
                name=each.name,
                rss_mib=round(each.anon_mib, 1),
                cpu_s=each.cpu_s,
                stopped=each.state == "T",
            )
            for each in self._compilers.tree
            if each.anon_mib >= OTHER_MIB
            and each.is_leaf
            and not each.leads_session
            and may_be_stopped(each.name, each.program)
        )
        seen = UngatedSeen(
            at_s=at_s,
            processes=processes,
            headroom_mib=round(allowed.kill_headroom_mib, 1),
            reserve_mib=round(allowed.reserve_mib, 1),
            phases_mib=0.0,
        )
        self._log.add(seen)
        for decision in scheduler.handle(seen):
            self._log.add(decision)
            if isinstance(decision, Pause) and not self._stopped.stop(decision.process):
                refused = PauseRefused(at_s=at_s, process=decision.process)
                self._log.add(refused, *scheduler.handle(refused))
            elif isinstance(decision, Continue):
                self._stopped.go_on(decision.process)
        self._stopped.keep_only(scheduler.paused)
        if self._keeper is not None:
            self._keeper.lives()
        soon_s = allowed.kill_headroom_mib / (4 * FILL_MIB_S)
        self.every_s = min(EVERY_S, max(SHORTEST_S, soon_s)) if held_mib else EVERY_S

    # -- the end -----------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        happening = self.state.apply(event)
        if happening is not None and (row := event_row(happening)) is not None:
            self.fresh.append(row)

    def _summary(self, at_s: float, *, left: bool) -> Summary:
        """Of a build that is not our child nobody tells how it ended: it failed where the kernel ended a compiler, or
        where ninja left something undone."""
        state, counts = self.state, self.state.counts
        failed = not left and (self._compilers.killed > 0 or self.undone > 0)
        result = BuildResult.INTERRUPTED if left else BuildResult.FAILED if failed else BuildResult.OK
        return Summary(
            result=result,
            exit_code=int(failed),
            wall_s=round(at_s, 3),
            cpu_s=round(counts.cpu_s, 3),
            budget_mib=round(allowance(self._reading, 0.0).budget_mib, 1),
            limit_mib=round(self._reading.limit_mib, 1),
            peak_mib=round(counts.peak_mib, 1),
            kernel_oom_kills=self._kills,
            requeued=0,
            killed=0,
            paused=counts.paused,
            units=counts.units,
            phases=counts.phases,
            effective_jobs_mean=round(state.jobs.mean(at_s), 2),
            effective_jobs_max=state.jobs.most,
            gate_overhead_s=0.0,
            gate_peak_mib=0.0,
            gates=0,
            trace=printable(os.fspath(self.trace.path)),
        )
