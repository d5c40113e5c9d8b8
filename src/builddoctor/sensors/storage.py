"""Folders that a build writes to: on what file system, how much is left, does it count as memory.

Covers: tmpfs and its kin, overlays whose upper layer lies on one, compressed RAM disks; space and inodes that are left
to this user (``f_bavail``, ``f_favail``: not what is reserved for root); missing folders, by the nearest one above.
Does *not* cover: quotas that statvfs does not know (ext4, NFS), remote servers that never answer: a build that
writes there would hang as we do. An overlay whose upper layer is outside our mount namespace (most containers') counts
as disk: where it lies cannot be seen.

Traps: memory.md 1.4, 8.1 P9 and trap 10. LUMI's and ComputeCanada's /tmp is memory of the job; a NixOS build
needed 50 GB of it (nixpkgs#393035).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from builddoctor.model.machine import Place
from builddoctor.sensors.mounts import Mount, holder, read_mounts
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import MIB, printable

MEMORY_KINDS = frozenset(("tmpfs", "ramfs", "devtmpfs", "rootfs"))
"""``rootfs`` is what an initramfs runs on: a tmpfs or ramfs."""

_MEMORY_DEVICES = ("/dev/zram", "/dev/ram")
_MOST_LINKS = 40
"""The kernel follows no more either."""

_MOST_LAYERS = 8


def read_places(root: SystemRoot, env: Mapping[str, str], folders: Sequence[tuple[str, Path]]) -> tuple[Place, ...]:
    """TMPDIR, then ``folders`` (role and path: the build's, and ours), then /dev/shm, /var/tmp, home if they exist."""
    mounts = read_mounts(root)
    temporary = env.get("TMPDIR") or "/tmp"  # noqa: S108 - what every compiler takes without TMPDIR
    found = [_read(root, mounts, temporary, role="TMPDIR")]
    found += [_read(root, mounts, os.fspath(path), role=role) for role, path in folders]
    usual = [("/dev/shm", "/dev/shm"), ("/var/tmp", "/var/tmp"), ("home", env.get("HOME", ""))]  # noqa: S108
    for role, path in usual:
        if path.startswith("/"):
            place = _read(root, mounts, path, role=role)
            found += [] if place.missing else [place]
    return tuple(found)


def read_place(root: SystemRoot, path: str | os.PathLike[str], *, role: str) -> Place:
    """One folder. A relative ``path`` is meant from our working directory. Never raises."""
    return _read(root, read_mounts(root), os.fspath(path), role=role)


def _read(root: SystemRoot, mounts: Sequence[Mount], path: str, *, role: str) -> Place:
    real, complete = _existing(root, path if path.startswith("/") else f"/proc/self/cwd/{path}")
    mount = holder(mounts, real)
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
        below = holder(mounts, real) if complete else None
        if below is None:
            return False
        mount = below
    return False


def _accessible(root: SystemRoot, real: str) -> bool:
    try:
        return os.access(root.at(real), os.W_OK | os.X_OK)
    except ValueError:
        return False
