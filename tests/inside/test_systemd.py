"""Under a real systemd: units that end as a whole when the kernel kills one process in them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from builddoctor.core.events import Status
from support.program import Program

LIMIT_MIB = 1200
SCOPE = ["systemd-run", "--scope", "--quiet", "-p", f"MemoryMax={LIMIT_MIB}M", "-p", "MemorySwapMax=0"]


@pytest.mark.machines("v2-systemd")
@pytest.mark.trap(35)
@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_a_scope_that_stops_keeps_more_in_reserve_and_is_named(program: Program, policy: str) -> None:
    """By systemd's own default; with OOMPolicy=continue, as the doctor advises, nothing is said."""
    scope = [*SCOPE, *(() if policy == "stop" else ("-p", "OOMPolicy=continue"))]
    done = subprocess.run([*scope, *program.argv("doctor", "--json")], env=program.env, capture_output=True, text=True)
    report = json.loads(done.stdout)
    reserve_mib = report["headroom_mib"] - report["budget_mib"]
    assert reserve_mib == pytest.approx(LIMIT_MIB * (0.2 if policy == "stop" else 0.1), rel=0.02)
    said = [check for check in report["checks"] if check["name"] == "memory-unit"]
    assert [("OOMPolicy=continue" in check["hint"]) for check in said] == ([True] if policy == "stop" else [])


@pytest.mark.machines("v2-systemd")
@pytest.mark.trap(35)
def test_a_build_that_systemd_ends_for_a_neighbours_kill_says_so(program: Program) -> None:
    """The kernel kills a neighbour in the same scope, systemd ends all of it: told as that, with what to change."""
    hog = f"{sys.executable} -c 'held = bytearray({2 * LIMIT_MIB} << 20)'"
    build = " ".join(f"'{word}'" for word in program.supervised("tail", "-f", "/dev/null"))
    script = f"{build} & until [ -e go ]; do sleep 0.1; done; {hog}; wait $!"
    process = program.start([*SCOPE, "sh", "-c", script])
    program.await_record(Status, process)
    (program.folder / "go").touch()
    output, _ = process.communicate()
    assert program.summary()["verdict"] == "scheduler-kill", output
    assert "OOMPolicy=stop" in output
    assert "OOMPolicy=continue" in output
