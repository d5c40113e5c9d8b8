"""Phases and the units they belong to: nothing is lost, whichever end is heard of first."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from builddoctor.history.store import History
from builddoctor.intercept.protocol import Asked, Connection, Ended, Message
from builddoctor.model.phase import Unit
from builddoctor.policy.actions import Action, Kill
from builddoctor.policy.estimator import LearningEstimator
from builddoctor.policy.events import Event, PhaseAsked, PhaseEnded
from builddoctor.policy.governor import Governor
from builddoctor.sensors.process import Processes
from builddoctor.supervise.remembering import Remembering
from builddoctor.supervise.session import Session
from builddoctor.supervise.unit_keys import Toolchain
from builddoctor.supervise.units import Units
from unit.sessions import asks, session
from unit.trees import TextRoot

DONE = Ended(status=0, peak_kib=2048 * 1024, cpu_s=1.0, gate_cpu_s=0.01, gate_peak_kib=8192)


class Gate(Connection):
    """Says what is told, one message at a time; then it is gone."""

    def __init__(self, *messages: Message) -> None:
        self.peer_pid = 11
        self.told: list[tuple[str, ...]] = []
        self._messages = list(messages)

    async def receive(self) -> Message | None:
        return self._messages.pop(0) if self._messages else None

    def send(self, *fields: str) -> None:
        self.told.append(fields)


def units() -> tuple[Units, list[str]]:
    """Units, and the ids of those that ended."""
    ended: list[str] = []
    return Units(Processes(TextRoot()), began=lambda *_: None, ended=lambda unit: ended.append(unit.unit_id)), ended


def test_a_unit_ends_with_the_last_of_driver_and_phases() -> None:
    """The driver's end is often known before that of its last phase's gate, which came earlier."""

    async def run() -> None:
        found, ended = units()
        unit = found.register_nvcc(os.getpid(), ["-c", "a.cu"], "/")
        for _ in range(2):
            found.enter(unit.unit_id)
        found.leave(unit.unit_id)
        found._end(unit.unit_id)
        assert ended == []
        assert unit.unit_id in found.open
        found.leave(unit.unit_id)
        assert ended == [unit.unit_id]
        assert not found.open

    asyncio.run(run())


def test_a_unit_goes_on_between_two_phases() -> None:
    """No phase of it runs, but its driver does."""

    async def run() -> None:
        found, ended = units()
        unit = found.register_nvcc(os.getpid(), ["-c", "a.cu"], "/")
        found.enter(unit.unit_id)
        found.leave(unit.unit_id)
        assert ended == []
        found._end(unit.unit_id)
        assert ended == [unit.unit_id]
        found.leave(unit.unit_id)
        assert ended == [unit.unit_id]

    asyncio.run(run())


def test_at_the_end_of_a_build_all_units_end_whatever_their_phases_do() -> None:
    """Nothing is waited for any more, and nothing ends twice."""

    async def run() -> None:
        found, ended = units()
        unit = found.register_nvcc(os.getpid(), ["-c", "a.cu"], "/")
        found.enter(unit.unit_id)
        found.close()
        found.leave(unit.unit_id)
        assert ended == [unit.unit_id]

    asyncio.run(run())


def test_the_last_phase_of_a_unit_is_remembered_though_its_driver_is_known_to_have_ended(tmp_path: Path) -> None:
    """Its gate's last word is read after the driver's end was seen."""

    class LastWord(Gate):
        """The driver ends just before the gate's last word is read."""

        async def receive(self) -> Message | None:
            if isinstance(self._messages[0] if self._messages else None, Ended):
                built.units._end(unit.unit_id)
            return await super().receive()

    built: Session
    unit: Unit

    async def run() -> None:
        nonlocal built, unit
        estimator = LearningEstimator()
        tools = Toolchain(nvcc="13.0.88", host_compiler="12.2", host_arch="x86_64")
        remembering = Remembering(estimator, tmp_path / "h", cwd="/home/me/demo", tools=tools, gather_s=0.0)
        governor = Governor(estimator, slots=2, budget_mib=1e6)
        built = session(governor, TextRoot(), tmp_path / "trace", clock=lambda: 5.0, remembering=remembering)
        unit = built.units.register_nvcc(os.getpid(), ["-c", "src/a.cu", "-o", "a.o"], "/home/me/demo")
        await built.converse(LastWord(asks(unit_id=unit.unit_id), DONE))
        assert not built.units.open
        remembering.close()
        built.trace.close()

    asyncio.run(run())
    history = History.open(tmp_path / "h").history
    assert history is not None
    (past,) = history.units("demo")
    history.close()
    assert [(each.tool, each.seen[0].peak_mib) for each in past.phases] == [("cicc", 2048)]


class Refusing(Governor):
    """Fails at the question, and notes what it is told afterwards."""

    told: list[Event]

    def handle(self, event: Event, now_s: float) -> list[Action]:
        self.told.append(event)
        if isinstance(event, PhaseAsked):
            raise ZeroDivisionError
        return []


def test_a_phase_whose_question_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """The gate's connection ends, so that it goes on by itself; the governor hears that the phase is gone."""

    async def run() -> None:
        governor = Refusing(LearningEstimator(), slots=2, budget_mib=1e6)
        governor.told = []
        built = session(governor, TextRoot(), tmp_path / "trace", clock=lambda: 5.0)
        asked: Asked = asks()
        with pytest.raises(ZeroDivisionError):
            await built.converse(Gate(asked))
        assert not built.live
        assert [type(event) for event in governor.told] == [PhaseAsked, PhaseEnded]
        built.trace.close()

    asyncio.run(run())


class Late(Governor):
    """Has not heard yet that the first phase is gone."""

    def handle(self, event: Event, now_s: float) -> list[Action]:
        admits = super().handle(event, now_s)
        gone = Kill(phase_id=99, reason="it ended just now")
        return [gone, *admits] if isinstance(event, PhaseAsked) else admits


def test_what_is_wanted_of_a_phase_that_is_gone_keeps_no_other_back(tmp_path: Path) -> None:
    """The rest of what the governor wants is carried out."""

    async def run() -> None:
        built = session(
            Late(LearningEstimator(), slots=2, budget_mib=1e6), TextRoot(), tmp_path / "t", clock=lambda: 5.0
        )
        gate = Gate(asks(), DONE)
        await built.converse(gate)
        assert ("go",) in gate.told
        built.trace.close()

    asyncio.run(run())


def test_a_driver_whose_number_is_nobody_s_here_ends_at_once() -> None:
    """A gate in a pid namespace that cannot be seen from here: its unit must not stay open for ever."""

    async def run() -> None:
        found, ended = units()
        unit = found.register_nvcc(0, ["-c", "a.cu"], "/")
        assert ended == [unit.unit_id]

    asyncio.run(run())
