"""Where the memory cgroup of this process is: mountinfo and /proc/self/cgroup put together.

Covers: v2, v1 and hybrid systems; a container's view (mount root equal to the path); private cgroup namespaces, also
under a mount that was made outside of them (root ``/..``) or for a process that was moved out (path ``/../x``): there
the names between are unknown, and our directory is the one whose cgroup.procs lists us.
Does *not* cover: reading limits (``sensors.cgroup``). /proc/cgroups is not used: it lacks memory from Linux 6.14 on
(JDK-8349988). Kernel docs: cgroup_namespaces(7), proc_pid_mountinfo(5).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from builddoctor.sensors.mounts import Mount, holder, read_mounts
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import printable, whole_number

INITIAL_NAMESPACE = "cgroup:[4026531835]"
"""The host's own cgroup namespace (kernel: PROC_CGROUP_INIT_INO)."""

MOST_SEARCHED = 4000
"""Directories looked into for our own pid: about 40 ms."""


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


def find_place(root: SystemRoot) -> CgroupPlace | None:
    """Our memory cgroup, or None when there is none to see."""
    return look_for_place(root).place


def look_for_place(root: SystemRoot) -> Found:
    """Our memory cgroup; ``unread`` says when there is one that cannot be seen from here."""
    membership_text = root.path_text("/proc/self/cgroup")
    if membership_text is None:
        return Found(place=None, unread=("/proc/self/cgroup",), readable=False)
    memberships = _memberships(membership_text)
    hidden = root.link("/proc/self/ns/cgroup") not in ("", INITIAL_NAMESPACE)
    # A pod that shares its process namespace: our own mounts lack cgroups, init's have them (automaxprocs#38).
    mounts = _cgroup_mounts(root, "self") or _cgroup_mounts(root, "1")
    if not mounts and root.path_text("/proc/self/mountinfo") is None:
        return Found(place=None, unread=("/proc/self/mountinfo",), readable=False)
    unread: list[str] = []
    v1_path = memberships.get("memory")
    if v1_path is not None:
        candidates = [m for m in mounts if m.kind == "cgroup" and "memory" in m.options]
        if place := _first(root, candidates, v1_path, version=1):
            return Found(place=place, unread=_doubts(place, v1_path))
        unread.append(f"/proc/self/cgroup memory:{printable(v1_path)}, which no mount shows")
    v2_path = memberships.get("")
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
    memberships = _memberships(root.path_text("/proc/self/cgroup") or "")
    mounts = _cgroup_mounts(root, "self")
    if (path := memberships.get(controller)) is not None:
        place = _first(root, [m for m in mounts if m.kind == "cgroup" and controller in m.options], path, version=1)
        if place is not None:
            return place.directories
    place = _first(root, [m for m in mounts if m.kind == "cgroup2"], memberships.get("", "/"), version=2)
    # Without a readable mountinfo: where these are mounted nearly everywhere.
    return ("/sys/fs/cgroup", f"/sys/fs/cgroup/{controller}") if place is None else place.directories


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
    # ``..`` cannot follow a name in what the kernel writes; whoever writes it is not followed.
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
    pid = _own_pid(root)
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
    pid = _own_pid(root)
    return pid is not None and _lists(root, directory, pid)


def _lists(root: SystemRoot, directory: str, pid: int) -> bool:
    return str(pid) in (root.text(f"{directory}/cgroup.procs") or "").split()


def _own_pid(root: SystemRoot) -> int | None:
    """Our pid as this /proc counts, which is how cgroup.procs counts as well."""
    return whole_number((root.text("/proc/self/stat") or "").partition(" ")[0])


def _cgroup_mounts(root: SystemRoot, process: str) -> list[Mount]:
    """Those that can be seen: a container may have its own group mounted over the host's hierarchy."""
    mounts = read_mounts(root, process)
    groups = (mount for mount in mounts if mount.kind in ("cgroup", "cgroup2"))
    return [mount for mount in groups if holder(mounts, mount.point) is mount]


def _memberships(text: str) -> dict[str, str]:
    """Controller to path; the v2 line has the empty controller. Paths may hold colons."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                found.setdefault(controller, parts[2])
    return found


def _has_memory(root: SystemRoot, directories: tuple[str, ...]) -> bool:
    return any(
        root.exists(f"{directory}/memory.current")
        or root.exists(f"{directory}/memory.max")
        or "memory" in (root.text(f"{directory}/cgroup.controllers") or "").split()
        for directory in directories
    )
