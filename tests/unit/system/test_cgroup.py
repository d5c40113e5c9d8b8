"""Memory cgroups: where ours is, what every ancestor allows, which limits are shared."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.limits import LevelKind, MemoryLevel
from builddoctor.system.cgroup import (
    MOST_SEARCHED,
    CgroupPlace,
    CgroupReading,
    Scopes,
    controller_directories,
    find_place,
    look_for_place,
    read_levels,
)
from builddoctor.system.oom_evidence import own_kills
from builddoctor.system.platform import boot_id
from builddoctor.system.root import SystemRoot
from unit.trees import CGROUP1, CGROUP2, GIB, MIB, OTHER, V1, V2, TextRoot, level_v1, level_v2, plant, v1, v2

TOTAL_MIB = 24 * 1024.0


def levels(root: Path, *files: dict) -> dict[str, MemoryLevel]:
    """The levels of a tree by their directory."""
    system = plant(root, {name: content for tree in files for name, content in tree.items()})
    place = find_place(system)
    assert place is not None
    return {level.source.rpartition("/")[0]: level for level in read_levels(system, place, total_mib=TOTAL_MIB).levels}


def reading_of(system: SystemRoot) -> CgroupReading:
    """All that is read of a tree."""
    place = find_place(system)
    assert place is not None
    return read_levels(system, place, total_mib=TOTAL_MIB)


@pytest.mark.trap(1)
def test_a_limit_on_a_parent_counts_when_the_leaf_says_max(tmp_path: Path) -> None:
    """Every visible ancestor is read, each with its own limit and usage."""
    found = levels(
        tmp_path,
        v2("/job/step/task"),
        level_v2(f"{V2}/job/step/task", usage=1 * GIB),
        level_v2(f"{V2}/job/step", usage=1 * GIB),
        level_v2(f"{V2}/job", limit=4 * GIB, usage=1 * GIB),
        level_v2(V2, usage=9 * GIB),
    )
    assert {where: (level.limit_mib, level.headroom_mib) for where, level in found.items()} == {
        f"{V2}/job": (4096, 3072)
    }
    assert found[f"{V2}/job"].kind == "cgroup-v2"


@pytest.mark.trap(2)
def test_a_sibling_takes_of_the_parents_room(tmp_path: Path) -> None:
    """The parent's headroom comes from the parent's usage, not from ours."""
    found = levels(
        tmp_path,
        v2("/job/a"),
        level_v2(f"{V2}/job/a", limit=8 * GIB, usage=1 * GIB),
        level_v2(f"{V2}/job", limit=10 * GIB, usage=9 * GIB),
    )
    assert found[f"{V2}/job/a"].headroom_mib == 7 * 1024
    assert found[f"{V2}/job"].headroom_mib == 1024


@pytest.mark.trap(8)
@pytest.mark.parametrize(
    ("limit", "high", "expected_gib"), [(8 * GIB, 6 * GIB, 6), ("max", 6 * GIB, 6), (4 * GIB, "max", 4)]
)
def test_throttling_counts_as_a_limit_where_it_is_lower(
    tmp_path: Path, limit: object, high: object, expected_gib: int
) -> None:
    """memory.high below memory.max is where the build would crawl; protections (low, min) lower nothing."""
    found = levels(tmp_path, v2("/a"), level_v2(f"{V2}/a", limit=limit, high=high, usage=GIB))
    assert found[f"{V2}/a"].limit_mib == expected_gib * 1024


def test_nested_v1_levels_are_all_read(tmp_path: Path) -> None:
    """v1 is walked like v2; the soft limit and the fail counter are no limits."""
    found = levels(
        tmp_path,
        v1("/outer/inner"),
        level_v1(f"{V1}/outer/inner", usage=GIB),
        level_v1(f"{V1}/outer", limit=3 * GIB, usage=2 * GIB),
        level_v1(V1, usage=20 * GIB),
    )
    assert {where: (level.limit_mib, level.headroom_mib) for where, level in found.items()} == {
        f"{V1}/outer": (3072, 1024)
    }


def test_an_invisible_v1_ancestor_counts_by_the_hierarchical_limit(tmp_path: Path) -> None:
    """memory.stat names the smallest limit above us, where the tree does not show it."""
    stat = f"cache 0\nhierarchical_memory_limit {200 * MIB}\n"
    found = levels(tmp_path, v1("/"), level_v1(V1, usage=50 * MIB, stat=stat))
    assert (found[V1].limit_mib, found[V1].headroom_mib, found[V1].confidence) == (200, 150, "medium")
    assert "not visible" in found[V1].note


def test_the_hierarchical_limit_of_a_visible_ancestor_is_counted_once(tmp_path: Path) -> None:
    """It is that ancestor's own limit, with that ancestor's own usage."""
    found = levels(
        tmp_path,
        v1("/outer/inner"),
        level_v1(f"{V1}/outer/inner", stat=f"hierarchical_memory_limit {3 * GIB}\n"),
        level_v1(f"{V1}/outer", limit=3 * GIB, usage=2 * GIB),
    )
    assert {where: level.headroom_mib for where, level in found.items()} == {f"{V1}/outer": 1024}


@pytest.mark.trap(3)
def test_a_hybrid_system_has_its_memory_on_v1(tmp_path: Path) -> None:
    """cgroup2 is mounted too, without the memory controller."""
    files = v1("/job") | level_v1(f"{V1}/job", limit=GIB)
    files["/proc/self/mountinfo"] += CGROUP2.format(root="/", point=f"{V2}/unified")
    files["/proc/self/cgroup"] += "0::/job\n"
    files[f"{V2}/unified/cgroup.controllers"] = "\n"
    assert levels(tmp_path, files)[f"{V1}/job"].limit_mib == 1024


def test_cgroup2_without_the_memory_controller_is_no_place(tmp_path: Path) -> None:
    """With nothing else there, no cgroup is claimed at all."""
    files = v2("/job") | {f"{V2}/job/cgroup.controllers": "cpu io\n", f"{V2}/job/cgroup.procs": "1\n"}
    assert find_place(plant(tmp_path, files)) is None


def test_the_root_of_a_v2_machine_sets_no_limit(tmp_path: Path) -> None:
    """There are no memory files at the very root, and that is no error."""
    system = plant(tmp_path, v2("/") | {f"{V2}/cgroup.controllers": "cpu memory\n"})
    place = find_place(system)
    assert place == CgroupPlace(version=2, directories=(V2,))
    assert read_levels(system, place, total_mib=TOTAL_MIB).levels == ()


@pytest.mark.trap(5)
def test_a_container_whose_mount_root_is_its_own_path(tmp_path: Path) -> None:
    """Docker on v1 in the host's namespace: the cgroup is the mount point itself."""
    tree = v1("/docker/0a1b", root="/docker/0a1b")
    assert list(levels(tmp_path, tree, level_v1(V1, limit=2 * GIB))) == [V1]


