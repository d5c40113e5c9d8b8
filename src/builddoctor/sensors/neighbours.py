"""User-space out-of-memory killers that run here, and where core dumps go.

Covers: earlyoom, nohang, systemd-oomd and oomd, by a bounded look through /proc; core_pattern, RLIMIT_CORE and the
folder that dumps end up in. Rules: core(5), systemd-coredump(8), memory.md 3.2 and 4.
Does *not* cover: daemons outside our process namespace, and what a daemon's own configuration file says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import get_args

import msgspec

from builddoctor.model.machine import Place
from builddoctor.model.neighbours import CoreDumps, Neighbours, OomDaemon, OomDaemonName
from builddoctor.sensors.mounts import read_mounts
from builddoctor.sensors.process import Processes
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.storage import read_place
from builddoctor.units import MIB, whole_number

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

_LEAST_DUMP_BYTES = 4096
"""Below a page systemd-coredump keeps nothing, and the kernel writes no file."""


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
    limit_bytes = _limit_bytes(root.text("/proc/self/limits") or "")
    dumps = CoreDumps(pattern=pattern, limit_mib=None if limit_bytes is None else limit_bytes / MIB)
    if pattern.startswith(("|", "@")):
        return _piped(root, dumps, limit_bytes)
    folder = working_folder
    if pattern.startswith("/"):
        folder = pattern.split("%", maxsplit=1)[0].rpartition("/")[0] or "/"
    place = read_place(root, folder, role="core dumps")
    # The kernel makes no folders.
    written = bool(pattern) and not place.missing and (limit_bytes is None or limit_bytes >= _LEAST_DUMP_BYTES)
    return msgspec.structs.replace(dumps, written=written, place=place)


def _piped(root: SystemRoot, dumps: CoreDumps, limit_bytes: int | None) -> CoreDumps:
    words = dumps.pattern[1:].split()
    name = words[0].rpartition("/")[2] if words else ""
    written = limit_bytes != _NO_PIPED_DUMP_BYTES
    if name == "systemd-coredump" and "%c" in words and limit_bytes is not None and limit_bytes < _LEAST_DUMP_BYTES:
        # It is told the limit and keeps it; Debian's pattern tells it "endless" instead.
        written = False
    place: Place | None = None
    for folder in _HANDLERS.get(name, ()):
        seen = read_place(root, folder, role="core dumps")
        if not seen.missing:
            place = seen
            break
    return msgspec.structs.replace(dumps, piped_to=name or "a pipe", written=written, place=place)


def _limit_bytes(text: str) -> int | None:
    """Soft RLIMIT_CORE; None when there is none, and when it cannot be read: then a dump is to be expected."""
    for line in text.splitlines():
        if line.startswith("Max core file size"):
            words = line[len("Max core file size") :].split()
            return whole_number(words[0]) if words else None
    return None
