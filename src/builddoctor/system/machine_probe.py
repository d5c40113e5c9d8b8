"""This machine as data: everything that decides how a build may run here, read once; and what runs beside it.

Covers: cores, memory levels and their reserve, NUMA, platform, limits on processes, the folders that a build writes to;
user-space out-of-memory killers (earlyoom, nohang, systemd-oomd and oomd, by a bounded walk through /proc), and where
core dumps go (core_pattern, RLIMIT_CORE). Rules: core(5), systemd-coredump(8), earlyoom(1).
Does *not* cover: toolchains (``toolchain``), or judging any of it (``doctor``); daemons outside our process namespace,
and what a daemon's own configuration file says.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import get_args

import msgspec

from builddoctor.core.machine import CoreDumps, Machine, Neighbours, OomDaemon, OomDaemonName, Place
from builddoctor.core.units import MIB, whole_number
from builddoctor.system.memory_sensor import HostSensor, MemorySensor
from builddoctor.system.numa import read_numa
from builddoctor.system.platform import read_cores, read_platform
from builddoctor.system.pressure import PressureSensor
from builddoctor.system.process import Processes, process_caps, read_limit
from builddoctor.system.root import SystemRoot
from builddoctor.system.shortage import Sleep, is_short, look_twice, read_holders
from builddoctor.system.storage import read_mounts, read_place, read_places

MOST_PROCESSES = 5000
"""Looked at, lowest numbers first: daemons start early. About 50 ms."""

_NAMES: dict[str, OomDaemonName] = {name: name for name in get_args(OomDaemonName)}
_SCOPE = re.compile(r"/([^/\n]+\.scope)(?:/|$)", re.MULTILINE)
_PERCENT = re.compile(r"\A\d{1,3}(\.\d{1,6})?")

_HANDLERS = {
    "systemd-coredump": ("/var/lib/systemd/coredump",),
    "apport": ("/var/lib/apport/coredump", "/var/crash"),
    "abrt-hook-ccpp": ("/var/spool/abrt", "/var/tmp/abrt"),  # noqa: S108
}
"""Programs that take dumps from the kernel, and where they put them."""

_NO_PIPED_DUMP_BYTES = 1
"""The kernel pipes whatever RLIMIT_CORE says, but for this value (fs/coredump.c)."""


def probe_machine(
    root: SystemRoot,
    env: Mapping[str, str],
    *,
    folders: Sequence[tuple[str, Path]] = (),
    memory_mib: float | None = None,
    sleep: Sleep = time.sleep,
) -> Machine:
    """Read it all. ``folders``: (role, path) of further folders to look at; ``memory_mib``: a limit of the user's.

    Where memory is too short to build, it is read again some seconds later.
    """
    sensor = MemorySensor(root, env=env, user_limit_mib=memory_mib)
    reading, allowed = look_twice(lambda: sensor.read(0.0), sleep=sleep)
    cores = read_cores(root)
    return Machine(
        cores=cores.count,
        cores_source=cores.source,
        limit_mib=round(reading.limit_mib, 1),
        headroom_mib=round(allowed.level.headroom_mib, 1),
        budget_mib=round(allowed.budget_mib, 1),
        reserve_mib=round(allowed.reserve_mib, 1),
        limited_by=allowed.level.source,
        levels=reading.levels,
        holders=read_holders(root, allowed.level) if is_short(allowed) else (),
        unread=reading.unread,
        surroundings=reading.surroundings,
        hidden_above=reading.hidden_above,
        pressure=PressureSensor(root, page_bytes=root.page_bytes()).recent(),
        host=HostSensor(root).facts(),
        numa=read_numa(root),
        platform=read_platform(root, env),
        process_caps=process_caps(root),
        places=read_places(root, env, folders),
    )


def read_neighbours(root: SystemRoot, working_folder: str) -> Neighbours:
    """All of it. ``working_folder``: where compilers run, and where a plain ``core`` would land."""
    numbers = sorted(number for name in root.names("/proc") if (number := whole_number(name)) is not None)
    daemons: list[OomDaemon] = []
    for pid in numbers[:MOST_PROCESSES]:
        name = _NAMES.get((root.text(f"/proc/{pid}/comm") or "").strip())
        if name is not None and name not in [daemon.name for daemon in daemons]:
            percent = _percent(Processes(root).argv(pid)) if name == "earlyoom" else None
            daemons.append(OomDaemon(name=name, pid=pid, acts_below_percent=percent))
    scope = _SCOPE.search(root.text("/proc/self/cgroup") or "")
    return Neighbours(
        daemons=tuple(daemons),
        dumps=_dumps(root, working_folder),
        scope=scope[1] if scope else "",
        unread=_unseen(root, numbers),
    )


def _unseen(root: SystemRoot, numbers: Sequence[int]) -> tuple[str, ...]:
    found: list[str] = []
    if not numbers:
        found.append("/proc: no process can be seen")
    elif len(numbers) > MOST_PROCESSES:
        found.append(f"/proc: {len(numbers) - MOST_PROCESSES} processes of {len(numbers)} were not looked at")
    for mount in read_mounts(root):
        # 1 hides names, 2 (invisible) the processes, 4 (ptraceable) likewise; 0 (off) hides nothing.
        if mount.kind == "proc" and mount.point == "/proc" and mount.value("hidepid") not in ("", "0", "off"):
            found.append("/proc: processes of other users are hidden (hidepid)")
            break
    return tuple(found)


def _percent(argv: Sequence[str]) -> float | None:
    """earlyoom's ``-m PERCENT[,KILL_PERCENT]``, in one word or two; the last one counts."""
    found: float | None = None
    for word, following in pairwise([*argv[1:], ""]):
        value = following if word == "-m" else word[2:] if word.startswith("-m") else ""
        match = _PERCENT.match(value)
        if match is not None and 0 < float(match[0]) <= 100:
            found = float(match[0])
    return found