def test_a_cgroup_below_the_mount_root_is_found_below_the_mount_point(tmp_path: Path) -> None:
    """The part of the path that the mount already stands for is taken off, at a boundary of names."""
    tree = v1("/docker/0a1b/build", root="/docker/0a1b")
    assert list(levels(tmp_path, tree, level_v1(f"{V1}/build", limit=2 * GIB))) == [f"{V1}/build"]
    other = plant(tmp_path / "other", v1("/docker/0a1bcd", root="/docker/0a1b") | level_v1(V1, limit=GIB))
    assert find_place(other) is None


def test_a_private_namespace_under_a_mount_with_the_hosts_path(tmp_path: Path) -> None:
    """Our path is ``/`` and the mount's root a long name: they are the same cgroup."""
    tree = v1("/", root="/kubepods/pod1/ctr1")
    assert list(levels(tmp_path, tree, level_v1(V1, limit=2 * GIB))) == [V1]


def test_the_mount_under_sys_is_preferred(tmp_path: Path) -> None:
    """Of several mounts of one hierarchy the usual place counts."""
    files = v1("/job") | level_v1("/mnt/cg/job", limit=9 * GIB) | level_v1(f"{V1}/job", limit=GIB)
    files["/proc/self/mountinfo"] = CGROUP1.format(root="/", point="/mnt/cg") + files["/proc/self/mountinfo"]
    assert list(levels(tmp_path, files)) == [f"{V1}/job"]


