"""A session with all that belongs to it, over planted kernel files: for tests of what it makes of what happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builddoctor.core.events import Event, Note
from builddoctor.core.limits import LevelKind, MemoryLevel, MemoryReading
from builddoctor.gates.protocol import Asked, Registered
from builddoctor.runtime.decision_loop import DecisionLoop
from builddoctor.runtime.event_log import EventLog, Observer
from builddoctor.runtime.failure_capture import FailureSnapshots, InputCapture
from builddoctor.runtime.history_recorder import HistoryRecorder
from builddoctor.runtime.kill_evidence import KillEvidence
from builddoctor.runtime.phases import LivePhases
from builddoctor.runtime.rss_recheck import RssRecheck
from builddoctor.runtime.sampler import Rules, Sampler
from builddoctor.runtime.session import Session
from builddoctor.runtime.sharing import Sharing
from builddoctor.runtime.ungated_watch import UngatedWatch
from builddoctor.runtime.units import HeldUnits, Toolchain
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.process import Processes
from builddoctor.system.root import Clock, SystemRoot, own_pid
from builddoctor.system.scene_reader import SceneReader

LIMIT_MIB = 100_000.0
TOOLS = Toolchain(nvcc="13.0.88", host_compiler="12.2", host_arch="x86_64")


def reading_of(headroom_mib: float, *, limit_mib: float = LIMIT_MIB, kind: LevelKind = LevelKind.FLAG) -> MemoryReading:
    """One level."""
    level = MemoryLevel(source="x", kind=kind, limit_mib=limit_mib, headroom_mib=headroom_mib)
    return MemoryReading(levels=(level,))


class FixedSensor(MemorySensor):
    """Says what a test wants."""

    reading = reading_of(LIMIT_MIB)

    def read(self, own_use_mib: float) -> MemoryReading:
        return self.reading


@dataclass
class Built:
    """A build's parts, and what its log was told."""

    session: Session
    decisions: DecisionLoop
    held_units: HeldUnits
    scheduler: Scheduler
    log: EventLog
    phases: LivePhases
    sampler: Sampler
    sensor: MemorySensor
    sharing: Sharing
    ungated: UngatedWatch
    processes: Processes
    root: SystemRoot
    events: list[Event]

    @property
    def notes(self) -> list[Note]:
        """What a person was told."""
        return [event for event in self.events if isinstance(event, Note)]


async def this_gate(_: Registered) -> str:
    return ""


async def no_front(*_: object) -> tuple[list[str], dict[str, str | None]]:
    """Nothing to add."""
    return [], {}


def build_of(
    scheduler: Scheduler,
    root: SystemRoot,
    folder: Path,
    *,
    clock: Clock,
    recorder: HistoryRecorder | None = None,
    sensor: MemorySensor | None = None,
    ledger: dict[str, str] | None = None,
    rules: Rules | None = None,
    holds_units: bool = False,
    observers: Sequence[Observer] = (),
) -> Built:
    """A build of which nothing runs yet.

    ``ledger``: environment that names its folder; None: it shares with nobody. ``observers``: told of all events too.
    """
    events: list[Event] = []
    rules, sensor = rules or Rules(), sensor or FixedSensor(root)
    recorder = recorder or HistoryRecorder(None, cwd="/", tools=TOOLS)
    log = EventLog(clock, (events.append, recorder.saw, *observers), start_s=0.0)
    phases, processes, evidence = LivePhases(), Processes(root), KillEvidence(root)

    def warn(text: str) -> None:
        log.tell(text, warning=True)

    sharing = Sharing(ledger, phases, root=root, clock=clock, tell=log.tell, warn=warn)
    ungated = UngatedWatch(scheduler, phases, processes, root=root, clock=clock, top=own_pid(root))
    sampler = Sampler(
        scheduler,
        phases,
        sensor,
        recheck=RssRecheck(phases, processes, rules.crosscheck, clock=clock, tell=warn),
        ungated=ungated,
        sharing=sharing,
        processes=processes,
        root=root,
        clock=clock,
        reading=reading_of(LIMIT_MIB),
        rules=rules,
    )
    nothing = SystemRoot(folder / "nothing")
    held_units = HeldUnits()
    decisions = DecisionLoop(
        scheduler,
        log,
        phases=phases,
        held_units=held_units,
        open_units=lambda: len(session.units.open),
        sampler=sampler,
        ungated=ungated,
        evidence=evidence,
        processes=processes,
        clock=clock,
        out_of_time=lambda: warn("out of time"),
        stop_ninja=lambda decision: warn(f"stop ninja {decision.pid}"),
    )
    session = Session(
        decisions=decisions,
        log=log,
        phases=phases,
        held_units=held_units,
        sharing=sharing,
        ungated=ungated,
        evidence=evidence,
        processes=processes,
        root=root,
        clock=clock,
        answer_front=no_front,
        right_gate=this_gate,
        recorder=recorder,
        elsewhere=None,
        stored=None,
        snapshots=FailureSnapshots(
            SceneReader(nothing, {}), evidence, traces=str(folder), cwd=str(folder), clock=clock
        ),
        capture=InputCapture(nothing, trace=folder / "trace.jsonl", free_mib=lambda: 1024.0),
        holds_units=holds_units,
    )
    return Built(
        session,
        decisions,
        held_units,
        scheduler,
        log,
        phases,
        sampler,
        sensor,
        sharing,
        ungated,
        processes,
        root,
        events,
    )


def asks(*, unit_id: str = "", gate_pid: int = 11) -> Asked:
    """A gate before ``cicc`` asks."""
    return Asked(
        gate_pid=gate_pid, parent_pid=0, unit_id=unit_id, tool="cicc", cwd="/", sizes="", redoable=True, argv=("a.ii",)
    )
