"""Killers that run in user space, for real: systemd-oomd and earlyoom, named before a build, and not met in it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from support.program import Program
from support.stand_ins import stand_in

pytestmark = pytest.mark.machines("oomd")

PRESSED = """
import mmap, time
held = mmap.mmap(-1, 600 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
while True:
    for at in range(0, len(held), 4096):
        held[at] = 1
"""


@pytest.mark.trap(27)
def test_both_are_named_before_a_build(program: Program) -> None:
    """With what they look at: none of their kills is in the kernel's counters."""
    report = json.loads(program.run("doctor", "--json").stdout)
    said = " ".join(check["text"] for check in report["checks"])
    assert "earlyoom" in said
    assert "systemd-oomd" in said


def test_a_build_that_systemd_oomd_would_end_is_ended_and_named_before(program: Program) -> None:
    """oomd ends a whole unit that waits for memory for 30 s, builddoctor with it; what hangs is ended after 10."""
    stand_in(program, f"exec {sys.executable} -c '{PRESSED}'")
    scope = ["systemd-run", "--scope", "--quiet", "-p", "MemoryHigh=300M", "-p", "MemorySwapMax=0"]
    scope += ["-p", "ManagedOOMMemoryPressure=kill", "-p", "ManagedOOMMemoryPressureLimit=5%"]
    build = program.supervised("clang++", "-c", "one.cpp", options=["--no-doctor"])
    done = subprocess.run([*scope, *build], env=program.env, cwd=program.folder, capture_output=True, text=True)
    assert program.summary()["verdict"] == "too-big", done.stderr
    assert "memory.high" in done.stderr