@pytest.mark.parametrize(
    "name", ["/a:b/c:d", "/with blank", "/tab\there", "/back\\slash", "/literal\\040", "/..hidden"]
)
def test_names_may_hold_colons_blanks_and_backslashes(tmp_path: Path, name: str) -> None:
    """In /proc/self/cgroup they stand as they are, in mountinfo as octal escapes."""
    escaped = name
    for char, code in (("\\", "\\134"), (" ", "\\040"), ("\t", "\\011")):
        escaped = escaped.replace(char, code)
    assert list(levels(tmp_path / "path", v2(name), level_v2(f"{V2}{name}", limit=GIB))) == [f"{V2}{name}"]
    mounted = v2(f"{name}/leaf", root=escaped, point=f"{V2}{escaped}")
    assert list(levels(tmp_path / "mount", mounted, level_v2(f"{V2}{name}/leaf", limit=GIB))) == [f"{V2}{name}/leaf"]


@pytest.mark.trap(6)
@pytest.mark.parametrize(
    "limit", [9223372036854771712, 9223372036854710272, 18446744073709551615, 24 * GIB, 25 * GIB, "max", "-1"]
)
def test_no_limit_is_written_in_many_ways(tmp_path: Path, limit: object) -> None:
    """Whatever is not below the machine's memory limits nothing: 64-bit maxima cut to any page size, and the words."""
    for version, tree in (
        ("v1", v1("/a") | level_v1(f"{V1}/a", limit=limit)),
        ("v2", v2("/a") | level_v2(f"{V2}/a", limit=limit)),
    ):
        reading = reading_of(plant(tmp_path / version, tree))
        assert (reading.levels, reading.unread) == ((), ())


@pytest.mark.parametrize("limit", ["", "lots", "1e9", "0x100", "-7"])
def test_what_is_no_number_is_unknown_and_not_unlimited(tmp_path: Path, limit: str) -> None:
    """It limits nothing that could be counted with, and is named as unread."""
    for version, tree, file in (
        ("v1", v1("/a") | level_v1(f"{V1}/a", limit=limit), f"{V1}/a/memory.limit_in_bytes"),
        ("v2", v2("/a") | level_v2(f"{V2}/a", limit=limit), f"{V2}/a/memory.max"),
    ):
        assert reading_of(plant(tmp_path / version, tree)).unread == (file,)


@pytest.mark.parametrize(
    ("tree", "file"),
    [
        (v2("/a") | level_v2(f"{V2}/a"), f"{V2}/a/memory.max"),
        (v1("/a") | level_v1(f"{V1}/a"), f"{V1}/a/memory.limit_in_bytes"),
    ],
)
def test_a_limit_that_may_not_be_read_is_named(tree: dict, file: str) -> None:
    """Unreadable is not unlimited."""
    assert reading_of(TextRoot(tree | {file: None})).unread == (file,)


def test_our_own_folder_without_memory_files_sets_no_limit(tmp_path: Path) -> None:
    """v2 has them only where the parent delegates the controller; the folder is there, so nothing is unread."""
    tree = v2("/slice/scope") | level_v2(f"{V2}/slice", limit=GIB) | {f"{V2}/slice/scope/cgroup.procs": "1\n"}
    reading = reading_of(plant(tmp_path, tree))
    assert ([level.limit_mib for level in reading.levels], reading.unread) == ([1024], ())


def test_a_folder_that_cannot_be_seen_at_all_is_named(tmp_path: Path) -> None:
    """Its path is in /proc/self/cgroup, and nothing shows it."""
    tree = v2("/slice/scope") | level_v2(f"{V2}/slice", limit=GIB)
    assert reading_of(plant(tmp_path, tree)).unread == (f"{V2}/slice/scope/memory.max", f"{V2}/slice/scope/memory.high")


