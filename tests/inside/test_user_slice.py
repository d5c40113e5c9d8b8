"""A user's own systemd: a delegated group below a limit, without root."""

from __future__ import annotations

import json
import os

import pytest

from builddoctor.core.events import Status
from support.memcg import MIB, memory_cgroup
from support.program import Program
from support.reading import asking, reading_of
from support.stand_ins import HOG, stand_in

pytestmark = pytest.mark.machines("v2-user")


@pytest.mark.trap(1)
def test_the_services_limit_is_read_from_groups_of_our_own() -> None:
    """We are no root; a group of ours below the service's 3 GiB has less."""
    assert os.getuid() != 0
    with memory_cgroup(500 * MIB) as group:
        tightest = reading_of(group.run(asking()).stdout).tightest
        assert (tightest.source, tightest.limit_mib) == (str(group.limit_file), 500)


@pytest.mark.trap(35)
def test_a_users_service_that_stops_is_known(program: Program) -> None:
    """systemd-run --user without OOMPolicy: its own file, in the user's runtime folder, says so by saying nothing."""
    report = json.loads(program.run("doctor", "--json").stdout)
    (said,) = [check["text"] for check in report["checks"] if check["name"] == "memory-unit"]
    assert ".service as a whole" in said


def test_a_build_runs_without_root(program: Program) -> None:
    """Gates, sampling and an orderly end, all as a user, in a group with a limit."""
    stand_in(program, f"exec {HOG} 200 0 /dev/null")
    with memory_cgroup(900 * MIB) as group:
        done = group.run(
            program.supervised("clang++", "-c", "one.cpp", options=["--no-doctor"]), env=program.env, cwd=program.folder
        )
    assert done.returncode == 0, done.stderr
    assert program.summary()["phases"] == 1
    assert any(isinstance(record, Status) for record in program.records())
