"""The example with a real nvcc: measured once with gates, then built in stages, with the same objects."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builddoctor.core.events import PhaseAsked
from support.example import Example
from support.memcg import memory_cgroup
from support.objects import objects_of
from support.program import Program

pytestmark = [pytest.mark.needs_nvcc, pytest.mark.needs_memcg, pytest.mark.needs_cmake]

GIB = 1024**3


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
    assert not [record for record in program.records() if isinstance(record, PhaseAsked)]
    built = objects_of(example.source / "build" / "cmake")
    by_name = {Path(name).name: content for name, content in built.items() if name.endswith(".o")}
    assert by_name == {Path(name).name: content for name, content in plain_objects.items() if name.endswith(".o")}