@pytest.mark.trap(35)
@pytest.mark.parametrize(("where", "kills"), [("/pod/ctr", True), ("/pod", True), ("/other", False)])
def test_a_group_kill_is_seen_at_our_level_and_above(tmp_path: Path, where: str, kills: bool) -> None:
    """``memory.oom.group`` there takes builddoctor with it."""
    tree = (
        v2("/pod/ctr")
        | level_v2(f"{V2}/pod/ctr", limit=GIB)
        | level_v2(f"{V2}/pod")
        | {f"{V2}{where}/memory.oom.group": "1\n"}
    )
    assert reading_of(plant(tmp_path, tree)).group_kill is kills


@pytest.mark.trap(6)
def test_a_limit_of_zero_is_a_limit(tmp_path: Path) -> None:
    """0 is what it says, and not ``max``."""
    found = levels(tmp_path, v2("/a"), level_v2(f"{V2}/a", limit=0))
    assert (found[f"{V2}/a"].limit_mib, found[f"{V2}/a"].headroom_mib) == (0, 0)


@pytest.mark.parametrize(
    ("stat", "headroom_mib"),
    [
        ("", 0),
        (f"inactive_file {600 * MIB}\n", 600),
        (f"inactive_file {600 * MIB}\nactive_file {200 * MIB}\n", 800),
        (f"inactive_file {600 * MIB}\nfile_dirty {500 * MIB}\nfile_writeback {50 * MIB}\n", 600),
        (f"slab_reclaimable {100 * MIB}\n", 100),
        (f"inactive_file {600 * MIB}\nfile_mapped {10 * MIB}\n", 590),
        (f"inactive_file {600 * MIB}\nfile_mapped {500 * MIB}\n", 570),
        (f"inactive_file {600 * MIB}\nfile_mapped {400 * MIB}\nshmem {400 * MIB}\n", 600),
        (f"file_mapped {400 * MIB}\n", 0),
        (f"unevictable {900 * MIB}\n", 0),
        (f"slab_reclaimable {100 * MIB}\nunevictable {500 * MIB}\nshmem {500 * MIB}\n", 70),
        (f"slab_reclaimable {10 * MIB}\nunevictable {900 * MIB}\n", 0),
        (f"file {900 * MIB}\nshmem {900 * MIB}\ninactive_anon {900 * MIB}\n", 0),
        (f"inactive_file {5000 * MIB}\n", 1000),
        (f"file_dirty {100 * MIB}\n", 0),
        ("inactive_file lots\nnew_key\n\n = 3\n", 0),
    ],
)
def test_page_cache_can_be_taken_back_and_tmpfs_cannot(tmp_path: Path, stat: str, headroom_mib: float) -> None:
    """Dirty and active cache is room, but for a working set of mapped files; shared and locked memory is held."""
    found = levels(tmp_path, v2("/a"), level_v2(f"{V2}/a", limit=1000 * MIB, usage=1000 * MIB, stat=stat))
    assert found[f"{V2}/a"].headroom_mib == headroom_mib


def test_v1_counts_the_cache_of_the_whole_subtree(tmp_path: Path) -> None:
    """The ``total_`` figures belong to usage_in_bytes; the others are this directory's alone."""
    stat = f"inactive_file {9 * MIB}\ntotal_inactive_file {300 * MIB}\ntotal_dirty {100 * MIB}\ntotal_cache {1 * GIB}\n"
    stat += f"total_active_file {100 * MIB}\ntotal_mapped_file {50 * MIB}\ntotal_shmem {40 * MIB}\n"
    found = levels(tmp_path, v1("/a"), level_v1(f"{V1}/a", limit=1000 * MIB, usage=1000 * MIB, stat=stat))
    assert found[f"{V1}/a"].headroom_mib == 400 - 10


def test_a_large_group_keeps_no_more_than_the_programs_of_compilers(tmp_path: Path) -> None:
    """Data that somebody has mapped is page cache like other: 200 MiB stay counted as held, however much it is."""
    stat = f"active_file {12 * GIB}\nfile_mapped {12 * GIB}\n"
    found = levels(tmp_path, v2("/a"), level_v2(f"{V2}/a", limit=16 * GIB, usage=13 * GIB, stat=stat))
    assert found[f"{V2}/a"].headroom_mib == 15 * 1024 - 200


