"""Limits of this machine and what they leave for the build.

Covers: the answer of the sensors as data: memory levels, the tightest one, what could not be read; room for processes
and files; memory pressure.
Does *not* cover: reading them (``system``) or the reserve that is kept (``scheduler.budget``).
"""

from __future__ import annotations

import msgspec

from builddoctor.core.units import format_mib
from builddoctor.core.word import Confidence, Word


class LevelKind(Word):
    """What sets a limit."""

    CGROUP_V2 = "cgroup-v2"
    CGROUP_V1 = "cgroup-v1"
    HOST = "host"
    """the host's memory"""
    NUMA = "numa"
    """NUMA binding"""
    OVERCOMMIT = "overcommit"
    """overcommit mode 2"""
    EVICTION = "eviction"
    """kubelet's"""
    SCHEDULER = "scheduler"
    """a batch scheduler's allotment"""
    FLAG = "flag"
    """``--memory``"""


CGROUPS = (LevelKind.CGROUP_V1, LevelKind.CGROUP_V2)
COUNTED_BY_KERNEL = (LevelKind.HOST, *CGROUPS)
"""Levels whose use is not our own sum."""


class MemoryLevel(msgspec.Struct, frozen=True, kw_only=True):
    """One limit that the build lives under. All sizes in MiB."""

    source: str
    """the file, variable or flag that says so, e.g. a cgroup's ``memory.max``"""
    kind: LevelKind
    """what sets it: a cgroup, the host's memory, NUMA binding, overcommit mode 2, kubelet's eviction, a batch
    scheduler, or ``--memory``"""
    limit_mib: float
    headroom_mib: float
    """what can still be taken at this level: limit - (usage - reclaimable); below 0 when the limit is overdrawn. Page
    cache is reclaimable, dirty and active too"""
    confidence: Confidence = Confidence.HIGH
    """high: the kernel enforces it and said so itself; medium: another program's rule, or siblings unseen; low: a
    guess, kept because a build that dies is worse"""
    throttles: bool = False
    """``memory.high``: beyond it the kernel kills nothing, it holds processes back, the supervisor included"""
    note: str = ""
    """what a person should know of this number, in a few words"""

    @property
    def used_mib(self) -> float:
        return max(0.0, self.limit_mib - self.headroom_mib)


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps memory of a level, so that nothing else gets it."""

    what: str
    """a process by name and pid, files in memory, or the kernel"""
    held_mib: float


def held_by(holders: tuple[Holder, ...]) -> str:
    """``; held by cicc (pid 7) 1.2 GiB, the kernel 80 MiB``; empty when nothing is known."""
    named = ", ".join(f"{each.what} {format_mib(each.held_mib)}" for each in holders)
    return f"; held by {named}" if named else ""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What makes running out of memory worse here than a dead compiler: the reserve grows with it."""

    unified_memory: bool = False
    """GPU and CPU share one pool (GB10, Jetson): running out freezes the machine"""
    ci_runner: bool = False
    """a CI agent lives in the same memory; starved, it loses the job without a word"""
    group_kill: bool = False
    """``memory.oom.group``: the kernel ends everything at once, builddoctor included"""
    unit_stops: str = ""
    """the systemd unit that is ended as a whole when the kernel kills one process in it (``OOMPolicy=stop``); empty:
    none that is known"""
    whole_vm: bool = False
    """a virtual machine (WSL2) that can end as a whole, with every shell in it"""


class MemoryReading(msgspec.Struct, frozen=True, kw_only=True):
    """All levels at one moment. ``levels`` is never empty."""

    levels: tuple[MemoryLevel, ...]
    unread: tuple[str, ...] = ()
    """what should say a limit and could not be read: not the same as no limit"""
    surroundings: Surroundings = Surroundings()
    hidden_above: bool = False
    """inside a cgroup namespace: what a pod or a slice above it may take cannot be seen"""

    @property
    def tightest(self) -> MemoryLevel:
        """The level with the least headroom: the one that will kill."""
        return min(self.levels, key=lambda level: level.headroom_mib)

    @property
    def lowest(self) -> MemoryLevel:
        """The level with the smallest limit: what the build could have if it were alone."""
        return min(self.levels, key=lambda level: level.limit_mib)

    @property
    def free_mib(self) -> float:
        """What can be taken before the kernel kills: a limit of the user's own is not the kernel's."""
        counted = (level.headroom_mib for level in self.levels if level.kind in COUNTED_BY_KERNEL)
        return min(counted, default=self.tightest.headroom_mib)

    @property
    def limit_mib(self) -> float:
        """The smallest limit of any level."""
        return self.lowest.limit_mib


class ProcessRoom(msgspec.Struct, frozen=True, kw_only=True):
    """How many processes and open files the system allows a build besides what it has. None: no limit is known."""

    processes: int | None = None
    """processes and threads that may be started yet: the least of RLIMIT_NPROC and every cgroup's pids.max"""
    own_files: int | None = None
    """descriptors that we can have (RLIMIT_NOFILE, hard)"""
    build_files: int | None = None
    """descriptors that a process of the build has (RLIMIT_NOFILE, soft)"""


class PressureReading(msgspec.Struct, frozen=True, kw_only=True):
    """How hard the kernel works for memory; None for what it does not tell. All but the last only ever grow."""

    some_s: float | None = None
    """time that at least one task stalled on memory (PSI ``some``), in total"""
    full_s: float | None = None
    """time that all tasks stalled on memory (PSI ``full``), in total"""
    high_events: int | None = None
    """times that processes were held back at a ``memory.high`` of our cgroup or one above, in total (v2)"""
    refault_mib: float | None = None
    """memory that was read in again soon after it had been dropped, in total"""
    fullness: float | None = None
    """use of the fullest level as a share of its limit; page cache counts as use in a cgroup, and not on the host"""
