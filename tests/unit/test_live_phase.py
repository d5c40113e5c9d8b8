"""Ending a phase's tool: by identity, never by number alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from builddoctor.sensors.process import Processes
from builddoctor.supervise import phases
from builddoctor.supervise.phases import LivePhase
from unit.builders import phase
from unit.trees import TextRoot

GATE, TOOL, CHILD, GRANDCHILD = 11, 12, 13, 14


class Recorder:
    """In the place of a pidfd: notes who is signalled."""

    def __init__(self, signalled: list[int], pid: int) -> None:
        self.pid = pid
        self._signalled = signalled

    def kill(self) -> None:
        self._signalled.append(self.pid)

    def close(self) -> None:
        pass


def process(pid: int, parent: int, *, start: int = 4242, children: str = "") -> dict[str, str]:
    """Files of one process."""
    after = ["S", str(parent), *("0" for _ in range(17)), str(start), "1000", "200"]
    return {f"/proc/{pid}/stat": f"{pid} (cicc) {' '.join(after)}\n", f"/proc/{pid}/task/{pid}/children": children}


def family() -> TextRoot:
    """A gate's tool with a child and a grandchild."""
    files = process(TOOL, GATE, children=f"{CHILD} ") | process(CHILD, TOOL, children=f"{GRANDCHILD} ")
    return TextRoot(files | process(GRANDCHILD, CHILD))


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Who got a signal, in order."""
    pids: list[int] = []
    monkeypatch.setattr(phases, "PidHandle", lambda pid, **_: Recorder(pids, pid))
    return pids


def kill_after(change: Callable[[TextRoot], None], *, trusted: bool = True) -> bool:
    """Start the tool, let the system change, and end the phase."""

    async def run() -> bool:
        system = family()
        processes = Processes(system)
        live = LivePhase(phase(), gate_pid=GATE, trusted=trusted, asked_at_s=0.0)
        live.tool_started(TOOL, system, processes, 4096)
        change(system)
        killed = live.kill(processes)
        assert live.killed_by_us == killed
        live.tool_gone()
        return killed

    return asyncio.run(run())


def test_a_tool_is_ended_with_its_children_first(signalled: list[int]) -> None:
    """Nobody is left to start another."""
    assert kill_after(lambda system: None)
    assert signalled == [GRANDCHILD, CHILD, TOOL]


@pytest.mark.trap(20)
def test_a_number_that_another_process_got_is_not_signalled(signalled: list[int]) -> None:
    """Same pid, other start time: the tool is gone, and whoever has its number keeps its children."""
    assert not kill_after(lambda system: system.files.update(process(TOOL, 1, start=9999, children=f"{CHILD} ")))
    assert signalled == []


@pytest.mark.trap(20)
def test_a_childs_number_that_another_process_got_is_not_signalled(signalled: list[int]) -> None:
    """It was listed as a child, and is somebody else's by the time it is held."""
    assert kill_after(lambda system: system.files.update(process(CHILD, 1, start=9999, children=f"{GRANDCHILD} ")))
    assert signalled == [TOOL]


def test_a_process_that_is_not_the_gates_child_is_never_held(signalled: list[int]) -> None:
    """A gate may say what it likes; and one that the kernel does not vouch for is not believed at all."""
    files = process(TOOL, GATE + 1)
    assert not kill_after(lambda system: None, trusted=False)

    async def run() -> bool:
        system = TextRoot(files)
        live = LivePhase(phase(), gate_pid=GATE, trusted=True, asked_at_s=0.0)
        live.tool_started(TOOL, system, Processes(system), 4096)
        return live.kill(Processes(system))

    assert not asyncio.run(run())
    assert signalled == []


def test_a_tool_that_is_gone_is_not_signalled(signalled: list[int]) -> None:
    """Its number belongs to nobody."""
    assert not kill_after(lambda system: system.files.clear())
    assert signalled == []


def test_a_phase_that_runs_again_begins_without_what_its_last_run_took() -> None:
    """That run had to be ended, as a runaway perhaps: its peak is not what the phase needs."""

    async def again() -> float:
        live = LivePhase(phase(), gate_pid=GATE, trusted=True, asked_at_s=0.0)
        live.take(5000.0)
        assert live.peak_mib == 5000
        live.tool_gone()
        live.again()
        live.take(300.0)
        return live.peak_mib

    assert asyncio.run(again()) == 300
