"""Processes that are stopped for a while go on, whatever becomes of whoever stopped them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from builddoctor.core.events import UngatedProcess
from builddoctor.gates.stopping import Keeper, Stopped
from builddoctor.system.process import Processes
from builddoctor.system.root import SystemRoot

GUARD = """
import sys
from builddoctor.core.events import UngatedProcess
from builddoctor.gates.stopping import Keeper, Stopped
from builddoctor.system.process import Processes
from builddoctor.system.root import SystemRoot
processes = Processes(SystemRoot())
pid, silence_s = int(sys.argv[1]), float(sys.argv[2])
process = UngatedProcess(pid=pid, start_ticks=processes.start_ticks(pid), name="cat", rss_mib=0.0, cpu_s=0.0)
stopped = Stopped(processes, Keeper(silence_s=silence_s))
print(stopped.stop(process), flush=True)
sys.stdin.read()
"""
"""It stops a process, and then does nothing."""


class Cat:
    """A process that answers as long as it runs."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.pid = self._process.pid
        self.processes = Processes(SystemRoot())

    def seen(self, *, later: int = 0) -> UngatedProcess:
        """``later``: ticks that it is said to have started after it did."""
        ticks = self.processes.start_ticks(self.pid)
        assert ticks is not None
        return UngatedProcess(pid=self.pid, start_ticks=ticks + later, name="cat", rss_mib=0.0, cpu_s=0.0)

    @property
    def is_stopped(self) -> bool:
        return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED

    def stops(self) -> bool:
        """Waits until it has: the signal may be there before it is heeded."""
        found = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)
        return found is not None and found.si_status == signal.SIGSTOP

    def answers(self) -> bool:
        """Waits until it does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"?\n")
        return self._process.stdout.read(2) == b"?\n"

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def cat() -> Iterator[Cat]:
    cat = Cat()
    assert cat.answers()
    yield cat
    cat.end()


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    keeper = Keeper()
    yield keeper
    keeper.close()


def guarded(cat: Cat, silence_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", GUARD, str(cat.pid), str(silence_s)]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert guard.stdout is not None
    assert guard.stdout.readline() == "True\n"
    return guard


def test_one_is_stopped_and_goes_on(cat: Cat, keeper: Keeper) -> None:
    stopped = Stopped(cat.processes, keeper)
    assert stopped.stop(cat.seen())
    assert cat.stops()
    assert len(stopped) == 1
    stopped.go_on(cat.seen())
    assert cat.answers()
    assert len(stopped) == 0


def test_those_that_nobody_wants_stopped_go_on(cat: Cat, keeper: Keeper) -> None:
    stopped = Stopped(cat.processes, keeper)
    assert stopped.stop(cat.seen())
    assert cat.stops()
    stopped.keep_only({cat.seen().key})
    assert cat.is_stopped
    stopped.release()
    assert cat.answers()


def test_another_process_with_its_number_is_left_alone(cat: Cat, keeper: Keeper) -> None:
    assert not Stopped(cat.processes, keeper).stop(cat.seen(later=1))
    assert not cat.is_stopped


def test_nothing_is_stopped_without_a_keeper_that_lives(cat: Cat, keeper: Keeper) -> None:
    os.kill(keeper.pid, signal.SIGKILL)
    psutil.Process(keeper.pid).wait()
    assert not Stopped(cat.processes, keeper).stop(cat.seen())
    assert not cat.is_stopped


def test_a_guard_that_is_killed_leaves_none_stopped(cat: Cat) -> None:
    guard = guarded(cat, 1000.0)
    assert cat.stops()
    guard.kill()
    guard.communicate()
    assert cat.answers()


def test_a_guard_that_hangs_leaves_none_stopped(cat: Cat) -> None:
    """Ctrl-Z on it, a disk that does not answer: it is there, and looks at nothing."""
    guard = guarded(cat, 0.5)
    guard.send_signal(signal.SIGSTOP)
    assert cat.answers()
    assert guard.poll() is None
    guard.kill()
    guard.communicate()


def test_what_went_on_is_not_the_keepers_any_more(cat: Cat) -> None:
    """Ctrl-Z on the build afterwards stops it, and it stays so when we leave."""
    keeper = Keeper()
    stopped = Stopped(cat.processes, keeper)
    assert stopped.stop(cat.seen())
    stopped.go_on(cat.seen())
    assert cat.answers()
    os.kill(cat.pid, signal.SIGSTOP)
    assert cat.stops()
    keeper.close()
    assert cat.is_stopped
