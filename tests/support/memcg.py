"""Real memory cgroups for tests, v1 and v2: made and removed again, with the kernel's own counters.

Covers: the hierarchy that this machine counts memory by; groups with a limit, also below others; what the kernel says
of them under either version's names. On v2 groups lie below the root group, or as high as we may write: a container, a
user's own slice.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 1024**2
PREFIX = "bd-test-"
_number = itertools.count(1)

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Hierarchy:
    """Where groups of ours are made, and which version's files they have."""

    base: Path
    version: int

    @property
    def root(self) -> Path:
        """Where the hierarchy is mounted."""
        return _V1 if self.version == 1 else _V2

    def _named(self, v1: str, v2: str) -> str:
        return v1 if self.version == 1 else v2

    @property
    def limit_file(self) -> str:
        return self._named("memory.limit_in_bytes", "memory.max")

    @property
    def usage_file(self) -> str:
        return self._named("memory.usage_in_bytes", "memory.current")

    @property
    def peak_file(self) -> str:
        return self._named("memory.max_usage_in_bytes", "memory.peak")

    @property
    def kills_file(self) -> str:
        """Has a line ``oom_kill NUMBER``."""
        return self._named("memory.oom_control", "memory.events")


@functools.cache
def hierarchy() -> Hierarchy | None:
    """None where no groups can be made. On v2 this lets groups below have limits, and moves us down where it must."""
    if (_V1 / "memory.limit_in_bytes").exists():
        found = Hierarchy(base=_V1, version=1)
    elif "memory" in _text(_V2 / "cgroup.controllers").split():
        own = _V2 / _text(Path("/proc/self/cgroup")).rpartition("0::/")[2].strip()
        folders = [own, *own.parents]
        upward = folders[: folders.index(_V2) + 1]
        ours = [each for each in upward if os.access(each / "cgroup.subtree_control", os.W_OK)]
        if not ours:
            return None
        # As high as we may write: a group with processes of its own cannot have others with limits below it.
        found = Hierarchy(base=ours[-1], version=2)
        try:
            (found.base / "cgroup.subtree_control").write_text("+memory")
        except OSError:
            _move_down(found.base)
            (found.base / "cgroup.subtree_control").write_text("+memory")
    else:
        return None
    probe = found.base / f"{PREFIX}probe-{os.getpid()}"
    try:
        probe.mkdir()
        there = (probe / found.limit_file).exists()
        probe.rmdir()
    except OSError:
        return None
    return found if there else None


def here() -> Hierarchy:
    """For a test that is marked ``needs_memcg``."""
    found = hierarchy()
    assert found is not None, "no memory cgroups can be made here"
    return found


def _move_down(base: Path) -> None:
    leaf = base / "bd-tests"
    leaf.mkdir(exist_ok=True)
    for pid in _text(base / "cgroup.procs").split():
        with contextlib.suppress(OSError):
            (leaf / "cgroup.procs").write_text(pid)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class MemoryCgroup:
    """One group."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = here()

    @property
    def limit_file(self) -> Path:
        return self.folder / self._files.limit_file

    @property
    def kills_file(self) -> Path:
        return self.folder / self._files.kills_file

    def limit(self, limit_bytes: int) -> None:
        self.limit_file.write_text(str(limit_bytes))

    def throttle(self, limit_bytes: int) -> None:
        """``memory.high``, which v2 alone has."""
        (self.folder / "memory.high").write_text(str(limit_bytes))

    def no_swap(self) -> None:
        """What the group holds stays in memory; where there is no swap, the file may be missing."""
        v1 = self._files.version == 1
        with contextlib.suppress(OSError):
            (self.folder / ("memory.swappiness" if v1 else "memory.swap.max")).write_text("0")

    @property
    def kernel_kills(self) -> int:
        """Of processes in this very group, as v1 counts them; not of those in groups below."""
        return self._counter("memory.oom_control" if self._files.version == 1 else "memory.events.local", "oom_kill")

    @property
    def hits(self) -> int:
        """How often the limit was met, whether or not anything was killed."""
        if self._files.version == 1:
            return int((self.folder / "memory.failcnt").read_text())
        return self._counter("memory.events", "max")

    def _counter(self, file: str, name: str) -> int:
        rows = dict(line.split() for line in (self.folder / file).read_text().splitlines())
        return int(rows[name])

    def stat_mib(self, v1: str, v2: str) -> float:
        """A figure of memory.stat, by the names that each version has for it."""
        return self._counter("memory.stat", v1 if self._files.version == 1 else v2) / MIB

    @property
    def used_mib(self) -> float:
        return int((self.folder / self._files.usage_file).read_text()) / MIB

    @property
    def peak_mib(self) -> float:
        return int((self.folder / self._files.peak_file).read_text()) / MIB

    def forget_peak(self) -> None:
        """Count it from now on; v2 before Linux 6.12 cannot, and counts from the group's beginning."""
        with contextlib.suppress(OSError):
            (self.folder / self._files.peak_file).write_text("0")

    def wrapped(self, argv: Sequence[str]) -> list[str]:
        """A command that enters the group before it becomes ``argv``."""
        return ["/bin/sh", "-c", f'echo $$ > "{self.folder}/cgroup.procs" && exec "$@"', "sh", *argv]

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``argv`` in the group to its end."""
        return subprocess.run(
            self.wrapped(argv),
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def members(self) -> list[int]:
        return [int(word) for word in (self.folder / "cgroup.procs").read_text().split()]


@contextlib.contextmanager
def memory_cgroup(limit_bytes: int, *, parent: Path | None = None) -> Iterator[MemoryCgroup]:
    """A group for the time of a test; what is left in it at the end is killed, and fails the test."""
    files = here()
    if parent is not None and files.version == 2:
        (parent / "cgroup.subtree_control").write_text("+memory")
    folder = (parent or files.base) / f"{PREFIX}{os.getpid()}-{next(_number)}"
    folder.mkdir()
    group = MemoryCgroup(folder)
    group.limit(limit_bytes)
    left: list[int] = []
    try:
        yield group
        left = group.members()
    finally:
        remove(folder)
    assert not left, f"processes left in the cgroup: {left}"


def remove(folder: Path) -> None:
    """Kill what is in the group and remove it; the kernel needs a moment to let go of dead members."""
    deadline = time.monotonic() + 20
    while True:
        for word in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                os.kill(int(word), signal.SIGKILL)
        try:
            folder.rmdir()
        except OSError:
            assert time.monotonic() < deadline, f"cannot remove {folder}"
        else:
            return


def leftovers() -> list[str]:
    """Groups of this process that no test removed."""
    found = hierarchy()
    return [] if found is None else [str(each) for each in found.base.glob(f"{PREFIX}{os.getpid()}-*")]
