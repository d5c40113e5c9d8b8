"""Kernels that keep no account of stalls for memory: builddoctor says that it does not know, and builds."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from builddoctor.core.events import PressureSampled
from support.memcg import MIB, memory_cgroup
from support.program import Program
from support.stand_ins import HOG, stand_in

pytestmark = [pytest.mark.machines("nopsi", "old"), pytest.mark.trap(29)]


def test_pressure_is_unknown_and_nothing_else_is(program: Program) -> None:
    """``null``, not zero; no file of those is told as one that could not be read. 5.10 has the group's, and refuses."""
    with memory_cgroup(1024 * MIB) as group:
        assert not Path("/proc/pressure/memory").exists()
        if platform.release().startswith("5.10."):
            with pytest.raises(OSError, match="not supported"):
                (group.folder / "memory.pressure").read_text()
        else:
            assert not (group.folder / "memory.pressure").exists()
        done = group.run(program.argv("machine", "probe", "--json"), env=program.env)
    assert done.returncode == 0, done.stderr
    machine = json.loads(done.stdout)
    assert machine["pressure"] is None
    assert machine["unread"] == []
    assert machine["limit_mib"] == 1024


def test_a_build_goes_on_without_it(program: Program) -> None:
    """Its stalls are unknown at each look, which are told with what the limits say all the same."""
    stand_in(program, f"exec {HOG} 200 1500 /dev/null")
    with memory_cgroup(900 * MIB) as group:
        done = group.run(
            program.supervised("clang++", "-c", "one.cpp", options=["--no-doctor"]), env=program.env, cwd=program.folder
        )
    assert done.returncode == 0, done.stderr
    looks = [record for record in program.records() if isinstance(record, PressureSampled)]
    assert looks
    assert {(each.some_s, each.full_s) for each in looks} == {(None, None)}
    assert all(each.fullness is not None for each in looks)
