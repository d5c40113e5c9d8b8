"""The history file with several processes, and where it cannot be written."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builddoctor.core.past import UnitKey
from builddoctor.history.store import History
from support.program import Program

WRITER = """
import sys
from pathlib import Path
from typing import Any
from builddoctor.history.store import History
from builddoctor.core.past import FinishedPhase, FinishedUnit, Seen, UnitKey
from builddoctor.core.phase import PhaseKind

path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
while (history := History.open(path, busy_s=110).history) is None:
    pass  # another one moves it aside just now
print("open", flush=True)
sys.stdin.readline()
for number in range(count):
    seen = Seen(input_mib=4.0, peak_mib=100.0 + number, wall_s=1.0)
    phase = FinishedPhase(kind=PhaseKind.CICC, arch="sm_90", tool="cicc", seen=seen)
    own = FinishedUnit(key=UnitKey(project=name, place=f"{number}.cu"), phases=(phase,), ended_at=1.0)
    shared = FinishedUnit(key=UnitKey(project="shared", place="a.cu"), phases=(phase,), ended_at=1.0)
    assert history.record([own, shared]), history.problem
    print(number, flush=True)
"""


def start(path: Path, name: str, count: int, **more: Any) -> subprocess.Popen[str]:
    """A process that has the history open and waits for a line before it writes."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **more,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def history_of(path: Path) -> History:
    opened = History.open(path)
    assert opened.history is not None
    assert not opened.problem
    return opened.history


def test_several_builds_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    """Four processes, thirty units each and one that all share: all are there, counted once each."""
    path = tmp_path / "history.sqlite"
    processes = [start(path, f"p{number}", 30) for number in range(4)]
    for process in processes:
        go(process)
    for process in processes:
        process.communicate(timeout=240)
        assert process.returncode == 0
    history = history_of(path)
    assert {row.project: row.units for row in history.projects()} == {"shared": 1, **{f"p{n}": 30 for n in range(4)}}
    shared = history.lookup(UnitKey(project="shared", place="a.cu"))
    assert shared is not None
    assert shared.phases[0].builds == 120


@pytest.mark.parametrize("after", [1, 7, 23])
def test_a_writer_that_is_killed_leaves_what_it_had_written(tmp_path: Path, after: int) -> None:
    """kill -9 in the middle: no damage, every record that was confirmed is there whole, and others write on."""
    path = tmp_path / "history.sqlite"
    process = start(path, "victim", 100_000)
    go(process)
    assert process.stdout is not None
    for _ in range(after):
        process.stdout.readline()
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    history = history_of(path)
    units = len(history.units("victim"))
    shared = history.lookup(UnitKey(project="shared", place="a.cu"))
    assert units >= after
    assert shared is not None
    assert shared.phases[0].builds == units
    other = start(path, "other", 3)
    go(other)
    other.communicate(timeout=60)
    assert other.returncode == 0


def test_a_file_that_many_find_damaged_at_once_is_moved_aside_once(tmp_path: Path) -> None:
    """All of them go on with the same new one."""
    path = tmp_path / "history.sqlite"
    path.write_bytes(b"no database" * 1000)
    command = [sys.executable, "-c", WRITER, str(path)]
    processes = [
        subprocess.Popen([*command, f"p{n}", "5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    for process in processes:
        process.communicate("\n", timeout=60)
        assert process.returncode == 0
    assert {row.project: row.units for row in history_of(path).projects()} == {
        "shared": 1,
        **{f"p{n}": 5 for n in range(4)},
    }
    assert len([each for each in tmp_path.iterdir() if "damaged" in each.name]) == 1


READER = """
import sys
from pathlib import Path
from builddoctor.history.store import History
from builddoctor.core.past import UnitKey

opened = History.open(Path(sys.argv[1]))
history = opened.history
found = history is not None and history.lookup(UnitKey(project="shared", place="a.cu")) is not None
print(found, history is not None and history.record([]), opened.problem)
"""


@pytest.mark.needs_unshare
@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_may_not_be_written_is_read_and_said_so(there: bool) -> None:
    """What is known is found, nothing is recorded, and there is one sentence about it; without a file there is none."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp())
    try:
        if there:
            process = start(folder / "history.sqlite", "p", 1)
            go(process)
            process.communicate(timeout=60)
        folder.chmod(0o755)
        program = f"import os; os.setgid(65534); os.setuid(65534)\n{READER}"
        before = sorted(each.name for each in folder.iterdir())
        # Modules are loaded as root: their folder need not be open to others.
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                f"import msgspec, builddoctor.history.store\n{program}",
                str(folder / "history.sqlite"),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        found, recorded, problem = done.stdout.strip().split(" ", 2)
        assert (found, recorded) == (str(there), "False")
        assert ("can be read but not written" if there else "no history") in problem
        assert sorted(each.name for each in folder.iterdir()) == before
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["clear", "show"])
def test_a_history_that_is_held_by_another_program_is_said_to_be(program: Program, command: str) -> None:
    """Nothing was cleared: that is no success with "0 units"; and what cannot be read is not said to be nothing."""
    (program.folder / "state").mkdir()
    path = program.folder / "state" / "history.sqlite"
    process = start(path, "p", 2)
    go(process)
    process.communicate(timeout=60)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    done = program.run("history", command)
    holder.execute("ROLLBACK")
    holder.close()
    assert (done.returncode != 0) == (command == "clear")
    assert "locked" in done.stderr or "held by another program" in done.stderr
    assert "units forgotten" not in done.stdout
    done = program.run("history", "clear")
    assert done.stdout == "3 units forgotten\n"
