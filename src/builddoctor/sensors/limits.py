"""How much memory this build may take: every level that says so.

Covers: cgroups (``sensors.cgroup``), the host's MemAvailable, and the user's own ``--memory``.
Does *not* cover: rlimits, schedulers' environment, NUMA, tmpfs; they join this list as further levels.
"""

from __future__ import annotations

from builddoctor.model.limits import MemoryLevel, MemoryReading
from builddoctor.sensors.cgroup import CgroupPlace, find_place, oom_kills, read_levels
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import whole_number

UNKNOWN_HOST_MIB = 4096.0
"""What is assumed when /proc/meminfo cannot be read: enough for one big phase, not for two."""


_WANTED = frozenset(("MemTotal", "MemFree", "MemAvailable"))


class MemorySensor:
    """Reads all levels, again at each call: limits may change while a build runs."""

    def __init__(self, root: SystemRoot, *, user_limit_mib: float | None = None) -> None:
        self._root = root
        self._user_limit_mib = user_limit_mib
        self._place: CgroupPlace | None = find_place(root)

    def read(self, own_use_mib: float) -> MemoryReading:
        """All levels now. ``own_use_mib``: what the build holds, for the limit that the user set."""
        total_mib, available_mib, confidence = self._host()
        host = MemoryLevel(
            source="/proc/meminfo MemAvailable",
            kind="host",
            limit_mib=total_mib,
            headroom_mib=available_mib,
            confidence=confidence,
        )
        levels = [host]
        if self._place is not None:
            levels += read_levels(self._root, self._place, total_mib)
        if self._user_limit_mib is not None:
            headroom_mib = self._user_limit_mib - own_use_mib
            levels.append(
                MemoryLevel(source="--memory", kind="flag", limit_mib=self._user_limit_mib, headroom_mib=headroom_mib)
            )
        return MemoryReading(levels=tuple(levels))

    def _host(self) -> tuple[float, float, str]:
        """MemTotal, MemAvailable (clamped: lxcfs reports more than there is) and how sure that is."""
        fields = _meminfo_kib(self._root.text("/proc/meminfo") or "")
        total_kib = fields.get("MemTotal")
        if total_kib is None:
            return UNKNOWN_HOST_MIB, UNKNOWN_HOST_MIB, "low"
        available_kib = fields.get("MemAvailable", fields.get("MemFree", 0))
        return total_kib / 1024, min(available_kib, total_kib) / 1024, "high"


class KillCounter:
    """The kernel's OOM kills: those counted at our own cgroup, and those of the whole host."""

    def __init__(self, root: SystemRoot) -> None:
        self._root = root
        self._place = find_place(root)

    def own(self) -> int | None:
        """At our cgroup; None without one."""
        return None if self._place is None else oom_kills(self._root, self._place)

    def host(self) -> int | None:
        """/proc/vmstat ``oom_kill``: every kernel kill, memory cgroups' included; None before Linux 4.13."""
        for line in (self._root.text("/proc/vmstat") or "").splitlines():
            if line.startswith("oom_kill "):
                return whole_number(line.partition(" ")[2])
        return None


def _meminfo_kib(text: str) -> dict[str, int]:
    """The fields that count, in KiB; they are among the first lines."""
    fields: dict[str, int] = {}
    for line in text.splitlines():
        key, _, rest = line.partition(":")
        if key.strip() in _WANTED:
            words = rest.split()
            if words and (number := whole_number(words[0])) is not None:
                fields[key.strip()] = number
            if len(fields) == len(_WANTED):
                break
    return fields
