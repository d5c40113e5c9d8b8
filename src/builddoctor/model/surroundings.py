"""What was around a phase when it failed or was killed: disks, limits, cgroups, the kernel's words.

Covers: the answer of ``sensors.surroundings`` as data; a trace keeps it (``trace.records.Seen``).
Does *not* cover: looking (``sensors.surroundings``), or what follows from it (``diagnose.facts``).

None is what could not be read, or is not limited: ``unread`` names the former. Sizes are MiB.
"""

from __future__ import annotations

import msgspec


class Folder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One folder that the build writes to."""

    role: str
    """``TMPDIR``, ``objects``, ``trace``"""
    path: str
    filesystem: str = ""
    in_memory: bool = False
    """what is written there takes memory"""
    free_mib: float | None = None
    total_mib: float | None = None
    free_inodes: int | None = None
    writable: bool = True
    missing: bool = False


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One level of a memory cgroup, the phase's own first."""

    directory: str
    limit_mib: float | None = None
    used_mib: float | None = None
    """by all in it, page cache that can be dropped left out"""
    shmem_mib: float | None = None
    """files on tmpfs and shared memory: theirs until they are deleted"""
    reached: int | None = None
    """times that this level's own limit was reached since the phase was let start: v1 ``failcnt``, v2 ``max`` or
    ``oom`` of ``memory.events.local``. Page cache does that too"""
    kills: int | None = None
    """kernel kills since then; v1 counts them at the victim's own level only"""


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Soft limits of one process (getrlimit(2)); None: unlimited."""

    address_space_mib: float | None = None
    data_mib: float | None = None
    file_size_mib: float | None = None
    processes: int | None = None
    files: int | None = None
    cpu_s: int | None = None


class Scene(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One look."""

    folders: tuple[Folder, ...] = ()
    groups: tuple[Group, ...] = ()
    """from the phase's own cgroup up to the highest that can be seen"""
    limits: ProcessLimits = ProcessLimits()
    """of the phase, as its gate has them"""
    pids_max: int | None = None
    """the least that any pids cgroup leaves in all, and what it holds"""
    pids_now: int | None = None
    ours_mib: float = 0.0
    """what all running phases held when the look was taken, the dead one's last size included"""
    available_mib: float | None = None
    """/proc/meminfo: MemAvailable"""
    overcommit: int | None = None
    """``vm.overcommit_memory``: with 2 malloc fails at CommitLimit"""
    commit_left_mib: float | None = None
    """CommitLimit - Committed_AS; in mode 2 only"""
    host_kills: int | None = None
    """/proc/vmstat ``oom_kill``, since builddoctor started"""
    oomd_kills: int | None = None
    """processes that systemd-oomd marked as killed in these cgroups"""
    nodes_allowed: str = ""
    """``Mems_allowed_list`` and memory policy where they leave out nodes that have memory; empty when they do not"""
    policy: str = ""
    nodes_free_mib: float | None = None
    """free on the allowed nodes, where not all are"""
    scheduler: str = ""
    """``slurm``, ``lsf``, ``pbs``"""
    job: str = ""
    """its number of the job"""
    allotted_mib: float | None = None
    """what it allotted, by its own variables"""
    kernel_log: tuple[str, ...] = ()
    """the kernel's lines since the last look about programs of the build: kills, crashes"""
    kernel_log_read: bool = False
    """False: it may not be read here, which says nothing of what is in it"""
    unread: tuple[str, ...] = ()
