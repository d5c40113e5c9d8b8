"""A compiler that takes memory as fast as the machine gives it, in a real memory cgroup."""

from __future__ import annotations

import pytest

from builddoctor.core.events import Kill, PhaseEnded, PhaseStarted
from support.memcg import memory_cgroup
from support.program import Program
from support.stand_ins import HOG, stand_in

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.machines("v2", "next")]

MIB = 1024**2


@pytest.mark.needs_memcg
@pytest.mark.trap(30)
def test_a_fast_hog_is_ended_before_the_kernel_does_it(program: Program) -> None:
    """About 2 GB/s into 4 GiB: builddoctor is first, the kernel never has to kill, and the phase is redone."""
    # Three tries: a machine that stands still for half a second lets the kernel be first.
    output, kernel_kills = hog_beside_another(program)
    for _ in range(2):
        if kernel_kills == 0:
            break
        output, kernel_kills = hog_beside_another(program)
    assert kernel_kills == 0, output
    records = program.records()
    assert [record.phase_id for record in records if isinstance(record, Kill)] == [2]
    ends = [(record.phase_id, record.outcome) for record in records if isinstance(record, PhaseEnded)]
    assert sorted(ends) == [(1, "ok"), (2, "killed-by-us"), (2, "ok")]
    assert program.summary()["kernel_oom_kills"] == 0


def hog_beside_another(program: Program) -> tuple[str, int]:
    """One build, which ends well; what it said, and how many the kernel killed."""
    done, hogging = program.folder / "done", program.folder / "hogging"
    for file in (done, hogging, program.folder / "go", program.trace_file):
        file.unlink(missing_ok=True)
    stand_in(program, f"exec {HOG} 40 0 {done}", name="clang")
    stand_in(program, f"[ -e {hogging} ] && exit 0; touch {hogging}; exec {HOG} 8192 0 /no/such/file")
    script = "clang -c old.cpp & while [ ! -e go ]; do sleep 0.05; done; clang++ -c hog.cpp && wait"
    with memory_cgroup(4096 * MIB) as group:
        process = program.start(group.wrapped(program.supervised("sh", "-c", script, options=["--cores", "4"])))
        program.await_record(PhaseStarted, process, phase_id=1)
        (program.folder / "go").touch()
        program.await_record(PhaseEnded, process, phase_id=2, outcome=lambda outcome: outcome != "ok")
        done.touch()
        output, _ = process.communicate()
        kernel_kills = group.kernel_kills
    assert process.returncode == 0, output
    return output, kernel_kills
