"""Units held at their nvcc gate, in real builds: begun a few at a time, ended in order, questions never held."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from builddoctor.core.events import PhaseAsked, ReleaseUnit, Status, UnitBegan, UnitEnded
from support.fake_toolkit import fake_toolkit
from support.program import Program

pytestmark = [pytest.mark.slow, pytest.mark.machines("v2", "next")]

UNITS = 30

WAITS = """
import os, sys, time
while not os.path.exists("go"):
    time.sleep(0.02)
"""
"""A compiler that waits for a file."""


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def started(program: Program, *command: str) -> subprocess.Popen[str]:
    """A build with one core and a toolkit whose cudafe++ waits for the file ``go``."""
    toolkit = fake_toolkit(program.folder / "cuda", WAITS)
    return program.start(program.supervised(*command, options=["--cores", "1", "--toolkit", str(toolkit)]))


def many(program: Program, units: int = UNITS) -> list[str]:
    """ninja over many units; each writes its gate's pid."""
    edges = "".join(f"build u{n}.o: cu u{n}.cu\n" for n in range(units))
    rule = "rule cu\n  command = echo $$$$ > $out.pid; exec nvcc -c $in -o $out\n"
    (program.folder / "build.ninja").write_text(rule + edges)
    for n in range(units):
        (program.folder / f"u{n}.cu").write_text("")
    return ["ninja", "-j", str(units)]


def all_wait(program: Program, build: subprocess.Popen[str]) -> Status:
    """Once the last unit is at its gate: what is said of them then."""
    last = program.await_record(UnitBegan, build, unit_id=f"u{UNITS}")
    tick = program.await_record(
        Status, build, at_s=lambda at_s: at_s > last.at_s, held_units=lambda held: held > UNITS - 5
    )
    assert isinstance(tick, Status)
    return tick


def test_units_wait_at_their_gate_and_are_begun_a_few_at_a_time(program: Program) -> None:
    """Thirty jobs on one core: three nvcc at once, the rest held, and all come to their end."""
    build = started(program, *many(program))
    tick = all_wait(program, build)
    assert tick.open_units + tick.held_units == UNITS
    assert 2 <= tick.open_units < 5
    (program.folder / "go").touch()
    assert build.communicate()[0]
    assert build.returncode == 0
    records = program.records()
    began = [record.unit.unit_id for record in records if isinstance(record, UnitBegan)]
    opened = {record.unit_id: record for record in records if isinstance(record, ReleaseUnit)}
    assert len(began) == UNITS
    assert opened.keys() == set(began)
    assert sum(record.waited_s > 0 for record in opened.values()) > UNITS - 5
    asked = {record.phase.unit_id: record.at_s for record in records if isinstance(record, PhaseAsked)}
    assert all(asked[unit_id] >= record.at_s for unit_id, record in opened.items()), "a unit began before it was opened"


def test_a_gate_that_dies_while_it_is_held_is_forgotten(program: Program) -> None:
    """Its unit ends, it is never opened, and the others go on."""
    build = started(program, *many(program), "-k", "0")
    all_wait(program, build)
    records = program.records()
    opened = {record.unit_id for record in records if isinstance(record, ReleaseUnit)}
    victim = [record for record in records if isinstance(record, UnitBegan) and record.unit.unit_id not in opened][-1]
    os.kill(int((program.folder / f"{victim.unit.output}.pid").read_text()), signal.SIGKILL)
    program.await_record(UnitEnded, build, unit_id=victim.unit.unit_id)
    (program.folder / "go").touch()
    build.communicate()
    assert build.returncode != 0
    records = program.records()
    opened = {record.unit_id for record in records if isinstance(record, ReleaseUnit)}
    assert len(opened) == UNITS - 1
    assert victim.unit.unit_id not in opened


def test_ctrl_c_ends_held_units(program: Program) -> None:
    """SIGINT: nothing of them is left, and none was begun by it."""
    build = started(program, *many(program))
    all_wait(program, build)
    pids = [int(file.read_text()) for file in program.folder.glob("*.pid")]
    build.send_signal(signal.SIGINT)
    build.communicate()
    assert build.returncode == 130
    assert len(pids) == UNITS
    assert all(gone(pid) for pid in pids)
    assert sum(isinstance(record, ReleaseUnit) for record in program.records()) < 5


def test_what_is_no_compile_is_never_held(program: Program) -> None:
    """While units wait, ``nvcc -E``, ``--version`` and a link answer: only then do the compilers end."""
    script = (
        "for n in 1 2 3 4 5 6 7 8; do nvcc -c u$n.cu -o u$n.o & done; "
        "nvcc -E a.cu && nvcc --version && nvcc u1.o -o program && touch go; wait"
    )
    build = started(program, "sh", "-c", script)
    out, _ = build.communicate(timeout=60)
    assert build.returncode == 0, out
    held = {record.unit_id for record in program.records() if isinstance(record, ReleaseUnit)}
    began = {record.unit.unit_id: record for record in program.records() if isinstance(record, UnitBegan)}
    assert len(held) == 8
    assert all(began[unit_id].unit.counted for unit_id in held)
    assert len(began) == 10
