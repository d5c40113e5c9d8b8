"""Memory cgroups of this process: v2 and v1, every visible ancestor, each with its own usage.

Covers: finding the directories (mountinfo + /proc/self/cgroup), limit, usage and reclaimable memory of each level, the
kernel's kill counter. Rules and traps: kernel docs cgroup-v2.rst and cgroup-v1/memory.rst.
Does *not* cover: mounts made outside our cgroup namespace (root ``/..``): they name ours by an unknown path, so nothing
is read from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from builddoctor.model.limits import MemoryLevel
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import MIB, whole_number

_WANTED_V2 = frozenset(("inactive_file", "active_file", "file_dirty", "file_writeback", "slab_reclaimable"))
_WANTED_V1 = frozenset(
    ("hierarchical_memory_limit", "total_inactive_file", "total_active_file", "total_dirty", "total_writeback")
)


class CgroupPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where our memory cgroup is: ``directories`` from the leaf up to the mount's root."""

    version: int
    directories: tuple[str, ...]


class _Mount(msgspec.Struct, frozen=True):
    root: str
    point: str
    kind: str
    options: frozenset[str]


def find_place(root: SystemRoot) -> CgroupPlace | None:
    """Our memory cgroup, or None when there is none to see."""
    mounts = _mounts(root.text("/proc/self/mountinfo") or "")
    memberships = _memberships(root.text("/proc/self/cgroup") or "")
    v1_path = memberships.get("memory")
    if v1_path is not None:
        for mount in _preferred(m for m in mounts if m.kind == "cgroup" and "memory" in m.options):
            if directories := _walk(mount, v1_path):
                return CgroupPlace(version=1, directories=directories)
    v2_path = memberships.get("")
    if v2_path is not None:
        for mount in _preferred(m for m in mounts if m.kind == "cgroup2"):
            directories = _walk(mount, v2_path)
            # A hybrid system mounts cgroup2 without the memory controller.
            if directories and _has_memory(root, directories):
                return CgroupPlace(version=2, directories=directories)
    return None


def read_levels(root: SystemRoot, place: CgroupPlace, total_mib: float) -> list[MemoryLevel]:
    """Every level that sets a limit below the machine's memory. ``total_mib``: MemTotal."""
    read = _level_v1 if place.version == 1 else _level_v2
    total = int(total_mib * MIB)
    found = [read(root, directory, total, leaf=directory == place.directories[0]) for directory in place.directories]
    return [level for level in found if level is not None]


def oom_kills(root: SystemRoot, place: CgroupPlace) -> int | None:
    """Kernel kills counted at our own cgroup: v2 counts its whole subtree, v1 only the leaf itself."""
    leaf = place.directories[0]
    file = f"{leaf}/memory.oom_control" if place.version == 1 else f"{leaf}/memory.events"
    return _keyed(root.text(file) or "", frozenset(("oom_kill",))).get("oom_kill")


def _mounts(text: str) -> list[_Mount]:
    mounts: list[_Mount] = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        if not separator or len(fields) < 6 or len(tail) < 3 or tail[0] not in ("cgroup", "cgroup2"):
            continue
        options = frozenset(tail[2].split(","))
        mounts.append(_Mount(_unescape(fields[3]), _unescape(fields[4]), tail[0], options))
    return mounts


def _unescape(field: str) -> str:
    """mountinfo writes blank, tab, newline and backslash as octal."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field


def _memberships(text: str) -> dict[str, str]:
    """Controller to path; the v2 line has the empty controller. Paths may hold colons."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                found.setdefault(controller, parts[2])
    return found


def _preferred(mounts: Iterable[_Mount]) -> list[_Mount]:
    """Of several mounts of one hierarchy, the one under /sys/fs/cgroup first."""
    return sorted(mounts, key=lambda mount: not mount.point.startswith("/sys/fs/cgroup"))


