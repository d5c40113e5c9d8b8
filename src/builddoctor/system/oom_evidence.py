"""Evidence of kills: the counters that tell which killer ended a process, and the kernel's own log.

Covers: v2 (``memory.events``, ``memory.events.local``), v1 (``memory.oom_control``, ``memory.failcnt``), the machine's
``oom_kill``, and the extended attribute ``user.oomd_kill``; which cgroup a process is in, with proof; /dev/kmsg, read
without waiting, from its end at the start on; and whether each of them can be read here. Counters need no privilege.
Most systems forbid the log to users (``kernel.dmesg_restrict``): then nothing is said, which does not mean that nothing
has happened. Kernel docs: cgroup-v2.rst, cgroup-v1/memory.rst, ABI/testing/dev-kmsg.
Does *not* cover: what follows from them (``scheduler.kill_cause``), what lines of the log mean
(``diagnose.kernel_log``).

v1 counts a kill at the victim's own cgroup and nowhere above it, so the cgroup of the process is what has to be read,
and not builddoctor's own.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection

import msgspec

from builddoctor.core.evidence import Evidence, GroupCounters, Visibility
from builddoctor.core.units import whole_number
from builddoctor.system.cgroup import CgroupPlace, find_place, memberships
from builddoctor.system.root import SystemRoot, keyed

OOMD_MARK = "user.oomd_kill"
"""systemd: number of processes killed, as decimal digits (oomd-util.c)."""

_WANTED = frozenset(("oom", "max", "oom_kill", "under_oom", "oom_kill_disable"))

MOST_READ = 4000
"""records at one look: some ten milliseconds"""

MOST_KEPT = 12
MOST_CHARACTERS = 400

_RECORD_BYTES = 8192
_ABOUT = (
    re.compile(r"oom-kill:.*\btask=(?P<name>.{1,15}?),pid=(?P<pid>\d+)"),
    re.compile(r"Kill(?:ed)? process (?P<pid>\d+)(?: \(|, )(?P<name>[^),]{1,15})"),
    re.compile(r"(?:\A|: )(?P<name>\S[^\[\]:]{0,14})\[(?P<pid>\d+)\]:? (?:segfault at|general protection|trap )"),
)
_GROUP = re.compile(r"task_memcg=(?P<group>[^,]+)")


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
        states = _read_keyed(root, f"{place.directories[0]}/memory.oom_control")
    return Evidence(
        own=_own(root, place, levels),
        proven=proven and place.complete,
        levels=levels,
        host_oom_kill=host,
        oomd_kill=sum(marks) if marks else None,
        under_oom=states.get("under_oom") == 1,
        oom_kill_disable=states.get("oom_kill_disable") == 1,
    )


def own_kills(root: SystemRoot, place: CgroupPlace) -> int | None:
    """Kernel kills counted at our own cgroup: v2 counts its whole subtree, v1 only the leaf itself."""
    leaf = place.directories[0]
    return _read_keyed(root, f"{leaf}/memory.{'oom_control' if place.version == 1 else 'events'}").get("oom_kill")


def host_kills(root: SystemRoot) -> int | None:
    """/proc/vmstat ``oom_kill``; None before Linux 4.13."""
    # Some 180 lines, read at the start of each phase.
    _, found, rest = ("\n" + (root.text("/proc/vmstat") or "")).partition("\noom_kill ")
    return whole_number(rest.partition("\n")[0]) if found else None


def membership(root: SystemRoot, place: CgroupPlace, process: int | str = "self") -> str | None:
    """The path of a process's memory cgroup as /proc/PID/cgroup names it; None when it is gone."""
    found = memberships(root.path_text(f"/proc/{process}/cgroup") or "")
    return found.get("memory" if place.version == 1 else "")


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


def read_visibility(root: SystemRoot) -> Visibility:
    """Which evidence can be had here. Nothing is read from the kernel's log: it is only opened, without waiting."""
    place = find_place(root)
    return Visibility(
        own_kills=place is not None and own_kills(root, place) is not None,
        host_kills=host_kills(root) is not None,
        pressure=bool(root.text("/proc/pressure/memory")),
        kernel_log=_opens(root, "/dev/kmsg"),
    )


class KillCounter:
    """The kernel's OOM kills: those counted at our own cgroup, and those of the whole host."""

    def __init__(self, root: SystemRoot) -> None:
        self._root = root
        self._place = find_place(root)

    def own(self) -> int | None:
        """At our cgroup; None without one."""
        return None if self._place is None else own_kills(self._root, self._place)

    def host(self) -> int | None:
        """Of the whole host, as ``host_kills``."""
        return host_kills(self._root)


class KernelLog:
    """The kernel's log, opened once; each ``read`` gives what came since the last."""

    def __init__(self, root: SystemRoot) -> None:
        self._fd: int | None = None
        try:
            if not _is_the_log(os.stat(root.at("/dev/kmsg"))):
                return
            self._fd = os.open(root.at("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            self.close()

    @property
    def readable(self) -> bool:
        return self._fd is not None

    def read(self, *, names: Collection[str], pids: Collection[int], group: str = "") -> tuple[str, ...]:
        """Lines about programs of these names or numbers, or in the cgroup whose path ends so; the last dozen."""
        kept: list[str] = []
        for line in self._new():
            if "ill" not in line and "[" not in line:
                continue
            for pattern in _ABOUT:
                found = pattern.search(line)
                if found is None:
                    continue
                where = _GROUP.search(line)
                ours = where is not None and len(group) > 1 and where["group"].endswith(group)
                if ours or found["name"] in names or int(found["pid"]) in pids:
                    kept.append(line[:MOST_CHARACTERS])
                break
        return tuple(kept[-MOST_KEPT:])

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _new(self) -> list[str]:
        lines: list[str] = []
        if self._fd is None:
            return lines
        for _ in range(MOST_READ):
            try:
                data = os.read(self._fd, _RECORD_BYTES)
            except OSError as error:
                if error.errno == errno.EPIPE:
                    # Records were overwritten before we came: the next read goes on with the oldest there is.
                    continue
                return lines
            if not data:
                return lines
            lines += [_message(line) for line in data.decode(errors="replace").splitlines()]
        try:
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            self.close()
        return lines


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
    control = _read_keyed(root, f"{directory}/memory.oom_control")
    return GroupCounters(
        directory=directory,
        max=whole_number(root.text(f"{directory}/memory.failcnt") or ""),
        oom_kill=control.get("oom_kill"),
    )


def _level_v2(root: SystemRoot, directory: str) -> GroupCounters:
    local = _counters(root, directory, "memory.events.local")
    return local if local.oom_kill is not None else _counters(root, directory, "memory.events")


def _counters(root: SystemRoot, directory: str, file: str) -> GroupCounters:
    found = _read_keyed(root, f"{directory}/{file}")
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


def _read_keyed(root: SystemRoot, path: str) -> dict[str, int]:
    return keyed(root.text(path) or "", _WANTED)


def _is_the_log(seen: os.stat_result) -> bool:
    """Character device 1:11, or a plain file. Some containers have a link to /dev/console there, which types back."""
    return stat.S_ISREG(seen.st_mode) or (stat.S_ISCHR(seen.st_mode) and seen.st_rdev == os.makedev(1, 11))


def _message(line: str) -> str:
    """``6,1234,5678,-;text``: behind the semicolon. Lines of a dictionary begin with a blank, and are none of ours."""
    head, semicolon, text = line.partition(";")
    return text if semicolon and head[:1].isdigit() else line


def _opens(root: SystemRoot, path: str) -> bool:
    try:
        os.close(os.open(root.at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True
