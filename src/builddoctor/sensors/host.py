"""The host's own memory: /proc/meminfo and what qualifies it.

Covers: MemAvailable as a level (clamped: lxcfs reports more than there is; with half of ZFS's ARC), overcommit mode 2,
the room that kubelet leaves before it evicts, and the facts beside them: swap, zram, huge pages, tmpfs.
Does *not* cover: NUMA (``sensors.numa``), cgroups (``sensors.cgroup``).

MemAvailable is the kernel's estimate of what can be had without swapping (kernel doc proc.rst, si_mem_available). It
leaves out swap and what is set aside for huge pages, and counts nothing of ZFS's cache (openzfs/zfs#10255). Swap and
zram count as nothing: a compiler that swaps does not end.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from builddoctor.model.limits import Confidence, MemoryLevel
from builddoctor.model.machine import HostMemory
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import MIB, whole_number

UNKNOWN_HOST_MIB = 4096.0
"""What is assumed when /proc/meminfo cannot be read: our guess, room for one phase of TransformerEngine's heaviest."""

ARC_SHARE = 0.5
"""ZFS gives its cache back, but slowly: half of it is counted."""

EVICTION_MIB = 100.0
"""kubelet's default ``memory.available`` threshold for hard eviction (kubernetes.io, node-pressure eviction)."""

_MODE = "/proc/sys/vm/overcommit_memory"
_ARC = "/proc/spl/kstat/zfs/arcstats"

_WANTED = frozenset(
    (
        "MemTotal",
        "MemFree",
        "MemAvailable",
        "Inactive(file)",
        "Active(file)",
        "SwapTotal",
        "SwapFree",
        "Shmem",
        "CommitLimit",
        "Committed_AS",
        "HugePages_Total",
        "Hugepagesize",
        "Hugetlb",
    )
)


class HostSensor:
    """Reads the host's memory, again at each call; what hardly ever changes at ``look_again`` only."""

    def __init__(self, root: SystemRoot) -> None:
        self.unread: tuple[str, ...] = ()
        """what should have said something at the last reading, and could not be read"""
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
                    kind="overcommit",
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
                    kind="eviction",
                    limit_mib=kib["MemTotal"] / 1024,
                    headroom_mib=min(free_mib, kib["MemTotal"] / 1024) - EVICTION_MIB,
                    confidence="medium",
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
            return msgspec.structs.replace(self._last, confidence="low", note=note)
        self._last = self._read_host(kib)
        return self._last

    def _read_host(self, kib: Mapping[str, int]) -> MemoryLevel:
        source, confidence, note = "/proc/meminfo MemAvailable", "high", ""
        total_kib = kib.get("MemTotal")
        if total_kib is None:
            return _host_level(source, UNKNOWN_HOST_MIB, UNKNOWN_HOST_MIB, "low", "it cannot be read; assumed")
        total_mib = total_kib / 1024
        # Set aside at boot: no compiler can have it, however free it is.
        limit_mib = max(0.0, total_mib - _hugetlb_kib(kib) / 1024)
        available_kib = kib.get("MemAvailable")
        if available_kib is None:
            source, available_kib = "/proc/meminfo MemFree", kib.get("MemFree", 0)
            return _host_level(
                source, limit_mib, min(available_kib / 1024, limit_mib), "medium", "no MemAvailable here"
            )
        available_mib = available_kib / 1024
        if available_kib > total_kib:
            # lxcfs: MemTotal is the container's, MemAvailable the host's. What is free and cached is the container's.
            available_mib = _free_and_cached_kib(kib, total_kib) / 1024
            source = "/proc/meminfo MemFree and page cache"
            confidence, note = "medium", "MemAvailable is above MemTotal: not the kernel's own figures (lxcfs)"
        if arc_mib := self._arc_mib():
            available_mib += ARC_SHARE * arc_mib
            source += f" + {ARC_SHARE:g} x ZFS ARC"
            confidence, note = "medium", "ZFS gives its cache back slowly"
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


def _host_level(source: str, limit_mib: float, headroom_mib: float, confidence: str, note: str) -> MemoryLevel:
    sure: Confidence = "high" if confidence == "high" else "medium" if confidence == "medium" else "low"
    return MemoryLevel(
        source=source, kind="host", limit_mib=limit_mib, headroom_mib=headroom_mib, confidence=sure, note=note
    )


def _free_and_cached_kib(kib: Mapping[str, int], total_kib: int) -> float:
    """What MemAvailable would be about; all of memory where the figures for it are missing."""
    if "MemFree" not in kib or "Inactive(file)" not in kib:
        return total_kib
    return kib["MemFree"] + kib["Inactive(file)"] + 0.5 * kib.get("Active(file)", 0)


def _hugetlb_kib(kib: Mapping[str, int]) -> int:
    """All sizes of huge pages together since Linux 5.0 or so; before that those of the default size."""
    return kib.get("Hugetlb", kib.get("HugePages_Total", 0) * kib.get("Hugepagesize", 0))


def _meminfo(text: str) -> dict[str, int]:
    """The fields that count, in KiB (HugePages_Total in pages)."""
    fields: dict[str, int] = {}
    for line in text.splitlines():
        key, _, rest = line.partition(":")
        key = key.strip()
        if key in _WANTED:
            words = rest.split()
            if words and (number := whole_number(words[0])) is not None:
                fields[key] = number
    return fields
