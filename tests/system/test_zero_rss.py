"""A kernel that reports resident sizes as zero, for all but real: only statm is not this kernel's."""

from __future__ import annotations

import pytest

from builddoctor.core.events import MemorySampled, PhaseEnded
from builddoctor.runtime.rss_recheck import CrossCheckRules
from builddoctor.runtime.sampler import Rules
from support.fake_toolkit import fake_toolkit
from support.memcg import memory_cgroup
from support.program import Program

pytestmark = pytest.mark.slow

MIB = 1024**2
SHORT = Rules(crosscheck=CrossCheckRules(drop_mib=150, large_mib=100, again_s=0.5))
HOLDS = """
import time
held = bytearray(b"x") * (400 * 1048576)
time.sleep(4)
"""


@pytest.mark.needs_memcg
@pytest.mark.trap(18)
def test_the_page_tables_are_asked_where_resident_sizes_read_as_zero(program: Program) -> None:
    """The user is told once, and 400 MiB are counted as the phase's though statm says that it holds nothing."""
    toolkit = fake_toolkit(program.folder / "cuda", HOLDS)
    with memory_cgroup(1500 * MIB) as group:
        command = program.with_rules(SHORT, "nvcc", "-c", "a.cu", toolkit=str(toolkit), zero=True)
        done = group.run(command, env=program.env, cwd=program.folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("resident sizes read as zero here") == 1
    records = program.records()
    (peak,) = [record.peak_mib for record in records if isinstance(record, PhaseEnded)]
    assert peak == pytest.approx(405, abs=15)
    curve = [mib for record in records if isinstance(record, MemorySampled) for _, mib in record.rss_mib]
    # The last points may be left out: less than a twentieth is no step.
    assert peak * 0.9 < max(curve) < peak + 0.1
    assert len(curve) > 3, "it rises in one step"


@pytest.mark.needs_memcg
@pytest.mark.trap(18)
def test_memory_that_somebody_else_takes_is_not_taken_for_that_fault(program: Program) -> None:
    """A process that no gate announced holds it: our sum was right, and nothing is said."""
    toolkit = fake_toolkit(program.folder / "cuda", "import time\ntime.sleep(4)\n")
    with memory_cgroup(1500 * MIB) as group:
        others = f"python3 -c '{HOLDS}' & nvcc -c a.cu & wait"
        command = program.with_rules(SHORT, "sh", "-c", others, toolkit=str(toolkit))
        done = group.run(command, env=program.env, cwd=program.folder)
    assert done.returncode == 0, done.stderr
    assert "read as zero" not in done.stderr
    assert [record.outcome for record in program.records() if isinstance(record, PhaseEnded)] == ["ok"]
