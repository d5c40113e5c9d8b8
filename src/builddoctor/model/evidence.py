"""Counters that tell who killed a process, at one moment.

Covers: the answer of the sensor as data, and the names of the causes.
Does *not* cover: reading the counters (``sensors.evidence``) or comparing two readings (``policy.kill_cause``).
"""

from __future__ import annotations

from enum import Enum

import msgspec


class KillCause(str, Enum):
    """Who sent the SIGKILL that a process died of."""

    CGROUP = "cgroup"
    """the kernel, and a limit that can be seen from here was reached"""
    ANCESTOR = "ancestor"
    """the kernel, and no limit that can be seen from here was reached: a hidden ancestor's, or the whole machine's"""
    HOST = "host"
    """the kernel killed somebody on this machine; no counter of our own says whether it was us"""
    OOMD = "oomd"
    """systemd-oomd, which marks the cgroup that it kills and leaves no kernel counter"""
    OUTSIDE = "outside"
    """somebody's kill: counters that would have risen did not"""
    UNKNOWN = "unknown"
    """no counter could be read"""

    @property
    def by_kernel(self) -> bool:
        """One of the kernel's out-of-memory kills."""
        return self in (KillCause.CGROUP, KillCause.ANCESTOR, KillCause.HOST)


class GroupCounters(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one memory cgroup; None where there is no such counter, or it cannot be read."""

    directory: str
    oom: int | None = None
    """this group's limit was reached and the kernel looked for a victim; v2 only"""
    max: int | None = None
    """its limit was reached: v2's ``max``, v1's ``failcnt``. Page cache does that too: never evidence by itself"""
    oom_kill: int | None = None
    """processes in it that the kernel's OOM killer ended, whoever's limit it was"""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel and systemd-oomd have counted for one process's memory cgroup so far."""

    own: GroupCounters | None = None
    """its cgroup: v2 with everything below it, v1 the group alone; None without one"""
    proven: bool = False
    """the cgroup was found to list the process: a counter there that did not rise says that nobody was killed"""
    levels: tuple[GroupCounters, ...] = ()
    """its cgroup and every visible ancestor, each without what is below it (before Linux 5.2 v2 adds that)"""
    host_oom_kill: int | None = None
    """/proc/vmstat: every kernel kill on this machine, other containers' too; readable without any privilege"""
    oomd_kill: int | None = None
    """processes that systemd-oomd ended in these cgroups"""
    under_oom: bool = False
    oom_kill_disable: bool = False
    """v1: with ``under_oom``, processes are frozen instead of killed"""
