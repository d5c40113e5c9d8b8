"""Counters of kills, and which cgroup a process is in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.core.evidence import GroupCounters, KillCause
from builddoctor.runtime.kill_evidence import compare
from builddoctor.system.cgroup import CgroupPlace, find_place
from builddoctor.system.oom_evidence import OOMD_MARK, group_of, host_kills, read_evidence
from builddoctor.system.root import SystemRoot
from unit.trees import V1, V2, TextRoot, plant, v1, v2


def events(*, hits: int = 0, oom: int = 0, kills: int = 0) -> str:
    """memory.events, with a key that is newer than we are."""
    return f"low 0\nhigh 4\nmax {hits}\noom {oom}\noom_kill {kills}\noom_group_kill 0\nsock_throttled 1\n"


def control(kills: int, *, disabled: int = 0, under_oom: int = 0) -> str:
    """v1's memory.oom_control."""
    return f"oom_kill_disable {disabled}\nunder_oom {under_oom}\noom_kill {kills}\n"


def vmstat(kills: int) -> dict[str, str]:
    """/proc/vmstat; other counters have similar names."""
    return {"/proc/vmstat": f"nr_free_pages 5\npgscan_oom_kill 77\noom_kill {kills}\nunevictable_pgs_culled 3\n"}


def place_of(system: SystemRoot) -> CgroupPlace:
    place = find_place(system)
    assert place is not None
    return place


def test_v2_counts_the_subtree_and_each_level_by_itself(tmp_path: Path) -> None:
    """memory.events includes what is below, memory.events.local does not: both are read."""
    system = plant(
        tmp_path,
        v2("/job/task")
        | vmstat(9)
        | {
            f"{V2}/job/task/memory.max": "max",
            f"{V2}/job/task/memory.events": events(hits=4, oom=2, kills=3),
            f"{V2}/job/task/memory.events.local": events(hits=1, oom=1, kills=1),
            f"{V2}/job/memory.events.local": events(hits=7, oom=0, kills=0),
        },
    )
    evidence = read_evidence(system, place_of(system), proven=True)
    assert evidence.own == GroupCounters(directory=f"{V2}/job/task", oom=2, max=4, oom_kill=3)
    assert [(level.oom, level.max, level.oom_kill) for level in evidence.levels] == [
        (1, 1, 1),
        (0, 7, 0),
        (None, None, None),
    ]
    assert (evidence.host_oom_kill, evidence.proven, evidence.under_oom) == (9, True, False)


@pytest.mark.trap(26)
def test_a_kill_for_a_hidden_ancestor_is_told_apart(tmp_path: Path) -> None:
    """oom_kill +1 and max +0 at all that is visible: the kernel, for a limit above our namespace or the machine's."""
    tree = v2("/") | {f"{V2}/memory.max": "max", f"{V2}/memory.events.local": events(hits=3, oom=1)}
    system = plant(tmp_path, tree | vmstat(5) | {f"{V2}/memory.events": events(hits=3, oom=1)})
    before = read_evidence(system, place_of(system), proven=True)
    plant(tmp_path, vmstat(6) | {f"{V2}/memory.events": events(hits=3, oom=1, kills=1)})
    after = read_evidence(system, place_of(system), proven=True)
    assert compare(before, after) is KillCause.ANCESTOR
    plant(tmp_path, {f"{V2}/memory.events.local": events(hits=4, oom=2, kills=1)})
    assert compare(before, read_evidence(system, place_of(system), proven=True)) is KillCause.CGROUP


@pytest.mark.trap(21)
def test_v1_counts_a_kill_at_the_victims_own_group_alone(tmp_path: Path) -> None:
    """The kill is in the child's counter and not in the parent's; the failed charge is in the parent's."""
    tree = v1("/build") | {
        "/proc/12/cgroup": "9:memory:/build/step\n",
        f"{V1}/build/memory.oom_control": control(0),
        f"{V1}/build/memory.failcnt": "0\n",
        f"{V1}/build/step/memory.oom_control": control(0),
        f"{V1}/build/step/memory.failcnt": "0\n",
        f"{V1}/build/step/cgroup.procs": "11\n12\n",
    }
    system = plant(tmp_path, tree | vmstat(0))
    ours = place_of(system)
    group = group_of(system, ours, 12)
    assert group is not None
    assert (group.place.directories, group.proven) == ((f"{V1}/build/step", f"{V1}/build", V1), True)
    places = (group.place, ours)
    before = [read_evidence(system, place, proven=True) for place in places]
    after_kill = {f"{V1}/build/step/memory.oom_control": control(1), f"{V1}/build/memory.failcnt": "143\n"}
    plant(tmp_path, after_kill | vmstat(1))
    after = [read_evidence(system, place, proven=True) for place in places]
    assert [compare(*each) for each in zip(before, after, strict=True)] == [KillCause.CGROUP, KillCause.OUTSIDE]


