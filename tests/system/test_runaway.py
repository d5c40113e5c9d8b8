"""A front end that grows without end, for real: a program named cudafe++, in memory cgroups of its own."""

from __future__ import annotations

import msgspec
import pytest

from builddoctor.core.events import GiveUp, Kill, PhaseEnded, Requeue
from builddoctor.core.settings import RunawayRules
from builddoctor.runtime.sampler import Rules
from builddoctor.trace.words import kill_reason
from support.fake_toolkit import fake_toolkit
from support.memcg import memory_cgroup
from support.program import Program

pytestmark = [pytest.mark.slow, pytest.mark.machines("v2", "next")]

MIB = 1024**2

GROWS = """
import sys, time
held, rate_mib_s, most_mib = [], {rate}, {most}
began = time.monotonic()
while True:
    # Busy between two steps, as a compiler in an endless loop is.
    if len(held) < min(most_mib, rate_mib_s * (time.monotonic() - began)):
        held.append(bytearray(b"x") * 1048576)
    elif time.monotonic() - began > {seconds}:
        sys.exit(0)
"""
SHORT = Rules(
    runaway=RunawayRules(floor_mib=300, growth_factor=1.1, rising_s=1.0, rest_s=1.0, cpu_share=0.3, killed_rising_s=1.0)
)
"""A rise of one second beyond 300 MiB, and up to 330: a front end of nothing is expected to take some 50."""


def cudafe(*, rate: int = 200, most: int = 10**6, seconds: float = 10**6) -> str:
    return GROWS.format(rate=rate, most=most, seconds=seconds)


@pytest.mark.needs_memcg
@pytest.mark.trap(36)
def test_a_front_end_that_grows_for_ever_is_ended_as_a_runaway(program: Program) -> None:
    """200 MB/s without end: ended before the kernel does it, named, tried at most once more, and no word about -j."""
    toolkit = fake_toolkit(program.folder / "cuda", cudafe())
    with memory_cgroup(3000 * MIB) as group:
        command = program.with_rules(SHORT, "nvcc", "-c", "endless.cu", toolkit=str(toolkit))
        done = group.run(command, env=program.env, cwd=program.folder)
        assert group.kernel_kills == 0
    assert done.returncode == 137, done.stderr
    summary = program.summary()
    assert (summary["verdict"], summary["runaways"], summary["killed"]) == ("runaway", 1, 1)
    assert summary["requeued"] <= 1
    assert 330 < summary["peak_mib"] < 2500
    (killed,) = [record for record in program.records() if isinstance(record, Kill)]
    assert "times what was expected" in kill_reason(killed)
    assert "endless.cu" in done.stderr.rpartition("died")[2]
    assert "it grew without end" in " ".join(done.stderr.split())
    assert "another minor version of nvcc" in done.stderr
    assert "-j" not in done.stderr
    assert "higher memory limit" not in done.stderr


@pytest.mark.needs_memcg
@pytest.mark.trap(36)
def test_where_the_limit_comes_first_it_is_a_runaway_all_the_same(program: Program) -> None:
    """Production would wait for 24 GiB; 900 MiB are full before. How it rose up to its end tells it."""
    toolkit = fake_toolkit(program.folder / "cuda", cudafe())
    rules = Rules(runaway=RunawayRules(rest_s=1.0, killed_rising_s=1.0, cpu_share=0.3, company_cpu_share=0.3))
    with memory_cgroup(900 * MIB) as group:
        command = program.with_rules(rules, "nvcc", "-c", "endless.cu", toolkit=str(toolkit))
        done = group.run(command, env=program.env, cwd=program.folder)
        assert group.kernel_kills >= 1
    assert done.returncode == 137, done.stderr
    summary = program.summary()
    assert (summary["verdict"], summary["runaways"], summary["killed"]) == ("runaway", 1, 0)
    assert len([record for record in program.records() if isinstance(record, Requeue)]) <= 1
    assert "another minor version of nvcc" in " ".join(done.stderr.split())


@pytest.mark.needs_memcg
@pytest.mark.trap(37)
def test_a_front_end_that_comes_to_rest_is_left_alone(program: Program) -> None:
    """As fast and as big, and then it works with what it has: it ends well, and nothing is said."""
    toolkit = fake_toolkit(program.folder / "cuda", cudafe(rate=1000, most=900, seconds=10.0))
    # Longer than the way up takes on a machine that is full, shorter than the stay there.
    rules = msgspec.structs.replace(SHORT, runaway=msgspec.structs.replace(SHORT.runaway, rising_s=6.0))
    with memory_cgroup(3000 * MIB) as group:
        command = program.with_rules(rules, "nvcc", "-c", "big.cu", toolkit=str(toolkit))
        done = group.run(command, env=program.env, cwd=program.folder)
    assert done.returncode == 0, done.stderr
    assert program.summary()["runaways"] == 0
    assert [record.outcome for record in program.records() if isinstance(record, PhaseEnded)] == ["ok"]
    assert not [record for record in program.records() if isinstance(record, GiveUp)]
