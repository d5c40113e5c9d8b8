"""What the doctor says of memory and cores."""

from __future__ import annotations

import pytest

from builddoctor.doctor.memory import memory_checks
from builddoctor.doctor.weight import Weight, weigh
from builddoctor.model.check import Check, Status
from builddoctor.model.limits import Surroundings
from builddoctor.model.machine import HostMemory, Machine, Numa, NumaNode, Platform, ProcessCap
from unit.machines import HOST_MIB, level, machine

GIB = 1024.0


def named(found: Machine, name: str, weight: Weight | None = None) -> Check | None:
    """The check of that name, if it was made."""
    return next((check for check in memory_checks(found, weight or Weight()) if check.name == name), None)


def test_who_limits_is_named_and_what_free_would_have_said() -> None:
    """The cgroup's file, the budget, the reserve, and the machine's own size."""
    check = named(machine(), "memory-limit")
    assert check is not None
    assert check.status is Status.OK
    for part in ("24.6 GiB to build in", "/sys/fs/cgroup/job/memory.max", "28.0 GiB", "956.0 GiB", "`free`"):
        assert part in check.text


def test_a_machine_with_nothing_above_it_is_not_compared_with_itself() -> None:
    """Without any cgroup, `free` is right."""
    check = named(machine(level(kind="host", source="/proc/meminfo MemAvailable", limit_mib=HOST_MIB)), "memory-limit")
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
    full = named(machine(level(kind="host", limit_mib=HOST_MIB, headroom_mib=HOST_MIB / 2), host=host), "memory-held")
    assert full is not None
    assert "300.0 GiB of them by files in memory" in full.text


def test_what_could_not_be_read_is_named() -> None:
    """With the way to say the limit oneself."""
    check = named(machine(unread=("/sys/fs/cgroup/x/memory.max",)), "memory-unread")
    assert check is not None
    assert "/sys/fs/cgroup/x/memory.max" in check.text
    assert "--memory" in check.hint


@pytest.mark.parametrize(("kind", "name"), [("scheduler", "memory-scheduler"), ("overcommit", "memory-overcommit")])
def test_limits_that_no_cgroup_keeps_are_explained(kind: str, name: str) -> None:
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
        ({"platform": Platform(unified_memory="NVIDIA GB10")}, "memory-unified", Status.OK),
        ({"platform": Platform(wsl=True)}, "memory-wsl", Status.OK),
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
        (Weight(), 16, Status.OK, "about 6 of heavy CUDA units"),
        (Weight(), 4, Status.OK, "every one of them"),
        (Weight(heavy_mib=60 * GIB, what="its heavy phases", source="a trace"), 4, Status.WARNING, "may not fit"),
    ],
)
def test_memory_per_core_is_put_into_units(weight: Weight, cores: int, status: Status, words: str) -> None:
    """How many heavy ones fit at once, or whether one does."""
    check = named(machine(cores=cores), "cores-memory", weight)
    assert check is not None
    assert check.status is status
    assert words in check.text


@pytest.mark.parametrize(("archs", "fewer"), [(0, False), (1, False), (2, True)])
def test_fewer_archs_are_advice_only_where_there_are_several(archs: int, fewer: bool) -> None:
    """One that does not fit with one arch needs more memory."""
    checks = memory_checks(machine(cores=2), Weight(heavy_mib=900_000.0), archs=archs)
    check = next(check for check in checks if check.name == "cores-memory")
    assert "heavy CUDA units take" in check.text
    assert ("--arch" in check.hint) is fewer


def test_the_best_knowledge_of_a_project_weighs() -> None:
    """Its last trace, then what is known of it, then a heavy unit at large; nonsense is no knowledge."""
    assert weigh(traced_mib=2330, known_mib=4000).source == "measured in its last build here"
    assert weigh(known_mib=4000, known_source="flash-attention#2079").heavy_mib == 4000
    assert weigh(traced_mib=0.0, known_mib=None) == Weight()


def test_nothing_divides_by_a_machine_without_memory() -> None:
    """Bound to GPU memory alone, the limit is zero."""
    empty = machine(
        level(limit_mib=0.0, headroom_mib=0.0),
        budget_mib=0.0,
        cores=1,
        host=HostMemory(total_mib=0, free_mib=0, available_mib=0),
    )
    assert {check.status for check in memory_checks(empty, Weight())} >= {Status.PROBLEM}
