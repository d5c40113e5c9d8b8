"""Limits of a real cgroup v2: what builddoctor reads there, and what a process gets."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from support.memcg import MIB, MemoryCgroup, memory_cgroup, remove
from support.program import Program
from support.reading import asking, reading_of
from support.truth import CASES, look

pytestmark = pytest.mark.machines("v2", "v2-container", "old", "next", "newest", "grace", "arm16k")


@pytest.mark.trap(1)
def test_a_limit_on_the_parent_binds_a_child_that_says_max() -> None:
    """The child has no limit, the parent 1 GiB: that is what counts, by the parent's own file."""
    with memory_cgroup(1024 * MIB) as parent, memory_cgroup(2**62, parent=parent.folder) as child:
        tightest = reading_of(child.run(asking()).stdout).tightest
        assert (tightest.kind, tightest.source, tightest.limit_mib) == ("cgroup-v2", str(parent.limit_file), 1024)


@pytest.mark.trap(8)
def test_memory_high_below_memory_max_is_what_counts() -> None:
    """A build held at memory.high never ends: its figure is the limit, and it is known to throttle."""
    with memory_cgroup(2048 * MIB) as group:
        group.throttle(800 * MIB)
        tightest = reading_of(group.run(asking()).stdout).tightest
        assert (tightest.source, tightest.limit_mib) == (str(group.folder / "memory.high"), 800)
        assert tightest.throttles


@pytest.mark.machines("v2", "old", "next", "newest", "grace", "arm16k")
@pytest.mark.trap(35)
def test_a_group_that_dies_as_a_whole_keeps_more_in_reserve(program: Program) -> None:
    """memory.oom.group is 1: the doctor keeps twice as much free, and says why."""
    with memory_cgroup(2048 * MIB) as group:
        plain = json.loads(group.run(program.argv("doctor", "--json"), env=program.env).stdout)
        (group.folder / "memory.oom.group").write_text("1")
        whole = json.loads(group.run(program.argv("doctor", "--json"), env=program.env).stdout)
    assert whole["headroom_mib"] - whole["budget_mib"] == pytest.approx(
        2 * (plain["headroom_mib"] - plain["budget_mib"]), rel=0.05
    )
    assert any("memory.oom.group" in check["text"] for check in whole["checks"])


@pytest.mark.machines("v2", "old", "next", "newest", "grace", "arm16k")
@pytest.mark.trap(6)
def test_max_is_no_limit() -> None:
    """``max`` at every level: the machine's own memory is what there is."""
    with memory_cgroup(2**62) as group:
        group.limit_file.write_text("max")
        assert reading_of(group.run(asking()).stdout).tightest.kind == "host"


@pytest.mark.machines("newest")
@pytest.mark.trap(7)
def test_a_kernel_whose_list_of_controllers_lacks_memory_has_its_limits() -> None:
    """/proc/cgroups names v1's controllers only, from Linux 6.14 on; the group's own files say all."""
    assert "memory" not in Path("/proc/cgroups").read_text()
    with memory_cgroup(700 * MIB) as group:
        assert reading_of(group.run(asking()).stdout).tightest.limit_mib == 700


@pytest.mark.trap(45)
def test_a_path_of_more_than_a_kilobyte_with_colons_is_ours() -> None:
    """Seven groups below each other, each with a name of 200 characters and a colon: the limit of the last is read."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(memory_cgroup(2**62)).folder
        for number in range(7):
            (folder / "cgroup.subtree_control").write_text("+memory")
            folder = folder / f"{number}:{'x' * 200}"
            folder.mkdir()
            stack.callback(remove, folder)
        group = MemoryCgroup(folder)
        group.limit(300 * MIB)
        tightest = reading_of(group.run(asking()).stdout).tightest
        assert (tightest.limit_mib, tightest.source) == (300, str(group.limit_file))
        assert len(tightest.source) > 1024


@pytest.mark.trap(2)
@pytest.mark.trap(9)
@pytest.mark.trap(10)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if "empty" in name or "sibling" in name else pytest.mark.nightly)
        for name in CASES
        # Too slow without KVM: making them takes minutes.
        if "100,000 files" not in name
    ],
)
def test_what_is_said_to_be_free_can_be_had(name: str) -> None:
    """Never more than a process gets until the kernel kills it, and at most a tenth or 64 MiB less."""
    row = look(name, CASES[name])
    assert not row.too_high, row
    assert not row.too_low, row
