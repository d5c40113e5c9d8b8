"""The system as seen from a root folder and a clock, both injected, so that tests can hand in a tree of their own.

Covers: files of the kernel, and the small grammars that many of them share: sets of numbers, ``key value`` lines,
``name: value`` lines.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from builddoctor.core.units import whole_number

PIECE_BYTES = 65536

_MOST_NUMBERS = 8192
"""More CPUs or nodes than any kernel is built for: a list that says more is garbage, and would take memory to hold."""


class Clock(Protocol):
    """Seconds on a clock that never goes back."""

    def __call__(self) -> float: ...


class SystemRoot:
    """``/`` in production; a temporary folder with kernel files written into it in tests."""

    def __init__(self, path: Path = Path("/")) -> None:
        self._prefix = str(path).rstrip("/")

    def at(self, absolute: str) -> Path:
        """The real place of a system path such as ``/proc/meminfo``."""
        return Path(f"{self._prefix}/{absolute.lstrip('/')}")

    def text(self, absolute: str) -> str | None:
        """A file's text; None when it is missing or may not be read (never the same as "no limit")."""
        content = self._content(absolute)
        return None if content is None else content.decode(errors="replace")

    def path_text(self, absolute: str) -> str | None:
        """As ``text``, of a file that holds paths: what is no UTF-8 in them still opens (``units.printable``)."""
        content = self._content(absolute)
        return None if content is None else content.decode(errors="surrogateescape")

    def _content(self, absolute: str) -> bytes | None:
        # Twenty files, twenty times a second: plain calls, no path or file objects.
        try:
            descriptor = os.open(f"{self._prefix}{absolute}", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            # Kernel files come a page or so at a time, whatever is asked for: only an empty piece is the end.
            pieces = [os.read(descriptor, PIECE_BYTES)]
            while pieces[-1]:
                pieces.append(os.read(descriptor, PIECE_BYTES))
            return b"".join(pieces)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def link(self, absolute: str) -> str:
        """What a symbolic link says; empty when it is none, or may not be read."""
        try:
            return os.readlink(f"{self._prefix}{absolute}")
        except (OSError, ValueError):
            return ""

    def exists(self, absolute: str) -> bool:
        """Something of that name is there, readable or not. A missing file sets no limit; an unreadable one may."""
        return os.path.lexists(f"{self._prefix}{absolute}")

    def names(self, absolute: str) -> list[str]:
        """Sorted names in a folder; nothing when it is missing or may not be listed."""
        try:
            return sorted(os.listdir(f"{self._prefix}{absolute}"))
        except (OSError, ValueError):
            return []

    def page_bytes(self) -> int:
        """Bytes of a page in /proc/PID/statm."""
        return page_size()

    def high_water_mib(self, kib: float) -> float:
        """A process's largest size as wait4 gave it, in KiB; a replay at a scale (``scripts/replay``) counts it up."""
        return kib / 1024


class SeenFrom(SystemRoot):
    """The same system, as limits and counters of another process: what its ``/proc/self`` says of cgroups, NUMA and
    rlimits. Mounts and namespaces stay ours, by which the paths that the kernel tells us open here."""

    def __init__(self, path: Path, pid: int) -> None:
        super().__init__(path)
        self._pid = pid

    def at(self, absolute: str) -> Path:
        return super().at(self._seen(absolute))

    def _content(self, absolute: str) -> bytes | None:
        return super()._content(self._seen(absolute))

    def exists(self, absolute: str) -> bool:
        return super().exists(self._seen(absolute))

    def _seen(self, absolute: str) -> str:
        own, _, name = absolute.partition("/proc/self/")
        return f"/proc/{self._pid}/{name}" if not own and name in _OF_A_PROCESS else absolute


_OF_A_PROCESS = frozenset(("cgroup", "stat", "status", "limits", "numa_maps"))


def since_boot() -> float:
    """Seconds since the machine started, times asleep included: what start times of processes count from."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def monotonic() -> float:
    """The production clock."""
    return time.monotonic()


def page_size() -> int:
    """Bytes a page: 4096 on x86-64, often 65536 on Grace. statm counts in these."""
    return os.sysconf("SC_PAGESIZE")


def own_pid(root: SystemRoot) -> int | None:
    """Our own number as this /proc counts, which is how cgroup.procs counts as well; None without /proc."""
    return whole_number((root.text("/proc/self/stat") or "").partition(" ")[0])


def parse_list(text: str) -> frozenset[int]:
    """``0-3,8,10-11`` as the kernel writes sets of CPUs and nodes. Anything else is skipped."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low = whole_number(first)
        high = whole_number(last) if dash else low
        if low is not None and high is not None and low <= high < _MOST_NUMBERS:
            found.update(range(low, high + 1))
    return frozenset(found)


def labelled(text: str, name: str) -> str:
    """Value of the first line ``name: value``; empty without one."""
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return ""


def keyed(text: str, wanted: Collection[str]) -> dict[str, int]:
    """Numbers of ``key value`` lines with these keys: memory.stat, vmstat, and meminfo (``MemTotal:``, in KiB).

    Lines of another shape are skipped, and unknown keys may appear.
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        key, _, rest = line.partition(" ")
        if key in wanted and (words := rest.split()) and (number := whole_number(words[0])) is not None:
            found[key] = number
    return found
