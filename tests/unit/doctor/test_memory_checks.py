"""What the doctor says of memory, cores, and of what ends processes when memory is short."""

from __future__ import annotations

import msgspec
import pytest

from builddoctor.core.check import Check, Status
from builddoctor.core.limits import LevelKind, Surroundings
from builddoctor.core.machine import (
    CoreDumps,
    HostMemory,
    Machine,
    Neighbours,
    Numa,
    NumaNode,
    OomDaemon,
    Place,
    Platform,
    ProcessCap,
)
from builddoctor.doctor.memory_checks import HeavyPhase, heavy_phase, memory_checks, neighbour_checks
from unit.made_machines import HOST_MIB, level, machine

GIB = 1024.0


def named(found: Machine, name: str, weight: HeavyPhase | None = None) -> Check | None:
    """The check of that name, if it was made."""
    return next((check for check in memory_checks(found, weight or HeavyPhase()) if check.name == name), None)


def test_who_limits_is_named_and_what_free_would_have_said() -> None:
    """The cgroup's file, the budget, the reserve, and the machine's own size."""
    check = named(machine(), "memory-limit")
    assert check is not None
    assert check.status is Status.OK
    for part in ("24.6 GiB to build in", "/sys/fs/cgroup/job/memory.max", "28.0 GiB", "956.0 GiB", "`free`"):
        assert part in check.text


def test_a_machine_with_nothing_above_it_is_not_compared_with_itself() -> None:
    """Without any cgroup, `free` is right."""
    check = named(
        machine(level(kind=LevelKind.HOST, source="/proc/meminfo MemAvailable", limit_mib=HOST_MIB)), "memory-limit"
    )
    assert check is not None
    assert "`free`" not in check.text


def test_no_memory_at_all_stops_the_build() -> None:
    """Less than any compiler needs."""
    check = named(machine(level(headroom_mib=20.0), budget_mib=0.0), "memory-limit")
    assert check is not None
    assert (check.status, check.stops_build) == (Status.PROBLEM, True)


def test_a_doubtful_limit_says_why() -> None:
    """Confidence below high comes with its note."""
    check = named(machine(level(confidence="medium", note="siblings unseen")), "memory-limit")
    assert check is not None
    assert "medium confidence: siblings unseen" in check.text


def test_what_others_hold_of_the_limit_is_worth_a_line() -> None:
    """A quarter or more; with files in memory named where the host itself is the limit."""
    assert named(machine(), "memory-held") is None
    held = named(machine(level(headroom_mib=14 * GIB)), "memory-held")
    assert held is not None
    assert held.status is Status.WARNING
    assert held.text.startswith("14.0 GiB")
    host = HostMemory(total_mib=HOST_MIB, free_mib=0, available_mib=HOST_MIB, shmem_mib=300 * GIB)
    full = named(
        machine(level(kind=LevelKind.HOST, limit_mib=HOST_MIB, headroom_mib=HOST_MIB / 2), host=host), "memory-held"
    )
    assert full is not None
    assert "300.0 GiB of them by files in memory" in full.text


def test_what_could_not_be_read_is_named() -> None:
    """With the way to say the limit oneself."""
    check = named(machine(unread=("/sys/fs/cgroup/x/memory.max",)), "memory-unread")
    assert check is not None
    assert "/sys/fs/cgroup/x/memory.max" in check.text
    assert "--memory" in check.hint


@pytest.mark.parametrize(
    ("kind", "name"), [(LevelKind.SCHEDULER, "memory-scheduler"), (LevelKind.OVERCOMMIT, "memory-overcommit")]
)
def test_limits_that_no_cgroup_keeps_are_explained(kind: LevelKind, name: str) -> None:
    """A scheduler that polls, and promises that are counted."""
    check = named(machine(level(kind=kind, source="X")), name)
    assert check is not None
    assert check.status is Status.WARNING


