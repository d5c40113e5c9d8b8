"""Builds that nobody starts through builddoctor, in an activated shell: real nvcc, real memory cgroups."""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from builddoctor.core.events import BuildEnded, Summary
from builddoctor.trace.reader import TraceReader
from support.example import Example
from support.memcg import memory_cgroup
from support.objects import files_naming, objects_of, only_objects
from support.program import PATIENCE_S, Program
from support.real_programs import path_of_real_programs

pytestmark = [pytest.mark.needs_nvcc, pytest.mark.needs_cmake, pytest.mark.needs_memcg]

GIB = 1024**3


def activated(program: Program, script: str) -> list[str]:
    """A shell that is activated and then does what is typed."""
    words = shlex.join(program.argv("activate", "--shell", "sh"))
    return ["bash", "-c", f'set -e; eval "$({words})"\n{script}']


def with_programs(program: Program) -> dict[str, str]:
    return {**program.env, "PATH": path_of_real_programs(), "AK_CUDA_ARCHS": "90"}


def traces(program: Program) -> list[dict]:
    return json.loads(program.run("trace", "list", "--json").stdout)


def running(program: Program) -> list[dict]:
    return json.loads(program.run("status", "--json").stdout)["builds"]


def test_two_plain_builds_share_one_limit_and_survive_the_death_of_a_supervisor(
    example: Example, plain_objects: dict[str, bytes], program: Program
) -> None:
    """`cmake --build` and `make -j8` at once in 3 GiB; the first one's supervisor is killed while it compiles."""
    made = program.folder / "made"
    script = f"""
        rm -rf {example.build}
        cmake -S {example.source} -B {example.build} -G Ninja -DCMAKE_CUDA_ARCHITECTURES=90
        cmake -S {example.source} -B {made} -G "Unix Makefiles" -DCMAKE_CUDA_ARCHITECTURES=90
        cmake --build {example.build} & first=$!
        make -C {made} -j8 & second=$!
        wait $first; wait $second
    """
    with memory_cgroup(3 * GIB) as group:
        build = subprocess.Popen(
            group.wrapped(activated(program, script)),
            env=program.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        victim = _await_compiling(program, "cmake --build")
        os.kill(victim["pid"], signal.SIGKILL)
        _, errors = build.communicate(timeout=600)
        assert build.returncode == 0, errors
        assert group.kernel_kills == 0
        _await_none(program)
    assert objects_of(example.build) == plain_objects
    assert only_objects(objects_of(made)) == only_objects(plain_objects)
    assert files_naming(example.build, "overlays/") == []
    found = traces(program)
    assert sorted(each["result"] or "cut off" for each in found) == ["cut off", "ok", "ok"]
    assert victim["trace"] in {each["path"] for each in found}


def test_pip_with_build_isolation(example: Example, plain_objects: dict[str, bytes], program: Program) -> None:
    """`pip wheel`, in an environment that pip makes for it, without a word changed."""
    shutil.rmtree(example.build, ignore_errors=True)
    wheels = program.folder / "wheels"
    with memory_cgroup(3 * GIB) as group:
        done = group.run(
            activated(program, f"{sys.executable} -m pip wheel --no-deps -w {wheels} {example.source}"),
            env=with_programs(program),
        )
        assert done.returncode == 0, done.stderr
        assert group.kernel_kills == 0
        _await_none(program)
    assert len(list(wheels.glob("*.whl"))) == 1
    assert only_objects(objects_of(example.build)) == only_objects(plain_objects)
    assert _summary_of_the_only_trace(program).units == len(only_objects(plain_objects))


@pytest.mark.nightly
def test_uv_build(example: Example, plain_objects: dict[str, bytes], program: Program) -> None:
    """`uv build`, likewise."""
    shutil.rmtree(example.build, ignore_errors=True)
    with memory_cgroup(3 * GIB) as group:
        words = [
            Path(sys.executable).with_name("uv"),
            "build",
            "--wheel",
            "-o",
            program.folder / "wheels",
            example.source,
        ]
        done = group.run(activated(program, shlex.join(map(str, words))), env=with_programs(program))
        assert done.returncode == 0, done.stderr
        assert group.kernel_kills == 0
        _await_none(program)
    assert only_objects(objects_of(example.build)) == only_objects(plain_objects)
    assert _summary_of_the_only_trace(program).units == len(only_objects(plain_objects))


def _summary_of_the_only_trace(program: Program) -> Summary:
    (trace,) = traces(program)
    assert trace["result"] == "ok"
    *_, last = TraceReader(Path(trace["path"]))
    assert isinstance(last, BuildEnded)
    return last.summary


def _await_compiling(program: Program, title: str) -> dict:
    """The supervisor of the build of this title, once a compiler of it runs."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for each in running(program):
            if title in each["title"] and '"t":"start"' in Path(each["trace"]).read_text():
                return each
        select.select([], [], [], 0.05)
    raise AssertionError(f"no supervisor for {title}")


def _await_none(program: Program) -> None:
    """Supervisors end with their builds."""
    deadline = time.monotonic() + PATIENCE_S
    while running(program):
        assert time.monotonic() < deadline, "a supervisor did not end with its build"
        select.select([], [], [], 0.05)
