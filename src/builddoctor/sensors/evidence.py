"""Reads the counters that tell who killed a process: cgroup files, /proc/vmstat, marks of systemd-oomd.

Covers: v2 (``memory.events``, ``memory.events.local``), v1 (``memory.oom_control``, ``memory.failcnt``), the machine's
``oom_kill``, and the extended attribute ``user.oomd_kill``; which cgroup a process is in, with proof. Nothing of it
needs a privilege: the kernel log, which does, is not read. Kernel docs: cgroup-v2.rst, cgroup-v1/memory.rst.
Does *not* cover: what follows from them (``policy.kill_cause``).

v1 counts a kill at the victim's own cgroup and nowhere above it, so the cgroup of the process is what has to be read,
and not builddoctor's own.
"""

from __future__ import annotations

import errno
import os

import msgspec

from builddoctor.model.evidence import Evidence, GroupCounters
from builddoctor.sensors.cgroup_place import CgroupPlace
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import whole_number

OOMD_MARK = "user.oomd_kill"
"""systemd: number of processes killed, as decimal digits (oomd-util.c)."""

_WANTED = frozenset(("oom", "max", "oom_kill", "under_oom", "oom_kill_disable"))


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The memory cgroup of a process."""

    place: CgroupPlace
    proven: bool
    """its cgroup.procs lists the process"""


def read_evidence(root: SystemRoot, place: CgroupPlace | None, *, proven: bool = False) -> Evidence:
    """All counters now, for the cgroup at ``place`` (None: only the machine's). What cannot be read is None."""
    host = host_kills(root)
    if place is None:
        return Evidence(host_oom_kill=host)
    read = _level_v1 if place.version == 1 else _level_v2
    levels = tuple(read(root, directory) for directory in place.directories)
    marks = [mark for directory in place.directories if (mark := _oomd_mark(root, directory)) is not None]
    states: dict[str, int] = {}
    if place.version == 1:
        states = _keyed(root.text(f"{place.directories[0]}/memory.oom_control") or "")
    return Evidence(
        own=_own(root, place, levels),
        proven=proven and place.complete,
        levels=levels,
        host_oom_kill=host,
        oomd_kill=sum(marks) if marks else None,
        under_oom=states.get("under_oom") == 1,
        oom_kill_disable=states.get("oom_kill_disable") == 1,
    )


def host_kills(root: SystemRoot) -> int | None:
    """/proc/vmstat ``oom_kill``; None before Linux 4.13."""
    # Some 180 lines, read at the start of each phase.
    _, found, rest = ("\n" + (root.text("/proc/vmstat") or "")).partition("\noom_kill ")
    return whole_number(rest.partition("\n")[0]) if found else None


def membership(root: SystemRoot, place: CgroupPlace, process: int | str = "self") -> str | None:
    """The path of a process's memory cgroup as /proc/PID/cgroup names it; None when it is gone."""
    wanted = "memory" if place.version == 1 else ""
    for line in (root.path_text(f"/proc/{process}/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and wanted in parts[1].split(","):
            return parts[2]
    return None


def group_of(root: SystemRoot, ours: CgroupPlace, pid: int) -> Group | None:
    """The cgroup of another process, found from the way between its path and ours; None when it cannot be seen."""
    own_path, path = membership(root, ours), membership(root, ours, pid)
    if own_path is None or path is None or not ours.complete:
        return None
    here, there = _names(own_path), _names(path)
    if path != own_path and ".." in (*here, *there):
        # Beyond the root of a cgroup namespace the names say nothing of the way.
        return None
    shared = 0
    while shared < min(len(here), len(there)) and here[shared] == there[shared]:
        shared += 1
    above = ours.directories[len(here) - shared :]
    if not above:
        return None
    directories = list(above)
    for name in there[shared:]:
        directories.insert(0, f"{directories[0].rstrip('/')}/{name}")
    place = CgroupPlace(version=ours.version, directories=tuple(directories))
    members = root.text(f"{directories[0]}/cgroup.procs") or ""
    return Group(place=place, proven=str(pid) in members.split())


def _own(root: SystemRoot, place: CgroupPlace, levels: tuple[GroupCounters, ...]) -> GroupCounters | None:
    if place.version == 1:
        # An ancestor of ours does not count our kills.
        return levels[0] if place.complete else None
    for directory in place.directories:
        # A cgroup without the memory controller is counted at the next one above that has it.
        counters = _counters(root, directory, "memory.events")
        if counters.oom_kill is not None:
            return counters
    return None


def _level_v1(root: SystemRoot, directory: str) -> GroupCounters:
    control = _keyed(root.text(f"{directory}/memory.oom_control") or "")
    return GroupCounters(
        directory=directory,
        max=whole_number(root.text(f"{directory}/memory.failcnt") or ""),
        oom_kill=control.get("oom_kill"),
    )


def _level_v2(root: SystemRoot, directory: str) -> GroupCounters:
    local = _counters(root, directory, "memory.events.local")
    return local if local.oom_kill is not None else _counters(root, directory, "memory.events")


def _counters(root: SystemRoot, directory: str, file: str) -> GroupCounters:
    found = _keyed(root.text(f"{directory}/{file}") or "")
    return GroupCounters(
        directory=directory, oom=found.get("oom"), max=found.get("max"), oom_kill=found.get("oom_kill")
    )


def _oomd_mark(root: SystemRoot, directory: str) -> int | None:
    """Processes that systemd-oomd killed in a cgroup; 0 without a mark, None where marks cannot be read."""
    try:
        return whole_number(os.getxattr(root.at(directory), OOMD_MARK).decode(errors="replace"))
    except OSError as error:
        return 0 if error.errno == errno.ENODATA else None
    except ValueError:
        return None


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name and name != "."]


def _keyed(text: str) -> dict[str, int]:
    """``key value`` lines of the keys that count; unknown ones may appear."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key in _WANTED and (number := whole_number(value)) is not None:
            found[key] = number
    return found
