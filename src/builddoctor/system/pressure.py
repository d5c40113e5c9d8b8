"""How hard the kernel works for memory: PSI, refaults, and how full the limits are.

Covers: ``memory.pressure`` of our own cgroup (v2), /proc/pressure/memory elsewhere; how often ``memory.high`` held
processes back (v2); refaults of our own cgroup (v1 and v2) or /proc/vmstat; raw use against the limit of every level,
page cache included. Kernel docs: accounting/psi.rst, cgroup-v2.rst.
Does *not* cover: what follows from it (``scheduler.thrashing``). The averages in PSI files are two seconds old; their
totals are brought up to date by the read itself (psi_show), so decisions rest on those, and no trigger is needed.

A read costs about 60 us: not for every sample.
"""

from __future__ import annotations

import re

from builddoctor.core.limits import PressureReading
from builddoctor.core.machine import MemoryPressure
from builddoctor.core.units import MIB, whole_number
from builddoctor.system.cgroup import find_place
from builddoctor.system.root import SystemRoot, keyed

_RECENT = re.compile(r"^(some|full) avg10=(\d{1,3}\.\d\d)\b", re.MULTILINE)
_REFAULTS = ("workingset_refault_anon", "workingset_refault_file")
_REFAULTS_BEFORE_5_9 = ("workingset_refault",)


class PressureSensor:
    """Reads all of it, again at each call. ``page_bytes``: refaults are counted in pages."""

    def __init__(self, root: SystemRoot, *, page_bytes: int) -> None:
        self._root = root
        self._page_mib = page_bytes / MIB
        place = find_place(root)
        self._version = place.version if place is not None else 0
        self._directories = place.directories if place is not None else ()

    def read(self) -> PressureReading:
        """What this kernel tells; files may be missing, or refuse (EOPNOTSUPP with PSI switched off)."""
        some_s, full_s = self._stalls()
        return PressureReading(
            some_s=some_s,
            full_s=full_s,
            high_events=self._high_events(),
            refault_mib=self._refault_mib(),
            fullness=self._fullness(),
        )

    def recent(self) -> MemoryPressure | None:
        """Of the last ten seconds, for people to read."""
        for file in self._files():
            found = {kind: float(share) for kind, share in _RECENT.findall(self._root.text(file) or "")}
            if "some" in found:
                return MemoryPressure(source=file, some_percent=found["some"], full_percent=found.get("full", 0.0))
        return None

    def _files(self) -> tuple[str, ...]:
        """Our own group's first: inside a container /proc/pressure is the host's."""
        own = (f"{self._directories[0]}/memory.pressure",) if self._version == 2 else ()
        return (*own, "/proc/pressure/memory")

    def _stalls(self) -> tuple[float | None, float | None]:
        for file in self._files():
            found = _totals_s(self._root.text(file) or "")
            if found:
                return found.get("some"), found.get("full")
        return None, None

    def _high_events(self) -> int | None:
        """``memory.events`` of each level: those of an ancestor count its whole subtree."""
        if self._version != 2:
            return None
        counts = []
        for directory in self._directories:
            for line in (self._root.text(f"{directory}/memory.events") or "").splitlines():
                key, _, value = line.partition(" ")
                if key == "high" and (number := whole_number(value)) is not None:
                    counts.append(number)
        return sum(counts) if counts else None

    def _refault_mib(self) -> float | None:
        if self._version:
            prefix = "total_" if self._version == 1 else ""
            pages = _refaulted_pages(self._root.text(f"{self._directories[0]}/memory.stat") or "", prefix)
            if pages is not None:
                return pages * self._page_mib
        pages = _refaulted_pages(self._root.text("/proc/vmstat") or "", "")
        return None if pages is None else pages * self._page_mib

    def _fullness(self) -> float | None:
        """Of the fullest cgroup; without any limit, of the host by MemAvailable."""
        usage_name, limit_name = (
            ("memory.usage_in_bytes", "memory.limit_in_bytes")
            if self._version == 1
            else ("memory.current", "memory.max")
        )
        meminfo = keyed(self._root.text("/proc/meminfo") or "", ("MemTotal:", "MemAvailable:"))
        total, available = meminfo.get("MemTotal:"), meminfo.get("MemAvailable:")
        shares = []
        for directory in self._directories:
            limit = whole_number(self._root.text(f"{directory}/{limit_name}") or "")
            usage = whole_number(self._root.text(f"{directory}/{usage_name}") or "")
            if limit and usage is not None and (total is None or limit < total * 1024):
                shares.append(usage / limit)
        if shares:
            return max(shares)
        return None if not total or available is None else 1.0 - min(1.0, available / total)


def _totals_s(text: str) -> dict[str, float]:
    """``some`` and ``full`` to seconds: ``full avg10=0.00 avg60=0.00 avg300=0.00 total=1234`` (microseconds)."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        words = line.split()
        for word in words[1:]:
            name, _, value = word.partition("=")
            if name == "total" and (microseconds := whole_number(value)) is not None:
                found[words[0]] = microseconds / 1e6
    return found


def _refaulted_pages(text: str, prefix: str) -> int | None:
    """By the names of this kernel; None when it has none of them."""
    for names in (_REFAULTS, _REFAULTS_BEFORE_5_9):
        found = keyed(text, tuple(prefix + name for name in names))
        if found:
            return sum(found.values())
    return None
