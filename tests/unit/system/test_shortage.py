"""Before a build is refused for want of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.limits import Holder, LevelKind, MemoryLevel, MemoryReading
from builddoctor.core.units import MIB
from builddoctor.system.root import page_size
from builddoctor.system.shortage import SECOND_LOOK_S, look_twice, read_holders
from unit.trees import V1, V2, level_v1, level_v2, plant


def level(
    headroom_mib: float, *, kind: LevelKind = LevelKind.CGROUP_V2, source: str = f"{V2}/job/memory.max"
) -> MemoryLevel:
    return MemoryLevel(source=source, kind=kind, limit_mib=2048, headroom_mib=headroom_mib)


def process(pid: int, name: str, held_mib: int, shared_mib: int = 5) -> dict[str, str]:
    """What /proc says of a process with this much memory of its own."""
    pages = MIB // page_size()
    return {f"/proc/{pid}/statm": f"9 {(held_mib + shared_mib) * pages} {shared_mib * pages} 1 0 1 0\n"} | {
        f"/proc/{pid}/comm": f"{name}\n"
    }


@pytest.mark.parametrize(
    ("headrooms_mib", "kind", "slept", "budget_mib"),
    [
        ([1000, 0], LevelKind.CGROUP_V2, [], 1000 - 204.8),
        ([100, 1000], LevelKind.CGROUP_V2, [SECOND_LOOK_S], 1000 - 204.8),
        ([100, 50], LevelKind.CGROUP_V2, [SECOND_LOOK_S], 0),
        ([100, 1000], LevelKind.EVICTION, [], 0),
    ],
)
def test_only_where_memory_is_short_it_is_looked_at_again(
    headrooms_mib: list[float], kind: LevelKind, slept: list[float], budget_mib: float
) -> None:
    """Memory that comes back within seconds is no reason to refuse; kubelet's figure never is."""
    readings = iter([MemoryReading(levels=(level(each, kind=kind),)) for each in headrooms_mib])
    waited: list[float] = []
    reading, allowed = look_twice(lambda: next(readings), sleep=waited.append)
    assert waited == slept
    assert allowed.budget_mib == pytest.approx(budget_mib)
    assert reading.levels[0].headroom_mib == headrooms_mib[len(slept)]


def test_what_fills_a_v2_group_is_named_with_its_children(tmp_path: Path) -> None:
    """Largest first; what the kernel can give back is not held, and what is small explains nothing."""
    stat = f"shmem {300 * MIB}\nkernel {200 * MIB}\nslab_reclaimable {150 * MIB}\n"
    files = level_v2(f"{V2}/job", limit=2048 * MIB, stat=stat) | level_v2(f"{V2}/job/step")
    files |= {f"{V2}/job/cgroup.procs": "", f"{V2}/job/step/cgroup.procs": "10\n11\n12\n13\n"}
    files |= process(10, "cicc", 900) | process(11, "cc1plus", 500) | process(12, "sh", 1)
    assert read_holders(plant(tmp_path, files), level(0)) == (
        Holder(what="cicc (pid 10)", held_mib=900),
        Holder(what="cc1plus (pid 11)", held_mib=500),
        Holder(what="files in memory (tmpfs) and shared memory", held_mib=300),
        Holder(what="the kernel", held_mib=50),
    )


def test_what_fills_a_v1_group_is_named(tmp_path: Path) -> None:
    """v1 counts kernel memory in a file of its own, and does not say what of it could be given back."""
    files = level_v1(f"{V1}/job", limit=2048 * MIB, stat=f"total_shmem {700 * MIB}\n")
    files |= {f"{V1}/job/cgroup.procs": "10\n", f"{V1}/job/memory.kmem.usage_in_bytes": f"{80 * MIB}\n"}
    files |= process(10, "python3", 1024)
    found = read_holders(
        plant(tmp_path, files), level(0, kind=LevelKind.CGROUP_V1, source=f"{V1}/job/memory.limit_in_bytes")
    )
    assert [(each.what, each.held_mib) for each in found] == [
        ("python3 (pid 10)", 1024),
        ("files in memory (tmpfs) and shared memory", 700),
        ("the kernel", 80),
    ]


@pytest.mark.parametrize("kind", [LevelKind.FLAG, LevelKind.SCHEDULER])
def test_where_only_a_rule_limits_the_build_nobody_holds_anything(tmp_path: Path, kind: LevelKind) -> None:
    """What counts there is the build's own use."""
    assert read_holders(plant(tmp_path, process(10, "cicc", 900)), level(0, kind=kind)) == ()