def nodes(*kinds: str, denied: int = -1) -> Numa:
    """NUMA nodes of 200 GiB each."""
    return Numa(
        nodes=tuple(
            NumaNode(node=n, kind=kind, cpus=72, total_mib=200 * GIB, available_mib=150 * GIB, allowed=n != denied)  # type: ignore[arg-type]
            for n, kind in enumerate(kinds)
        ),
        allowed="0",
    )


def test_gpu_memory_is_said_to_be_left_out() -> None:
    """HBM nodes with their size; in CDMM mode that there are none."""
    check = named(machine(numa=nodes("dram", "hbm", "hbm")), "memory-hbm")
    assert check is not None
    assert (check.status, "2 nodes, 400.0 GiB" in check.text) == (Status.OK, True)
    driver = named(machine(numa=Numa(coherent_mode="cdmm")), "memory-hbm")
    assert driver is not None
    assert "CDMM" in driver.text


def test_nodes_that_may_not_be_used_are_a_warning() -> None:
    """Their free memory is of no use; HBM nodes are not meant."""
    check = named(machine(numa=nodes("dram", "dram", denied=1)), "memory-numa")
    assert check is not None
    assert "1 NUMA nodes with 150.0 GiB" in check.text
    assert named(machine(numa=nodes("dram", "hbm", denied=1)), "memory-numa") is None


def test_no_limit_in_a_container_is_a_warning_where_those_above_cannot_be_seen() -> None:
    """A pod's limit looks like none from inside: the machine's memory is no answer."""
    bare = machine(level(kind=LevelKind.SCHEDULER, source="SLURM_MEM_PER_NODE"), hidden_above=True)
    check = named(bare, "memory-hidden")
    assert check is not None
    assert (check.status, "--memory" in check.hint) == (Status.WARNING, True)


@pytest.mark.trap(38)
@pytest.mark.parametrize(("limit_gib", "status"), [(64, None), (4, Status.WARNING), (0.25, Status.PROBLEM)])
def test_limits_on_processes_are_judged_by_what_compilers_need(limit_gib: float, status: Status | None) -> None:
    """A failed malloc, not a kill: below one heavy phase a warning, below any compiler a problem."""
    check = named(machine(process_caps=(ProcessCap(name="RLIMIT_AS", limit_mib=limit_gib * GIB),)), "memory-rlimit")
    assert (check.status if check else None) is status
    if check is not None:
        assert check.hint == "ulimit -v unlimited"


@pytest.mark.parametrize(
    ("fields", "name", "status"),
    [
        ({"surroundings": Surroundings(group_kill=True)}, "memory-group-kill", Status.WARNING),
        ({"surroundings": Surroundings(unit_stops="run-u0.service")}, "memory-unit", Status.WARNING),
        ({"hidden_above": True}, "memory-hidden", Status.OK),
        ({"platform": Platform(unified_memory="NVIDIA GB10")}, "memory-unified", Status.OK),
        ({"platform": Platform(wsl=True, wsl_version=2)}, "memory-wsl", Status.OK),
        ({"surroundings": Surroundings(ci_runner=True)}, "memory-ci", Status.OK),
        ({"platform": Platform(lxcfs=True)}, "memory-lxcfs", Status.OK),
        (
            {"host": HostMemory(total_mib=HOST_MIB, free_mib=0, available_mib=0, hugetlb_mib=HOST_MIB / 2)},
            "memory-hugepages",
            Status.WARNING,
        ),
        (
            {"host": HostMemory(total_mib=HOST_MIB, free_mib=0, available_mib=0, zfs_arc_mib=9000)},
            "memory-zfs",
            Status.OK,
        ),
        pytest.param(
            {"host": HostMemory(total_mib=HOST_MIB, free_mib=0, available_mib=0, swap_total_mib=8192, zram_mib=2048)},
            "memory-swap",
            Status.OK,
            marks=pytest.mark.trap(41),
        ),
    ],
)
def test_places_that_need_a_word_get_one(fields: dict, name: str, status: Status) -> None:
    """Each once, and none of them elsewhere."""
    check = named(machine(**fields), name)
    assert check is not None
    assert check.status is status
    assert named(machine(), name) is None


