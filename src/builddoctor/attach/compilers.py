"""What compiles below one process: units and their phases, found by looking, told as events.

Covers: drivers and the programs inside them, when each began by the kernel's clock, what they hold, and when they are
gone; which of those that went the kernel ended. Looks are seconds apart: what came and went between two is not seen,
and of what was seen the peak may not be.
Does *not* cover: how many units there will be (``attach.progress``), or what it all means (``attach.outlook``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import msgspec

from builddoctor.core.events import CompilerFound, Event, PhaseEnded, UnitBegan, UnitEnded
from builddoctor.core.evidence import KillCause
from builddoctor.core.phase import Outcome, Phase, PhaseKind, Unit
from builddoctor.estimation.estimator import Estimator
from builddoctor.runtime.history_recorder import HistoryRecorder
from builddoctor.scheduler.ungated import may_be_stopped
from builddoctor.system.process import TreeProcess, read_call, read_tree
from builddoctor.system.root import SystemRoot
from builddoctor.toolchain.command_lines import driver_unit, nvcc_unit, phase_facts
from builddoctor.toolchain.running import MOST_NAME_BYTES, is_driver, is_phase, phase_tool, whole_name

LEAST_MIB = 1.0
OTHER_MIB = 64.0
"""A program that is no compiler we know is shown from this size on."""

Key = tuple[int, int]
"""start, pid: a process's identity"""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """One compiler as last seen."""

    phase: Phase
    pid: int
    start_ticks: int
    name: str
    state: str
    began_s: float
    """since the build began"""
    rss_mib: float
    peak_mib: float
    cpu_s: float
    worked_s: float
    """when its processor time was last seen to change"""


