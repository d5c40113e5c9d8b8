"""How many processes and open files the system allows a build besides what it has.

Does *not* cover: memory (``model.limits``).
"""

from __future__ import annotations

import msgspec


class ProcessRoom(msgspec.Struct, frozen=True, kw_only=True):
    """None wherever nothing is known to limit it."""

    processes: int | None = None
    """processes and threads that may be started yet: the least of RLIMIT_NPROC and every cgroup's pids.max"""
    own_files: int | None = None
    """descriptors that we can have (RLIMIT_NOFILE, hard)"""
    build_files: int | None = None
    """descriptors that a process of the build has (RLIMIT_NOFILE, soft)"""
