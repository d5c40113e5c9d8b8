"""Which limits two processes have in common: a name for each memory level that is the same for all who live under it.

Covers: cgroups by device and inode of their directory, which are the same through every mount and namespace; the
machine's own memory. NUMA bindings count as the machine's: who is bound elsewhere is thought to share.
Does *not* cover: limits that hold for one build alone (``--memory``, a scheduler's allotment that no cgroup says).
"""

from __future__ import annotations

from builddoctor.model.limits import MemoryLevel
from builddoctor.sensors.root import SystemRoot

HOST = "host"


class Scopes:
    """Names, remembered: asked at every look at memory."""

    def __init__(self, root: SystemRoot) -> None:
        self._root = root
        self._known: dict[str, str] = {}

    def of(self, level: MemoryLevel) -> str:
        """The name; empty for a limit that nobody shares, or a cgroup whose directory cannot be looked at."""
        if level.kind in ("flag", "scheduler"):
            return ""
        if level.kind not in ("cgroup-v1", "cgroup-v2"):
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


def boot_id(root: SystemRoot) -> str:
    """Of this run of the kernel: a folder may outlive it, or be another machine's too; empty when unreadable."""
    return (root.text("/proc/sys/kernel/random/boot_id") or "").strip()[:64]
