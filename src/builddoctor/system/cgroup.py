"""Memory cgroups of this process: where they are, and what every visible ancestor allows.

Covers: v2, v1 and hybrid systems; a container's view (mount root equal to the path); private cgroup namespaces, also
under a mount that was made outside of them (root ``/..``) or for a process that was moved out (path ``/../x``): there
the names between are unknown, and our directory is the one whose cgroup.procs lists us. Limit, usage and reclaimable
memory of each level, a limit of ancestors that are not visible (v1's ``hierarchical_memory_limit``),
``memory.oom.group``; directories of other controllers; a name for each level, the same for all processes under it.
Does *not* cover: counters of kills (``system.oom_evidence``). ``memory.low`` and ``memory.min`` are protections and
v1's soft limit is advice: none of them is a limit. /proc/cgroups is not used: it lacks memory from Linux 6.14 on
(JDK-8349988). Kernel docs: cgroup-v2.rst, cgroup-v1/memory.rst, cgroup_namespaces(7), proc_pid_mountinfo(5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

import msgspec

from builddoctor.core.limits import CGROUPS, LevelKind, MemoryLevel
from builddoctor.core.units import MIB, printable, whole_number
from builddoctor.core.word import Confidence
from builddoctor.system.root import SystemRoot, keyed, own_pid
from builddoctor.system.storage import Mount, mount_of, read_mounts

INITIAL_NAMESPACE = "cgroup:[4026531835]"
"""The host's own cgroup namespace (kernel: PROC_CGROUP_INIT_INO)."""

MOST_SEARCHED = 4000
"""Directories looked into for our own pid: about 40 ms."""

HOST = "host"
"""The scope of the machine's own memory."""

_FILES_V2 = ("inactive_file", "active_file", "file_mapped", "shmem")
_FILES_V1 = ("total_inactive_file", "total_active_file", "total_mapped_file", "total_shmem")
_WANTED_V2 = frozenset((*_FILES_V2, "unevictable", "slab_reclaimable"))
_WANTED_V1 = frozenset((*_FILES_V1, "hierarchical_memory_limit"))

WORKING_SET_MIB = 200.0
"""Mapped files that stay cached while compilers run from them: cicc, ptxas and cc1plus have 30 to 110 MiB each."""

PINNED_SLAB_SHARE = 0.03
"""Of pages that stay, locked or in a tmpfs: their buffer heads (104 bytes for 4 KiB) and tree nodes are in reclaimable
slab, and stay too."""

WORKING_SET_SHARE = 0.05
"""And of what is left at most this share: a small group whose files are mapped is not full."""

NO_LIMIT = 2**63 - 2**16
"""The kernel's own "none" is 2**63 less one page, and pages have up to 64 KiB."""


class CgroupPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where our memory cgroup is: ``directories`` from the leaf up to the mount's root."""

    version: int
    directories: tuple[str, ...]
    complete: bool = True
    """False when ``directories`` begins at an ancestor of ours, since our own could not be found"""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The place, if any, and what stood in the way of seeing more."""

    place: CgroupPlace | None
    unread: tuple[str, ...] = ()
    readable: bool = True
    """False when the files that say it could not be read just now: nothing is known, and what was known still holds"""
    hidden_above: bool = False
    """a cgroup namespace of our own: a pod's or a slice's limit above it cannot be seen (v1 tells it all the same)"""


class CgroupReading(msgspec.Struct, frozen=True, kw_only=True):
    """All levels that set a limit, and what could not be read."""

    levels: tuple[MemoryLevel, ...] = ()
    unread: tuple[str, ...] = ()
    group_kill: bool = False
    """``memory.oom.group`` is set at our level or above: an OOM kill takes everything in it (kubernetes#117793)"""


def find_place(root: SystemRoot) -> CgroupPlace | None:
    """Our memory cgroup, or None when there is none to see."""
    return look_for_place(root).place


def look_for_place(root: SystemRoot) -> Found:
    """Our memory cgroup; ``unread`` says when there is one that cannot be seen from here."""
    membership_text = root.path_text("/proc/self/cgroup")
    if membership_text is None:
        return Found(place=None, unread=("/proc/self/cgroup",), readable=False)
    paths = memberships(membership_text)
    hidden = root.link("/proc/self/ns/cgroup") not in ("", INITIAL_NAMESPACE)
    # A pod that shares its process namespace: our own mounts lack cgroups, init's have them (automaxprocs#38).
    mounts = _cgroup_mounts(root, "self") or _cgroup_mounts(root, "1")
    if not mounts and root.path_text("/proc/self/mountinfo") is None:
        return Found(place=None, unread=("/proc/self/mountinfo",), readable=False)
    unread: list[str] = []
    v1_path = paths.get("memory")
    if v1_path is not None:
        candidates = [m for m in mounts if m.kind == "cgroup" and "memory" in m.options]
        if place := _first(root, candidates, v1_path, version=1):
            return Found(place=place, unread=_doubts(place, v1_path))
        unread.append(f"/proc/self/cgroup memory:{printable(v1_path)}, which no mount shows")
    v2_path = paths.get("")
    if v2_path is not None:
        candidates = [m for m in mounts if m.kind == "cgroup2"]
        place = _first(root, candidates, v2_path, version=2)
        # A hybrid system mounts cgroup2 without the memory controller.
        if place is not None and _has_memory(root, place.directories):
            return Found(place=place, unread=_doubts(place, v2_path), hidden_above=hidden)
        unseen = place is None or not root.exists(place.directories[0])
        if unseen and v1_path is None and v2_path != "/":
            unread.append(f"/proc/self/cgroup 0::{printable(v2_path)}, which no mount shows")
    return Found(place=None, unread=tuple(unread), hidden_above=hidden and v1_path is None)


def controller_directories(root: SystemRoot, controller: str) -> tuple[str, ...]:
    """Directories of our cgroup for ``controller`` (``cpu``), leaf first; v1's own hierarchy or v2's."""
    paths = memberships(root.path_text("/proc/self/cgroup") or "")
    mounts = _cgroup_mounts(root, "self")
    if (path := paths.get(controller)) is not None:
        place = _first(root, [m for m in mounts if m.kind == "cgroup" and controller in m.options], path, version=1)
        if place is not None:
            return place.directories
    place = _first(root, [m for m in mounts if m.kind == "cgroup2"], paths.get("", "/"), version=2)
    # Without a readable mountinfo: where these are mounted nearly everywhere.
    return ("/sys/fs/cgroup", f"/sys/fs/cgroup/{controller}") if place is None else place.directories


def memberships(text: str) -> dict[str, str]:
    """Controller to path from /proc/PID/cgroup; the v2 line has the empty controller. Paths may hold colons."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                found.setdefault(controller, parts[2])
    return found


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


def working_set_mib(mapped_mib: float, left_mib: float) -> float:
    """Page cache that compilers run from, and would read in again at once. ``left_mib``: with all cache dropped."""
    return min(mapped_mib, WORKING_SET_MIB, WORKING_SET_SHARE * max(0.0, left_mib))


class Scopes:
    """Which limits two processes have in common: a name for each level, the same for all processes under it.

    Cgroups by device and inode of their directory, which are the same through every mount and namespace; the machine's
    own memory. NUMA bindings count as the machine's: a process that is bound elsewhere is taken to share. Names are
    remembered, since they are asked for at every reading.
    """

    def __init__(self, root: SystemRoot) -> None:
        self._root = root
        self._known: dict[str, str] = {}

    def of(self, level: MemoryLevel) -> str:
        """The name; empty for a limit that is not shared, or a cgroup whose directory cannot be looked at."""
        if level.kind in (LevelKind.FLAG, LevelKind.SCHEDULER):
            return ""
        if level.kind not in CGROUPS:
            return HOST
        if level.source not in self._known and (scope := self._cgroup(level.source)):
            self._known[level.source] = scope
        return self._known.get(level.source, "")

    def _cgroup(self, source: str) -> str:
        # A limit that a level below tells of ("… hierarchical_memory_limit") is known by that level.
        directory = source.removesuffix(" hierarchical_memory_limit").rpartition("/")[0]
        try:
            status = self._root.at(directory).stat()
        except (OSError, ValueError):
            return ""
        return f"cgroup:{status.st_dev}:{status.st_ino}"


def _doubts(place: CgroupPlace, path: str) -> tuple[str, ...]:
    if place.complete:
        return ()
    return (f"{printable(place.directories[0])}: our own cgroup {printable(path)} lies below it, unseen",)


def _first(root: SystemRoot, mounts: Iterable[Mount], path: str, *, version: int) -> CgroupPlace | None:
    """Of several mounts of one hierarchy, the one under /sys/fs/cgroup first; one that shows our own directory wins."""
    partial: CgroupPlace | None = None
    for mount in sorted(mounts, key=lambda each: not each.point.startswith("/sys/fs/cgroup")):
        place = _locate(root, mount, path, version)
        if place is not None and place.complete:
            return place
        partial = partial or place
    return partial


def _locate(root: SystemRoot, mount: Mount, path: str, version: int) -> CgroupPlace | None:
    """Our directory below this mount, both as names below the hierarchy's (or our namespace's) root."""
    above_root, root_names = _split(mount.root)
    above_path, path_names = _split(path)
    if above_path > above_root:
        # We were moved out of what this mount shows (JDK-8343191).
        return _place(mount, (), version) if _holds_us(root, mount.point) else None
    if above_path < above_root:
        # The mount begins above our namespace's root, and nothing tells the names between.
        depth = above_root - above_path + len(path_names)
        found = _search(root, mount.point, depth) if not root_names else None
        return _place(mount, found or (), version, complete=found is not None)
    if path_names[: len(root_names)] == root_names:
        return _place(mount, path_names[len(root_names) :], version)
    if not path_names and not above_path:
        # A private cgroup namespace under a mount that names the host's path: the mount shows our own directory.
        return _place(mount, (), version)
    return None


def _split(path: str) -> tuple[int, tuple[str, ...]]:
    """Leading ``..`` counted, and the names after them."""
    names = [name for name in path.split("/") if name and name != "."]
    above = 0
    while above < len(names) and names[above] == "..":
        above += 1
    # ``..`` cannot follow a name in what the kernel writes; anything else that writes it is not followed.
    return above, tuple(name for name in names[above:] if name != "..")


def _place(mount: Mount, names: tuple[str, ...], version: int, *, complete: bool = True) -> CgroupPlace:
    here = PurePosixPath(mount.point)
    directories = [str(here)]
    for name in names:
        here = here / name
        directories.append(str(here))
    return CgroupPlace(version=version, directories=tuple(reversed(directories)), complete=complete)


def _search(root: SystemRoot, top: str, depth: int) -> tuple[str, ...] | None:
    """Names from ``top`` down to the directory, ``depth`` below, whose cgroup.procs lists this process."""
    pid = own_pid(root)
    if pid is None:
        return None
    level: list[tuple[str, ...]] = [()]
    looked = 0
    for _ in range(depth):
        below: list[tuple[str, ...]] = []
        for names in level:
            folder = "/".join((top, *names))
            for name in root.names(folder):
                looked += 1
                if looked > MOST_SEARCHED:
                    return None
                if root.exists(f"{folder}/{name}/cgroup.procs"):
                    below.append((*names, name))
        level = below
    return next((names for names in level if _lists(root, "/".join((top, *names)), pid)), None)


def _holds_us(root: SystemRoot, directory: str) -> bool:
    pid = own_pid(root)
    return pid is not None and _lists(root, directory, pid)


def _lists(root: SystemRoot, directory: str, pid: int) -> bool:
    return str(pid) in (root.text(f"{directory}/cgroup.procs") or "").split()


def _cgroup_mounts(root: SystemRoot, process: str) -> list[Mount]:
    """Those that can be seen: a container may have its own group mounted over the host's hierarchy."""
    mounts = read_mounts(root, process)
    groups = (mount for mount in mounts if mount.kind in ("cgroup", "cgroup2"))
    return [mount for mount in groups if mount_of(mounts, mount.point) is mount]


