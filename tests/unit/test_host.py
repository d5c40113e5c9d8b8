"""The host's own memory, from kernel files."""

from __future__ import annotations

import pytest

from builddoctor.sensors.host import UNKNOWN_HOST_MIB, HostSensor
from unit.trees import GIB, TextRoot

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
    assert (level.headroom_mib, level.confidence) == ((2 + 4 + 4) * 1024, "medium")
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
