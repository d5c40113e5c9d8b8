"""A user's own systemd: a delegated group below a limit, without root."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import uuid
from collections.abc import Sequence

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
@pytest.mark.parametrize(
    ("settings", "stops"),
    [((), True), (("Delegate=yes",), False), (("Delegate=yes", "OOMPolicy=stop"), True)],
    ids=["by default", "delegated", "delegated and told to stop"],
)
def test_a_users_service_that_stops_is_known(program: Program, settings: Sequence[str], stops: bool) -> None:
    """By its own file, in the user's runtime folder. systemd itself says what it makes of it."""
    unit = f"asked-{uuid.uuid4().hex}.service"
    options = [word for setting in settings for word in ("-p", setting)]
    service = ["systemd-run", "--user", "--quiet", "--wait", "--pipe", "--same-dir", f"--unit={unit}", *options]
    words = [f"{name}={value}" for name, value in program.env.items()]
    doctor = shlex.join(["env", *words, *program.argv("doctor", "--json")])
    script = f"systemctl --user show -P OOMPolicy {unit}; {doctor}"
    done = subprocess.run([*service, "sh", "-c", script], capture_output=True, text=True, check=False)
    policy, _, report = done.stdout.partition("\n")
    assert policy == ("stop" if stops else "continue"), done.stderr
    said = [check["text"] for check in json.loads(report)["checks"] if check["name"] == "memory-unit"]
    assert [unit in text for text in said] == [True] * stops


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