def _walk(mount: _Mount, path: str) -> tuple[str, ...]:
    """Directories from the leaf to the mount point; empty when our path is not below this mount's root."""
    if ".." in PurePosixPath(mount.root).parts or ".." in PurePosixPath(path).parts:
        return ()
    if mount.root == "/":
        relative = path
    elif path == mount.root or path.startswith(mount.root + "/"):
        relative = path[len(mount.root) :]
    elif path == "/":
        # A private cgroup namespace under a mount that names the host's path.
        relative = ""
    else:
        return ()
    here = PurePosixPath(mount.point)
    directories = [str(here)]
    for part in PurePosixPath(relative).parts:
        if part != "/":
            here = here / part
            directories.append(str(here))
    return tuple(reversed(directories))


def _has_memory(root: SystemRoot, directories: tuple[str, ...]) -> bool:
    return any(
        root.text(f"{directory}/memory.current") is not None
        or root.text(f"{directory}/memory.max") is not None
        or "memory" in (root.text(f"{directory}/cgroup.controllers") or "").split()
        for directory in directories
    )


def _level_v2(root: SystemRoot, directory: str, total: int, *, leaf: bool) -> MemoryLevel | None:
    del leaf
    limits = [_bytes(root.text(f"{directory}/{name}")) for name in ("memory.max", "memory.high")]
    limit = min((each for each in limits if each is not None), default=total)
    if limit >= total:
        return None
    usage = _bytes(root.text(f"{directory}/memory.current"))
    stat = _keyed(root.text(f"{directory}/memory.stat") or "", _WANTED_V2)
    return _level(f"{directory}/memory.max", "cgroup-v2", limit, usage, _reclaimable(stat, ""))


def _level_v1(root: SystemRoot, directory: str, total: int, *, leaf: bool) -> MemoryLevel | None:
    limit = _bytes(root.text(f"{directory}/memory.limit_in_bytes"))
    if limit is None or (limit >= total and not leaf):
        return None
    stat = _keyed(root.text(f"{directory}/memory.stat") or "", _WANTED_V1)
    # The least of all ancestors, those above our namespace included.
    limit = min(limit, stat.get("hierarchical_memory_limit", limit))
    if limit >= total:
        return None
    usage = _bytes(root.text(f"{directory}/memory.usage_in_bytes"))
    return _level(f"{directory}/memory.limit_in_bytes", "cgroup-v1", limit, usage, _reclaimable(stat, "total_"))


def _level(source: str, kind: str, limit: int, usage: int | None, reclaimable: float) -> MemoryLevel:
    """A limit whose usage cannot be read is a limit all the same, with little known of it."""
    held = max(0.0, (usage or 0) - reclaimable)
    return MemoryLevel(
        source=source,
        kind=kind,
        limit_mib=limit / MIB,
        headroom_mib=(limit - held) / MIB,
        confidence="low" if usage is None else "high",
    )


def _reclaimable(stat: dict[str, int], prefix: str) -> float:
    """Page cache that the kernel can drop at once. Never ``file`` or ``cache``: they count tmpfs, which it cannot."""
    dirty, writeback = ("total_dirty", "total_writeback") if prefix else ("file_dirty", "file_writeback")
    return max(
        0.0,
        stat.get(f"{prefix}inactive_file", 0)
        + 0.5 * stat.get(f"{prefix}active_file", 0)
        - stat.get(dirty, 0)
        - stat.get(writeback, 0)
        + 0.5 * stat.get("slab_reclaimable", 0),
    )


def _bytes(text: str | None) -> int | None:
    """A number of bytes; None for ``max``, for what is missing and for what is no number."""
    return None if text is None else whole_number(text)


def _keyed(text: str, wanted: frozenset[str]) -> dict[str, int]:
    """``key value`` lines of these keys; lines of another shape are passed over, unknown keys may appear."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key in wanted and (number := whole_number(value)) is not None:
            found[key] = number
    return found
