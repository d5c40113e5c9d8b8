"""All levels of memory at one moment: host, cgroups, NUMA, allotments of schedulers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.system.memory_sensor import UNKNOWN_HOST_MIB, HostSensor, MemorySensor, allotment
from builddoctor.system.oom_evidence import KillCounter
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


@pytest.mark.trap(12)
def test_a_gpus_memory_that_goes_online_is_left_out_at_once() -> None:
    """738 GiB come into MemTotal under a build: not even one reading takes them for ours."""
    now_s = [100.0]
    system = TextRoot(gb200_tray(mode="driver"))
    sensor = MemorySensor(system, clock=lambda: now_s[0])
    assert sensor.read(0.0).tightest.kind == "host"
    system.files |= gb200_tray()
    now_s[0] += 0.05
    assert sensor.read(0.0).tightest.headroom_mib == 2 * 478 * 1024


def test_a_balloons_small_steps_are_no_plugged_memory(tmp_path: Path) -> None:
    """A virtual machine's MemTotal moves all the time: where our cgroup is, is not looked up for that."""
    now_s = [100.0]
    files = meminfo() | v2("/a") | level_v2(f"{V2}/a", limit=8 * GIB) | level_v2(f"{V2}/b", limit=GIB)
    sensor = MemorySensor(plant(tmp_path, files), clock=lambda: now_s[0])
    plant(tmp_path, meminfo(24 + 32 / 1024) | {"/proc/self/cgroup": "0::/b\n"})
    assert sensor.read(0.0).limit_mib == 8192


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


GIB_KIB = 1024**2


def host(**kib: int | None) -> dict[str, str]:
    """A /proc/meminfo of 64 GiB, 40 available; further fields or changes in KiB (None leaves one out)."""
    fields = {"MemTotal": 64 * GIB_KIB, "MemFree": 2 * GIB_KIB, "MemAvailable": 40 * GIB_KIB} | kib
    return {"/proc/meminfo": "".join(f"{name}: {size} kB\n" for name, size in fields.items() if size is not None)}


@pytest.mark.trap(15)
def test_more_available_than_there_is_is_clamped_and_doubted() -> None:
    """lxcfs: MemAvailable above MemTotal counts as all of it, with less confidence."""
    (level,) = HostSensor(TextRoot(host(MemAvailable=90 * GIB_KIB))).levels()
    assert (level.headroom_mib, level.limit_mib, level.confidence) == (65536, 65536, "medium")
    assert "lxcfs" in level.note


@pytest.mark.trap(15)
def test_lxcfs_is_read_by_what_is_free_and_cached() -> None:
    """MemAvailable is the host's there; MemFree and the page cache are the container's own."""
    cache = {"Inactive(file)": 4 * GIB_KIB, "Active(file)": 8 * GIB_KIB}
    (level,) = HostSensor(TextRoot(host(MemAvailable=90 * GIB_KIB, **cache))).levels()
    assert (level.headroom_mib, level.confidence) == ((2 + 4 + 8) * 1024, "medium")
    assert "page cache" in level.source


@pytest.mark.trap(41)
@pytest.mark.parametrize(
    "swap", [{}, {"SwapTotal": 64 * GIB_KIB, "SwapFree": 64 * GIB_KIB}, {"SwapTotal": GIB_KIB, "SwapFree": 0}]
)
def test_swap_changes_nothing(swap: dict[str, int]) -> None:
    """Full, empty or none: what can be taken is what is available in memory."""
    (level,) = HostSensor(TextRoot(host(**swap))).levels()
    assert (level.headroom_mib, level.confidence) == (40 * 1024, "high")


@pytest.mark.trap(41)
def test_zram_is_told_and_not_counted() -> None:
    """mm_stat's third field is memory that compressed swap holds now; a torn line is nothing."""
    files = host(SwapTotal=8 * GIB_KIB, SwapFree=0)
    files |= {"/sys/block/zram0/mm_stat": f"{4 * GIB} {GIB} {2 * GIB} 0 0 0 0 0 0\n", "/sys/block/zram1/mm_stat": "1\n"}
    sensor = HostSensor(TextRoot(files))
    assert sensor.facts().zram_mib == 2048
    assert sensor.levels()[0].headroom_mib == 40 * 1024