@pytest.mark.parametrize(
    ("tree", "usage"), [(v2("/a"), f"{V2}/a/memory.current"), (v1("/a"), f"{V1}/a/memory.usage_in_bytes")]
)
def test_a_limit_whose_usage_cannot_be_read_is_still_a_limit(tmp_path: Path, tree: dict, usage: str) -> None:
    """What cannot be read is never the same as no limit."""
    files = tree | level_v1(f"{V1}/a", limit=GIB) | level_v2(f"{V2}/a", limit=GIB)
    files[f"{V2}/a/cgroup.controllers"] = "memory\n"
    del files[usage]
    (level,) = levels(tmp_path, files).values()
    assert (level.limit_mib, level.confidence) == (1024, "low")


def test_our_own_use_counts_where_the_levels_cannot_be_read(tmp_path: Path) -> None:
    """At least what the build holds is gone from a limit whose usage is unknown."""
    tree = v2("/a") | level_v2(f"{V2}/a", limit=GIB)
    del tree[f"{V2}/a/memory.current"]
    system = plant(tmp_path, tree)
    place = find_place(system)
    assert place is not None
    (level,) = read_levels(system, place, total_mib=TOTAL_MIB, own_use_mib=300).levels
    assert level.headroom_mib == 724


@pytest.mark.parametrize(("tree", "kills"), [(v1("/a"), 2), (v2("/a"), 3)])
def test_kernel_kills_are_counted_at_our_own_cgroup(tmp_path: Path, tree: dict, kills: int) -> None:
    """v1 keeps them in oom_control, v2 in events; an ancestor's are not ours."""
    system = plant(
        tmp_path, tree | level_v1(f"{V1}/a") | level_v2(f"{V2}/a") | {f"{V2}/memory.events": "oom_kill 99\n"}
    )
    place = find_place(system)
    assert place is not None
    assert own_kills(system, place) == kills


def test_without_a_cgroup_file_system_there_is_no_place(tmp_path: Path) -> None:
    """Neither missing nor foreign files are an error."""
    assert find_place(plant(tmp_path, {"/proc/self/mountinfo": OTHER, "/proc/self/cgroup": "0::/\n"})) is None
    assert find_place(plant(tmp_path / "empty", {})) is None


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


def level(source: str, kind: LevelKind = LevelKind.CGROUP_V2) -> MemoryLevel:
    return MemoryLevel(source=source, kind=kind, limit_mib=1.0, headroom_mib=1.0)


def test_a_cgroup_has_one_name_however_it_is_reached(tmp_path: Path) -> None:
    """By device and inode: two mounts of one hierarchy name the same directory differently."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").symlink_to("one")
    scopes = Scopes(SystemRoot(tmp_path))
    assert scopes.of(level("/one/memory.max")) == scopes.of(level("/two/memory.high")) != ""
    assert scopes.of(level("/one/memory.stat hierarchical_memory_limit")) == scopes.of(level("/one/memory.max"))
    assert scopes.of(level("/none/memory.max")) == ""


def test_what_holds_for_one_build_alone_has_no_name(tmp_path: Path) -> None:
    """``--memory``, and a scheduler's allotment; the machine's own memory is everybody's."""
    scopes = Scopes(SystemRoot(tmp_path))
    assert (
        scopes.of(level("--memory", LevelKind.FLAG))
        == scopes.of(level("SLURM_MEM_PER_NODE", LevelKind.SCHEDULER))
        == ""
    )
    assert scopes.of(level("/proc/meminfo", LevelKind.HOST)) == scopes.of(level("x", LevelKind.OVERCOMMIT)) == "host"


def test_the_boot_is_known_by_its_number() -> None:
    """Empty when it cannot be read: then all records without one belong together."""
    assert boot_id(TextRoot({"/proc/sys/kernel/random/boot_id": "abc-def\n"})) == "abc-def"
    assert boot_id(TextRoot({})) == ""
