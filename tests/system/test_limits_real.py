"""The traps of memory limits with the real kernel: memory cgroups (v1), namespaces, mounts, page cache."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from builddoctor.core.events import Header, Status
from builddoctor.core.limits import MemoryReading
from support.memcg import MemoryCgroup, here, memory_cgroup
from support.program import Program, clean_environment
from support.reading import asking, reading_of

pytestmark = [pytest.mark.needs_memcg, pytest.mark.machines("v2", "old", "next", "newest")]
MIB = 1024**2

HOG = """
import mmap, sys, time
size, shared = int(sys.argv[1]), sys.argv[2] == "shared"
held = mmap.mmap(-1, size) if shared else bytearray(size)
if shared:
    for at in range(0, size, 4096):
        held[at] = 1
else:
    held[::4096] = b"x" * len(held[::4096])
print("ready", flush=True)
sys.stdin.read()
"""


def read_in(group: MemoryCgroup, *before: str) -> MemoryReading:
    """What the sensors say inside the group, behind a command such as ``unshare -C``."""
    done = group.run([*before, *asking()], env=clean_environment())
    assert done.returncode == 0, done.stderr
    return reading_of(done.stdout)


@contextmanager
def hog(group: MemoryCgroup, size_mib: int, kind: str = "private") -> Iterator[None]:
    """A process in the group that holds this much."""
    process = subprocess.Popen(
        group.wrapped([sys.executable, "-c", HOG, str(size_mib * MIB), kind]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
        process.communicate()


@pytest.mark.trap(1)
def test_the_parents_limit_binds_a_child_without_one() -> None:
    """The child says 2**63; the level that counts is the parent's file."""
    with memory_cgroup(200 * MIB) as parent, memory_cgroup(2**62, parent=parent.folder) as child:
        tightest = read_in(child).tightest
        assert (tightest.limit_mib, tightest.source) == (200, str(parent.limit_file))


@pytest.mark.trap(2)
def test_a_siblings_memory_is_not_there_for_us() -> None:
    """Two groups under one parent: what one holds is missing from the other's headroom."""
    with (
        memory_cgroup(400 * MIB) as parent,
        memory_cgroup(300 * MIB, parent=parent.folder) as ours,
        memory_cgroup(300 * MIB, parent=parent.folder) as sibling,
    ):
        alone = read_in(ours).tightest
        with hog(sibling, 200):
            beside = read_in(ours).tightest
        assert alone.source == str(ours.limit_file)
        assert beside.source == str(parent.limit_file)
        assert beside.headroom_mib < 400 - 200


@pytest.mark.trap(3)
@pytest.mark.machines("hybrid")
def test_a_hybrid_system_is_read_by_its_v1_side() -> None:
    """cgroup2 is mounted here as well, without memory: the limit is on v1."""
    assert " - cgroup2 " in Path("/proc/self/mountinfo").read_text()
    with memory_cgroup(250 * MIB) as group:
        tightest = read_in(group).tightest
        assert (tightest.kind, tightest.limit_mib) == ("cgroup-v1", 250)


@pytest.mark.trap(4)
@pytest.mark.parametrize(
    "private", [("unshare", "-C"), ("unshare", "-C", "-m"), ("unshare", "-C", "-m", "-p", "-f", "--mount-proc")]
)
def test_a_private_cgroup_namespace_hides_no_limit(private: Sequence[str]) -> None:
    """The mount was made outside: its root is ``/..`` and its top file says 2**63. Our own directory is found."""
    with memory_cgroup(256 * MIB) as group:
        reading = read_in(group, *private)
        assert (reading.tightest.limit_mib, reading.tightest.confidence) == (256, "high")
        assert reading.tightest.source == str(group.limit_file)
        assert reading.unread == ()


