"""The history recorder: a unit's name and past, looked up when it begins; what it took, written by a thread of its own.

Covers: the past that a unit's event carries, a recipe's included; how long the build still takes by that; what was
learned, handed to the writer; one line about a history that cannot be used. Nothing here waits for a disk in the event
loop, but for one look-up a unit: a few tables' rows, by index.
Does *not* cover: the file (``history``), what the past is worth (``estimation.past``, ``estimation.time_left``), or
recipes (``recipes.match``).
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from builddoctor.core.board import TimeLeft
from builddoctor.core.events import (
    Admit,
    Event,
    GiveUp,
    MemorySampled,
    PhaseAsked,
    PhaseEnded,
    Resume,
    Suspend,
    ToolkitChosen,
    UnitEnded,
    Warn,
    WarningKind,
)
from builddoctor.core.past import FinishedPhase, FinishedUnit, PastUnit, Seen, UnitKey
from builddoctor.core.phase import Outcome, Phase, Unit
from builddoctor.core.units import printable
from builddoctor.core.verdict import Verdict
from builddoctor.estimation.course import CourseWatch, watch_courses
from builddoctor.estimation.time_left import ForeseenWork, OpenUnit, Works, time_left
from builddoctor.history.store import History, Opened
from builddoctor.runtime.recipe_use import RecipeUse
from builddoctor.runtime.units import Project, Projects, Toolchain, unit_key
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.system.source_files import source_digest
from builddoctor.toolchain.command_lines import tried_out
from builddoctor.trace.state import BuildState

KILLED = frozenset(
    (
        *(Outcome.KILLED_BY_KERNEL, Outcome.KILLED_BY_US, Outcome.KILLED_OUTSIDE),
        *(Outcome.KILLED_THERE, Outcome.NODE_LOST),
    )
)

DID_NOT_FIT = frozenset((Verdict.TOO_BIG, Verdict.RUNAWAY))
"""What is known of such a phase is that it takes more: the next build tries it first."""

OPEN_WAIT_S = 2.0
"""Another build may be writing just when this one starts."""

READ_WAIT_S = 0.02
"""A look-up waits no longer than this for another build that writes."""

GATHER_S = 2.0
"""Units that end within this time are written together."""

WRITE_WAIT_S = 2.0
"""One try to write waits this long for another build that writes; then it is tried again."""

CLOSE_S = 10.0
"""The end of a build waits this long for the last writing."""

MOST_KEPT = 20_000
"""Units that wait for a file that another program holds."""

OPEN_AGAIN_S = 10.0
"""A file that was held when the build began is tried again for reading, this often."""


class KnownUnit(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a unit when it begins (``core.events.UnitBegan``)."""

    key: UnitKey | None = None
    target: str = ""
    source_digest: str = ""
    past: PastUnit | None = None
    teaches: bool = True


