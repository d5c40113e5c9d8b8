"""How far a build is: what ninja has done and has still to do, and how long the rest takes.

Covers: every ninja that runs below the build's process, its compiles by build.ninja and its log, those included that
ended before we came; units of make, setup.py and others as their compilers come and go, of which nobody says how many
there will be; time left.
Does *not* cover: finding compilers (``attach.compilers``).

Of an output that is there already, older than this run, it is not known whether it is up to date: it counts once ninja
makes it again, or is seen to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from builddoctor.core.board import TimeLeft
from builddoctor.core.events import Event, UnitBegan, UnitEnded
from builddoctor.core.phase import Unit
from builddoctor.core.units import printable
from builddoctor.estimation.time_left import ForeseenWork, OpenUnit, Works, time_left
from builddoctor.gates.fronts import NINJA_NAMES, Edge, build_file, compile_edges, ninja_log, within_folder
from builddoctor.system.process import Call, TreeProcess, read_call
from builddoctor.system.root import SystemRoot
from builddoctor.toolchain.ninja_log import Done, NinjaLog, of_this_run

OLDER_S = 1.0
"""A disk's clock may be this coarse."""

UNKNOWN_LOW, UNKNOWN_HIGH = 4.0, 1.5
"""Of a build that nobody has seen before the units to come may all be shorter than those that have ended, or longer:
the range is wider by this on either side. The units of seven recipes, 2 to 16 at once, in the order of their files: in
92 of 100 moments the end came within it, in random orders in 91, longest first in 56; without it in 49, 80 and 9."""


class Ninja:
    """One ninja that runs."""

    def __init__(
        self,
        edges: Sequence[Edge],
        log: NinjaLog,
        *,
        began_s: float,
        age_s: float,
        wall_s: float,
        clock_s: float | None = None,
    ) -> None:
        """``began_s``: since the build began; ``age_s``: how long it has run; ``wall_s``: the time of day it began;
        ``clock_s``: from when on it counts, since the build began."""
        self.log = log
        self.began_s = began_s
        self.clock_s = began_s if clock_s is None else clock_s
        self._edges = {edge.path: edge for edge in edges}
        self._where = edges[0].directory
        self._wall_s = wall_s
        self.done: set[str] = set()
        """outputs that this run made"""
        lines = log.new()
        now = of_this_run(lines, running_s=age_s)
        self.first = self._of(now, older=True)
        """what it had done before it was looked at"""
        self.before_s = {
            path: done.end_s - done.start_s
            for done in lines[: -len(now) or None]
            if (path := self._path(done)) in self._edges
        }
        """what earlier runs took, by output"""
        self._missing = {path for path in self._edges if not os.path.exists(path)}

    def known(self, seen: Collection[str]) -> set[str]:
        """Outputs of this run that are known of: done, seen to compile, or not there when it was looked at first."""
        return self._missing | self.done | (self._edges.keys() & set(seen))

    def news(self, *, age_s: float) -> list[tuple[Edge, Done]]:
        """Units that were done since the last call."""
        lines = self.log.new()
        return self._of(of_this_run(lines, running_s=age_s) if self.log.anew else lines, older=self.log.anew)

    def _of(self, lines: Sequence[Done], *, older: bool) -> list[tuple[Edge, Done]]:
        """``older``: some of these may be of an earlier run that the log's times do not tell apart."""
        found: dict[str, tuple[Edge, Done]] = {}
        for done in lines:
            path = self._path(done)
            edge = self._edges.get(path)
            if edge is not None and path not in self.done and (not older or self._is_new(path)):
                # Of two lines the later is this run's.
                found[path] = (edge, done)
        self.done |= found.keys()
        return list(found.values())

    def _path(self, done: Done) -> str:
        return os.path.normpath(os.path.join(self._where, done.output))

    def _is_new(self, path: str) -> bool:
        try:
            return os.stat(path).st_mtime >= self._wall_s - OLDER_S
        except OSError:
            return False


class BuildFile(msgspec.Struct, frozen=True):
    """A build.ninja as it was when it was read."""

    path: Path
    changed_s: float = 0.0
    size: int = -1

    @staticmethod
    def seen(path: Path) -> BuildFile:
        try:
            status = path.stat()
        except OSError:
            return BuildFile(path)
        return BuildFile(path, status.st_mtime, status.st_size)


