"""All limits of a build together: host, cgroups, the user's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.sensors.host import UNKNOWN_HOST_MIB
from builddoctor.sensors.limits import KillCounter, MemorySensor
from unit.numa_trees import gb200_tray
from unit.trees import GIB, OTHER, V1, V2, TextRoot, level_v1, level_v2, meminfo, plant, v1, v2


def test_a_bare_host_is_limited_by_its_own_memory(tmp_path: Path) -> None:
    """MemTotal and MemAvailable, never MemFree."""
    reading = MemorySensor(plant(tmp_path, meminfo(24, 20))).read(0.0)
    (host,) = reading.levels
    assert (host.kind, host.limit_mib, host.headroom_mib, host.confidence) == ("host", 24576, 20480, "high")


@pytest.mark.trap(15)
def test_more_available_than_there_is_counts_as_all(tmp_path: Path) -> None:
    """lxcfs reports such figures."""
    assert MemorySensor(plant(tmp_path, meminfo(8, 60))).read(0.0).tightest.headroom_mib == 8192


def test_an_old_kernel_without_available_memory_counts_what_is_free(tmp_path: Path) -> None:
    """Too little is safe."""
    system = plant(tmp_path, {"/proc/meminfo": "MemTotal: 8388608 kB\nMemFree: 1048576 kB\n"})
    assert MemorySensor(system).read(0.0).tightest.headroom_mib == 1024


@pytest.mark.parametrize("text", [None, "", "MemTotal: lots kB\n", "garbage\n:\n::\n", "MemAvailable: 5 kB\n"])
def test_a_host_that_cannot_be_read_is_taken_to_be_small(tmp_path: Path, text: str | None) -> None:
    """Enough for one big phase, and said to be a guess."""
    system = plant(tmp_path, {} if text is None else {"/proc/meminfo": text})
    (host,) = MemorySensor(system).read(0.0).levels
    assert (host.limit_mib, host.headroom_mib, host.confidence) == (UNKNOWN_HOST_MIB, UNKNOWN_HOST_MIB, "low")


def test_the_host_counts_inside_a_roomy_container(tmp_path: Path) -> None:
    """A cgroup with room does not help when the machine has none left."""
    files = meminfo(24, 1) | v2("/a") | level_v2(f"{V2}/a", limit=16 * GIB, usage=GIB)
    reading = MemorySensor(plant(tmp_path, files)).read(0.0)
    assert reading.tightest.kind == "host"
    assert reading.limit_mib == 16 * 1024


def test_the_tightest_level_is_named_by_its_file(tmp_path: Path) -> None:
    """The user is told which file limits the build."""
    files = meminfo() | v1("/a/b") | level_v1(f"{V1}/a/b") | level_v1(f"{V1}/a", limit=2 * GIB, usage=GIB)
    tightest = MemorySensor(plant(tmp_path, files)).read(0.0).tightest
    assert tightest.source == f"{V1}/a/memory.limit_in_bytes"
    assert tightest.headroom_mib == 1024


def test_the_users_own_limit_is_a_level_of_the_builds_own_use(tmp_path: Path) -> None:
    """What other programs hold does not count against ``--memory``; what the build holds does."""
    sensor = MemorySensor(plant(tmp_path, meminfo(24, 20)), user_limit_mib=8192)
    flag = sensor.read(3000.0).tightest
    assert (flag.source, flag.kind, flag.limit_mib, flag.headroom_mib) == ("--memory", "flag", 8192, 5192)


def test_an_overdrawn_limit_has_less_than_no_headroom(tmp_path: Path) -> None:
    """How much has to be given back is known, for the user's limit and for one that was lowered under us."""
    sensor = MemorySensor(plant(tmp_path, meminfo(24, 20)), user_limit_mib=8192)
    assert sensor.read(9000.0).tightest.headroom_mib == -808
    files = meminfo() | v2("/a") | level_v2(f"{V2}/a", limit=GIB, usage=2 * GIB)
    assert MemorySensor(plant(tmp_path / "lowered", files)).read(0.0).tightest.headroom_mib == -1024


def test_the_users_own_limit_cannot_raise_the_machines(tmp_path: Path) -> None:
    """``--memory`` above the machine's is one level among others."""
    reading = MemorySensor(plant(tmp_path, meminfo(24, 20)), user_limit_mib=1e6).read(0.0)
    assert (reading.tightest.kind, reading.limit_mib) == ("host", 24576)


def test_limits_that_change_while_a_build_runs_are_seen(tmp_path: Path) -> None:
    """Every reading is a new one."""
    files = meminfo() | v2("/a") | level_v2(f"{V2}/a", limit=8 * GIB)
    sensor = MemorySensor(plant(tmp_path, files))
    assert sensor.read(0.0).limit_mib == 8192
    plant(tmp_path, {f"{V2}/a/memory.max": f"{2 * GIB}\n"})
    assert sensor.read(0.0).limit_mib == 2048


