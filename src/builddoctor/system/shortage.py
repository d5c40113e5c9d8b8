"""Before a build is refused for want of memory: a second look, and what holds the memory, by name.

Covers: looking again some seconds later, since memory comes back (a compiler ends, a neighbour lets go); the processes,
files in memory and kernel memory that fill one level.
Does *not* cover: how much is left (``system.memory_sensor``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from builddoctor.core.limits import CGROUPS, Holder, LevelKind, MemoryLevel, MemoryReading
from builddoctor.core.units import MIB, printable, whole_number
from builddoctor.scheduler.budget import LEAST_BUDGET_MIB, Allowance, allowance
from builddoctor.system.process import anon_mib
from builddoctor.system.root import SystemRoot, keyed

SECOND_LOOK_S = 3.0
"""How long memory has to come back before a build is refused."""

MOST_NAMED = 4
LEAST_NAMED_SHARE = 0.02
"""What holds less than this share of the limit explains nothing."""

Sleep = Callable[[float], None]


def is_short(allowed: Allowance) -> bool:
    """Too little to start a build. kubelet's own figure is no reason to refuse: it rises when the kernel gives up page
    cache."""
    return allowed.budget_mib < LEAST_BUDGET_MIB and allowed.level.kind is not LevelKind.EVICTION


def look_twice(read: Callable[[], MemoryReading], *, sleep: Sleep = time.sleep) -> tuple[MemoryReading, Allowance]:
    """A reading and what it allows; where that is too little, those of some seconds later."""
    reading = read()
    allowed = allowance(reading, 0.0)
    if is_short(allowed):
        sleep(SECOND_LOOK_S)
        reading = read()
        allowed = allowance(reading, 0.0)
    return reading, allowed


def read_holders(root: SystemRoot, level: MemoryLevel) -> tuple[Holder, ...]:
    """What fills this level and cannot be taken back, largest first; nothing where only a rule limits the build."""
    if level.kind in CGROUPS:
        directory = level.source.rpartition("/")[0]
        pids = set(_members(root, directory))
        rest = list(_of_group(root, directory, version=1 if level.kind is LevelKind.CGROUP_V1 else 2))
    elif level.kind in (LevelKind.HOST, LevelKind.NUMA, LevelKind.EVICTION, LevelKind.OVERCOMMIT):
        pids = {pid for name in root.names("/proc") if (pid := whole_number(name)) is not None}
        rest = list(_of_host(root))
    else:
        return ()
    found = [holder for pid in pids - {os.getpid()} if (holder := _process(root, pid)) is not None]
    held = sorted([*found, *rest], key=lambda each: -each.held_mib)
    return tuple([each for each in held if each.held_mib >= LEAST_NAMED_SHARE * level.limit_mib][:MOST_NAMED])


def _members(root: SystemRoot, directory: str) -> Iterator[int]:
    for word in (root.text(f"{directory}/cgroup.procs") or "").split():
        if pid := whole_number(word):
            yield pid
    for name in root.names(directory):
        if root.exists(f"{directory}/{name}/cgroup.procs"):
            yield from _members(root, f"{directory}/{name}")


def _process(root: SystemRoot, pid: int) -> Holder | None:
    """Private memory of one process: what is resident, less what it shares."""
    held_mib = anon_mib(root, pid, root.page_bytes())
    if held_mib is None:
        return None
    name = printable((root.text(f"/proc/{pid}/comm") or "?").strip())
    return Holder(what=f"{name} (pid {pid})", held_mib=round(held_mib, 1))


def _of_group(root: SystemRoot, directory: str, *, version: int) -> Iterator[Holder]:
    stat = keyed(root.text(f"{directory}/memory.stat") or "", ("shmem", "total_shmem", "kernel", "slab_reclaimable"))
    shmem = stat.get("total_shmem" if version == 1 else "shmem", 0)
    yield Holder(what="files in memory (tmpfs) and shared memory", held_mib=round(shmem / MIB, 1))
    if version == 1:
        kernel = whole_number(root.text(f"{directory}/memory.kmem.usage_in_bytes") or "") or 0
    else:
        kernel = stat.get("kernel", 0) - stat.get("slab_reclaimable", 0)
    yield Holder(what="the kernel", held_mib=round(max(0, kernel) / MIB, 1))


def _of_host(root: SystemRoot) -> Iterator[Holder]:
    named = {
        "Shmem:": "files in memory (tmpfs) and shared memory",
        "Hugetlb:": "huge pages",
        "SUnreclaim:": "the kernel",
    }
    kib = keyed(root.text("/proc/meminfo") or "", named)
    for field, what in named.items():
        yield Holder(what=what, held_mib=round(kib.get(field, 0) / 1024, 1))
