"""How hard the kernel works for memory: PSI, refaults, and how full the limits are.

Covers: ``memory.pressure`` of our own cgroup (v2), /proc/pressure/memory elsewhere; refaults of our own cgroup (v1 and
v2) or /proc/vmstat; raw use against the limit of every level, page cache included. Kernel docs: accounting/psi.rst.
Does *not* cover: what follows from it (``policy.thrash``). The averages in PSI files are two seconds old; their totals
are brought up to date by the read itself (psi_show), so only those are read, and no trigger is needed.

A read costs about 60 us: not for every sample.
"""

from __future__ import annotations

from builddoctor.model.pressure import PressureReading
from builddoctor.sensors.cgroup_place import find_place
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import MIB, whole_number

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
        return PressureReading(some_s=some_s, full_s=full_s, refault_mib=self._refault_mib(), fullness=self._fullness())

    def _stalls(self) -> tuple[float | None, float | None]:
        # Inside a container /proc/pressure is the host's.
        files = [f"{self._directories[0]}/memory.pressure"] if self._version == 2 else []
        for file in (*files, "/proc/pressure/memory"):
            found = _totals_s(self._root.text(file) or "")
            if found:
                return found.get("some"), found.get("full")
        return None, None

    def _refault_mib(self) -> float | None:
        if self._version:
            prefix = "total_" if self._version == 1 else ""
            pages = _sum(self._root.text(f"{self._directories[0]}/memory.stat") or "", prefix)
            if pages is not None:
                return pages * self._page_mib
        pages = _sum(self._root.text("/proc/vmstat") or "", "")
        return None if pages is None else pages * self._page_mib

    def _fullness(self) -> float | None:
        """Of the fullest cgroup; without any limit, of the host by MemAvailable."""
        usage_name, limit_name = (
            ("memory.usage_in_bytes", "memory.limit_in_bytes")
            if self._version == 1
            else ("memory.current", "memory.max")
        )
        total = self._meminfo_bytes("MemTotal:")
        shares = []
        for directory in self._directories:
            limit = whole_number(self._root.text(f"{directory}/{limit_name}") or "")
            usage = whole_number(self._root.text(f"{directory}/{usage_name}") or "")
            if limit and usage is not None and (total is None or limit < total):
                shares.append(usage / limit)
        if shares:
            return max(shares)
        available = self._meminfo_bytes("MemAvailable:")
        return None if not total or available is None else 1.0 - min(1.0, available / total)

    def _meminfo_bytes(self, key: str) -> int | None:
        for line in (self._root.text("/proc/meminfo") or "").splitlines():
            words = line.split()
            if len(words) >= 2 and words[0] == key:
                kib = whole_number(words[1])
                return None if kib is None else kib * 1024
        return None


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


def _sum(text: str, prefix: str) -> int | None:
    """Refaulted pages, by the names of this kernel; None when it has none of them."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key.startswith(prefix + "workingset_refault") and (number := whole_number(value)) is not None:
            found[key.removeprefix(prefix)] = number
    for names in (_REFAULTS, _REFAULTS_BEFORE_5_9):
        counts = [found[name] for name in names if name in found]
        if counts:
            return sum(counts)
    return None
