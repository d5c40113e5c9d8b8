"""Mounts of this process: which one holds a path. Field meanings: proc_pid_mountinfo(5).

Does *not* cover: cgroup mounts' meaning (``sensors.cgroup_place``), sizes (``sensors.storage``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from builddoctor.sensors.root import SystemRoot

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


def read_mounts(root: SystemRoot, process: str = "self") -> tuple[Mount, ...]:
    """All mounts of a process's namespace, in the kernel's order; none when they cannot be read."""
    # Not splitlines(): names may hold what it takes for an end of line (U+0085, form feed).
    mounts = (_parse(line) for line in (root.path_text(f"/proc/{process}/mountinfo") or "").split("\n"))
    return tuple(mount for mount in mounts if mount is not None)


def holder(mounts: Sequence[Mount], path: str) -> Mount | None:
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


def _parse(line: str) -> Mount | None:
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
