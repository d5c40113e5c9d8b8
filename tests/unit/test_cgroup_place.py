"""Where our memory cgroup is, when namespaces and mounts disagree."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.sensors.cgroup import read_levels
from builddoctor.sensors.cgroup_place import MOST_SEARCHED, controller_directories, look_for_place
from unit.trees import CGROUP1, CGROUP2, GIB, OTHER, V1, V2, TextRoot, level_v1, level_v2, plant, v1, v2

US = {"/proc/self/stat": "4176 (python3) S 1 1 1\n"}


def listing(directory: str, *pids: int) -> dict[str, str]:
    """cgroup.procs of one directory."""
    return {f"{directory}/cgroup.procs": "".join(f"{pid}\n" for pid in pids)}


@pytest.mark.trap(4)
@pytest.mark.parametrize(
    ("tree", "ours"),
    [
        (v1("/", root="/.."), f"{V1}/job"),
        (v1("/task", root="/.."), f"{V1}/job/task"),
        (v1("/", root="/../.."), f"{V1}/slice/job"),
        (v1("/../other", root="/.."), f"{V1}/other"),
    ],
)
def test_our_directory_under_a_foreign_mount_is_the_one_that_lists_us(
    tmp_path: Path, tree: dict[str, str], ours: str
) -> None:
    """The names between are unknown; cgroup.procs tells. The path ``/../other`` needs no search: it names a sibling."""
    files = tree | US | level_v1(V1) | level_v1(f"{V1}/decoy", limit=GIB) | listing(f"{V1}/decoy", 1, 41760)
    for parent in Path(ours).parents:
        if str(parent).startswith(f"{V1}/"):
            files |= listing(str(parent), 1)
    files |= level_v1(ours, limit=2 * GIB) | listing(ours, 7, 4176)
    found = look_for_place(plant(tmp_path, files))
    assert found.place is not None
    assert (found.place.directories[0], found.place.complete, found.unread) == (ours, True, ())


@pytest.mark.trap(4)
def test_a_group_mounted_over_the_hierarchy_is_what_is_seen(tmp_path: Path) -> None:
    """As where a container has its own group laid over the host's mount: below it there are no names of the host's."""
    tree = v1("/slice/job", root="/")
    over = CGROUP1.replace("40 31", "41 40").format(root="/slice/job", point=V1)
    tree["/proc/self/mountinfo"] += over
    found = look_for_place(plant(tmp_path, tree | US | level_v1(V1, limit=GIB)))
    assert found.place is not None
    assert (found.place.directories, found.place.complete, found.unread) == ((V1,), True, ())


@pytest.mark.trap(4)
def test_what_is_above_stays_a_limit_when_our_own_directory_cannot_be_found(tmp_path: Path) -> None:
    """Not "unlimited": the mount's own directory is an ancestor of ours, and what is below is said to be unseen."""
    system = plant(tmp_path, v1("/", root="/..") | US | level_v1(V1, limit=GIB))
    found = look_for_place(system)
    assert found.place is not None
    assert [level.limit_mib for level in read_levels(system, found.place, total_mib=4096).levels] == [1024]
    assert (found.place.complete, len(found.unread)) == (False, 1)
    assert V1 in found.unread[0]


@pytest.mark.parametrize("tree", [v2("/../../b"), v1("/../../b")])
def test_a_process_outside_of_what_is_mounted_is_said_to_be_unseen(tmp_path: Path, tree: dict[str, str]) -> None:
    """It was moved out of its namespace (JDK-8343191): the files here are somebody else's."""
    found = look_for_place(plant(tmp_path, tree | US | level_v1(V1, limit=GIB) | level_v2(V2, limit=GIB)))
    assert found.place is None
    assert len(found.unread) == 1
    assert "/../../b" in found.unread[0]


def test_a_search_has_an_end(tmp_path: Path) -> None:
    """A machine with very many cgroups is not read for minutes."""

    class Endless(TextRoot):
        def names(self, absolute: str) -> list[str]:
            asked.append(absolute)
            return [f"c{number}" for number in range(500)]

        def exists(self, absolute: str) -> bool:
            return True

    asked: list[str] = []
    found = look_for_place(Endless(v1("/", root="/../../..") | US))
    assert found.place is not None
    assert not found.place.complete
    assert len(asked) <= MOST_SEARCHED


@pytest.mark.trap(7)
def test_proc_cgroups_is_not_asked(tmp_path: Path) -> None:
    """From Linux 6.14 on it lacks memory; the limit is found all the same."""
    files = v2("/job") | level_v2(f"{V2}/job", limit=GIB) | {"/proc/cgroups": "#subsys_name\thierarchy\ncpu\t0\t9\t1\n"}
    found = look_for_place(plant(tmp_path, files))
    assert found.place is not None
    assert found.place.directories[0] == f"{V2}/job"


def test_a_pod_that_shares_its_processes_is_read_through_init(tmp_path: Path) -> None:
    """Our own mountinfo lacks cgroup mounts, that of process 1 has them (automaxprocs#38)."""
    files = v2("/ctr") | level_v2(f"{V2}/ctr", limit=GIB)
    files["/proc/1/mountinfo"] = files["/proc/self/mountinfo"]
    files["/proc/self/mountinfo"] = OTHER
    found = look_for_place(plant(tmp_path, files))
    assert found.place is not None


@pytest.mark.trap(45)
def test_very_long_paths_with_colons_among_many_lines(tmp_path: Path) -> None:
    """More than a kilobyte of path (libuv stopped there), colons in it, dozens of v1 lines before."""
    name = "/" + "/".join(f"kubepods:burst:{number:03}" + "x" * 60 for number in range(20))
    files = v1(name) | level_v1(f"{V1}{name}", limit=GIB)
    many = "".join(f"{number}:name=sys{number}:/a:{number}\n" for number in range(60))
    files["/proc/self/cgroup"] = many + files["/proc/self/cgroup"]
    system = TextRoot(files)
    found = look_for_place(system)
    assert found.place is not None
    assert found.place.directories[0] == f"{V1}{name}"
    assert read_levels(system, found.place, total_mib=4096).levels[0].limit_mib == 1024


def test_directories_of_the_cpu_controller() -> None:
    """v1 has its own hierarchy and path for it, v2 the one for all; with neither the usual places."""
    cpu = "33 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    first = TextRoot(
        {"/proc/self/mountinfo": cpu + CGROUP1.format(root="/", point=V1), "/proc/self/cgroup": "2:cpu,cpuacct:/a\n"}
    )
    assert controller_directories(first, "cpu") == ("/sys/fs/cgroup/cpu/a", "/sys/fs/cgroup/cpu")
    second = TextRoot({"/proc/self/mountinfo": CGROUP2.format(root="/", point=V2), "/proc/self/cgroup": "0::/b/c\n"})
    assert controller_directories(second, "cpu") == (f"{V2}/b/c", f"{V2}/b", V2)
    assert controller_directories(TextRoot(), "cpu") == (V2, "/sys/fs/cgroup/cpu")
