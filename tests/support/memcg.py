"""Real memory cgroups (v1) for tests: made below the root, removed again, with the kernel's own counters."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from support.capabilities import CGROUP_V1

_number = itertools.count(1)
PREFIX = "bd-test-"


class MemoryCgroup:
    """One group with a limit in bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def limit(self, limit_bytes: int) -> None:
        (self.folder / "memory.limit_in_bytes").write_text(str(limit_bytes))

    @property
    def kernel_kills(self) -> int:
        for line in (self.folder / "memory.oom_control").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        raise AssertionError("the kernel does not count kills here")

    @property
    def used_mib(self) -> float:
        return int((self.folder / "memory.usage_in_bytes").read_text()) / 2**20

    def wrapped(self, argv: Sequence[str]) -> list[str]:
        """A command that enters the group before it becomes ``argv``."""
        return ["/bin/sh", "-c", f'echo $$ > "{self.folder}/cgroup.procs" && exec "$@"', "sh", *argv]

    def run(
        self, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``argv`` in the group to its end."""
        return subprocess.run(
            self.wrapped(argv), cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )

    def members(self) -> list[int]:
        return [int(word) for word in (self.folder / "cgroup.procs").read_text().split()]


@contextlib.contextmanager
def memory_cgroup(limit_bytes: int, *, parent: Path = CGROUP_V1) -> Iterator[MemoryCgroup]:
    """A group for the time of a test; what is left in it at the end is killed, and fails the test."""
    folder = parent / f"{PREFIX}{os.getpid()}-{next(_number)}"
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
    if not CGROUP_V1.is_dir():
        return []
    return [str(each) for each in CGROUP_V1.glob(f"{PREFIX}{os.getpid()}-*")]