@pytest.mark.parametrize("fields", [{"Hugetlb": 16 * GIB_KIB}, {"HugePages_Total": 8192, "Hugepagesize": 2048}])
def test_huge_pages_set_aside_are_no_memory_for_compilers(fields: dict[str, int]) -> None:
    """The limit is less by them, by the total that newer kernels give or by the default size."""
    sensor = HostSensor(TextRoot(host(**fields)))
    assert sensor.levels()[0].limit_mib == 48 * 1024
    assert sensor.facts().hugetlb_mib == 16 * 1024


@pytest.mark.parametrize(
    ("mode", "kinds"), [("0\n", ["host"]), ("1\n", ["host"]), ("2\n", ["host", "overcommit"]), ("x", ["host"])]
)
def test_the_commit_limit_counts_in_mode_two_only(mode: str, kinds: list[str]) -> None:
    """In the other modes CommitLimit is half of memory and means nothing."""
    files = host(CommitLimit=32 * GIB_KIB, Committed_AS=30 * GIB_KIB) | {"/proc/sys/vm/overcommit_memory": mode}
    levels = HostSensor(TextRoot(files)).levels()
    assert [level.kind for level in levels] == kinds
    if len(levels) == 2:
        assert (levels[1].limit_mib, levels[1].headroom_mib) == (32 * 1024, 2 * 1024)


def test_half_of_zfs_cache_above_its_minimum_is_counted() -> None:
    """It comes back, but slowly; never beyond what there is."""
    stats = f"13 1 0x01 1\nname type data\nsize 4 {20 * GIB}\nc_min 4 {4 * GIB}\nc 4 x\n"
    (level,) = HostSensor(TextRoot(host() | {"/proc/spl/kstat/zfs/arcstats": stats})).levels()
    assert (level.headroom_mib, level.confidence) == (48 * 1024, "medium")
    assert "ZFS" in level.source
    full = host(MemAvailable=63 * GIB_KIB) | {"/proc/spl/kstat/zfs/arcstats": stats}
    assert HostSensor(TextRoot(full)).levels()[0].headroom_mib == 64 * 1024


def test_kubelet_evicts_by_a_figure_of_its_own() -> None:
    """Active page cache counts as used there; its threshold stays free."""
    files = host() | {}
    files["/proc/meminfo"] += f"Inactive(file): {10 * GIB_KIB} kB\nActive(file): {28 * GIB_KIB} kB\n"
    _, eviction = HostSensor(TextRoot(files)).levels(kubernetes=True)
    assert (eviction.kind, eviction.headroom_mib, eviction.confidence) == ("eviction", 12 * 1024 - 100, "medium")
    assert len(HostSensor(TextRoot(files)).levels()) == 1


@pytest.mark.parametrize("text", ["", "MemTotal: lots kB\n", "\x00\xff\n::\n"])
def test_an_unreadable_host_is_small_and_doubted(text: str) -> None:
    """Room for one big phase, low confidence, and facts that are zero."""
    sensor = HostSensor(TextRoot({"/proc/meminfo": text}))
    (level,) = sensor.levels(kubernetes=True)
    assert (level.limit_mib, level.confidence) == (UNKNOWN_HOST_MIB, "low")
    assert sensor.facts().total_mib == 0
    assert sensor.total_mib() is None
    assert sensor.unread == ("/proc/meminfo",)


def test_a_host_that_can_no_longer_be_read_stays_as_it_was() -> None:
    """Out of descriptors in mid-build: neither a small machine nor a free one."""
    system = TextRoot(host())
    sensor = HostSensor(system)
    assert sensor.levels()[0].headroom_mib == 40 * 1024
    del system.files["/proc/meminfo"]
    (level,) = sensor.levels()
    assert (level.headroom_mib, level.confidence, sensor.unread) == (40 * 1024, "low", ("/proc/meminfo",))


def test_a_mode_that_can_no_longer_be_read_stays_as_it_was() -> None:
    """It is looked up again at times; then what is promised still counts, and the file is named."""
    mode = "/proc/sys/vm/overcommit_memory"
    system = TextRoot(host(CommitLimit=32 * GIB_KIB, Committed_AS=30 * GIB_KIB) | {mode: "2"})
    sensor = HostSensor(system)
    for text, kinds, unread in ((None, 2, (mode,)), ("0", 1, ()), ("2", 2, ())):
        system.files[mode] = text
        sensor.look_again()
        assert (len(sensor.levels()), sensor.unread) == (kinds, unread)


@pytest.mark.parametrize("fields", [{"CommitLimit": GIB_KIB}, {"Committed_AS": GIB_KIB}, {}])
def test_mode_two_without_its_figures_is_unread(fields: dict[str, int]) -> None:
    """Half of the pair is no limit that could be counted with."""
    sensor = HostSensor(TextRoot(host(**fields) | {"/proc/sys/vm/overcommit_memory": "2\n"}))
    assert [level.kind for level in sensor.levels()] == ["host"]
    assert sensor.unread == ("/proc/meminfo CommitLimit",)


