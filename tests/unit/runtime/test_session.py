"""A build's conversation with its gates: nothing is lost, whichever end is heard first; decisions are carried out."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from builddoctor.core.events import (
    Admit,
    Decision,
    Fact,
    Kill,
    KillReason,
    MemorySampled,
    PhaseAsked,
    PhaseEnded,
    Queue,
    ReleaseUnit,
    UnitBegan,
    UnitEnded,
)
from builddoctor.core.settings import SchedulerSettings
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.gates.protocol import Registered
from builddoctor.history.store import History
from builddoctor.runtime.history_recorder import HistoryRecorder
from builddoctor.runtime.sampler import QUIET_AFTER_S, QUIET_EVERY_S, STALE_S
from builddoctor.scheduler.scheduler import Scheduler
from unit.runtime.gates_played import DONE, Gate
from unit.runtime.sessions import TOOLS, asks, build_of
from unit.trees import TextRoot

SETTINGS = SchedulerSettings(slots=2, budget_mib=1e6)


def test_the_last_phase_of_a_unit_is_remembered_though_its_driver_is_known_to_have_ended(tmp_path: Path) -> None:
    """Its gate's last word is read after the driver's end was seen."""

    async def run() -> None:
        recorder = HistoryRecorder(tmp_path / "h", cwd="/home/me/demo", tools=TOOLS, gather_s=0.0)
        scheduler = Scheduler(SETTINGS, LearningEstimator())
        built = build_of(scheduler, TextRoot(), tmp_path, clock=lambda: 5.0, recorder=recorder)
        unit = built.session.units.register_nvcc(os.getpid(), ["-c", "src/a.cu", "-o", "a.o"], "/home/me/demo")
        # The driver ends just before the gate's last word is read.
        gate = Gate(asks(unit_id=unit.unit_id), lambda: built.session.units._end(unit.unit_id), DONE)
        await built.session.converse(gate)
        assert not built.session.units.open
        recorder.close()

    asyncio.run(run())
    history = History.open(tmp_path / "h").history
    assert history is not None
    (past,) = history.units("demo")
    history.close()
    assert [(each.tool, each.seen[0].peak_mib) for each in past.phases] == [("cicc", 2048)]


class Refusing(Scheduler):
    """Fails at the question, and notes what it is told afterwards."""

    told: list[Fact]

    def handle(self, event: Fact) -> list[Decision]:
        self.told.append(event)
        if isinstance(event, PhaseAsked):
            raise ZeroDivisionError
        return []


def test_a_phase_whose_question_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """The gate's connection ends, so that it goes on by itself; the scheduler hears that the phase is gone."""

    async def run() -> None:
        scheduler = Refusing(SETTINGS, LearningEstimator())
        scheduler.told = []
        built = build_of(scheduler, TextRoot(), tmp_path, clock=lambda: 5.0)
        with pytest.raises(ZeroDivisionError):
            await built.session.converse(Gate(asks()))
        assert not built.phases
        assert [type(event) for event in scheduler.told] == [PhaseAsked, PhaseEnded]
        assert [type(event) for event in built.events] == [PhaseAsked, PhaseEnded]

    asyncio.run(run())


class Late(Scheduler):
    """Has not heard yet that the first phase is gone."""

    def handle(self, event: Fact) -> list[Decision]:
        admits = super().handle(event)
        gone = Kill(phase_id=99, reason=KillReason.HEADROOM)
        return [gone, *admits] if isinstance(event, PhaseAsked) else admits


def test_what_is_wanted_of_a_phase_that_is_gone_keeps_no_other_back(tmp_path: Path) -> None:
    """The rest of what the scheduler wants is carried out."""

    async def run() -> None:
        built = build_of(Late(SETTINGS, LearningEstimator()), TextRoot(), tmp_path, clock=lambda: 5.0)
        gate = Gate(asks(), DONE)
        await built.session.converse(gate)
        assert ("go",) in gate.told

    asyncio.run(run())


@pytest.mark.parametrize(("passed_s", "looks"), [(STALE_S - 0.1, []), (STALE_S + 0.1, [MemorySampled])])
def test_nothing_is_decided_on_what_was_seen_before_the_supervisor_was_stopped(
    tmp_path: Path, passed_s: float, looks: list[type]
) -> None:
    """Memory is looked at first, and the look is decided upon first."""
    now_s = 1.0

    async def run() -> list[type]:
        nonlocal now_s
        scheduler = Scheduler(SETTINGS, LearningEstimator())
        built = build_of(scheduler, TextRoot(), tmp_path, clock=lambda: now_s)
        built.decisions.look()
        before = len(built.events)
        now_s += passed_s
        built.session.announce(built.session.take_up(asks(), trusted=True))
        kinds = [type(event) for event in built.events[before:]]
        return [kind for kind in kinds if kind in (MemorySampled, PhaseAsked, Queue, Admit)]

    assert asyncio.run(run()) == [*looks, PhaseAsked, Queue, Admit]