@pytest.mark.trap(27)
def test_marks_of_systemd_oomd_are_read_from_the_group_and_above(tmp_path: Path) -> None:
    """The real attribute, on a folder that stands for the cgroup; without a mark it is zero and not unknown."""
    system = plant(tmp_path, v2("/scope") | vmstat(0) | {f"{V2}/scope/memory.max": "max"})
    folder = system.at(f"{V2}/scope")
    try:
        os.setxattr(folder, OOMD_MARK, b"0")
        os.removexattr(folder, OOMD_MARK)
    except OSError:
        pytest.fail(f"the file system of {tmp_path} takes no user attributes: --basetemp on one that does")
    place = place_of(system)
    before = read_evidence(system, place)
    assert before.oomd_kill == 0
    os.setxattr(folder, OOMD_MARK, b"3")
    after = read_evidence(system, place)
    assert after.oomd_kill == 3
    assert compare(before, after) is KillCause.OOMD
    os.setxattr(folder, OOMD_MARK, b"\xff no number")
    assert read_evidence(system, place).oomd_kill == 0


def test_marks_that_cannot_be_read_are_unknown() -> None:
    """No such folder: neither a mark nor none."""
    files = v2("/gone/far") | {f"{V2}/memory.max": "max"}
    place = CgroupPlace(version=2, directories=("/no/such/cgroup",))
    assert read_evidence(TextRoot(files), place).oomd_kill is None


def test_v1_says_when_processes_are_frozen_instead_of_killed(tmp_path: Path) -> None:
    """oom_kill_disable and under_oom."""
    system = plant(tmp_path, v1("/a") | {f"{V1}/a/memory.oom_control": control(0, disabled=1, under_oom=1)})
    evidence = read_evidence(system, place_of(system))
    assert (evidence.oom_kill_disable, evidence.under_oom) == (True, True)


def test_a_group_without_the_controller_is_counted_above(tmp_path: Path) -> None:
    """v2: kills in a session's scope without memory files are the slice's."""
    tree = {f"{V2}/user.slice/memory.max": "max", f"{V2}/user.slice/memory.events": events(kills=2)}
    system = plant(tmp_path, v2("/user.slice/session-1.scope") | tree)
    own = read_evidence(system, place_of(system)).own
    assert own is not None
    assert (own.directory, own.oom_kill) == (f"{V2}/user.slice", 2)


def test_an_ancestor_on_v1_is_not_read_for_ours() -> None:
    """Our own directory could not be found: the parent's counter would stay 0 whatever happens."""
    place = CgroupPlace(version=1, directories=(V1,), complete=False)
    evidence = read_evidence(TextRoot({f"{V1}/memory.oom_control": control(0)}), place, proven=True)
    assert (evidence.own, evidence.proven) == (None, False)


@pytest.mark.parametrize("text", [None, "", "oom_kill", "oom_kill x", "oom_kill -1", "oom_killer 3", "x oom_kill 3"])
def test_a_machine_that_does_not_count_says_so(text: str | None) -> None:
    """Before Linux 4.13, or cut: unknown, and not zero."""
    assert host_kills(TextRoot({"/proc/vmstat": text})) is None
    assert read_evidence(TextRoot({"/proc/vmstat": text}), None).own is None


@pytest.mark.parametrize(
    ("own", "other", "directories"),
    [
        ("/a/b", "/a/b", ("/a/b", "/a", "")),
        ("/a/b", "/a/b/c/d", ("/a/b/c/d", "/a/b/c", "/a/b", "/a", "")),
        ("/a/b", "/a/c", ("/a/c", "/a", "")),
        ("/a/b", "/", ("",)),
        ("/", "/a", ("/a", "")),
        ("/a/b", "/a/with:colon", ("/a/with:colon", "/a", "")),
    ],
)
def test_another_process_is_found_by_the_way_from_ours(own: str, other: str, directories: tuple[str, ...]) -> None:
    """Up to the ancestor in common and down again, whatever the mount is called."""
    files = v2(own) | {"/proc/12/cgroup": f"0::{other}\n", f"{V2}/memory.max": "max"}
    system = TextRoot(files)
    group = group_of(system, place_of(system), 12)
    assert group is not None
    assert group.place.directories == tuple(V2 + name for name in directories)
    assert not group.proven


@pytest.mark.parametrize("path", [None, "", "0::/../elsewhere\n", "9:cpu:/a\n", "noise"])
def test_a_process_whose_group_cannot_be_seen_has_none(path: str | None) -> None:
    """It is gone, or beyond our namespace's root."""
    system = TextRoot(v2("/a") | {"/proc/12/cgroup": path, f"{V2}/memory.max": "max"})
    assert group_of(system, place_of(system), 12) is None


def test_nothing_is_seen_above_the_mount() -> None:
    """In a container whose mount begins at its own group, a process in another one cannot be placed."""
    files = v2("/docker/x", root="/docker/x") | {"/proc/12/cgroup": "0::/docker/y\n", f"{V2}/memory.max": "max"}
    system = TextRoot(files)
    assert group_of(system, place_of(system), 12) is None
