"""How much memory this build may take: every level that says so, at one moment.

Covers: cgroups, the host's memory, overcommit, NUMA binding, kubelet's eviction, a batch scheduler's allotment and
``--memory``. Limits change while a build runs (docker update, scontrol update, a pod resized in place): each reading is
a new one, and where our cgroup is gets looked up again every ten seconds. Where memory was plugged in or taken out, at
once: it may be a GPU's.
Does *not* cover: cgroups and NUMA nodes themselves (``system.cgroup``, ``system.numa``), or limits on single processes
(``system.process``).

The host: MemAvailable is the kernel's estimate of what can be had without swapping (kernel doc proc.rst,
si_mem_available). It is clamped, since lxcfs reports more than there is, and gets half of ZFS's ARC, of which it counts
nothing (openzfs/zfs#10255). It leaves out swap and what is set aside for huge pages. Swap and zram count as nothing: a
compiler that swaps does not end.

A scheduler's allotment (Slurm, LSF, PBS) is an advisory cap from the job's environment: without cgroups they poll and
end the whole step (Slurm's OverMemoryKill), and nothing under /sys says so. Their cgroups say it better, and ids in
paths are never parsed. Slurm's three variables are mutually exclusive, in MB = MiB; 0 means the whole node
(slurm_opt.c, sbatch man page). ``LSB_CG_MEMLIMIT`` is in bytes, hexadecimal; ``PBS_RESC_MEM`` in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from builddoctor.core.limits import LevelKind, MemoryLevel, MemoryReading
from builddoctor.core.machine import HostMemory
from builddoctor.core.units import MIB, whole_number
from builddoctor.core.word import Confidence
from builddoctor.system.cgroup import CgroupReading, Found, look_for_place, read_levels, working_set_mib
from builddoctor.system.numa import NumaSensor
from builddoctor.system.platform import read_platform, surroundings
from builddoctor.system.root import Clock, SystemRoot, keyed, monotonic
from builddoctor.system.unit_policy import unit_that_stops

LOOK_AGAIN_S = 10.0
PLUGGED_MIB = 64.0
"""MemTotal moved by as much: a block of memory went online or offline, which has 128 MiB and more on all architectures
(/sys/devices/system/memory/block_size_bytes). Balloons of virtual machines move it in smaller steps, all the time."""

UNKNOWN_HOST_MIB = 4096.0
"""What is assumed when /proc/meminfo cannot be read: our guess, room for one phase of TransformerEngine's heaviest."""

ARC_SHARE = 0.5
"""ZFS gives its cache back, but slowly: half of it is counted."""

EVICTION_MIB = 100.0
"""kubelet's default ``memory.available`` threshold for hard eviction (kubernetes.io, node-pressure eviction)."""

_MODE = "/proc/sys/vm/overcommit_memory"
_ARC = "/proc/spl/kstat/zfs/arcstats"

_WANTED = frozenset(
    f"{name}:"
    for name in (
        *("MemTotal", "MemFree", "MemAvailable", "Inactive(file)", "Active(file)", "Mapped", "SwapTotal", "SwapFree"),
        *("Shmem", "CommitLimit", "Committed_AS", "HugePages_Total", "Hugepagesize", "Hugetlb"),
    )
)

_HEX = re.compile(r"\A[0-9a-fA-F]{1,16}\Z")

LEAST_MIB = 30.0
"""Slurm's own floor, MinRAMSpace (cgroup.conf(5)): less is no allotment."""


