"""Memory cgroups of this process: every visible ancestor, each with its own usage.

Covers: limit, usage and reclaimable memory of each level (v2 and v1), a limit of ancestors that are not visible (v1's
``hierarchical_memory_limit``), ``memory.oom.group``, the kernel's kill counter. Kernel docs: cgroup-v2.rst,
cgroup-v1/memory.rst.
Does *not* cover: finding the directories (``sensors.cgroup_place``). ``memory.low`` and ``memory.min`` are protections
and v1's soft limit is advice: none of them is a limit.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from builddoctor.model.limits import Confidence, LevelKind, MemoryLevel
from builddoctor.sensors.cgroup_place import CgroupPlace
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import MIB, printable, whole_number

_WANTED_V2 = frozenset(("inactive_file", "active_file", "file_dirty", "file_writeback", "slab_reclaimable"))
_WANTED_V1 = frozenset(
    ("hierarchical_memory_limit", "total_inactive_file", "total_active_file", "total_dirty", "total_writeback")
)


NO_LIMIT = 2**63 - 2**16
"""The kernel's own "none" is 2**63 less one page, and pages have up to 64 KiB."""


class CgroupReading(msgspec.Struct, frozen=True, kw_only=True):
    """All levels that set a limit, and what could not be read."""

    levels: tuple[MemoryLevel, ...] = ()
    unread: tuple[str, ...] = ()
    group_kill: bool = False
    """``memory.oom.group`` is set at our level or above: an OOM kill takes everything in it (kubernetes#117793)"""


def read_levels(
    root: SystemRoot,
    place: CgroupPlace,
    *,
    total_mib: float | None,
    own_use_mib: float = 0.0,
    total_is_ours: bool = False,
) -> CgroupReading:
    """Every level below the machine's memory. ``own_use_mib``: what the build holds.

    ``total_mib``: MemTotal, None when unknown: then every level counts. ``total_is_ours``: it is that of a container
    (lxcfs), so that a limit as large as it is a limit. A level whose usage cannot be read is in ``unread`` as well.
    """
    total = NO_LIMIT if total_mib is None else int(total_mib * MIB)
    reader = _Reader(root, total + total_is_ours, own_use_mib)
    for directory in place.directories:
        if place.version == 1:
            reader.level_v1(directory)
        else:
            reader.level_v2(directory)
    if place.version == 1:
        reader.hidden_v1(place.directories[0])
    return CgroupReading(levels=tuple(reader.levels), unread=tuple(reader.unread), group_kill=reader.group_kill)


def oom_kills(root: SystemRoot, place: CgroupPlace) -> int | None:
    """Kernel kills counted at our own cgroup: v2 counts its whole subtree, v1 only the leaf itself."""
    leaf = place.directories[0]
    file = f"{leaf}/memory.oom_control" if place.version == 1 else f"{leaf}/memory.events"
    return _keyed(root.text(file) or "", frozenset(("oom_kill",))).get("oom_kill")