@pytest.mark.trap(39)
def test_a_move_to_another_cgroup_is_seen_within_ten_seconds(tmp_path: Path) -> None:
    """Where our cgroup is gets looked up again (``scontrol update`` and systemd move processes)."""
    files = meminfo() | v2("/a") | level_v2(f"{V2}/a", limit=8 * GIB) | level_v2(f"{V2}/b", limit=GIB)
    now_s = [100.0]
    sensor = MemorySensor(plant(tmp_path, files), clock=lambda: now_s[0])
    assert sensor.read(0.0).limit_mib == 8192
    plant(tmp_path, {"/proc/self/cgroup": "0::/b\n"})
    now_s[0] = 110.0
    assert sensor.read(0.0).limit_mib == 1024


def test_a_limit_that_can_no_longer_be_read_stays(tmp_path: Path) -> None:
    """Out of file descriptors, or made unreadable in mid-build: as it was last seen, less what we took since."""
    system = TextRoot(meminfo(24, 20) | v2("/a") | level_v2(f"{V2}/a", limit=8 * GIB, usage=GIB))
    sensor = MemorySensor(system)
    assert sensor.read(500.0).tightest.headroom_mib == 7168
    system.files[f"{V2}/a/memory.max"] = None
    reading = sensor.read(2500.0)
    assert (reading.tightest.headroom_mib, reading.limit_mib, reading.tightest.confidence) == (5168, 8192, "low")
    assert reading.unread == (f"{V2}/a/memory.max",)
    system.files[f"{V2}/a/memory.max"] = "max\n"
    assert sensor.read(2500.0).tightest.kind == "host"


@pytest.mark.parametrize(
    ("group", "kills"), [("1\n", True), ("0\n", False), pytest.param(None, True, marks=pytest.mark.trap(35))]
)
def test_in_kubernetes_an_unseen_group_kill_is_taken_as_set(group: str | None, kills: bool) -> None:
    """Elsewhere it is taken as it reads."""
    files = meminfo(24, 20) | v2("/") | level_v2(V2, limit=8 * GIB) | {f"{V2}/memory.oom.group": group}
    pod = MemorySensor(TextRoot(files), env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).read(0.0)
    assert pod.surroundings.group_kill is kills
    assert MemorySensor(TextRoot(files)).read(0.0).surroundings.group_kill is (group == "1\n")


@pytest.mark.parametrize(
    ("text", "kills"),
    [(None, None), ("pgfault 1\n", None), ("oom_kill 7\npgfault 1\n", 7), ("oom_kill_other 3\noom_kill 4\n", 4)],
)
def test_kernel_kills_of_the_host(tmp_path: Path, text: str | None, kills: int | None) -> None:
    """The counter of /proc/vmstat, where the kernel has it."""
    system = plant(tmp_path, {} if text is None else {"/proc/vmstat": text})
    assert KillCounter(system).host() == kills


def test_kernel_kills_of_our_own_cgroup(tmp_path: Path) -> None:
    """Counted at the leaf; unknown without one."""
    counter = KillCounter(plant(tmp_path, v1("/a") | level_v1(f"{V1}/a")))
    assert counter.own() == 2
    plant(tmp_path, {f"{V1}/a/memory.oom_control": "oom_kill 5\n"})
    assert counter.own() == 5
    assert KillCounter(plant(tmp_path / "none", {})).own() is None


@pytest.mark.parametrize("gone", ["/proc/self/cgroup", "/proc/self/mountinfo"])
def test_where_we_are_is_not_forgotten_when_it_cannot_be_read(gone: str) -> None:
    """Ten seconds later, out of descriptors: the cgroup that was known still limits, and that is said."""
    files = meminfo(24, 20) | v2("/a") | level_v2(f"{V2}/a", limit=8 * GIB, usage=GIB)
    system, now_s = TextRoot(files), [0.0]
    sensor = MemorySensor(system, clock=lambda: now_s[0])
    system.files[gone] = None
    now_s[0] = 10.0
    reading = sensor.read(0.0)
    assert (reading.limit_mib, reading.unread) == (8192, (gone,))


def test_a_usage_that_cannot_be_read_once_does_not_free_what_others_hold() -> None:
    """The level stands as it was last seen, not as if only our own use counted."""
    system = TextRoot(meminfo(24, 20) | v2("/a") | level_v2(f"{V2}/a", limit=8 * GIB, usage=7 * GIB))
    sensor = MemorySensor(system)
    assert sensor.read(0.0).tightest.headroom_mib == 1024
    system.files[f"{V2}/a/memory.current"] = None
    tightest = sensor.read(0.0).tightest
    assert (tightest.headroom_mib, tightest.confidence) == (1024, "low")


def test_page_cache_that_cannot_be_told_once_stays_as_it_was() -> None:
    """A group full of cache is not out of memory because memory.stat could not be read."""
    stat = f"inactive_file {7 * GIB}\n"
    system = TextRoot(meminfo(24, 20) | v2("/a") | level_v2(f"{V2}/a", limit=8 * GIB, usage=8 * GIB, stat=stat))
    sensor = MemorySensor(system)
    assert sensor.read(0.0).tightest.headroom_mib == 7168
    system.files[f"{V2}/a/memory.stat"] = None
    assert sensor.read(0.0).tightest.headroom_mib == 7168
    first = MemorySensor(system).read(0.0)
    assert (first.tightest.headroom_mib, first.tightest.confidence) == (0, "low")