class Allotment(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler says this job may have on this node."""

    source: str
    memory_mib: float
    confidence: Confidence = Confidence.MEDIUM


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
        self._unit_stops = unit_that_stops(root, self._found.place)
        self._looked_s = clock()
        self._seen: dict[str, tuple[MemoryLevel, float]] = {}

    def read(self, own_use_mib: float) -> MemoryReading:
        """All levels now. ``own_use_mib``: what the build holds, for levels that do not count their use themselves."""
        levels = list(self._host.levels(kubernetes=self._platform.kubernetes))
        if self._clock() >= self._looked_s + LOOK_AGAIN_S or self._plugged():
            self._look_again()
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
                MemoryLevel(
                    source="--memory", kind=LevelKind.FLAG, limit_mib=self._user_limit_mib, headroom_mib=headroom_mib
                )
            )
        return MemoryReading(
            levels=tuple(levels),
            unread=tuple(dict.fromkeys((*self._found.unread, *cgroup.unread, *self._numa.unread, *self._host.unread))),
            hidden_above=self._found.hidden_above,
            surroundings=surroundings(
                self._platform, group_kill=cgroup.group_kill or self._may_kill_groups(), unit_stops=self._unit_stops
            ),
        )

    def _plugged(self) -> bool:
        """Memory came or went since we looked around: whose it is cannot wait."""
        seen_mib = self._host.seen_mib
        return self._total_mib is not None and seen_mib is not None and abs(seen_mib - self._total_mib) >= PLUGGED_MIB

    def _look_again(self) -> None:
        """What cannot be read just now (out of descriptors) says nothing: what was known still holds."""
        self._looked_s = self._clock()
        found = look_for_place(self._root)
        if not found.readable:
            found = msgspec.structs.replace(self._found, unread=found.unread)
        self._found = found
        self._unit_stops = unit_that_stops(self._root, found.place)
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
                confidence=Confidence.LOW,
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


class HostSensor:
    """Reads the host's memory, again at each call; what hardly ever changes at ``look_again`` only."""

    def __init__(self, root: SystemRoot) -> None:
        self.unread: tuple[str, ...] = ()
        """what should have said something at the last reading, and could not be read"""
        self.seen_mib: float | None = None
        """MemTotal at the last reading that had it"""
        self._root = root
        self._last: MemoryLevel | None = None
        self._mode: int | None = None
        self.look_again()

    def look_again(self) -> None:
        """Look up what hardly ever changes: the overcommit mode, and whether there is a ZFS. A mode that cannot be read
        just now is as it was."""
        mode = whole_number(self._root.text(_MODE) or "")
        self._mode_unread = mode is None and self._root.exists(_MODE)
        if not self._mode_unread:
            self._mode = mode
        self._has_arc = self._root.exists(_ARC)

    def levels(self, *, kubernetes: bool = False) -> tuple[MemoryLevel, ...]:
        """The host's memory first, then overcommit and eviction where they apply."""
        kib = _meminfo(self._root.text("/proc/meminfo") or "")
        found = [self._host(kib)]
        unread = [] if "MemTotal" in kib else ["/proc/meminfo"]
        if self._mode_unread:
            unread.append(_MODE)
        if self._mode == 2 and ("CommitLimit" not in kib or "Committed_AS" not in kib):
            unread.append("/proc/meminfo CommitLimit")
        elif self._mode == 2:
            found.append(
                MemoryLevel(
                    source="/proc/meminfo CommitLimit",
                    kind=LevelKind.OVERCOMMIT,
                    limit_mib=kib["CommitLimit"] / 1024,
                    headroom_mib=(kib["CommitLimit"] - kib["Committed_AS"]) / 1024,
                    note="vm.overcommit_memory is 2: what is promised counts, and malloc fails beyond it",
                )
            )
        if kubernetes and "MemTotal" in kib and "Inactive(file)" in kib:
            free_mib = (kib.get("MemFree", 0) + kib["Inactive(file)"]) / 1024
            found.append(
                MemoryLevel(
                    source="/proc/meminfo MemFree + Inactive(file)",
                    kind=LevelKind.EVICTION,
                    limit_mib=kib["MemTotal"] / 1024,
                    headroom_mib=min(free_mib, kib["MemTotal"] / 1024) - EVICTION_MIB,
                    confidence=Confidence.MEDIUM,
                    note="kubelet evicts pods by this figure; active page cache counts as used (kubernetes#43916)",
                )
            )
        self.unread = tuple(unread)
        return tuple(found)

    def facts(self) -> HostMemory:
        """Everything else worth knowing, for the doctor and ``machine probe``."""
        kib = _meminfo(self._root.text("/proc/meminfo") or "")
        total = kib.get("MemTotal", 0)
        return HostMemory(
            total_mib=total / 1024,
            free_mib=kib.get("MemFree", 0) / 1024,
            available_mib=self._host(kib).headroom_mib,
            swap_total_mib=kib.get("SwapTotal", 0) / 1024,
            swap_free_mib=kib.get("SwapFree", 0) / 1024,
            zram_mib=self._zram_mib(),
            hugetlb_mib=_hugetlb_kib(kib) / 1024,
            shmem_mib=kib.get("Shmem", 0) / 1024,
            zfs_arc_mib=self._arc_mib(),
            overcommit_mode=self._mode,
        )

    def total_mib(self) -> float | None:
        """MemTotal; None when it cannot be read."""
        total_kib = _meminfo(self._root.text("/proc/meminfo") or "").get("MemTotal")
        return None if total_kib is None else total_kib / 1024

    def _host(self, kib: Mapping[str, int]) -> MemoryLevel:
        if "MemTotal" not in kib and self._last is not None:
            note = "it can no longer be read; as it was last seen"
            return msgspec.structs.replace(self._last, confidence=Confidence.LOW, note=note)
        self._last = self._read_host(kib)
        return self._last

    def _read_host(self, kib: Mapping[str, int]) -> MemoryLevel:
        source, note = "/proc/meminfo MemAvailable", ""
        confidence: Confidence = Confidence.HIGH
        total_kib = kib.get("MemTotal")
        if total_kib is None:
            return _host_level(source, UNKNOWN_HOST_MIB, UNKNOWN_HOST_MIB, Confidence.LOW, "it cannot be read; assumed")
        self.seen_mib = total_mib = total_kib / 1024
        # Set aside at boot: no compiler can have it, however free it is.
        limit_mib = max(0.0, total_mib - _hugetlb_kib(kib) / 1024)
        available_kib = kib.get("MemAvailable")
        if available_kib is None:
            source, available_kib = "/proc/meminfo MemFree", kib.get("MemFree", 0)
            return _host_level(
                source, limit_mib, min(available_kib / 1024, limit_mib), Confidence.MEDIUM, "no MemAvailable here"
            )
        available_mib = available_kib / 1024
        if available_kib > total_kib:
            # lxcfs: MemTotal is the container's, MemAvailable the host's. What is free and cached is the container's.
            available_mib = _free_and_cached_kib(kib, total_kib) / 1024
            source = "/proc/meminfo MemFree and page cache"
            confidence, note = Confidence.MEDIUM, "MemAvailable is above MemTotal: not the kernel's own figures (lxcfs)"
        if arc_mib := self._arc_mib():
            available_mib += ARC_SHARE * arc_mib
            source += f" + {ARC_SHARE:g} x ZFS ARC"
            confidence, note = Confidence.MEDIUM, "ZFS gives its cache back slowly"
        return _host_level(source, limit_mib, min(available_mib, limit_mib), confidence, note)

    def _arc_mib(self) -> float:
        """ZFS's cache above its minimum. Lines are ``name type value``."""
        if not self._has_arc:
            return 0.0
        size = least = 0
        for line in (self._root.text(_ARC) or "").splitlines():
            words = line.split()
            if len(words) == 3 and words[0] in ("size", "c_min"):
                number = whole_number(words[2]) or 0
                size, least = (number, least) if words[0] == "size" else (size, number)
        return max(0, size - least) / MIB

    def _zram_mib(self) -> float:
        """``mem_used_total`` of every zram device: third field of mm_stat (kernel doc zram.rst)."""
        used = 0
        for name in self._root.names("/sys/block"):
            if name.startswith("zram"):
                words = (self._root.text(f"/sys/block/{name}/mm_stat") or "").split()
                used += (whole_number(words[2]) or 0) if len(words) > 2 else 0
        return used / MIB


def allotment(env: Mapping[str, str]) -> Allotment | None:
    """The scheduler's memory for this job; None outside of one, and where it gives the whole node."""
    found = None
    if env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID"):
        found = _slurm(env)
    elif env.get("LSB_JOBID"):
        found = _lsf(env)
    elif env.get("PBS_JOBID"):
        found = _plain("PBS_RESC_MEM", whole_number(env.get("PBS_RESC_MEM", "")))
    return found if found is not None and found.memory_mib >= LEAST_MIB else None


def scheduler_level(found: Allotment, own_use_mib: float) -> MemoryLevel:
    """The allotment as a level. Only our own use is known; other steps of the job count too, unseen."""
    return MemoryLevel(
        source=found.source,
        kind=LevelKind.SCHEDULER,
        limit_mib=found.memory_mib,
        headroom_mib=found.memory_mib - own_use_mib,
        confidence=found.confidence,
        note="no cgroup keeps this; the scheduler may end the job when it looks",
    )


def _host_level(source: str, limit_mib: float, headroom_mib: float, confidence: Confidence, note: str) -> MemoryLevel:
    return MemoryLevel(
        source=source,
        kind=LevelKind.HOST,
        limit_mib=limit_mib,
        headroom_mib=headroom_mib,
        confidence=confidence,
        note=note,
    )


def _free_and_cached_kib(kib: Mapping[str, int], total_kib: int) -> float:
    """What MemAvailable would be about; all of memory where the figures for it are missing."""
    if "MemFree" not in kib or "Inactive(file)" not in kib:
        return total_kib
    files_kib = kib["Inactive(file)"] + kib.get("Active(file)", 0)
    left_kib = kib["MemFree"] + files_kib
    mapped_kib = min(files_kib, max(0, kib.get("Mapped", 0) - kib.get("Shmem", 0)))
    return left_kib - 1024 * working_set_mib(mapped_kib / 1024, left_kib / 1024)


def _hugetlb_kib(kib: Mapping[str, int]) -> int:
    """All sizes of huge pages together since Linux 5.0 or so; before that those of the default size."""
    return kib.get("Hugetlb", kib.get("HugePages_Total", 0) * kib.get("Hugepagesize", 0))


def _meminfo(text: str) -> dict[str, int]:
    """The fields that count, in KiB (HugePages_Total in pages)."""
    return {key.removesuffix(":"): number for key, number in keyed(text, _WANTED).items()}


def _slurm(env: Mapping[str, str]) -> Allotment | None:
    per_node = whole_number(env.get("SLURM_MEM_PER_NODE", ""))
    if per_node is not None:
        return Allotment(source="SLURM_MEM_PER_NODE", memory_mib=float(per_node))
    for name, counts in (
        ("SLURM_MEM_PER_CPU", ("SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE")),
        ("SLURM_MEM_PER_GPU", ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_JOB_GPUS")),
    ):
        each = whole_number(env.get(name, ""))
        if each is None:
            continue
        for count_name in counts:
            if count := _count(env.get(count_name, ""), listed=count_name == "SLURM_JOB_GPUS"):
                return Allotment(source=f"{name} x {count_name}", memory_mib=float(each * count))
        # Without a count one share would be taken for all of them.
        return None
    return None


def _count(text: str, *, listed: bool) -> int:
    """``72``, ``72(x2)`` (each of two nodes), ``h100:4``; a list ``0,1,2,3`` of ids where ``listed``."""
    if listed:
        return len([word for word in text.split(",") if word.strip()])
    match = re.match(r"\A(?:[\w-]+:)?(\d{1,6})", text.strip())
    return int(match[1]) if match else 0


def _lsf(env: Mapping[str, str]) -> Allotment | None:
    text = env.get("LSB_CG_MEMLIMIT", "").strip().removeprefix("0x")
    return _plain("LSB_CG_MEMLIMIT", int(text, 16) if _HEX.match(text) else None)


def _plain(source: str, size: int | None) -> Allotment | None:
    return None if size is None else Allotment(source=source, memory_mib=size / MIB)
