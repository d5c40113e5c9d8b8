"""Pythons and kernels that cannot hold a process by a descriptor.

conda's Python lacks the functions, Linux before 5.3 the calls.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builddoctor.core.events import PhaseEnded, Status, UnitEnded
from builddoctor.gates import guardian_program
from builddoctor.gates.guardian import PidHandle
from support.program import Program
from support.stand_ins import HOG, stand_in

LACKING = "import os, signal\ndel os.pidfd_open, signal.pidfd_send_signal\n"
REFUSED = """
import errno, os
def pidfd_open(pid, flags=0):
    raise OSError(errno.ENOSYS, "no such call")
os.pidfd_open = pidfd_open
"""


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])


def refuse(_: int) -> int:
    raise OSError(errno.ENOSYS, "no such call")


@pytest.mark.parametrize("python", [LACKING, REFUSED], ids=["lacking", "refused"])
def test_phases_are_watched_and_units_end(program: Program, python: str) -> None:
    """The memory of a compiler is seen while it runs, and nothing is left open or said."""
    folder = program.folder / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(python)
    program.env["PYTHONPATH"] = str(folder)
    done = program.folder / "done"
    stand_in(program, f"exec {HOG} 200 1000 {done}")
    (program.folder / "one.cpp").write_text("int one() { return 1; }\n")
    command = ("sh", "-c", "clang++ -c a.cpp; g++ -c one.cpp")
    process = program.start(program.supervised(*command, options=["--no-doctor"]))
    program.await_record(Status, process, ours_mib=lambda held_mib: held_mib >= 190)
    done.touch()
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "Traceback" not in output
    ended = {type(each) for each in program.records()}
    assert {PhaseEnded, UnitEnded} <= ended
    assert (program.folder / "one.o").exists()


def test_a_python_that_lacks_them_asks_the_kernel_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same descriptor, the same signal, the same error for who is gone."""
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.delattr(signal, "pidfd_send_signal")
    with sleeper() as process:
        handle = PidHandle(process.pid)
        assert handle.fileno() >= 0
        assert handle.send(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not handle.send(signal.SIGKILL)
        handle.close()
    with pytest.raises(ProcessLookupError):
        PidHandle(process.pid)


def test_without_the_calls_a_gate_s_child_is_signalled_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where that is asked for: a stranger's number may be anyone's."""
    monkeypatch.setattr(guardian_program, "pidfd_open", refuse)
    with sleeper() as process:
        with pytest.raises(OSError, match="no such call"):
            PidHandle(process.pid)
        handle = PidHandle(process.pid, by_number=True)
        assert handle.send(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not handle.send(signal.SIGKILL)


def test_the_guardian_does_without_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It ends what is left of a build, whatever its Python has."""
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.delattr(signal, "pidfd_send_signal")
    with sleeper() as process:
        guardian = guardian_program.Guardian(-1, str(tmp_path))
        guardian.family = {os.getpid()}
        guardian.signal(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
