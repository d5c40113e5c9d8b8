"""The example with a real nvcc: measured once with gates, then built in stages, with the same objects."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from builddoctor.cli.staging import write_stages
from builddoctor.plans.hosts import figures_only, host_of_machine
from builddoctor.plans.planner import make_plan
from builddoctor.recipes.reading import read_recipe
from builddoctor.sensors.machine import probe_machine
from builddoctor.sensors.root import SystemRoot
from builddoctor.trace.records import PhaseQueued
from support.example import Example
from support.memcg import memory_cgroup
from support.objects import objects_of
from support.program import Program

pytestmark = [pytest.mark.needs_nvcc, pytest.mark.needs_memcg, pytest.mark.needs_cmake]

GIB = 1024**3


def test_stages_alone_keep_a_build_in_its_memory(
    example: Example, plain_objects: dict[str, bytes], recipe: Path, tmp_path: Path
) -> None:
    """Without builddoctor, in the 3 GiB that `ninja -j8` dies in: no kill, the plain objects, nothing left to do."""
    here = host_of_machine(probe_machine(SystemRoot(), os.environ))
    host = figures_only(cores=8, memory_mib=3 * 1024.0, like=here)
    plan = make_plan(read_recipe(recipe), name="example", host=host)
    stages = write_stages(tmp_path / "staged", plan)
    example.configure_plainly()
    program = tmp_path / "staged" / "bin"
    env = {**example.env, "PATH": f"{program}:{example.env['PATH']}", "BUILDDOCTOR_STAGES": str(stages)}
    with memory_cgroup(3 * GIB) as group:
        done = group.run(["ninja", "-C", str(example.build), "-j8"], env=env)
        assert done.returncode == 0, done.stdout
        assert group.kernel_kills == 0
    assert done.stderr.count("builddoctor: stage ") == sum(bool(stage.targets) for stage in plan.stages) + 1
    assert objects_of(example.build) == plain_objects
    dry = subprocess.run(
        ["ninja", "-C", str(example.build), "-n"], env=example.env, capture_output=True, text=True, check=True
    )
    assert "no work to do" in dry.stdout


def test_a_wheel_is_built_in_stages(
    example: Example, plain_objects: dict[str, bytes], recipe: Path, program: Program
) -> None:
    """`builddoctor build PATH --strategy staged`: pip, the backend and CMake call ninja through it; same objects."""
    shutil.rmtree(example.build, ignore_errors=True)
    wheels = program.folder / "wheels"
    options = ["--strategy", "staged", "--recipe", str(recipe), "--wheel-dir", str(wheels), "--cache", "none"]
    files = ["--summary", str(program.summary_file), "--trace", str(program.trace_file)]
    command = program.argv("build", str(example.source), "--arch", "sm_90", *options, *files)
    with memory_cgroup(3 * GIB) as group:
        done = group.run(command, env=program.env)
        assert done.returncode == 0, done.stderr
        assert group.kernel_kills == 0
    assert "builddoctor: stage " in done.stderr
    assert "no stage was run" not in done.stderr
    assert len(list(wheels.glob("*.whl"))) == 1
    assert not [record for record in program.records() if isinstance(record, PhaseQueued)]
    built = objects_of(example.source / "build" / "cmake")
    by_name = {Path(name).name: content for name, content in built.items() if name.endswith(".o")}
    assert by_name == {Path(name).name: content for name, content in plain_objects.items() if name.endswith(".o")}