class _Reader:
    """Goes up the directories and collects."""

    def __init__(self, root: SystemRoot, total: int, own_use_mib: float) -> None:
        self.levels: list[MemoryLevel] = []
        self.unread: list[str] = []
        self.group_kill = False
        self._root = root
        self._total = total
        self._own_use_mib = own_use_mib
        self._stats: dict[str, dict[str, int] | None] = {}

    def level_v2(self, directory: str) -> None:
        self.group_kill |= (self._root.text(f"{directory}/memory.oom.group") or "").strip() == "1"
        # memory.high throttles and does not kill; but a build held there never ends (kubernetes/enhancements#5879).
        limits = [
            (limit, f"{directory}/{name}")
            for name in ("memory.max", "memory.high")
            if (limit := self._limit(f"{directory}/{name}")) is not None
        ]
        limit, source = min(limits, default=(self._total, ""))
        if limit >= self._total:
            return
        usage = self._bytes(f"{directory}/memory.current")
        stat = self._stat(directory, _WANTED_V2)
        note = "throttles before it kills" if source.endswith("high") else ""
        self._add(source, "cgroup-v2", limit, usage, stat, note=note)

    def level_v1(self, directory: str) -> None:
        limit = self._limit(f"{directory}/memory.limit_in_bytes")
        if limit is None or limit >= self._total:
            return
        usage = self._bytes(f"{directory}/memory.usage_in_bytes")
        stat = self._stat(directory, _WANTED_V1)
        self._add(f"{directory}/memory.limit_in_bytes", "cgroup-v1", limit, usage, stat)
        # Memory and swap together: what has been swapped out of this group is missing here (Docker, Slurm set it).
        with_swap = self._bytes(f"{directory}/memory.memsw.limit_in_bytes")
        used_with_swap = self._bytes(f"{directory}/memory.memsw.usage_in_bytes")
        if with_swap is None or used_with_swap is None or usage is None:
            return
        if with_swap - used_with_swap < limit - usage:
            source = f"{directory}/memory.memsw.limit_in_bytes"
            self._add(source, "cgroup-v1", with_swap, used_with_swap, stat, note="memory and swap together")

    def hidden_v1(self, leaf: str) -> None:
        """The least limit of all ancestors, when it is none of those we see: what others hold there is unknown."""
        stat = self._stat(leaf, _WANTED_V1)
        limit = (stat or {}).get("hierarchical_memory_limit", self._total)
        if limit >= self._total or any(level.limit_mib * MIB <= limit for level in self.levels):
            return
        self._add(
            f"{leaf}/memory.stat hierarchical_memory_limit",
            "cgroup-v1",
            limit,
            self._bytes(f"{leaf}/memory.usage_in_bytes"),
            stat,
            confidence="medium",
            note="set by a cgroup above that is not visible from here",
        )

    def _add(
        self,
        source: str,
        kind: LevelKind,
        limit: int,
        usage: int | None,
        stat: Mapping[str, int] | None,
        *,
        confidence: Confidence = "high",
        note: str = "",
    ) -> None:
        if usage is None:
            # A limit whose usage cannot be read is a limit all the same: at least our own use counts against it.
            held, confidence, note = self._own_use_mib * MIB, "low", "its usage cannot be read"
        else:
            if stat is None:
                confidence, note = "low", "what of it is page cache cannot be read"
            held = max(0.0, usage - _reclaimable(stat or {}, kind))
        if usage is None or stat is None:
            self.unread.append(printable(source))
        self.levels.append(
            MemoryLevel(
                source=printable(source),
                kind=kind,
                limit_mib=limit / MIB,
                headroom_mib=(limit - held) / MIB,
                confidence=confidence,
                note=note,
            )
        )

    def _stat(self, directory: str, wanted: frozenset[str]) -> dict[str, int] | None:
        """What counts of ``memory.stat``; read once for all that is asked of it, since the kernel adds it up anew."""
        if directory not in self._stats:
            text = self._root.text(f"{directory}/memory.stat")
            self._stats[directory] = None if text is None else _keyed(text, wanted)
        return self._stats[directory]

    def _limit(self, path: str) -> int | None:
        """Bytes; None without a limit (``max``, -1, or no such file, as at the root of v2); unread when unclear."""
        text = self._root.text(path)
        if text is None:
            if self._root.exists(path) or not self._root.exists(path.rpartition("/")[0]):
                self.unread.append(printable(path))
            return None
        if text.strip() in ("max", "-1"):
            return None
        limit = whole_number(text)
        if limit is None:
            self.unread.append(printable(path))
        return limit

    def _bytes(self, path: str) -> int | None:
        text = self._root.text(path)
        return None if text is None else whole_number(text)


def _reclaimable(stat: Mapping[str, int], kind: LevelKind) -> float:
    """Page cache that the kernel can drop at once. Never ``file`` or ``cache``: they count tmpfs, which it cannot."""
    v1 = kind == "cgroup-v1"
    prefix = "total_" if v1 else ""
    dirty, writeback = ("total_dirty", "total_writeback") if v1 else ("file_dirty", "file_writeback")
    return max(
        0.0,
        stat.get(f"{prefix}inactive_file", 0)
        + 0.5 * stat.get(f"{prefix}active_file", 0)
        - stat.get(dirty, 0)
        - stat.get(writeback, 0)
        + 0.5 * stat.get("slab_reclaimable", 0),
    )


def _keyed(text: str, wanted: frozenset[str]) -> dict[str, int]:
    """``key value`` lines of these keys; lines of another shape are passed over, unknown keys may appear."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key in wanted and (number := whole_number(value)) is not None:
            found[key] = number
    return found