@pytest.mark.parametrize(
    ("weight", "cores", "status", "words"),
    [
        (HeavyPhase(), 16, Status.OK, "about 6 of heavy CUDA units"),
        (HeavyPhase(), 4, Status.OK, "every one of them"),
        (HeavyPhase(heavy_mib=60 * GIB, what="its heavy phases", source="a trace"), 4, Status.WARNING, "may not fit"),
    ],
)
def test_memory_per_core_is_put_into_units(weight: HeavyPhase, cores: int, status: Status, words: str) -> None:
    """How many heavy ones fit at once, or whether one does."""
    check = named(machine(cores=cores), "cores-memory", weight)
    assert check is not None
    assert check.status is status
    assert words in check.text


@pytest.mark.parametrize(("archs", "fewer"), [(0, False), (1, False), (2, True)])
def test_fewer_archs_are_advice_only_where_there_are_several(archs: int, fewer: bool) -> None:
    """One that does not fit with one arch needs more memory."""
    checks = memory_checks(machine(cores=2), HeavyPhase(heavy_mib=900_000.0), archs=archs)
    check = next(check for check in checks if check.name == "cores-memory")
    assert "heavy CUDA units take" in check.text
    assert check.text.endswith("one may not fit at all, and 977 GiB are enough for it")
    assert ("--arch" in check.hint) is fewer


def test_the_best_knowledge_of_a_project_weighs() -> None:
    """Its last trace, then its recipe, what is known of it, a heavy unit at large; nonsense is no knowledge."""
    recipe = HeavyPhase(heavy_mib=7000.0, what="its largest phases", source="ptxas of x.cu, recipe y")
    assert heavy_phase(traced_mib=2330, by_recipe=recipe, known_mib=4000).heavy_mib == 2330
    assert heavy_phase(by_recipe=recipe, known_mib=4000) == recipe
    assert heavy_phase(traced_mib=2330, known_mib=4000).source == "measured in its last build here"
    assert heavy_phase(known_mib=4000, known_source="flash-attention#2079").heavy_mib == 4000
    assert heavy_phase(traced_mib=0.0, known_mib=None) == HeavyPhase()


def test_nothing_divides_by_a_machine_without_memory() -> None:
    """Bound to GPU memory alone, the limit is zero."""
    empty = machine(
        level(limit_mib=0.0, headroom_mib=0.0),
        budget_mib=0.0,
        cores=1,
        host=HostMemory(total_mib=0, free_mib=0, available_mib=0),
    )
    assert {check.status for check in memory_checks(empty, HeavyPhase())} >= {Status.PROBLEM}


# -- what else ends processes, and core dumps ------------------------------------------------------------------------


TMP = Place(
    role="TMPDIR",
    path="/tmp",
    filesystem="ext4",
    total_mib=100 * GIB,
    free_mib=50 * GIB,
    free_inodes=10**6,
    mount="/",
    device="8:1",
)
BUILD = msgspec.structs.replace(TMP, role="build folder", path="/p/build")
RAM = msgspec.structs.replace(
    TMP, filesystem="tmpfs", in_memory=True, total_mib=12 * GIB, free_mib=10 * GIB, mount="/tmp", device="0:30"
)
HOST = HostMemory(total_mib=64 * GIB, free_mib=50 * GIB, available_mib=60 * GIB)


def altered(place: Place, **fields: object) -> Place:
    return msgspec.structs.replace(place, **fields)


def neighbour(neighbours: Neighbours, *, host: HostMemory = HOST, headroom_mib: float = 60 * GIB) -> dict[str, Check]:
    found = neighbour_checks(neighbours, host=host, headroom_mib=headroom_mib, reserve_mib=3 * GIB)
    return {check.name: check for check in found}