class Compilers:
    """Those of one build. ``boot_s``: when the build began, since the machine was started."""

    def __init__(
        self,
        top: int,
        *,
        boot_s: float,
        root: SystemRoot,
        estimator: Estimator,
        recorder: HistoryRecorder,
    ) -> None:
        self.running: dict[Key, Running] = {}
        self.tree: Sequence[TreeProcess] = ()
        """the build's own process at the last look, and all below it"""
        self.outputs: dict[str, str] = {}
        """units by the path of their output"""
        self.killed = 0
        """those that the kernel ended, as far as its counter tells"""
        self._top = top
        self._boot_s = boot_s
        self._root = root
        self._page_bytes = root.page_bytes()
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._estimator = estimator
        self._recorder = recorder
        self._drivers: dict[Key, Unit] = {}
        self._names: dict[tuple[int, int, str], str] = {}
        """of those that the kernel has cut"""
        self._last_id = 0

    @property
    def held_mib(self) -> float:
        return sum(each.rss_mib for each in self.running.values())

    def began_s(self, process: TreeProcess) -> float:
        return round(max(0.0, process.start_ticks / self._ticks - self._boot_s), 2)

    def look(self, at_s: float, *, kernel_kills: int) -> list[Event]:
        """What came and went since the last look. ``kernel_kills``: counted since then."""
        found = read_tree(self._root, self._top, page_bytes=self._page_bytes, least_mib=LEAST_MIB, itself=True)
        tree = self.tree = [self._named(process) for process in found]
        by_pid = {each.pid: each for each in tree}
        events: list[Event] = []
        seen: set[Key] = set()
        drivers: set[Key] = set()
        for process in tree:
            driver = _driver_of(process, by_pid)
            if driver is not None:
                key = (driver.start_ticks, driver.pid)
                drivers.add(key)
                if key not in self._drivers:
                    events += self._unit_began(driver)
            if not _works(process):
                continue
            key = (process.start_ticks, process.pid)
            seen.add(key)
            if key in self.running:
                self._see(key, process, at_s)
            else:
                events.append(self._found(key, process, self._drivers.get(_key(driver)), at_s))
        gone = [self.running.pop(key) for key in [key for key in self.running if key not in seen]]
        killed = sorted(gone, key=lambda each: -each.rss_mib)[:kernel_kills]
        self.killed += len(killed)
        for each in gone:
            events.append(self._ended(each, at_s, killed=each in killed))
        for key in [key for key in self._drivers if key not in drivers]:
            unit = self._drivers.pop(key)
            self._estimator.forget(unit.unit_id)
            events.append(UnitEnded(at_s=at_s, unit_id=unit.unit_id))
        return events

    def _named(self, process: TreeProcess) -> TreeProcess:
        """With its whole name. It is asked for once: until a program is started in its place it keeps it."""
        if len(process.name.encode()) < MOST_NAME_BYTES:
            return process
        key = (process.start_ticks, process.pid, process.name)
        if key not in self._names:
            self._names[key] = whole_name(process.name, read_call(self._root, process.pid).argv)
        return msgspec.structs.replace(process, name=self._names[key])

    def _unit_began(self, driver: TreeProcess) -> Iterator[Event]:
        call = read_call(self._root, driver.pid)
        if not call.argv:
            return
        unit_id = f"{driver.pid}.{driver.start_ticks}"
        read = nvcc_unit if os.path.basename(call.argv[0]) == "nvcc" else driver_unit
        unit = read(unit_id, call.argv[1:], call.cwd)
        self._drivers[(driver.start_ticks, driver.pid)] = unit
        if unit.output:
            self.outputs[os.path.normpath(os.path.join(call.cwd, unit.output))] = unit_id
        known = self._recorder.unit_called(unit, call.argv[1:], call.cwd)
        self._estimator.know(unit_id, key=known.key, past=known.past, archs=unit.archs, teaches=known.teaches)
        yield UnitBegan(at_s=self.began_s(driver), unit=unit, key=known.key, target=known.target, past=known.past)

    def _found(self, key: Key, process: TreeProcess, unit: Unit | None, at_s: float) -> Event:
        call = read_call(self._root, process.pid)
        self._last_id += 1
        facts = phase_facts(phase_tool(process.name), call.argv[1:], dict(call.sizes))
        source = (unit.source or unit.output) if unit is not None else ""
        if not is_phase(process.name) and not is_driver(process.name):
            facts = msgspec.structs.replace(facts, kind=PhaseKind.HOST, source=process.name)
        phase = Phase(
            phase_id=self._last_id,
            unit_id=unit.unit_id if unit is not None else "",
            kind=facts.kind,
            source=source or facts.source or process.name,
            arch=facts.arch,
            input_mib=round(facts.input_mib, 4),
            tool=process.name,
            redoable=False,
        )
        began_s = self.began_s(process)
        self.running[key] = Running(
            phase=phase,
            pid=process.pid,
            start_ticks=process.start_ticks,
            name=process.name,
            state=process.state,
            began_s=began_s,
            rss_mib=process.anon_mib,
            peak_mib=process.anon_mib,
            cpu_s=process.cpu_s,
            worked_s=at_s,
        )
        estimate = self._estimator.estimate(phase)
        return CompilerFound(
            at_s=began_s,
            phase=phase,
            pid=process.pid,
            estimate=msgspec.structs.replace(
                estimate, peak_mib=round(estimate.peak_mib, 1), spread_mib=round(estimate.spread_mib, 1)
            ),
            expected_s=round(self._estimator.wall_s(phase), 1),
        )

    def _see(self, key: Key, process: TreeProcess, at_s: float) -> None:
        last = self.running[key]
        self.running[key] = msgspec.structs.replace(
            last,
            name=process.name,
            state=process.state,
            rss_mib=process.anon_mib,
            peak_mib=max(last.peak_mib, process.anon_mib),
            cpu_s=process.cpu_s,
            worked_s=at_s if process.cpu_s != last.cpu_s else last.worked_s,
        )

    def _ended(self, each: Running, at_s: float, *, killed: bool) -> Event:
        outcome = Outcome.KILLED_BY_KERNEL if killed else Outcome.OK
        wall_s = round(max(0.0, at_s - each.began_s), 2)
        self._estimator.observe(each.phase, outcome=outcome, peak_mib=each.peak_mib, wall_s=wall_s)
        return PhaseEnded(
            at_s=at_s,
            phase_id=each.phase.phase_id,
            outcome=outcome,
            peak_mib=round(each.peak_mib, 1),
            wall_s=wall_s,
            cpu_s=round(each.cpu_s, 2),
            cause=KillCause.CGROUP if killed else None,
        )


def _key(process: TreeProcess | None) -> Key:
    return (0, 0) if process is None else (process.start_ticks, process.pid)


def _driver_of(process: TreeProcess, by_pid: dict[int, TreeProcess]) -> TreeProcess | None:
    """The outermost compiler driver above a process, itself included: nvcc, where it calls a gcc."""
    found: TreeProcess | None = None
    at: TreeProcess | None = process
    while at is not None:
        if is_driver(at.name):
            found = at
        at = by_pid.get(at.parent)
    return found


def _works(process: TreeProcess) -> bool:
    """It does a phase's work: a program inside a driver, a driver that does all by itself (clang), or what takes as
    much memory as one."""
    if is_phase(process.name):
        return process.is_leaf or process.name not in ("collect2", "lto-wrapper")
    if not process.is_leaf:
        return False
    if is_driver(process.name):
        return process.anon_mib >= OTHER_MIB
    return process.anon_mib >= OTHER_MIB and may_be_stopped(process.name, process.program)