class HistoryRecorder:
    """One build's. ``path``: the file; None for none at all. ``recipe``: what the build goes by beside its history."""

    def __init__(
        self,
        path: Path | None,
        *,
        cwd: str,
        tools: Toolchain,
        gather_s: float = GATHER_S,
        recipe: RecipeUse | None = None,
        archs: tuple[str, ...] = (),
    ) -> None:
        self.problem = ""
        """why this build has no history, or began a new one; for a person"""
        self._recipe = recipe
        self._phases: dict[int, Phase] = {}
        """that asked and have not ended"""
        self._courses: dict[int, CourseWatch] = {}
        """of those that run"""
        self._thrifty: set[int] = set()
        """those that run with less memory than usual"""
        self._projects = Projects(cwd)
        self.tools = tools
        """what the next unit is compiled with"""
        self._path = path
        self._history: History | None = None
        self._open_again_s = float("inf")
        self._writer: _Writer | None = None
        self._keys: dict[str, UnitKey] = {}
        self._learned: dict[str, list[FinishedPhase]] = {}
        self.foreseen = ForeseenWork(recipe.works if recipe is not None else {})
        """work of the project's units, as a recipe or earlier builds here have it"""
        if path is None:
            return
        opened = self._open(path, OPEN_WAIT_S)
        if opened.history is not None and recipe is None:
            opened.history.wait_at_most(OPEN_WAIT_S)
            self.foreseen = ForeseenWork(opened.history.works(self.project.name, archs))
            opened.history.wait_at_most(READ_WAIT_S)
        self.problem = "" if opened.busy else opened.problem
        if opened.busy or (opened.history is not None and opened.history.writable):
            self._writer = _Writer(path, gather_s)

    @property
    def project(self) -> Project:
        """The one that is built."""
        return self._projects.own

    def _open(self, path: Path, busy_s: float) -> Opened:
        opened = History.open(path, busy_s=busy_s)
        self._history = opened.history
        self._open_again_s = time.monotonic() + OPEN_AGAIN_S if opened.busy else float("inf")
        if self._history is not None:
            self._history.wait_at_most(READ_WAIT_S)
        return opened

    def unit_called(self, unit: Unit, argv: Sequence[str], cwd: str) -> KnownUnit:
        """A unit's driver begins: what it is and was."""
        if self._path is not None and time.monotonic() >= self._open_again_s:
            self._open(self._path, READ_WAIT_S)
        teaches = not tried_out(unit.source, unit.output, cwd)
        key = unit_key(unit, argv, cwd, self._projects.of(unit, cwd), self.tools)
        if key is None:
            return KnownUnit(teaches=teaches)
        past = self._history.find(key) if self._history is not None else None
        self._keys[unit.unit_id] = key
        if self._recipe is not None:
            past = self._recipe.unit_began(unit.unit_id, key, past)
        if unit.counted:
            self.foreseen.began(unit.unit_id, key.place, key.output)
        return KnownUnit(
            key=key,
            target=printable(_target(unit.output, cwd)),
            source_digest=source_digest(Path(cwd, unit.source)) if unit.source else "",
            past=past,
            teaches=teaches,
        )

    def saw(self, event: Event) -> None:
        """An observer of the log: keeps what phases took, hands units that ended to the writer."""
        if isinstance(event, PhaseAsked):
            self._phases[event.phase.phase_id] = event.phase
        elif isinstance(event, Admit):
            self._admitted(event)
        elif isinstance(event, MemorySampled | Suspend | Resume):
            watch_courses(self._courses, event)
        elif isinstance(event, PhaseEnded):
            watch = self._courses.pop(event.phase_id, None)
            if event.outcome not in KILLED and (phase := self._phases.pop(event.phase_id, None)) is not None:
                self._phase_ended(phase, event, watch)
        elif isinstance(event, GiveUp):
            if event.verdict in DID_NOT_FIT and (phase := self._phases.pop(event.phase_id, None)) is not None:
                self._learn(phase, Seen(input_mib=phase.input_mib, peak_mib=event.peak_mib, wall_s=0.0, at_least=True))
        elif isinstance(event, UnitEnded):
            self._unit_ended(event.unit_id)
        elif isinstance(event, ToolkitChosen):
            self.tools = msgspec.structs.replace(self.tools, nvcc=event.nvcc)

    def _admitted(self, event: Admit) -> None:
        if event.thrift:
            # It takes less than it will without.
            self._thrifty.add(event.phase_id)
        if not event.node:
            self._courses[event.phase_id] = CourseWatch(event.at_s)

    def _phase_ended(self, phase: Phase, event: PhaseEnded, watch: CourseWatch | None) -> None:
        """Only a phase that did all its work shows what it needs."""
        peak_mib, wall_s = event.peak_mib, event.wall_s
        if event.outcome is Outcome.OK and event.phase_id not in self._thrifty and peak_mib > 0:
            course = watch.course(peak_mib=peak_mib, wall_s=wall_s) if watch is not None else ()
            self._learn(phase, Seen(input_mib=phase.input_mib, peak_mib=peak_mib, wall_s=wall_s, course=course))

    def _learn(self, phase: Phase, seen: Seen) -> None:
        if phase.unit_id not in self._keys or seen.peak_mib <= 0:
            return
        found = FinishedPhase(kind=phase.kind, arch=phase.arch, tool=phase.tool, seen=seen)
        self._learned.setdefault(phase.unit_id, []).append(found)
        if self._recipe is not None:
            self._recipe.phase_ended(phase, seen.peak_mib)

    def _unit_ended(self, unit_id: str) -> None:
        key, learned = self._keys.pop(unit_id, None), self._learned.pop(unit_id, [])
        self.foreseen.ended(unit_id)
        if self._recipe is not None:
            self._recipe.unit_ended(unit_id)
        if key is not None and learned and self._writer is not None:
            self._writer.take(FinishedUnit(key=key, phases=tuple(learned), ended_at=time.time()))

    def beyond_recipe(self, trace: Path) -> list[str]:
        """What to say where the build took more than its recipe says."""
        return self._recipe.words(trace) if self._recipe is not None else []

    def close(self, tell: Callable[[str], None] = lambda _: None) -> None:
        """Write what is left, and say what went wrong since the start."""
        problem = ""
        if self._writer is not None:
            problem = self._writer.close()
        if self._history is not None:
            problem = problem or self._history.problem
            self._history.close()
        if problem:
            tell(problem)