def _dumps(root: SystemRoot, working_folder: str) -> CoreDumps | None:
    text = root.text("/proc/sys/kernel/core_pattern")
    if text is None:
        return None
    pattern = text.strip()
    limit_bytes = read_limit(root.text("/proc/self/limits") or "", "Max core file size")[0]
    dumps = CoreDumps(pattern=pattern, limit_mib=None if limit_bytes is None else limit_bytes / MIB)
    if pattern.startswith(("|", "@")):
        return _piped(root, dumps, limit_bytes)
    folder = working_folder
    if pattern.startswith("/"):
        folder = pattern.split("%", maxsplit=1)[0].rpartition("/")[0] or "/"
    place = read_place(root, folder, role="core dumps")
    # The kernel makes no folders.
    written = bool(pattern) and not place.missing and not _below_a_page(root, limit_bytes)
    return msgspec.structs.replace(dumps, written=written, place=place)


def _below_a_page(root: SystemRoot, limit_bytes: int | None) -> bool:
    """The kernel writes no file then (ELF_EXEC_PAGESIZE), and systemd-coredump keeps nothing."""
    return limit_bytes is not None and limit_bytes < root.page_bytes()


def _piped(root: SystemRoot, dumps: CoreDumps, limit_bytes: int | None) -> CoreDumps:
    words = dumps.pattern[1:].split()
    name = words[0].rpartition("/")[2] if words else ""
    written = limit_bytes != _NO_PIPED_DUMP_BYTES
    if name == "systemd-coredump" and "%c" in words and _below_a_page(root, limit_bytes):
        # It is told the limit and keeps it; Debian's pattern tells it "endless" instead.
        written = False
    place: Place | None = None
    for folder in _HANDLERS.get(name, ()):
        seen = read_place(root, folder, role="core dumps")
        if not seen.missing:
            place = seen
            break
    return msgspec.structs.replace(dumps, piped_to=name or "a pipe", written=written, place=place)
