"""Probes that do not answer: they end, with all that they started, and say so."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from builddoctor.gates.subprocesses import run_captured
from builddoctor.system.probes import Deadline

HANGS = """#!/bin/sh
sleep 1000 &
echo $! >"$1"
sleep 1000
"""


def ended(pid: int) -> bool:
    """Gone, or dead and not yet buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "hangs"
    path.write_text(HANGS)
    path.chmod(0o755)
    return str(path)


def wait_until_ended(pid: int) -> None:
    while not ended(pid):  # the test's own limit of time ends a failure
        threading.Event().wait(0.01)


def test_children_of_a_probe_end_with_it(tmp_path: Path, script: str) -> None:
    """A script that hangs in `sleep`: nothing of it stays."""
    pid = tmp_path / "pid"
    for timeout_s in (1.0, 10.0, 60.0):
        said = run_captured([script, str(pid)], timeout_s=timeout_s)
        assert (said.status, said.silent) == (None, True)
        assert said.problem.startswith("no answer in ")
        # On a machine that stood still it may not have come to that.
        if pid.exists() and pid.read_text():
            break
    wait_until_ended(int(pid.read_text()))


def test_the_end_of_a_deadline_ends_a_probe(tmp_path: Path, script: str) -> None:
    """Long before its own time; afterwards no other is started."""
    deadline = Deadline(1000.0)

    def wait() -> None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            threading.Event().wait(0.01)
        deadline.end()

    thread = threading.Thread(target=wait)
    thread.start()
    said = run_captured([script, str(tmp_path / "pid")], timeout_s=1000.0, deadline=deadline)
    thread.join()
    assert said.silent
    wait_until_ended(int((tmp_path / "pid").read_text()))
    said = run_captured(["/bin/sh", "-c", f"touch {tmp_path}/ran"], deadline=deadline)
    assert (said.status, said.silent) == (None, True)
    assert not (tmp_path / "ran").exists()
