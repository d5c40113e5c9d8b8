"""How much memory this build may take: every level that says so.

Covers: cgroups, the host's memory, overcommit, NUMA binding, kubelet's eviction, a scheduler's allotment and
``--memory``, put together at one moment; the kernel's kill counters.
Does *not* cover: reading each (``sensors.cgroup``, ``sensors.host``, ``sensors.numa``, ``sensors.scheduler``), or
limits on single processes (``sensors.rlimits``).

Limits change while a build runs (docker update, scontrol update, a pod resized in place): each reading is a new one,
and where our cgroup is gets looked up again every ten seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from builddoctor.model.limits import MemoryLevel, MemoryReading
from builddoctor.sensors.cgroup import CgroupReading, oom_kills, read_levels
from builddoctor.sensors.cgroup_place import Found, find_place, look_for_place
from builddoctor.sensors.host import HostSensor
from builddoctor.sensors.numa import NumaSensor
from builddoctor.sensors.platform import read_platform, surroundings
from builddoctor.sensors.root import Clock, SystemRoot, monotonic
from builddoctor.sensors.scheduler import allotment, scheduler_level
from builddoctor.units import whole_number

LOOK_AGAIN_S = 10.0


class MemorySensor:
    """Reads all levels, again at each call."""

    def __init__(
        self,
        root: SystemRoot,
        *,
        env: Mapping[str, str] | None = None,
        user_limit_mib: float | None = None,
        clock: Clock = monotonic,
    ) -> None:
        self._root = root
        self._user_limit_mib = user_limit_mib
        self._clock = clock
        self._host = HostSensor(root)
        self._numa = NumaSensor(root)
        self._platform = read_platform(root, env or {})
        self._allotment = allotment(env or {})
        self._total_mib: float | None = self._host.total_mib()
        self._found: Found = look_for_place(root)
        self._looked_s = clock()
        self._seen: dict[str, tuple[MemoryLevel, float]] = {}

    def read(self, own_use_mib: float) -> MemoryReading:
        """All levels now. ``own_use_mib``: what the build holds, for levels that do not count their use themselves."""
        if self._clock() >= self._looked_s + LOOK_AGAIN_S:
            self._look_again()
        levels = list(self._host.levels(kubernetes=self._platform.kubernetes))
        if (numa := self._numa.level()) is not None:
            levels.append(numa)
        cgroup = self._cgroups(own_use_mib)
        levels += cgroup.levels
        if self._allotment is not None and not any(
            level.limit_mib <= self._allotment.memory_mib for level in cgroup.levels
        ):
            levels.append(scheduler_level(self._allotment, own_use_mib))
        if self._user_limit_mib is not None:
            headroom_mib = self._user_limit_mib - own_use_mib
            levels.append(
                MemoryLevel(source="--memory", kind="flag", limit_mib=self._user_limit_mib, headroom_mib=headroom_mib)
            )
        return MemoryReading(
            levels=tuple(levels),
            unread=tuple(dict.fromkeys((*self._found.unread, *cgroup.unread, *self._numa.unread, *self._host.unread))),
            hidden_above=self._found.hidden_above,
            surroundings=surroundings(self._platform, group_kill=cgroup.group_kill or self._may_kill_groups()),
        )

    def _look_again(self) -> None:
        """What cannot be read just now (out of descriptors) says nothing: what was known still holds."""
        self._looked_s = self._clock()
        found = look_for_place(self._root)
        if not found.readable:
            found = msgspec.structs.replace(self._found, unread=found.unread)
        self._found = found
        self._total_mib = self._host.total_mib() or self._total_mib
        self._host.look_again()
        self._numa.look_again()

    def _cgroups(self, own_use_mib: float) -> CgroupReading:
        """Levels of our cgroups; one that can no longer be read stands as it was last seen."""
        place = self._found.place
        if place is None:
            return CgroupReading()
        reading = read_levels(
            self._root,
            place,
            total_mib=self._total_mib,
            own_use_mib=own_use_mib,
            total_is_ours=self._platform.lxcfs,
        )
        kept = [
            msgspec.structs.replace(
                level,
                headroom_mib=min(level.limit_mib, level.headroom_mib + then_mib - own_use_mib),
                confidence="low",
                note="it can no longer be read; as it was last seen",
            )
            for source, (level, then_mib) in self._seen.items()
            if source in reading.unread
        ]
        known = {level.source for level in kept}
        read = [level for level in reading.levels if level.source not in known]
        for level in read:
            if level.source not in reading.unread:
                self._seen[level.source] = (level, own_use_mib)
        return msgspec.structs.replace(reading, levels=(*read, *kept))

    def _may_kill_groups(self) -> bool:
        """Kubernetes from 1.28 on sets ``memory.oom.group`` on v2; where that cannot be read, it is taken to be set."""
        place = self._found.place
        if not self._platform.kubernetes:
            return False
        if place is None:
            return True
        return place.version == 2 and self._root.text(f"{place.directories[0]}/memory.oom.group") is None


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