@pytest.mark.trap(4)
def test_a_process_moved_out_of_its_namespace_is_found_or_said_to_be_unseen() -> None:
    """/proc/self/cgroup says ``/../x``: the limits above stay, and nothing is called unlimited in silence."""
    with (
        memory_cgroup(256 * MIB) as parent,
        memory_cgroup(200 * MIB, parent=parent.folder) as inner,
        memory_cgroup(2**62, parent=parent.folder) as beside,
    ):
        move = f'echo $$ > "{beside.folder}/cgroup.procs" && exec "$@"'
        done = subprocess.run(
            inner.wrapped(["unshare", "-C", "/bin/sh", "-c", move, "sh", *asking()]),
            env=clean_environment(),
            capture_output=True,
            text=True,
        )
        reading = reading_of(done.stdout)
        assert reading.tightest.limit_mib == 256


@pytest.mark.trap(5)
def test_a_mount_that_shows_only_our_own_directory(tmp_path: Path) -> None:
    """Docker on v1: the mount's root is the group's path, and so is the path in /proc/self/cgroup."""
    with memory_cgroup(256 * MIB) as group:
        top = here().root
        script = (
            f'mount --make-rprivate / && mount --bind "{group.folder}" "{top}" && '
            f'grep " {top} " /proc/self/mountinfo >&2 && exec "$@"'
        )
        done = group.run(["unshare", "-m", "/bin/sh", "-c", script, "sh", *asking()], env=clean_environment())
        assert f"/{group.folder.name} {top} " in done.stderr
        tightest = reading_of(done.stdout).tightest
        assert (tightest.limit_mib, tightest.source) == (256, f"{top}/{here().limit_file}")


@pytest.mark.trap(9)
@pytest.mark.trap(25)
def test_a_group_full_of_page_cache_has_its_room(tmp_path: Path) -> None:
    """A file larger than the limit written and read: usage is at the limit, which was met, and nearly all is free."""
    big = tmp_path / "big"
    with memory_cgroup(300 * MIB) as group:
        group.run(["dd", "if=/dev/zero", f"of={big}", "bs=1M", "count=1000", "conv=fsync"])
        group.run(["dd", f"if={big}", "of=/dev/null", "bs=1M"])
        used_mib = group.used_mib
        tightest = read_in(group).tightest
        assert used_mib > 250
        assert group.hits > 0
        assert group.kernel_kills == 0
        assert tightest.headroom_mib > 0.85 * 300
    big.unlink()


@pytest.mark.trap(11)
def test_shared_anonymous_memory_counts() -> None:
    """v1's rss is blind to it; headroom is not."""
    with memory_cgroup(500 * MIB) as group:
        before = read_in(group).tightest.headroom_mib
        with hog(group, 300, "shared"):
            private_mib = group.stat_mib("rss", "anon")
            after = read_in(group).tightest.headroom_mib
        assert private_mib < 50
        assert 290 < before - after < 330


@pytest.mark.trap(39)
def test_a_limit_lowered_in_mid_build_takes_effect(program: Program) -> None:
    """The trace shows the new limit within ten seconds of its own clock, and the budget follows."""
    with memory_cgroup(2000 * MIB) as group:
        process = program.start(group.wrapped(program.supervised("tail", "-f", "/dev/null")))
        first = program.await_record(Status, process)
        assert isinstance(first, Status)
        assert first.limit_mib == 2000
        group.limit(900 * MIB)
        lowered = program.await_record(Status, process, limit_mib=900.0)
        assert isinstance(lowered, Status)
        last_before = max(r.at_s for r in program.records() if isinstance(r, Status) and r.limit_mib == 2000)
        assert lowered.at_s - last_before <= 10
        assert lowered.budget_mib < 900
        process.terminate()
        process.communicate()


@pytest.mark.trap(35)
def test_the_trace_survives_the_end_of_everything(program: Program) -> None:
    """What memory.oom.group does: all processes of the group get SIGKILL at once, builddoctor and guardian too."""
    with memory_cgroup(2000 * MIB) as group:
        process = program.start(group.wrapped(program.supervised("tail", "-f", "/dev/null")))
        program.await_record(Status, process)
        while members := group.members():
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    first, *rest = program.records()
    assert isinstance(first, Header)
    assert any(isinstance(record, Status) for record in rest)
