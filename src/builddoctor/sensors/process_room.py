"""Limits on how many processes and files there may be: RLIMIT_NPROC, RLIMIT_NOFILE and the pids controller.

Does *not* cover: the kernel's own (``kernel.pid_max``, ``threads-max``): tens of thousands everywhere.
Kernel docs: getrlimit(2), cgroup-v2.rst (PID).
"""

from __future__ import annotations

from builddoctor.model.process_room import ProcessRoom
from builddoctor.sensors.cgroup_place import controller_directories
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import whole_number

FAR_AWAY = 32768
"""A limit of the user's that is this high is not counted against: all of /proc would have to be read for it."""


def read_process_room(root: SystemRoot) -> ProcessRoom:
    """What there is now."""
    limits = root.text("/proc/self/limits") or ""
    soft_files, hard_files = _limit(limits, "Max open files")
    processes = [each for each in (_by_user(root, limits), _by_cgroups(root)) if each is not None]
    return ProcessRoom(processes=min(processes, default=None), own_files=hard_files, build_files=soft_files)


def _by_user(root: SystemRoot, limits: str) -> int | None:
    """RLIMIT_NPROC counts all threads of a user. It does not hold for root."""
    limit, _ = _limit(limits, "Max processes")
    uid = _field(root.text("/proc/self/status") or "", "Uid:")
    if limit is None or limit >= FAR_AWAY or uid in (0, None):
        return None
    used = 0
    for name in root.names("/proc"):
        if name.isdigit():
            status = root.text(f"/proc/{name}/status") or ""
            if _field(status, "Uid:") == uid:
                used += _field(status, "Threads:") or 1
    return max(0, limit - used)


def _by_cgroups(root: SystemRoot) -> int | None:
    """The least that is left at any level from our own cgroup up."""
    left: list[int] = []
    for directory in controller_directories(root, "pids"):
        most = whole_number((root.text(f"{directory}/pids.max") or "").strip())
        if most is not None:
            used = whole_number((root.text(f"{directory}/pids.current") or "").strip())
            left.append(max(0, most - (used or 0)))
    return min(left, default=None)


def _limit(limits: str, name: str) -> tuple[int | None, int | None]:
    """Soft and hard limit of one line of /proc/PID/limits; None for unlimited, or unknown."""
    for line in limits.splitlines():
        if line.startswith(name):
            words = [*line[len(name) :].split(), "", ""]
            return whole_number(words[0]), whole_number(words[1])
    return None, None


def _field(status: str, name: str) -> int | None:
    """The first number behind a name in /proc/PID/status."""
    for line in status.splitlines():
        if line.startswith(name):
            words = line[len(name) :].split()
            return whole_number(words[0]) if words else None
    return None
