"""The main promise, with real nvcc, real memory cgroups and the kernel's own count of its kills."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from builddoctor.core.events import Kill, PhaseEnded, Requeue
from support.example import Example
from support.memcg import memory_cgroup
from support.objects import files_naming, objects_of
from support.program import Program

pytestmark = [pytest.mark.needs_nvcc, pytest.mark.needs_cmake, pytest.mark.needs_memcg]

GIB = 1024**3
MIB = 1024**2


def test_plain_build_is_killed_by_the_kernel(example: Example) -> None:
    """Without builddoctor, `ninja -j8` in 3 GiB loses a compiler to the kernel and fails."""
    example.configure_plainly()
    with memory_cgroup(3 * GIB) as group:
        done = group.run(["ninja", "-C", str(example.build), "-j8"], env=example.env)
        assert group.kernel_kills >= 1
    assert done.returncode != 0


def test_run_completes_in_the_folder_that_was_configured_plainly(
    example: Example, plain_objects: dict[str, bytes], program: Program
) -> None:
    """`builddoctor run -- ninja -j8` in the same 3 GiB and the same folder completes, with the same objects."""
    example.configure_plainly()
    with memory_cgroup(3 * GIB) as group:
        done = group.run(program.supervised("ninja", "-C", str(example.build), "-j8"), env=program.env)
        assert done.returncode == 0, done.stderr
        assert group.kernel_kills == 0
    summary = program.summary()
    assert summary["result"] == "ok"
    assert summary["kernel_oom_kills"] == 0
    assert summary["units"] == sum(name.endswith(".o") for name in plain_objects)
    assert objects_of(example.build) == plain_objects
    assert nothing_to_do(example)


def test_build_command_completes_and_leaves_no_trace_of_the_overlay(
    example: Example, plain_objects: dict[str, bytes], program: Program
) -> None:
    """`builddoctor build PATH --arch sm_90` in 3 GiB makes the wheel; no output names an overlay."""
    wheels = program.folder / "wheels"
    command = program.argv("build", str(example.source), "--arch", "sm_90", "--wheel-dir", str(wheels))
    with memory_cgroup(3 * GIB) as group:
        done = group.run([*command, "--summary", str(program.summary_file)], env=program.env)
        assert done.returncode == 0, done.stderr
        assert group.kernel_kills == 0
    assert len(list(wheels.glob("*.whl"))) == 1
    built = example.source / "build" / "cmake"
    by_name = {Path(name).name: content for name, content in objects_of(built).items() if name.endswith(".o")}
    assert by_name == {Path(name).name: content for name, content in plain_objects.items() if name.endswith(".o")}
    assert files_naming(built, "overlays/") == []
    dependencies = subprocess.run(["ninja", "-C", str(built), "-t", "deps"], capture_output=True, text=True, check=True)
    assert "builtin_types.h" in dependencies.stdout
    assert "overlays/" not in dependencies.stdout
    dynamic = subprocess.run(["readelf", "-d", *built.glob("*.so")], capture_output=True, text=True, check=True).stdout
    assert "NEEDED" in dynamic
    assert "overlays/" not in dynamic


def test_a_wrong_first_guess_costs_a_phase_and_not_the_build(
    example: Example, plain_objects: dict[str, bytes], program: Program
) -> None:
    """Eight cores' worth of phases in 2.7 GiB: some are ended and redone, ninja never sees a failure."""
    example.configure_plainly()
    with memory_cgroup(2700 * MIB) as group:
        command = program.supervised("ninja", "-C", str(example.build), "-j8", options=["--cores", "8"])
        done = group.run(command, env=program.env)
        assert done.returncode == 0, done.stderr
    summary = program.summary()
    assert summary["requeued"] >= 1
    records = program.records()
    redone = {record.phase_id for record in records if isinstance(record, Requeue)}
    ends = [record for record in records if isinstance(record, PhaseEnded) and record.phase_id in redone]
    assert {end.outcome for end in ends} <= {"killed-by-us", "killed-by-kernel", "ok"}
    assert redone == {end.phase_id for end in ends if end.outcome == "ok"}
    assert summary["killed"] == sum(isinstance(record, Kill) for record in records)
    assert "FAILED" not in done.stdout
    assert objects_of(example.build) == plain_objects


def nothing_to_do(example: Example) -> bool:
    """Plain ninja finds the supervised build complete: no command line was changed."""
    dry = subprocess.run(
        ["ninja", "-C", str(example.build), "-n"], env=example.env, capture_output=True, text=True, check=True
    )
    return "no work to do" in dry.stdout
