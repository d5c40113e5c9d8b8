"""A real container by crun, as Kubernetes makes one: its own limit, its pod's, which it cannot see, and kills in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from builddoctor.core.events import Status
from support.memcg import MIB, memory_cgroup
from support.program import Program
from support.reading import asking, reading_of
from support.stand_ins import HOG, stand_in

CONTAINER = [sys.executable, "/job/guest/container.py"]
POD_MIB, OWN_MIB = 700, 2000


@pytest.fixture
def pod() -> Iterator[Path]:
    """The group above the container, with a limit below the container's own."""
    with memory_cgroup(POD_MIB * MIB) as group:
        yield group.folder


def in_container(pod: Path, command: Sequence[str], *, own_mib: int = OWN_MIB, whole: bool) -> list[str]:
    """A command in a container of its own below the pod; ``whole``: a kill takes all of it."""
    options = ["--group", f"/{pod.name}/container", "--memory-mib", str(own_mib)]
    return [*CONTAINER, *options, *(() if whole else ("--no-oom-group",)), *command]


@pytest.mark.machines("v2", "next", "newest")
@pytest.mark.trap(4)
def test_a_containers_own_limit_is_read_and_those_above_are_said_to_be_hidden(pod: Path) -> None:
    """Its group is the root of what it sees: 500 MiB, by its own file."""
    reading = reading_of(subprocess.check_output(in_container(pod, asking(), own_mib=500, whole=False), text=True))
    assert (reading.tightest.source, reading.tightest.limit_mib) == ("/sys/fs/cgroup/memory.max", 500)
    assert reading.hidden_above
    assert not reading.surroundings.group_kill


@pytest.mark.machines("v2", "next", "newest")
@pytest.mark.trap(35)
def test_a_container_that_dies_whole_is_known_by_its_own_file(pod: Path) -> None:
    """memory.oom.group, as Kubernetes sets it from 1.28 on: the doctor warns, and keeps twice the reserve."""
    doctor = [sys.executable, "-m", "builddoctor", "doctor", "--json"]
    done = subprocess.run(in_container(pod, doctor, own_mib=1000, whole=True), capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert report["headroom_mib"] - report["budget_mib"] == pytest.approx(200, rel=0.01)
    assert any(check["name"] == "memory-group-kill" for check in report["checks"])


@pytest.mark.machines("v2", "next", "newest")
@pytest.mark.trap(26)
def test_a_kill_for_the_pods_limit_is_not_the_phases_fault(pod: Path, program: Program) -> None:
    """The container shows 2000 MiB, the pod ends what takes more than 700: said to be a limit above."""
    stand_in(program, f"exec {HOG} 900 0 {program.folder}/done")
    build = program.supervised("clang++", "-c", "one.cpp", options=["--no-doctor"])
    done = subprocess.run(
        in_container(pod, build, whole=False), env=program.env, cwd=program.folder, capture_output=True, text=True
    )
    assert program.summary()["verdict"] == "cgroup-parent", done.stderr
    assert program.summary()["kernel_oom_kills"] >= 1


@pytest.mark.machines("v2", "next", "newest")
@pytest.mark.trap(35)
def test_a_container_that_died_whole_is_explained_by_its_trace(pod: Path, program: Program) -> None:
    """A neighbour in the container meets the limit, and the kernel ends all of it: the trace says so afterwards."""
    hog = f"{sys.executable} -c 'held = bytearray({2 * POD_MIB} << 20)'"
    build = " ".join(f"'{word}'" for word in program.supervised("tail", "-f", "/dev/null"))
    script = f"{build} & until [ -e go ]; do sleep 0.1; done; {hog}; wait $!"
    process = program.start(in_container(pod, ["sh", "-c", script], own_mib=POD_MIB - 100, whole=True))
    program.await_record(Status, process)
    (program.folder / "go").touch()
    process.communicate()
    assert not program.summary_file.read_text()
    said = program.run("explain", str(program.trace_file), "--json").stdout
    assert "trace stops short" in said


@pytest.mark.machines("v2-container")
@pytest.mark.trap(26)
@pytest.mark.trap(35)
def test_a_container_of_kubernetes_as_it_sees_itself(program: Program) -> None:
    """4 GiB by its own file, twice the reserve since it dies whole, and a line that the pod's limit cannot be seen."""
    report = json.loads(program.run("doctor", "--json").stdout)
    assert (report["limit_mib"], report["limited_by"]) == (4096, "/sys/fs/cgroup/memory.max")
    assert report["headroom_mib"] - report["budget_mib"] == pytest.approx(2 * 409.6, rel=0.01)
    assert {"memory-group-kill", "memory-hidden"} <= {check["name"] for check in report["checks"]}


@pytest.mark.machines("v2-container")
def test_a_build_in_it_completes_without_a_kill(program: Program) -> None:
    """Four compilers of 1.2 GiB each in 4 GiB: two at a time, and none of it is killed."""
    stand_in(program, f"exec {HOG} 1200 600 {program.folder}/build.ninja")
    rule = "rule cc\n  command = clang++ -c $in && touch $out\n"
    (program.folder / "build.ninja").write_text(rule + "".join(f"build u{n}.o: cc u{n}.cpp\n" for n in range(4)))
    for number in range(4):
        (program.folder / f"u{number}.cpp").touch()
    build = program.supervised("ninja", options=["--no-doctor", "--cores", "4", "--memory", "2800MiB"])
    done = subprocess.run(build, env=program.env, cwd=program.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert program.summary()["kernel_oom_kills"] == 0
