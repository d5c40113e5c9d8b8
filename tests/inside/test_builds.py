"""Builds at the brink of a real limit of cgroup v2: builddoctor goes on, and can be ended."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from builddoctor.core.events import PhaseStarted
from support.memcg import MIB, memory_cgroup
from support.program import Program
from support.stand_ins import HOG, stand_in

pytestmark = pytest.mark.machines("v2", "old", "next", "newest")


@pytest.mark.trap(8)
@pytest.mark.parametrize("throttled", [False, True])
def test_its_own_pages_stay_in_memory(program: Program, throttled: bool) -> None:
    """The kernel drops pages of programs before it kills at memory.max, and instead at memory.high: not ours."""
    stand_in(program, f"exec {HOG} 40 100 done")
    with memory_cgroup(600 * MIB) as group:
        if throttled:
            group.throttle(500 * MIB)
        command = program.supervised("clang++", "-c", "one.cpp", options=["--no-doctor"])
        process = program.start(group.wrapped(command))
        program.await_record(PhaseStarted, process, phase_id=1)
        ours = [each for each in psutil.Process(process.pid).children(recursive=True) if is_python(each)]
        locked = {each.pid: locked_kib(each.pid) for each in [psutil.Process(process.pid), *ours]}
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert len([kib for kib in locked.values() if kib > 1000]) >= 2, locked


def is_python(process: psutil.Process) -> bool:
    return "python" in process.name()


def locked_kib(pid: int) -> int:
    """Pages of a process that are not dropped (``VmLck``, proc(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmLck:")[1].split()[0])
