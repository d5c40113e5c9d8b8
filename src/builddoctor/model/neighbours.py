"""Who else ends processes on this machine, and what happens to the memory of one that crashes.

Covers: user-space out-of-memory killers, core dumps.
Does *not* cover: the kernel's own OOM killer (``model.limits``), reading any of it (``sensors.neighbours``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from builddoctor.model.machine import Place

OomDaemonName = Literal["earlyoom", "nohang", "systemd-oomd", "oomd"]


class OomDaemon(msgspec.Struct, frozen=True, kw_only=True):
    """A program that ends others before the kernel has to."""

    name: OomDaemonName
    pid: int
    acts_below_percent: float | None = None
    """of the host's memory, as its arguments say; None when they cannot be read or do not say"""


class CoreDumps(msgspec.Struct, frozen=True, kw_only=True):
    """Where the kernel puts the memory of a compiler that crashes: core(5)."""

    pattern: str
    """/proc/sys/kernel/core_pattern as it stands there"""
    piped_to: str = ""
    """name of the program that takes dumps; empty when the kernel writes a file itself"""
    limit_mib: float | None = None
    """soft RLIMIT_CORE of this process; None without a limit. The kernel ignores it for pipes, but for one of 1 byte"""
    written: bool = True
    """False when the limit, or an empty pattern, keeps any dump from being written"""
    place: Place | None = None
    """the folder that they end up in; None when nothing says which, or when it cannot be seen from here"""


class Neighbours(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of them."""

    daemons: tuple[OomDaemon, ...] = ()
    dumps: CoreDumps | None = None
    """None when core_pattern cannot be read"""
    scope: str = ""
    """the systemd scope that this process lives in, such as ``session-3.scope``; empty outside of any"""
    unread: tuple[str, ...] = ()
    """why a daemon may run here unseen"""