SLURM = {"SLURM_JOB_ID": "812"}


@pytest.mark.trap(16)
@pytest.mark.parametrize(
    ("env", "memory_mib", "source"),
    [
        ({"SLURM_MEM_PER_NODE": "65536"}, 65536, "SLURM_MEM_PER_NODE"),
        ({"SLURM_MEM_PER_CPU": "4000", "SLURM_CPUS_ON_NODE": "72"}, 288000, "SLURM_MEM_PER_CPU x SLURM_CPUS_ON_NODE"),
        (
            {"SLURM_MEM_PER_CPU": "4000", "SLURM_JOB_CPUS_PER_NODE": "8(x2)"},
            32000,
            "SLURM_MEM_PER_CPU x SLURM_JOB_CPUS_PER_NODE",
        ),
        ({"SLURM_MEM_PER_GPU": "100000", "SLURM_GPUS_ON_NODE": "4"}, 400000, "SLURM_MEM_PER_GPU x SLURM_GPUS_ON_NODE"),
        (
            {"SLURM_MEM_PER_GPU": "100000", "SLURM_GPUS_PER_NODE": "h100:2"},
            200000,
            "SLURM_MEM_PER_GPU x SLURM_GPUS_PER_NODE",
        ),
        ({"SLURM_MEM_PER_GPU": "100000", "SLURM_JOB_GPUS": "0,1,5"}, 300000, "SLURM_MEM_PER_GPU x SLURM_JOB_GPUS"),
    ],
)
def test_slurm_says_its_memory_in_three_ways(env: dict[str, str], memory_mib: float, source: str) -> None:
    """For the node, for each CPU or for each GPU; in MiB."""
    found = allotment(SLURM | env)
    assert found is not None
    assert (found.memory_mib, found.source) == (memory_mib, source)


@pytest.mark.trap(16)
@pytest.mark.parametrize(
    "env",
    [
        SLURM,
        SLURM | {"SLURM_MEM_PER_NODE": "0"},
        SLURM | {"SLURM_MEM_PER_NODE": "lots"},
        SLURM | {"SLURM_MEM_PER_CPU": "4000"},
        SLURM | {"SLURM_MEM_PER_CPU": "0", "SLURM_CPUS_ON_NODE": "4"},
        {"SLURM_MEM_PER_NODE": "1000"},
        {"LSB_JOBID": "1", "LSB_CG_MEMLIMIT": "not hex"},
        {"LSB_JOBID": "1", "LSB_CG_MEMLIMIT": ""},
        {"PBS_JOBID": "1"},
    ],
)
def test_the_whole_node_and_no_job_are_no_cap(env: dict[str, str]) -> None:
    """``--mem=0`` gives everything; variables left over outside of a job mean nothing; nor does what is no number."""
    assert allotment(env) is None


def test_lsf_and_pbs_say_bytes() -> None:
    """LSF in hexadecimal."""
    lsf = allotment({"LSB_JOBID": "1", "LSB_CG_MEMLIMIT": "0x400000000"})
    pbs = allotment({"PBS_JOBID": "1.host", "PBS_RESC_MEM": str(8 * GIB)})
    assert lsf is not None
    assert pbs is not None
    assert (lsf.memory_mib, pbs.memory_mib) == (16384, 8192)


@pytest.mark.trap(16)
@pytest.mark.parametrize(
    ("limit", "kinds"),
    [(None, ["host", "scheduler"]), (16 * GIB, ["host", "cgroup-v2", "scheduler"]), (8 * GIB, ["host", "cgroup-v2"])],
)
def test_the_allotment_counts_only_where_no_cgroup_keeps_it(limit: int | None, kinds: list[str]) -> None:
    """A cgroup at or below it says the same with the use of all; above it (AllowedRAMSpace), the cap stays."""
    files = meminfo(24, 20) | v2("/job")
    files |= level_v2(f"{V2}/job", limit="max" if limit is None else limit)
    reading = MemorySensor(TextRoot(files), env=SLURM | {"SLURM_MEM_PER_NODE": "8192"}).read(3000)
    assert [level.kind for level in reading.levels] == kinds
    if "scheduler" in kinds:
        assert (reading.tightest.headroom_mib, reading.tightest.confidence) == (8192 - 3000, "medium")