def test_no_daemon_and_no_sight_of_one_differ() -> None:
    """None seen is ok; none seen where processes are hidden says so."""
    plain = neighbour(Neighbours())["oom-daemon"]
    blind = neighbour(Neighbours(unread=("/proc: hidden",)))["oom-daemon"]
    assert (plain.status, plain.text) == (Status.OK, "no user-space OOM killer runs here")
    assert "hidden" in blind.text


def test_earlyoom_that_would_come_first_is_a_warning() -> None:
    """It acts at 10 % of 64 GiB, the build goes down to 3: the hint leaves more."""
    check = neighbour(Neighbours(daemons=(OomDaemon(name="earlyoom", pid=5),)))["oom-daemon"]
    assert check.status is Status.WARNING
    assert "6.4 GiB" in check.text
    assert check.hint == f"builddoctor run --memory {int(60 * GIB - 6.4 * GIB)}MiB -- ..."


def test_earlyoom_below_our_reserve_is_ok() -> None:
    """Told to act at 4 % (2.6 GiB) it never sees the 3 GiB that we keep; in a small cgroup the host is far from it."""
    late = OomDaemon(name="earlyoom", pid=5, acts_below_percent=4.0)
    assert neighbour(Neighbours(daemons=(late,)))["oom-daemon"].status is Status.OK
    small = neighbour(Neighbours(daemons=(OomDaemon(name="nohang", pid=5),)), headroom_mib=8 * GIB)
    assert small["oom-daemon"].status is Status.OK


def test_swap_delays_earlyoom_and_is_said() -> None:
    """It waits until swap is short, too."""
    host = msgspec.structs.replace(HOST, swap_total_mib=8 * GIB)
    check = neighbour(Neighbours(daemons=(OomDaemon(name="earlyoom", pid=5),)), host=host)["oom-daemon"]
    assert "swap" in check.text


def test_oomd_ends_the_whole_scope() -> None:
    """systemd-oomd ends all of a terminal's scope; the hint gives the build one of its own."""
    found = neighbour(Neighbours(daemons=(OomDaemon(name="systemd-oomd", pid=5),), scope="session-3.scope"))
    check = found["oom-daemon"]
    assert check.status is Status.WARNING
    assert "all of session-3.scope" in check.text
    assert check.hint.startswith("systemd-run --user --scope ")


def dumped(**fields: object) -> Check:
    dumps = CoreDumps(**{"pattern": "core", "place": altered(BUILD, role="core dumps"), **fields})
    return neighbour(Neighbours(dumps=dumps))["core-dumps"]


def test_core_dumps_with_room_are_ok() -> None:
    """50 GiB hold the dump of any compiler; dumps that are not kept need none."""
    assert dumped().status is Status.OK
    assert dumped(written=False).text == "no core dumps are kept"
    assert dumped(place=None, piped_to="crash").status is Status.OK


def test_core_dumps_on_a_short_disk_are_a_warning() -> None:
    """6 GiB hold one dump of 4.1 GiB, not two: `ulimit -c 0` for files, 1 byte for pipes."""
    short = altered(BUILD, role="core dumps", free_mib=6 * GIB)
    plain, piped = dumped(place=short), dumped(place=short, piped_to="systemd-coredump")
    assert plain.status is piped.status is Status.WARNING
    assert (plain.hint, piped.hint) == ("ulimit -c 0", "prlimit --pid $$ --core=1:")
    assert dumped(place=short, limit_mib=100.0).status is Status.OK


def test_core_dumps_in_memory_are_a_warning() -> None:
    """A dump on a tmpfs takes the memory again that the crash gave back."""
    check = dumped(place=altered(RAM, role="core dumps", free_mib=12 * GIB))
    assert (check.status, "which is memory" in check.text) == (Status.WARNING, True)


def test_an_unreadable_pattern_is_said() -> None:
    """Unknown is not none."""
    assert "cannot be read" in neighbour(Neighbours())["core-dumps"].text
