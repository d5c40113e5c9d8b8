"""``activate`` in a container-like root: read-only, pids of its own, a user without name, home or rights; gcc alone."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from builddoctor.core.events import PhaseStarted
from builddoctor.trace.reader import TraceReader
from support.container import NOBODY, Container, Volume
from support.memcg import MIB, memory_cgroup

pytestmark = [pytest.mark.needs_memcg, pytest.mark.needs_unshare]

PROGRAM = f"{sys.executable} -m builddoctor"
ACTIVATE = f'set -e; eval "$({PROGRAM} activate --shell sh)"'
UNTIL_ENDED = f"while {PROGRAM} status --json | grep -q title; do :; done"
PATH = {"PATH": "/usr/bin:/bin"}
HOME = {"HOME": "/root"}
"""It cannot be written."""


def typed(folder: Path, script: str, *, user: int = NOBODY, env: Mapping[str, str] = HOME) -> str:
    """What bash, as the container's first process, prints: in a project of two sources."""
    project = folder / "project"
    project.mkdir()
    for name in ("one", "two"):
        (project / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
    (project / "Makefile").write_text("all: one.o two.o\n")
    for each in (project, *project.iterdir()):
        os.chown(each, user, user)
    container = Container(folder, user=user, volumes=(Volume(project, Path("/tmp/project"), "rw"),))
    with memory_cgroup(1500 * MIB) as group:
        done = container.run(["bash", "-c", f"cd /tmp/project; {script}"], group, {**PATH, **env})
        assert done.returncode == 0, done.stderr
        assert group.kernel_kills == 0
    assert (project / "one.o").exists()
    assert (project / "two.o").exists()
    return done.stdout


def traces(folder: Path, user: int = NOBODY) -> list[Path]:
    return sorted((folder / f"tmp/builddoctor-of-{user}/state/traces").glob("*.jsonl"))


@pytest.mark.parametrize(("user", "env"), [(NOBODY, HOME), (NOBODY, {}), (0, HOME), (0, {})])
def test_a_build_is_supervised_whoever_the_user_is(tmp_path: Path, user: int, env: Mapping[str, str]) -> None:
    """One without privileges and root without them, HOME not to be written or not set; its limit is the container's."""
    said = typed(tmp_path, f"{ACTIVATE}; make -j8; {UNTIL_ENDED}; {PROGRAM} trace list --json", user=user, env=env)
    (build,) = json.loads(said[said.index("\n[") :])
    assert build["result"] == "ok"
    assert build["header"]["limit_mib"] == 1500
    assert build["header"]["title"] == "make -j8"


def test_a_build_that_is_the_containers_first_process_is_supervised(tmp_path: Path) -> None:
    """As in `RUN eval "$(builddoctor activate)"; make`: the shell becomes make. With it all ends, the trace too."""
    typed(tmp_path, f"{ACTIVATE}; exec make -j8")
    (trace,) = traces(tmp_path)
    assert len([each for each in TraceReader(trace) if isinstance(each, PhaseStarted)]) >= 2


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("make one.o; make two.o", ["make one.o", "make two.o"]),
        ("gcc -c one.c; gcc -c two.c", ["bash -c"]),
    ],
    ids=["commands", "compilers"],
)
def test_where_the_environment_is_the_images_each_command_is_a_build(
    tmp_path: Path, script: str, wanted: list[str]
) -> None:
    """The first process is activated itself, as by ENV in a Dockerfile: it is no build, but for lone compilers."""
    typed(tmp_path, f"{ACTIVATE}; exec bash -c '{script}; {PROGRAM} status'")
    titles = [json.loads(each.read_text().partition("\n")[0])["title"] for each in traces(tmp_path)]
    assert [title[: len(start)] for title, start in zip(titles, wanted, strict=True)] == wanted


def test_where_nothing_can_be_written_the_doctor_examines_and_activate_says_what_to_name(tmp_path: Path) -> None:
    container = Container(tmp_path, tmp="ro")
    with memory_cgroup(500 * MIB) as group:
        examined = container.run([sys.executable, "-m", "builddoctor", "doctor"], group, {**PATH, **HOME})
        refused = container.run([sys.executable, "-m", "builddoctor", "activate"], group, {**PATH, **HOME})
    assert "500 MiB" in examined.stdout
    assert refused.returncode == 76
    assert "export BUILDDOCTOR_CACHE_DIR=/some/folder" in refused.stderr
