"""The example on a machine that is too small for it, with a node that is not: real nvcc and gcc, real memory limits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from builddoctor.cluster.keys import make_keys
from builddoctor.core.events import PhaseAsked, PhaseEnded
from builddoctor.core.phase import Outcome, PhaseKind
from support.example import Example
from support.memcg import memory_cgroup
from support.nodes import Meeting
from support.objects import objects_of
from support.program import Program

pytestmark = [pytest.mark.needs_nvcc, pytest.mark.needs_cmake, pytest.mark.needs_memcg, pytest.mark.alone]

GIB = 2**30


def test_a_laptop_of_one_gibibyte_builds_with_a_node_of_four(
    tmp_path: Path, example: Example, plain_objects: dict[str, bytes]
) -> None:
    """Phases of 2.2 GiB are among them. No kernel kill on either side, and the same bytes as a plain build's."""
    make_keys(tmp_path / "keys")
    program = Program(tmp_path)
    example.configure_plainly()
    with memory_cgroup(4 * GIB) as large, memory_cgroup(GIB) as small:
        meeting = Meeting(tmp_path / "meeting", keys=tmp_path / "keys")
        try:
            meeting.worker("node", prefix=large.wrapped([]))
            done = subprocess.run(
                small.wrapped(program.supervised("ninja", "-C", str(example.build), options=meeting.for_builds)),
                cwd=example.source,
                env=program.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            meeting.close()
        assert done.returncode == 0, done.stdout + done.stderr
        assert (large.kernel_kills, small.kernel_kills) == (0, 0)
    assert objects_of(example.build) == plain_objects
    ends = [each for each in program.records() if isinstance(each, PhaseEnded) and each.outcome is Outcome.OK]
    there = [each for each in ends if each.node]
    kinds = {each.phase.phase_id: each.phase.kind for each in program.records() if isinstance(each, PhaseAsked)}
    assert {PhaseKind.CICC, PhaseKind.HOST} <= {kinds[each.phase_id] for each in there}
    assert max(each.peak_mib for each in there) > 1024
    assert max(each.peak_mib for each in ends if not each.node) < 1024
    program.check_traces()
