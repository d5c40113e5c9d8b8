"""Live phases: a tool is ended by identity, never by number alone; a phase that rests is looked at less often."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Callable

import pytest

from builddoctor.runtime import phases
from builddoctor.runtime.phases import LONG_S, PLACES, STILL_FOR_S, STILL_MIB_S, LivePhase, SamplingBackoff
from builddoctor.system.process import Processes
from unit.builders import phase
from unit.trees import TextRoot

GATE, TOOL, CHILD, GRANDCHILD = 11, 12, 13, 14
REST_S = 1.0


class Recorder:
    """In the place of a pidfd: notes who is signalled."""

    def __init__(self, signalled: list[int], pid: int) -> None:
        self.pid = pid
        self._signalled = signalled

    def kill(self) -> None:
        self._signalled.append(self.pid)

    def send(self, number: signal.Signals) -> bool:
        self._signalled.append(self.pid if number is signal.SIGSTOP else -self.pid)
        return True

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
        live = LivePhase(phase(), gate_pid=GATE, trusted=trusted)
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
        live = LivePhase(phase(), gate_pid=GATE, trusted=True)
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
        live = LivePhase(phase(), gate_pid=GATE, trusted=True)
        live.take(5000.0)
        assert live.peak_mib == 5000
        live.tool_gone()
        live.again()
        live.take(300.0)
        return live.peak_mib

    assert asyncio.run(again()) == 300


# -- standing still ------------------------------------------------------------------------------------------------


def test_a_tool_is_stopped_before_its_children_and_goes_on_after_them(signalled: list[int]) -> None:
    """It starts no more of them meanwhile, and may wait for them. How long it stood is known."""

    async def run() -> float:
        system = family()
        live = LivePhase(phase(), gate_pid=GATE, trusted=True)
        live.tool_started(TOOL, system, Processes(system), 4096)
        assert live.suspend(Processes(system), 10.0)
        live.resume(12.5)
        return live.stood_s

    assert asyncio.run(run()) == 2.5
    assert signalled == [TOOL, CHILD, GRANDCHILD, -CHILD, -GRANDCHILD, -TOOL]


def test_a_tool_whose_gate_is_gone_does_not_stay_stopped(signalled: list[int]) -> None:
    """Nobody would let it go on."""

    async def run() -> None:
        system = family()
        live = LivePhase(phase(), gate_pid=GATE, trusted=True)
        live.tool_started(TOOL, system, Processes(system), 4096)
        assert live.suspend(Processes(system), 10.0)
        live.tool_gone()

    asyncio.run(run())
    assert signalled[-1] == -TOOL


def test_only_a_tool_that_is_there_is_stopped(signalled: list[int]) -> None:
    """Its number may be another's, or nobody vouches for its gate; and none is stopped twice."""

    async def run() -> list[bool]:
        system = family()
        ours = LivePhase(phase(), gate_pid=GATE, trusted=True)
        foreign = LivePhase(phase(), gate_pid=GATE, trusted=False)
        for live in (ours, foreign):
            live.tool_started(TOOL, system, Processes(system), 4096)
        found = [each.suspend(Processes(system), 1.0) for each in (foreign, ours, ours)]
        ours.resume(2.0)
        system.files.update(process(TOOL, 1, start=9999))
        return [*found, ours.suspend(Processes(system), 3.0)]

    assert asyncio.run(run()) == [False, True, False, False]


# -- resting ---------------------------------------------------------------------------------------------------


def looks(size_mib: Callable[[float], float], *, seconds: float, place: int = 0, rest_s: float = REST_S) -> list[float]:
    """Ten samples a second: when such a phase is looked at."""
    resting, next_s, found = SamplingBackoff(place), 0.0, []
    for tick in range(int(10 * seconds)):
        now_s = 100 + tick / 10
        if now_s >= next_s:
            next_s = resting.saw(size_mib(now_s), now_s, rest_s=rest_s)
            found.append(now_s)
    return found


def test_a_phase_that_holds_still_is_looked_at_ten_times_less_often_and_later_twenty_times() -> None:
    """After half a second without a move; at ten samples a second and a resting time of one second."""
    found = looks(lambda _: 800.0, seconds=100)
    first = [now_s for now_s in found if now_s < 100 + LONG_S]
    assert found[4] - found[0] < STILL_FOR_S
    assert 9 <= len(first) <= 12
    assert 50 <= len(found) - len(first) <= 55


def test_a_phase_that_moves_is_looked_at_each_time() -> None:
    """Growing or shrinking, a little faster than what counts as still."""
    for direction in (1.1, -1.1):
        assert len(looks(lambda now_s, by=direction: by * STILL_MIB_S * now_s, seconds=10)) == 100


def test_a_phase_that_begins_to_move_is_looked_at_each_time_from_then_on() -> None:
    """Within the resting time, or twice that after a long rest. It may rest again later."""
    for moves_s, seen_s in ((103, 104), (110, 112)):
        found = looks(lambda now_s, at_s=moves_s: 800.0 + 100 * max(0.0, min(now_s - at_s, 5)), seconds=30)
        assert len([now_s for now_s in found if seen_s <= now_s < moves_s + 5]) == 10 * (moves_s + 5 - seen_s)
    assert len([now_s for now_s in found if now_s >= 117]) < 20


def test_phases_that_begin_to_rest_together_are_not_looked_at_together() -> None:
    """A build starts many at once: their turns are spread over the resting time."""
    turns = [looks(lambda _: 800.0, seconds=20, place=place) for place in range(PLACES)]
    together = [len(list(same)) for _, same in itertools.groupby(sorted(each[-1] for each in turns))]
    assert max(together) < PLACES / 2


def test_without_a_resting_time_nobody_rests() -> None:
    """Every sample looks at everyone."""
    assert len(looks(lambda _: 800.0, seconds=10, rest_s=0.0)) == 100
