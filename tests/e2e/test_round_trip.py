"""The example measured once, and its recipe used with less memory: by a script without builddoctor, and by gates."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builddoctor.core.events import Admit, PhaseEnded, Status, UnitEnded
from builddoctor.estimation.time_left import LEAST_UNITS
from support.example import Example
from support.memcg import memory_cgroup
from support.objects import objects_of
from support.program import Program

pytestmark = [pytest.mark.needs_nvcc, pytest.mark.needs_memcg, pytest.mark.needs_cmake]

MIB = 1024**2
LIMIT_MIB = 2700
"""The largest phase takes 2.28 GiB; it was measured without a limit."""


def test_a_rendered_script_stays_within_less_memory(
    example: Example, plain_objects: dict[str, bytes], recipe: Path, program: Program, tmp_path: Path
) -> None:
    """Measured without a limit, planned for 2.7 GiB, run by plain `sh` in such a cgroup: no kill, the same objects."""
    shutil.rmtree(example.build, ignore_errors=True)
    script, wheels = tmp_path / "build.sh", tmp_path / "wheels"
    options = ["--to", "sh", "--cores", "2", "--memory", f"{LIMIT_MIB}MiB", "-o", str(script)]
    rendered = program.run("recipe", "render", str(recipe), "--source", str(example.source), *options)
    assert rendered.returncode == 0, rendered.stderr
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        done = group.run(["sh", str(script), str(example.source)], env={**example.env, "WHEELS": str(wheels)})
        assert done.returncode == 0, done.stderr
        assert group.kernel_kills == 0
    assert "stage solo" in done.stderr
    assert len(list(wheels.glob("*.whl"))) == 1
    assert named(objects_of(example.source / "build" / "cmake")) == named(plain_objects)


def test_a_first_build_with_the_recipe_makes_no_wrong_guess(
    example: Example, plain_objects: dict[str, bytes], recipe: Path, program: Program
) -> None:
    """Gated, in the same cgroup, with no history: the kernel kills nothing, and of twenty phases at most one takes more
    than was set aside for it. One may be redone, where others took longer than in the recipe's build (ADR 0025)."""
    example.configure_plainly()
    command = program.supervised("ninja", "-C", str(example.build), options=["--recipe", str(recipe)])
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        done = group.run(command, env=program.env)
        assert done.returncode == 0, done.stderr
        assert group.kernel_kills == 0
    summary = program.summary()
    assert (summary["kernel_oom_kills"], summary["result"]) == (0, "ok")
    assert summary["requeued"] <= 1
    aside_mib = {each.phase_id: each.estimate.reserve_mib for each in program.records() if isinstance(each, Admit)}
    took_mib = {each.phase_id: each.peak_mib for each in program.records() if isinstance(each, PhaseEnded)}
    beyond = [each for each, mib in took_mib.items() if mib > aside_mib[each]]
    assert len(beyond) <= 0.05 * len(took_mib), beyond
    assert objects_of(example.build) == plain_objects
    told = [record.at_s for record in program.records() if isinstance(record, Status) and record.left_s is not None]
    ends = [record.at_s for record in program.records() if isinstance(record, UnitEnded)]
    assert told
    # The recipe knows all units: it is told when the first has ended, and not only when some have been seen.
    assert sum(end_s < told[0] for end_s in ends) < LEAST_UNITS


def named(objects: dict[str, bytes]) -> dict[str, bytes]:
    return {Path(name).name: content for name, content in objects.items() if name.endswith(".o")}
