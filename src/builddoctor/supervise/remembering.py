"""History in a build: looked up when a unit begins, written by a thread of its own while the build goes on.

Covers: the unit's name and past, a recipe's included, handed to the estimator; what was learned handed to the writer;
one word about a history that cannot be used. Nothing here waits for a disk in the event loop, but for one look-up a
unit: a few tables' rows, by index.
Does *not* cover: the file (``history``), what the past is worth (``policy.past``), recipes (``recipes.recall``).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from builddoctor.history.store import History, Opened
from builddoctor.model.past import FinishedPhase, FinishedUnit, Seen, UnitKey
from builddoctor.model.phase import Outcome, Phase, Unit
from builddoctor.policy.estimator import LearningEstimator
from builddoctor.policy.foreseen import ForeseenWork
from builddoctor.supervise.recalling import Recalling
from builddoctor.supervise.unit_keys import Project, Projects, Toolchain, tried_out, unit_key

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


class Remembering:
    """One build's dealings with the history. ``path``: the file; None for none at all. ``recalling``: a recipe."""

    def __init__(
        self,
        estimator: LearningEstimator,
        path: Path | None,
        *,
        cwd: str,
        tools: Toolchain,
        gather_s: float = GATHER_S,
        recalling: Recalling | None = None,
        archs: tuple[str, ...] = (),
    ) -> None:
        self.named: Callable[[Unit, UnitKey, str], None] = lambda *_: None
        """told of every unit that has a name across builds, and of the folder its driver runs in"""
        self.problem = ""
        """why this build has no history, or began a new one; for a person"""
        self._estimator = estimator
        self.recalling = recalling
        self._projects = Projects(cwd)
        self._tools = tools
        self._path = path
        self._history: History | None = None
        self._open_again_s = float("inf")
        self._writer: _Writer | None = None
        self._keys: dict[str, UnitKey] = {}
        self._learned: dict[str, list[FinishedPhase]] = {}
        self.foreseen = ForeseenWork(recalling.works if recalling is not None else {})
        """work of the project's units, as a recipe or earlier builds here have it"""
        if path is None:
            return
        opened = self._open(path, OPEN_WAIT_S)
        if opened.history is not None and recalling is None:
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

    def unit_began(self, unit: Unit, argv: Sequence[str], cwd: str) -> None:
        """Tell the estimator what the unit is and was."""
        if self._path is not None and time.monotonic() >= self._open_again_s:
            self._open(self._path, READ_WAIT_S)
        key = unit_key(unit, argv, cwd, self._projects.of(unit, cwd), self._tools)
        past = self._history.find(key) if self._history is not None and key is not None else None
        if key is not None:
            self._keys[unit.unit_id] = key
            if self.recalling is not None:
                past = self.recalling.unit_began(unit.unit_id, key, past)
            self.named(unit, key, cwd)
            if unit.counted:
                self.foreseen.began(unit.unit_id, key.place, key.output)
        self._estimator.know(unit.unit_id, key=key, past=past, archs=unit.archs, teaches=not tried_out(unit, cwd))

    def phase_ended(self, phase: Phase, *, outcome: Outcome, peak_mib: float, wall_s: float) -> None:
        """Keep what a phase took; only a phase that did all its work shows what it needs."""
        if outcome is Outcome.OK and phase.unit_id in self._keys and peak_mib > 0:
            seen = Seen(input_mib=phase.input_mib, peak_mib=peak_mib, wall_s=wall_s)
            found = FinishedPhase(kind=phase.kind, arch=phase.arch, tool=phase.tool, seen=seen)
            self._learned.setdefault(phase.unit_id, []).append(found)
            if self.recalling is not None:
                self.recalling.phase_ended(phase, peak_mib)

    def unit_ended(self, unit: Unit) -> None:
        """Hand the unit to the writer, and forget it."""
        key, learned = self._keys.pop(unit.unit_id, None), self._learned.pop(unit.unit_id, [])
        self._estimator.forget(unit.unit_id)
        self.foreseen.ended(unit.unit_id)
        if self.recalling is not None:
            self.recalling.unit_ended(unit.unit_id)
        if key is not None and learned and self._writer is not None:
            self._writer.take(FinishedUnit(key=key, phases=tuple(learned), ended_at=time.time()))

    def beyond_recipe(self, trace: Path) -> list[str]:
        """What to say where the build took more than its recipe says."""
        return self.recalling.words(trace) if self.recalling is not None else []

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