class TimeLeftWatch:
    """How long one build still takes. An observer of the log, told before ``state``, which forgets what has ended.

    ``foreseen``: work that earlier builds or a recipe showed.
    """

    def __init__(self, state: BuildState, scheduler: Scheduler, foreseen: ForeseenWork) -> None:
        self._state = state
        self._scheduler = scheduler
        self._foreseen = foreseen
        self._works = Works()
        self._fails = False

    def saw(self, event: Event) -> None:
        """Work is done as phases end."""
        if isinstance(event, Warn) and event.kind is WarningKind.FIRST_FAILURE:
            self._fails = True
        if isinstance(event, PhaseEnded):
            if (phase := self._state.phases.get(event.phase_id)) is not None:
                self._works.phase_ran(phase.row.unit_id, event.wall_s)
        elif isinstance(event, UnitEnded):
            unit = self._state.unit(event.unit_id)
            self._works.unit_ended(event.unit_id, counted=unit is not None and unit.unit.counted)

    def left(self, planned: int | None, at_s: float) -> TimeLeft | None:
        """Until the last unit has ended; None where it is not known how many units there will be (``planned``), or not
        all of them are built."""
        if planned is None or self._fails:
            return None
        state, scheduler = self._state, self._scheduler
        counted = [unit_id for unit_id, unit in state.open_units.items() if unit.unit.counted]
        done_s = {unit_id: self._works.done_s(unit_id) for unit_id in counted}
        left_s: dict[str, float | None] = dict.fromkeys(counted)
        known: set[str] = set()
        for unit_id in counted:
            if (work_s := self._foreseen.work_s(unit_id, scheduler.pace)) is not None:
                left_s[unit_id] = max(0.0, work_s - done_s[unit_id])
                known.add(unit_id)
        for phase in state.open.values():
            unit_id = phase.row.unit_id
            if unit_id in left_s and phase.phase is not None:
                ran_s = phase.run.ran_s(at_s) if phase.run is not None else 0.0
                done_s[unit_id] += ran_s
                left_s[unit_id] = max(0.0, scheduler.remaining_s(phase.phase) - ran_s)
        return time_left(
            self._works,
            to_come=max(0, planned - state.counts.units),
            open_units=[OpenUnit(done_s[unit_id], left_s[unit_id], unit_id in known) for unit_id in left_s],
            rate=state.jobs.rate(at_s),
            jobs=scheduler.running,
            foreseen=self._foreseen.to_come(scheduler.pace),
        )


class _Writer:
    """A thread that writes batches. It starts with the first unit."""

    def __init__(self, path: Path, gather_s: float) -> None:
        self._path = path
        self._gather_s = gather_s
        self._units: queue.SimpleQueue[FinishedUnit | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._give_up_s = float("inf")
        self._problem = ""

    def take(self, unit: FinishedUnit) -> None:
        if self._problem:
            return
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="history", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # No thread left (a pids limit): the build is worth more than its history.
                self._problem = f"this build is not remembered: {error}"
                return
            self._thread = thread
        self._units.put(unit)

    def close(self) -> str:
        """What went wrong; empty when all was written."""
        if self._thread is None:
            return self._problem
        self._give_up_s = time.monotonic() + CLOSE_S
        self._units.put(None)
        # One try more than fits may be under way.
        self._thread.join(CLOSE_S + WRITE_WAIT_S)
        return self._held() if self._thread.is_alive() else self._problem

    def _held(self) -> str:
        return f"the history {self._path} is held by another program: the last units are not in it"

    def _run(self) -> None:
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason for the build to fail
            self._problem = f"the history {self._path} cannot be written: {error!r}"

    def _write(self) -> None:
        """Until told to end. Units that could not be written, as another program held the file, are kept and tried
        again with the next."""
        history: History | None = None
        kept: deque[FinishedUnit] = deque(maxlen=MOST_KEPT)
        try:
            ending = False
            while not ending or kept:
                batch = self._batch(wait=not kept, ending=ending)
                ending = ending or None in batch
                kept.extend(unit for unit in batch if unit is not None)
                if not kept:
                    continue
                if history is None:
                    opened = History.open(self._path, busy_s=WRITE_WAIT_S)
                    history = opened.history
                    if history is None and not opened.busy:
                        self._problem = opened.problem
                        return
                if history is not None and history.record(kept):
                    kept.clear()
                elif history is not None and not history.busy:
                    self._problem = history.problem or f"the history {self._path} cannot be written"
                    return
                if kept and time.monotonic() >= self._give_up_s:
                    self._problem = self._held()
                    return
        finally:
            if history is not None:
                history.close()

    def _batch(self, *, wait: bool, ending: bool) -> list[FinishedUnit | None]:
        """What has come within a while. ``wait``: for the first, however long; after the end nothing comes."""
        if ending:
            return []
        batch = [self._units.get()] if wait else []
        until_s = time.monotonic() + self._gather_s
        while not batch or batch[-1] is not None:
            try:
                batch.append(self._units.get(timeout=max(0.0, until_s - time.monotonic())))
            except queue.Empty:
                break
        return batch


def _target(output: str, cwd: str) -> str:
    """Below ``cwd`` where it is; Ninja's own files name it so, or by its whole path."""
    path = os.path.normpath(os.path.join(cwd, output)) if output else ""
    below = os.path.relpath(path, cwd) if path else ""
    return below if not below.startswith("..") else path
