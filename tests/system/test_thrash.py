"""A build that hangs at its limit, for real: a mapped file, bigger than the memory cgroup, read over and over."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from builddoctor.core.events import GiveUp, Kill, KillReason, PhaseEnded, PressureSampled, Status
from builddoctor.core.phase import Outcome
from builddoctor.core.settings import ThrashRules
from builddoctor.core.verdict import Verdict
from builddoctor.runtime.sampler import Rules
from builddoctor.scheduler.thrashing import ThrashState, ThrashWatch
from builddoctor.system.pressure import PressureSensor
from builddoctor.system.root import page_size
from builddoctor.trace.words import stall_words
from support.fake_toolkit import fake_toolkit
from support.memcg import MemoryCgroup, memory_cgroup
from support.program import Program
from unit.trees import plant

pytestmark = pytest.mark.slow

MIB = 1024**2
PATIENCE_S = 60.0
SHORT = ThrashRules(refault_mib_s=2.0, at_limit_share=0.9, stall_s=1.0, idle_s=2.0, calm_s=3.0)
READS = """
import mmap, sys, time
held = []
for _ in range({held}):
    held.append(bytearray(b"x") * 1048576)
    time.sleep(0.01)
with open({file!r}, "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
offset, end = 0, time.monotonic() + {seconds}
while time.monotonic() < end:
    for _ in range(256):
        mapped[offset]
        offset = (offset + 4096) % len(mapped)
"""


def big_file(folder: Path, size_mib: int) -> str:
    """A file on disk, whose pages are in nobody's memory: those that are would not count as the group's."""
    path = folder / "big"
    with path.open("wb") as file:
        for _ in range(size_mib):
            file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return str(path)


def sensor_of(group: MemoryCgroup, folder: Path) -> PressureSensor:
    """What builddoctor would see in this group: the kernel's own files, by another membership."""
    path = "/" + str(group.folder.relative_to("/sys/fs/cgroup/memory"))
    files = {
        "/proc/self/cgroup": f"4:memory:{path}\n",
        "/proc/self/mountinfo": Path("/proc/self/mountinfo").read_text(),
    }
    root = plant(folder, files)
    (folder / "sys").symlink_to("/sys")
    for name in ("pressure", "vmstat", "meminfo"):
        (folder / "proc" / name).symlink_to(f"/proc/{name}")
    return PressureSensor(root, page_bytes=page_size())


def sampled(sensor: PressureSensor, now_s: float) -> PressureSampled:
    """A look at it now; all but a tenth of the limit counts as free."""
    seen = sensor.read()
    return PressureSampled(
        at_s=now_s,
        full_s=seen.full_s,
        refault_mib=seen.refault_mib,
        fullness=seen.fullness,
        some_s=seen.some_s,
        headroom_share=0.9,
    )


@pytest.mark.needs_memcg
@pytest.mark.trap(40)
def test_a_file_read_over_and_over_at_the_limit_is_seen_as_thrashing(tmp_path: Path) -> None:
    """Refaults rise, the group is full, no phase ends: as if there were no headroom, though all of it is page cache."""
    file = big_file(tmp_path, 256)
    with memory_cgroup(128 * MIB) as group:
        sensor = sensor_of(group, tmp_path / "root")
        before = sensor.read()
        reader = READS.format(held=1, file=file, seconds=PATIENCE_S)
        process = subprocess.Popen(group.wrapped(["python3", "-c", reader]))
        watch = ThrashWatch(SHORT)
        began_s = time.monotonic()
        try:
            state = ThrashState.NONE
            while state is not ThrashState.ACT:
                now_s = time.monotonic()
                assert now_s - began_s < PATIENCE_S, f"not seen: {sensor.read()}"
                assert process.poll() is None
                state = watch.look(sampled(sensor, now_s), ended=0, running=1)
                time.sleep(0.2)
            after = sensor.read()
        finally:
            process.kill()
            process.wait()
    assert before.refault_mib is not None
    assert after.refault_mib is not None
    assert after.refault_mib - before.refault_mib > 10
    assert before.some_s is None or (after.some_s is not None and after.some_s > before.some_s)
    assert after.fullness is not None
    assert after.fullness > 0.9
    assert watch.stall is not None
    assert "at the limit" in stall_words(watch.stall)


@pytest.mark.needs_memcg
@pytest.mark.trap(40)
def test_of_two_phases_that_thrash_one_is_ended_and_run_again(program: Program) -> None:
    """The hang is said once with its reason; one of them gives way, and both are done in the end."""
    file = big_file(program.folder, 300)
    toolkit = fake_toolkit(program.folder / "cuda", READS.format(held=50, file=file, seconds=8.0), tool="ptxas")
    script = "nvcc -c a.cu & nvcc -c b.cu & wait"
    with memory_cgroup(320 * MIB) as group:
        command = program.with_rules(Rules(thrash=SHORT), "sh", "-c", script, toolkit=str(toolkit))
        done = group.run(command, env=program.env, cwd=program.folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the build hangs for memory") == 1
    killed = [record for record in program.records() if isinstance(record, Kill)]
    assert killed
    assert all(record.reason is KillReason.STALL for record in killed)
    outcomes = [record.outcome for record in program.records() if isinstance(record, PhaseEnded)]
    assert outcomes.count(Outcome.OK) == 2
    assert min(record.headroom_mib for record in program.records() if isinstance(record, Status)) > 30


@pytest.mark.needs_memcg
def test_the_only_phase_that_stands_still_is_ended_and_said_to_be_too_big(program: Program) -> None:
    """It would read the same pages for ever: the build ends with what happened, long before the phase would."""
    file = big_file(program.folder, 300)
    toolkit = fake_toolkit(program.folder / "cuda", READS.format(held=50, file=file, seconds=300.0), tool="ptxas")
    # Of this group's memory page cache is most, and counts as free; where only memory of processes is left, none does.
    rules = msgspec.structs.replace(SHORT, standstill_s=3.0, standstill_headroom_share=0.95)
    with memory_cgroup(220 * MIB) as group:
        command = program.with_rules(Rules(thrash=rules), "nvcc", "-c", "a.cu", toolkit=str(toolkit))
        done = group.run(command, env=program.env, cwd=program.folder)
    assert done.returncode != 0
    (killed,) = (record for record in program.records() if isinstance(record, Kill))
    assert killed.reason is KillReason.STALL
    (given_up,) = (record for record in program.records() if isinstance(record, GiveUp))
    assert given_up.verdict is Verdict.TOO_BIG
    assert "alone it stood still" in done.stderr