class Progress:
    """One build's. ``now_s``: since it began; ``time_of_day``: likewise as files have it."""

    def __init__(
        self,
        *,
        root: SystemRoot,
        now_s: Callable[[], float],
        time_of_day: Callable[[], float],
        edges_of: Callable[[str, Sequence[str], str], Sequence[Edge] | None] = compile_edges,
    ) -> None:
        """``edges_of``: asks a ninja, given its file, words and folder, what it compiles."""
        self._root = root
        self._now_s = now_s
        self._time_of_day = time_of_day
        self._edges_of = edges_of
        self._ninjas: dict[tuple[int, int], Ninja | None] = {}
        self._read: dict[tuple[int, int], BuildFile] = {}
        """what each was asked about"""
        self.unread = ""
        """why of a ninja it is not known what it builds; for a person"""
        self._works = Works()
        self._foreseen = ForeseenWork({})
        self._named: set[str] = set()
        """units that have been looked for in it"""
        self._then_s = self._now_work_s = 0.0
        """what the units that have ended took before, and take now, of those that were foreseen"""
        self._work_s = 0.0
        self._first_s: float | None = None
        self._began_s: dict[str, float] = {}
        self._told: set[str] = set()
        """outputs of units that have been told of"""
        self._seen: set[str] = set()
        """outputs of units that were seen to compile"""
        self._last = 0

    @property
    def planned(self) -> int | None:
        """Units in all; None where no ninja says it."""
        ninjas = self._known_ninjas()
        # Two that run one after the other in one folder may have the same to do.
        return len({path for ninja in ninjas for path in ninja.known(self._seen)}) if ninjas else None

    @property
    def undone(self) -> int:
        """Units of ninja's that it has not done: to come, at work, or failed."""
        ninjas = self._known_ninjas()
        known = {path for ninja in ninjas for path in ninja.known(self._seen)}
        return len(known.difference(*(ninja.done for ninja in ninjas)))

    def _known_ninjas(self) -> list[Ninja]:
        return [ninja for ninja in self._ninjas.values() if ninja is not None]

    def saw(self, event: Event) -> None:
        """An observer of the log: work is done as units end."""
        if isinstance(event, UnitBegan) and event.unit.counted:
            self._began_s[event.unit.unit_id] = event.at_s
            self._first_s = event.at_s if self._first_s is None else min(self._first_s, event.at_s)
        elif isinstance(event, UnitEnded) and (began_s := self._began_s.pop(event.unit_id, None)) is not None:
            took_s = max(0.01, event.at_s - began_s)
            self._works.phase_ran(event.unit_id, took_s)
            self._works.unit_ended(event.unit_id, counted=True)
            self._work_s += took_s
            if (then_s := self._foreseen.work_s(event.unit_id, 1.0)) is not None:
                self._then_s, self._now_work_s = self._then_s + then_s, self._now_work_s + took_s
            self._foreseen.ended(event.unit_id)

    def look(
        self, tree: Sequence[TreeProcess], outputs: dict[str, str], began_s: Callable[[TreeProcess], float]
    ) -> list[Event]:
        """Units that ninja has done and nobody saw: too short, or before we came. ``outputs``: of those seen."""
        self._seen.update(outputs)
        events: list[Event] = []
        for process in tree:
            if process.name in NINJA_NAMES:
                events += self._asked(process, began_s(process), outputs)
        for ninja in self._known_ninjas():
            events += self._unseen(ninja, ninja.news(age_s=self._now_s() - ninja.began_s), outputs)
        for path, unit_id in outputs.items():
            if unit_id in self._began_s:
                self._foresee(unit_id, path)
        return sorted(events, key=lambda event: event.at_s)

    def _asked(self, process: TreeProcess, began_s: float, outputs: dict[str, str]) -> list[Event]:
        """It is asked when it is seen, and again when its build files were written anew: it reads them again then."""
        key = (process.start_ticks, process.pid)
        call = read_call(self._root, process.pid)
        if not call.argv or (key in self._ninjas and not call.cwd):
            # It has just ended.
            return []
        file = BuildFile.seen(build_file(call.argv[1:], call.cwd))
        if self._read.get(key) == file:
            return []
        self._read[key] = file
        ninja = self._ninjas[key] = self._ninja(process, call, began_s, file)
        if ninja is None:
            return []
        if ninja.before_s:
            self._foreseen = ForeseenWork({(path, ""): took_s for path, took_s in ninja.before_s.items()})
        return self._unseen(ninja, ninja.first, outputs)

    def _foresee(self, unit_id: str, path: str) -> None:
        if unit_id not in self._named:
            self._named.add(unit_id)
            self._foreseen.began(unit_id, path, "")

    def left(self) -> TimeLeft | None:
        """Until the last unit has ended."""
        planned = self.planned
        if planned is None or self._first_s is None:
            return None
        now_s = self._now_s()
        pace = self._now_work_s / self._then_s if self._then_s > 0 else 1.0
        open_s = {unit_id: max(0.0, now_s - began_s) for unit_id, began_s in self._began_s.items()}
        known = {unit_id: work_s for unit_id in open_s if (work_s := self._foreseen.work_s(unit_id, pace)) is not None}
        to_come = max(0, planned - self._works.count - len(open_s))
        foreseen = self._foreseen.to_come(pace)
        passed_s = now_s - self._first_s
        rate = (self._work_s + sum(open_s.values())) / passed_s if passed_s > 0 else 0.0
        units = [
            OpenUnit(done_s, max(0.0, known[unit_id] - done_s) if unit_id in known else None, unit_id in known)
            for unit_id, done_s in open_s.items()
        ]
        left = time_left(
            self._works, to_come=to_come, open_units=units, rate=rate, jobs=float(len(open_s)), foreseen=foreseen
        )
        if left is None or (foreseen.count >= to_come and len(known) == len(open_s)):
            return left
        # Of a unit that nobody has seen before it may be the last second.
        low_s = left.low_s / UNKNOWN_LOW if to_come else 0.0
        return TimeLeft(low_s=low_s, high_s=left.high_s * UNKNOWN_HIGH)

    def _ninja(self, process: TreeProcess, call: Call, began_s: float, file: BuildFile) -> Ninja | None:
        words = within_folder(call.argv[1:])
        if not self._is_here(process.pid, call.cwd):
            self.unread = (
                f"the folder of {process.name} (pid {process.pid}) cannot be read: how many units there are is not "
                "known; attach as its user or root, in the same container"
            )
            return None
        path = ninja_log(process.name, words, call.cwd)
        edges = self._edges_of(self._program(process.pid), words, call.cwd)
        if path is None or not edges:
            return None
        age_s = self._now_s() - began_s
        wall_s = self._time_of_day() - age_s
        # After it has had its build files written anew it begins again, its clock as well.
        again_s = min(max(0.0, file.changed_s - wall_s), age_s)
        return Ninja(edges, NinjaLog(path), began_s=began_s, age_s=age_s, wall_s=wall_s, clock_s=began_s + again_s)

    def _is_here(self, pid: int, cwd: str) -> bool:
        """What it calls its folder is that folder for us too: neither closed to us, nor another container's."""
        try:
            return bool(cwd) and os.path.samefile(self._root.at(f"/proc/{pid}/cwd"), cwd)
        except OSError:
            return False

    def _program(self, pid: int) -> str:
        """The very ninja that runs, or the one on PATH: what belongs to another user is not run by us."""
        program = self._root.link(f"/proc/{pid}/exe")
        try:
            ours = self._root.at(f"/proc/{pid}").stat().st_uid == os.geteuid()
        except OSError:
            ours = False
        return program if ours and os.path.isfile(program) else NINJA_NAMES[0]

    def _unseen(self, ninja: Ninja, found: Sequence[tuple[Edge, Done]], outputs: dict[str, str]) -> list[Event]:
        events: list[Event] = []
        now_s = self._now_s()
        for edge, done in found:
            if edge.path in outputs or edge.path in self._told:
                continue
            self._told.add(edge.path)
            self._last += 1
            unit = Unit(unit_id=f"n{self._last}", source=printable(edge.file), output=printable(edge.output))
            self._foresee(unit.unit_id, edge.path)
            start_s, end_s = (min(ninja.clock_s + each, now_s) for each in (done.start_s, done.end_s))
            events.append(UnitBegan(at_s=round(start_s, 2), unit=unit))
            events.append(UnitEnded(at_s=round(end_s, 2), unit_id=unit.unit_id))
        return events