def test_cgroups_count_where_the_hosts_memory_cannot_be_read() -> None:
    """An assumed host of 4 GiB does not make a limit of 32 GiB none."""
    files = v2("/a") | level_v2(f"{V2}/a", limit=32 * GIB, usage=31 * GIB) | level_v2(V2)
    reading = MemorySensor(TextRoot(files)).read(0.0)
    assert [(level.kind, level.headroom_mib) for level in reading.levels] == [("host", 4096), ("cgroup-v2", 1024)]
    assert "/proc/meminfo" in reading.unread


@pytest.mark.trap(15)
def test_a_limit_as_large_as_lxcfs_memory_is_a_limit() -> None:
    """MemTotal is the container's there: tmpfs in the group, which MemAvailable may not know, counts."""
    lxcfs = "50 31 0:60 /proc/meminfo /proc/meminfo rw - fuse.lxcfs lxcfs rw\n"
    files = meminfo(8, 7) | v2("/") | level_v2(V2, limit=8 * GIB, usage=7 * GIB)
    assert MemorySensor(TextRoot(files)).read(0.0).tightest.kind == "host"
    files["/proc/self/mountinfo"] += lxcfs
    assert MemorySensor(TextRoot(files)).read(0.0).tightest.headroom_mib == 1024


@pytest.mark.trap(41)
def test_what_was_swapped_out_counts_in_memory_and_swap_together() -> None:
    """Docker and Slurm set one limit for both on v1: 3 of 8 GiB are in swap, 4 in memory."""
    files = meminfo(24, 20) | v1("/a") | level_v1(f"{V1}/a", limit=8 * GIB, usage=4 * GIB)
    files |= {
        f"{V1}/a/memory.memsw.limit_in_bytes": f"{8 * GIB}\n",
        f"{V1}/a/memory.memsw.usage_in_bytes": f"{7 * GIB}\n",
    }
    tightest = MemorySensor(TextRoot(files)).read(0.0).tightest
    assert (tightest.source, tightest.headroom_mib) == (f"{V1}/a/memory.memsw.limit_in_bytes", 1024)


def test_a_namespace_of_our_own_may_hide_limits() -> None:
    """A pod's limit above the container's is said to be unseen; on the host there is nothing above."""
    files = meminfo(24, 20) | v2("/") | level_v2(V2)
    assert MemorySensor(TextRoot(files | {"/proc/self/ns/cgroup": "cgroup:[4026532581]"})).read(0.0).hidden_above
    assert not MemorySensor(TextRoot(files | {"/proc/self/ns/cgroup": "cgroup:[4026531835]"})).read(0.0).hidden_above


@pytest.mark.trap(45)
def test_a_cgroup_whose_name_is_no_utf8_is_found(tmp_path: Path) -> None:
    """Names are bytes to the kernel; the source is shown with escapes."""
    name = os.fsdecode(b"job-\xff")
    system = plant(tmp_path, meminfo(24, 20) | level_v2(f"{V2}/{name}", limit=GIB))
    plant(tmp_path, {"/proc/self/mountinfo": v2()["/proc/self/mountinfo"], "/proc/self/cgroup": b"0::/job-\xff\n"})
    tightest = MemorySensor(system).read(0.0).tightest
    assert tightest.limit_mib == 1024
    assert tightest.source.isprintable()


def test_a_node_that_cannot_be_read_once_is_not_empty() -> None:
    """GB200: one failed reading of a node's meminfo must not look like no memory at all."""
    files = gb200_tray()
    system = TextRoot(files)
    sensor = MemorySensor(system)
    before = next(level for level in sensor.read(0.0).levels if level.kind == "numa")
    system.files["/sys/devices/system/node/node0/meminfo"] = None
    after = next(level for level in sensor.read(0.0).levels if level.kind == "numa")
    assert (after.headroom_mib, after.limit_mib, after.confidence) == (before.headroom_mib, before.limit_mib, "low")


def test_gpu_memory_stays_left_out_when_the_nodes_cannot_be_read_again() -> None:
    """Ten seconds later all of /sys is unreadable: HBM does not come back into the host's memory."""
    system, now_s = TextRoot(gb200_tray()), [0.0]
    sensor = MemorySensor(system, clock=lambda: now_s[0])
    for name in list(system.files):
        if name.startswith("/sys/devices/system/node"):
            system.files[name] = None
    now_s[0] = 10.0
    reading = sensor.read(0.0)
    assert "numa" in [level.kind for level in reading.levels]
    assert reading.unread


def test_an_unseen_group_counts_as_one_that_dies_whole_in_kubernetes() -> None:
    """No cgroup mount at all in a pod: memory.oom.group is taken as set."""
    files = meminfo(24, 20) | {"/proc/self/cgroup": "0::/\n", "/proc/self/mountinfo": OTHER}
    assert MemorySensor(TextRoot(files), env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).read(0.0).surroundings.group_kill