def _has_memory(root: SystemRoot, directories: tuple[str, ...]) -> bool:
    return any(
        root.exists(f"{directory}/memory.current")
        or root.exists(f"{directory}/memory.max")
        or "memory" in (root.text(f"{directory}/cgroup.controllers") or "").split()
        for directory in directories
    )


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
        throttles = source.endswith("/memory.high")
        note = "throttles before it kills" if throttles else ""
        self._add(source, LevelKind.CGROUP_V2, limit, usage, stat, throttles=throttles, note=note)

    def level_v1(self, directory: str) -> None:
        limit = self._limit(f"{directory}/memory.limit_in_bytes")
        if limit is None or limit >= self._total:
            return
        usage = self._bytes(f"{directory}/memory.usage_in_bytes")
        stat = self._stat(directory, _WANTED_V1)
        self._add(f"{directory}/memory.limit_in_bytes", LevelKind.CGROUP_V1, limit, usage, stat)
        # Memory and swap together: what has been swapped out of this group is missing here (Docker, Slurm set it).
        with_swap = self._bytes(f"{directory}/memory.memsw.limit_in_bytes")
        used_with_swap = self._bytes(f"{directory}/memory.memsw.usage_in_bytes")
        if with_swap is None or used_with_swap is None or usage is None:
            return
        if with_swap - used_with_swap < limit - usage:
            source = f"{directory}/memory.memsw.limit_in_bytes"
            self._add(source, LevelKind.CGROUP_V1, with_swap, used_with_swap, stat, note="memory and swap together")

    def hidden_v1(self, leaf: str) -> None:
        """The least limit of all ancestors, when it is none of those we see: what others hold there is unknown."""
        stat = self._stat(leaf, _WANTED_V1)
        limit = (stat or {}).get("hierarchical_memory_limit", self._total)
        if limit >= self._total or any(level.limit_mib * MIB <= limit for level in self.levels):
            return
        self._add(
            f"{leaf}/memory.stat hierarchical_memory_limit",
            LevelKind.CGROUP_V1,
            limit,
            self._bytes(f"{leaf}/memory.usage_in_bytes"),
            stat,
            confidence=Confidence.MEDIUM,
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
        confidence: Confidence = Confidence.HIGH,
        throttles: bool = False,
        note: str = "",
    ) -> None:
        if usage is None:
            # A limit whose usage cannot be read is a limit all the same: at least our own use counts against it.
            held, confidence, note = self._own_use_mib * MIB, Confidence.LOW, "its usage cannot be read"
        else:
            if stat is None:
                confidence, note = Confidence.LOW, "what of it is page cache cannot be read"
            held = _held(usage, limit, stat or {}, kind)
        if usage is None or stat is None:
            self.unread.append(printable(source))
        self.levels.append(
            MemoryLevel(
                source=printable(source),
                kind=kind,
                limit_mib=limit / MIB,
                headroom_mib=(limit - held) / MIB,
                confidence=confidence,
                throttles=throttles,
                note=note,
            )
        )

    def _stat(self, directory: str, wanted: frozenset[str]) -> dict[str, int] | None:
        """What counts of ``memory.stat``; read once for all that is asked of it, since the kernel adds it up anew."""
        if directory not in self._stats:
            text = self._root.text(f"{directory}/memory.stat")
            self._stats[directory] = None if text is None else keyed(text, wanted)
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


def _held(usage: int, limit: int, stat: Mapping[str, int], kind: LevelKind) -> float:
    """Bytes of ``usage`` that no reclaim gives back: all but page cache and reclaimable slab, and a working set of it.

    Active and dirty pages are reclaimable like others: the kernel writes them out, and a process that wants memory
    waits; none is killed (measured: docs/results/truth.md). ``file`` and ``cache`` are not used: they count tmpfs,
    which cannot be dropped. v1 does not say which of a group's kernel memory is reclaimable: all of it counts as held.
    """
    inactive, active, mapped, shmem = (
        stat.get(name, 0) for name in (_FILES_V1 if kind is LevelKind.CGROUP_V1 else _FILES_V2)
    )
    files = inactive + active
    pinned = PINNED_SLAB_SHARE * (stat.get("unevictable", 0) + shmem)
    held = max(0.0, usage - files - max(0.0, stat.get("slab_reclaimable", 0) - pinned))
    # Mapped files in a tmpfs are held already.
    mapped_files = min(files, max(0, mapped - shmem))
    return held + MIB * working_set_mib(mapped_files / MIB, (limit - held) / MIB)
