"""A machine as data, for checks: 28 GiB of memory in a cgroup of a larger host, unless said otherwise."""

from __future__ import annotations

from typing import Any

from builddoctor.core.limits import LevelKind, MemoryLevel
from builddoctor.core.machine import HostMemory, Machine, Platform

HOST_MIB = 956 * 1024.0


def level(**fields: Any) -> MemoryLevel:
    """A cgroup of 28 GiB with 2 held."""
    known: dict[str, Any] = {
        "source": "/sys/fs/cgroup/job/memory.max",
        "kind": LevelKind.CGROUP_V2,
        "limit_mib": 28672.0,
        "headroom_mib": 26624.0,
    }
    return MemoryLevel(**{**known, **fields})


def machine(*levels: MemoryLevel, **fields: Any) -> Machine:
    """The machine with these levels beside its own memory."""
    host = level(source="/proc/meminfo MemAvailable", kind=LevelKind.HOST, limit_mib=HOST_MIB, headroom_mib=HOST_MIB)
    found = (host, *(levels or (level(),)))
    tightest = min(found, key=lambda each: each.headroom_mib)
    known: dict[str, Any] = {
        "cores": 16,
        "cores_source": "affinity of this process",
        "limit_mib": min(each.limit_mib for each in found),
        "headroom_mib": tightest.headroom_mib,
        "budget_mib": tightest.headroom_mib - 1434,
        "reserve_mib": 1434.0,
        "limited_by": tightest.source,
        "levels": found,
        "host": HostMemory(total_mib=HOST_MIB, free_mib=HOST_MIB, available_mib=HOST_MIB),
        "platform": Platform(architecture="aarch64", page_kib=64),
    }
    return Machine(**{**known, **fields})