def registered(*argv: str) -> Registered:
    """An nvcc gate."""
    return Registered(
        role="unit", pid=0, name="nvcc", shown="nvcc", cwd="/", gate_cpu_s=0.01, gate_peak_kib=8192, argv=argv
    )


def test_units_wait_at_their_gates_until_they_are_released(tmp_path: Path) -> None:
    """As many as there are slots; the next when one has ended. Each gate is answered with the unit's id."""

    async def run() -> None:
        scheduler = Scheduler(SETTINGS, LearningEstimator())
        built = build_of(scheduler, TextRoot(), tmp_path, clock=lambda: 5.0, holds_units=True)
        gates = [Gate(registered("-c", f"{name}.cu", "-o", f"{name}.o")) for name in "abcde"]
        for gate in gates:
            gate.peer_pid = os.getpid()
        tasks = [asyncio.create_task(built.session.converse(gate)) for gate in gates]
        await asyncio.sleep(0.01)
        began = [event for event in built.events if isinstance(event, UnitBegan)]
        assert [event.held for event in began] == [True] * 5
        told = [gate.told[0][:2] if gate.told else () for gate in gates]
        assert told == [*(("go", event.unit.unit_id) for event in began[:2]), (), (), ()]
        assert len(built.held_units) == 3
        built.session.units._end(began[0].unit.unit_id)
        await asyncio.sleep(0.01)
        released = [event.unit_id for event in built.events if isinstance(event, ReleaseUnit)]
        assert released == [event.unit.unit_id for event in began[:3]]
        assert gates[2].told == [("go", began[2].unit.unit_id, "0")]
        assert len(built.held_units) == 2
        # Its gate dies while it waits: it ends, and is never released.
        built.session.units._end(began[4].unit.unit_id)
        await tasks[4]
        assert len(built.held_units) == 1
        ended = [event.unit_id for event in built.events if isinstance(event, UnitEnded)]
        assert ended == [began[0].unit.unit_id, began[4].unit.unit_id]
        assert began[4].unit.unit_id not in {e.unit_id for e in built.events if isinstance(e, ReleaseUnit)}
        built.session.units.close()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_what_configure_steps_try_out_and_questions_are_never_held(tmp_path: Path) -> None:
    """They answer at once, however many units wait."""

    async def run() -> None:
        scheduler = Scheduler(SETTINGS, LearningEstimator())
        built = build_of(scheduler, TextRoot(), tmp_path, clock=lambda: 5.0, holds_units=True)
        gate = Gate(registered("--version"))
        await built.session.converse(gate)
        assert [event.held for event in built.events if isinstance(event, UnitBegan)] == [False]
        assert gate.told[0][0] == "go"

    asyncio.run(run())


def test_while_nothing_compiles_looks_are_told_seldom_and_at_once_when_a_gate_asks(tmp_path: Path) -> None:
    """A server runs for weeks: its trace must not hold four looks a second. What is decided is decided on the last."""
    now_s = 0.0
    scheduler = Scheduler(SETTINGS, LearningEstimator())
    built = build_of(scheduler, TextRoot(), tmp_path, clock=lambda: now_s)

    def looks() -> list[float]:
        return [event.at_s for event in built.events if isinstance(event, MemorySampled)]

    for _ in range(int(QUIET_AFTER_S)):
        built.decisions.look()
        now_s += 1.0
    assert len(looks()) == QUIET_AFTER_S, "for a while all of them are told"
    for _ in range(105):
        built.decisions.look()
        now_s += 1.0
    assert len(looks()) == QUIET_AFTER_S + 100 / QUIET_EVERY_S
    last_s = now_s - 1.0
    assert last_s not in looks()

    async def run() -> None:
        built.session.announce(built.session.take_up(asks(), trusted=False))

    asyncio.run(run())
    kinds = [type(event) for event in built.events[-4:]]
    assert kinds == [MemorySampled, PhaseAsked, Queue, Admit]
    assert looks()[-1] == last_s
    told = len(looks())
    for _ in range(3):
        built.decisions.look()
        now_s += 1.0
    assert len(looks()) == told + 3, "and all again while it runs"
