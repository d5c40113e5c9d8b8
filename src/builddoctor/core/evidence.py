"""What the system says about a phase that failed or was killed.

Covers: the causes of a SIGKILL; counters that tell which killer ended a process (``Evidence``); the surroundings when
it happened: disks, limits, cgroups, kernel log (``Scene``, which a trace keeps as ``core.events.SceneSeen``).
Does *not* cover: reading them (``system.oom_evidence``, ``system.scene_reader``), comparing two readings
(``runtime.kill_evidence``), or what follows from them (``diagnose``).

None stands for what is not limited or could not be read; ``Scene.unread`` names the latter. Sizes are MiB.
"""

from __future__ import annotations

import msgspec

from builddoctor.core.word import Word


class KillCause(Word):
    """The sender of the SIGKILL that a process died of."""

    CGROUP = "cgroup"
    """the kernel, and a limit that can be seen from here was reached"""
    ANCESTOR = "ancestor"
    """the kernel, and no limit that can be seen from here was reached: a hidden ancestor's, or the whole machine's"""
    HOST = "host"
    """the kernel killed a process on this machine; no counter of our own says whether it was ours"""
    OOMD = "oomd"
    """systemd-oomd, which marks the cgroup that it kills and leaves no kernel counter"""
    OUTSIDE = "outside"
    """a signal from outside: counters that would have risen did not"""
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
    """processes in it that the kernel's OOM killer ended, whichever limit it was"""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel and systemd-oomd have counted for one process's memory cgroup so far."""

    own: GroupCounters | None = None
    """its cgroup: v2 with everything below it, v1 the group alone; None without one"""
    proven: bool = False
    """the cgroup was found to list the process: a counter there that did not rise says that none was killed"""
    levels: tuple[GroupCounters, ...] = ()
    """its cgroup and every visible ancestor, each without what is below it (before Linux 5.2 v2 adds that)"""
    host_oom_kill: int | None = None
    """/proc/vmstat: every kernel kill on this machine, other containers' too; readable without any privilege"""
    oomd_kill: int | None = None
    """processes that systemd-oomd ended in these cgroups"""
    under_oom: bool = False
    oom_kill_disable: bool = False
    """v1: with ``under_oom``, processes are frozen instead of killed"""


class Visibility(msgspec.Struct, frozen=True, kw_only=True):
    """Which evidence of kills and pressure can be read from here."""

    own_kills: bool = False
    """the kernel's OOM kills in our own cgroup"""
    host_kills: bool = False
    """those of the whole host, /proc/vmstat"""
    pressure: bool = False
    """/proc/pressure/memory"""
    kernel_log: bool = False


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
    unit_stops: str = ""
    """the systemd unit that a kernel kill ends as a whole (``OOMPolicy=stop``)"""
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
