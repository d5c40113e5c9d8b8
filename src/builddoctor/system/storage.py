"""Folders that a build writes to, and the mounts that hold them: file system, what is left, does it count as memory.

Covers: which mount holds a path (proc_pid_mountinfo(5)); tmpfs and its kin, overlays whose upper layer lies on one,
compressed RAM disks; space and inodes that are left to this user (``f_bavail``, ``f_favail``: not what is reserved for
root); missing folders, by the nearest one above.
Does *not* cover: quotas that statvfs does not know (ext4, NFS), remote servers that never answer: a build that
writes there would hang as we do. An overlay whose upper layer is outside our mount namespace (most containers') counts
as disk: where it lies cannot be seen.

LUMI's and ComputeCanada's /tmp is memory of the job; a NixOS build needed 50 GB of it (nixpkgs#393035).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from builddoctor.core.machine import Place
from builddoctor.core.units import MIB, printable
from builddoctor.system.root import SystemRoot

MEMORY_KINDS = frozenset(("tmpfs", "ramfs", "devtmpfs", "rootfs"))
"""``rootfs`` is what an initramfs runs on: a tmpfs or ramfs."""

_MEMORY_DEVICES = ("/dev/zram", "/dev/ram")
_MOST_LINKS = 40
"""The kernel follows no more either."""

_MOST_LAYERS = 8

_OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """One line of mountinfo, escapes resolved."""

    id: str
    parent: str
    device: str
    root: str
    """the folder of the file system (of a cgroup hierarchy: the cgroup) that is seen at ``point``"""
    point: str
    kind: str
    source: str
    options: frozenset[str]
    """of this mount, and of the file system itself"""

    def value(self, option: str) -> str:
        """``x`` of ``option=x``; empty without it."""
        prefix = f"{option}="
        return next((each[len(prefix) :] for each in self.options if each.startswith(prefix)), "")


def read_places(root: SystemRoot, env: Mapping[str, str], folders: Sequence[tuple[str, Path]]) -> tuple[Place, ...]:
    """TMPDIR, then ``folders`` (role and path), then /dev/shm, /var/tmp and home if they exist."""
    mounts = read_mounts(root)
    temporary = env.get("TMPDIR") or "/tmp"  # noqa: S108 - what every compiler takes without TMPDIR
    found = [_place(root, mounts, temporary, role="TMPDIR")]
    found += [_place(root, mounts, os.fspath(path), role=role) for role, path in folders]
    usual = [("/dev/shm", "/dev/shm"), ("/var/tmp", "/var/tmp"), ("home", env.get("HOME", ""))]  # noqa: S108
    for role, path in usual:
        if path.startswith("/"):
            place = _place(root, mounts, path, role=role)
            found += [] if place.missing else [place]
    return tuple(found)


def read_place(root: SystemRoot, path: str | os.PathLike[str], *, role: str) -> Place:
    """One folder. A relative ``path`` is meant from our working directory. Never raises."""
    return _place(root, read_mounts(root), os.fspath(path), role=role)


def read_mounts(root: SystemRoot, process: str = "self") -> tuple[Mount, ...]:
    """All mounts of a process's namespace, in the kernel's order; none when they cannot be read."""
    # Not splitlines(): names may hold what it takes for an end of line (U+0085, form feed).
    mounts = (_parse_mount(line) for line in (root.path_text(f"/proc/{process}/mountinfo") or "").split("\n"))
    return tuple(mount for mount in mounts if mount is not None)


def mount_of(mounts: Sequence[Mount], path: str) -> Mount | None:
    """The mount that holds ``path`` (absolute, no links in it): the deepest one that no later one hides.

    Of two on one folder the later one is seen. A mount on a folder above hides what was mounted below it before, unless
    that was mounted on it: the kernel does not list parents before children.
    """
    parents = {mount.id: mount.parent for mount in mounts}
    best: Mount | None = None
    for mount in mounts:
        if not _below(path, mount.point):
            continue
        if best is None or _covers(parents, mount, best):
            best = mount
    return best


def _place(root: SystemRoot, mounts: Sequence[Mount], path: str, *, role: str) -> Place:
    real, complete = _existing(root, path if path.startswith("/") else f"/proc/self/cwd/{path}")
    mount = mount_of(mounts, real)
    total_mib, free_mib, free_inodes = _left(root, real)
    options = mount.options if mount is not None else frozenset()
    return Place(
        role=role,
        path=printable(path),
        filesystem=mount.kind if mount is not None else "",
        in_memory=mount is not None and _in_memory(root, mounts, mount),
        total_mib=total_mib,
        free_mib=free_mib,
        free_inodes=free_inodes,
        writable=_accessible(root, real),
        read_only="ro" in options,
        noexec="noexec" in options,
        missing=not complete,
        mount=mount.point if mount is not None else "",
        device=mount.device if mount is not None else "",
    )


def _existing(root: SystemRoot, path: str) -> tuple[str, bool]:
    """The folder that ``path`` leads to, links followed inside ``root``; or the deepest one on the way that exists."""
    pending = list(reversed(PurePosixPath(path).parts[1:]))
    here: list[str] = []
    links = 0
    while pending:
        part = pending.pop()
        if part == "..":
            here = here[:-1]
            continue
        target = root.at("/" + "/".join([*here, part]))
        try:
            mode = target.lstat().st_mode
            link = os.readlink(target) if stat.S_ISLNK(mode) else ""
        except (OSError, ValueError):
            return "/" + "/".join(here), False
        if link:
            links += 1
            if links > _MOST_LINKS:
                return "/" + "/".join(here), False
            here = [] if link.startswith("/") else here
            pending += reversed([each for each in link.split("/") if each not in ("", ".")])
        elif stat.S_ISDIR(mode):
            here.append(part)
        else:
            return "/" + "/".join(here), False
    return "/" + "/".join(here), True


def _left(root: SystemRoot, real: str) -> tuple[float | None, float | None, int | None]:
    """Size and free space in MiB, free inodes. An endless tmpfs says 0 blocks, btrfs 0 inodes: no fixed number."""
    try:
        seen = os.statvfs(root.at(real))
    except (OSError, ValueError):
        return None, None, None
    total_mib = seen.f_blocks * seen.f_frsize / MIB
    free_mib = min(seen.f_bavail * seen.f_frsize / MIB, total_mib)
    inodes = seen.f_favail if seen.f_files else None
    return (total_mib, free_mib, inodes) if total_mib else (None, None, inodes)


def _in_memory(root: SystemRoot, mounts: Sequence[Mount], mount: Mount) -> bool:
    for _ in range(_MOST_LAYERS):
        if mount.kind in MEMORY_KINDS or mount.source.startswith(_MEMORY_DEVICES):
            return True
        upper = mount.value("upperdir")
        if mount.kind not in ("overlay", "fuse.fuse-overlayfs") or not upper.startswith("/"):
            return False
        real, complete = _existing(root, upper)
        # A container's upper layer is named as the host sees it: that name means nothing here.
        below = mount_of(mounts, real) if complete else None
        if below is None:
            return False
        mount = below
    return False


def _accessible(root: SystemRoot, real: str) -> bool:
    try:
        return os.access(root.at(real), os.W_OK | os.X_OK)
    except ValueError:
        return False


def _covers(parents: dict[str, str], later: Mount, earlier: Mount) -> bool:
    if len(later.point) > len(earlier.point):
        return True
    if later.point == "/" != earlier.point:
        # Nothing is mounted over the root of a process: what it hid is not in its table.
        return False
    return not _stands_on(parents, earlier.id, later.id)


def _below(path: str, point: str) -> bool:
    return point == "/" or path == point or path.startswith(point + "/")


def _stands_on(parents: dict[str, str], upper: str, lower: str) -> bool:
    """``upper`` is mounted on ``lower``, or on something that is. Ids may be absurd: every one is visited once."""
    seen: set[str] = set()
    while upper in parents and upper not in seen:
        seen.add(upper)
        upper = parents[upper]
        if upper == lower:
            return True
    return False


def _parse_mount(line: str) -> Mount | None:
    before, separator, after = line.partition(" - ")
    fields, tail = before.split(" "), after.split(" ")
    if not separator or len(fields) < 6 or len(tail) < 2 or not fields[4].startswith("/"):
        return None
    options = ",".join([fields[5], *tail[2:3]])
    return Mount(
        id=fields[0],
        parent=fields[1],
        device=fields[2],
        root=_unescape(fields[3]),
        point=_unescape(fields[4]),
        kind=_unescape(tail[0]),
        source=_unescape(tail[1]),
        options=frozenset(_unescape(option) for option in options.split(",")),
    )


def _unescape(field: str) -> str:
    """mountinfo writes blank, tab, newline, backslash (and overlay its commas) as octal."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)
