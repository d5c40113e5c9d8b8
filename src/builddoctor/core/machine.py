"""A machine as data: what ``builddoctor machine probe`` prints, and what the doctor's checks are made from.

Covers: this machine as it was found; user-space out-of-memory killers and core dumps. Sizes in MiB, page sizes in KiB.
Does *not* cover: named machines for planning (``machines``), or reading anything (``system``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from builddoctor.core.limits import Holder, MemoryLevel, Surroundings

OomDaemonName = Literal["earlyoom", "nohang", "systemd-oomd", "oomd"]


class NumaNode(msgspec.Struct, frozen=True, kw_only=True):
    """One NUMA node that has memory."""

    node: int
    kind: Literal["dram", "hbm", "cxl"]
    """``dram``: memory of CPUs (LPDDR on Grace); ``hbm``: a GPU's own, shown to the kernel; ``cxl``: of neither"""
    cpus: int
    total_mib: float
    available_mib: float
    """free, and what the kernel can drop at once"""
    allowed: bool
    """cpuset and memory policy let this process allocate there"""


class Numa(msgspec.Struct, frozen=True, kw_only=True):
    """The NUMA nodes of this machine, and which of them this process may use."""

    nodes: tuple[NumaNode, ...] = ()
    allowed: str = ""
    """``Mems_allowed_list`` of this process"""
    policy: str = ""
    """memory policy of this process as numa_maps spells it (``bind:0``); empty when it is the default"""
    coherent_mode: Literal["", "numa", "cdmm"] = ""
    """where GPU and CPU memory are coherent (GH200, GB200): is the GPU's shown as NUMA nodes, or kept by the driver"""


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of place this is."""

    kernel: str = ""
    """``/proc/sys/kernel/osrelease``"""
    architecture: str = ""
    """``x86_64``, ``aarch64``"""
    page_kib: int = 4
    wsl: bool = False
    wsl_version: Literal[0, 1, 2] = 0
    """2: a virtual machine with memory of its own; 1: Windows's own memory; 0: no WSL"""
    kubernetes: bool = False
    container: str = ""
    """``docker``, ``podman``, ``lxc``, ``container`` when one was found but not its kind; empty outside of any"""
    lxcfs: bool = False
    """/proc/meminfo is not the kernel's own"""
    ci: str = ""
    """``github-hosted``, ``github``, ``gitlab``, ``ci``; empty outside of any"""
    scheduler: Literal["", "slurm", "lsf", "pbs"] = ""
    notebook: Literal["", "colab"] = ""
    """a service that lends a machine to a notebook"""
    unified_memory: str = ""
    """what says that CPU and GPU share one pool (``NVIDIA GB10``, ``Jetson``); empty when they do not"""
    gpus: tuple[str, ...] = ()
    """model names as the driver gives them"""


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """/proc/meminfo and its kin, beyond the two figures that make a level."""

    total_mib: float
    free_mib: float
    available_mib: float
    swap_total_mib: float = 0.0
    """counts as 0 for planning"""
    swap_free_mib: float = 0.0
    zram_mib: float = 0.0
    """memory that compressed swap holds now"""
    hugetlb_mib: float = 0.0
    """set aside for huge pages: no compiler can have it"""
    shmem_mib: float = 0.0
    """tmpfs and shared memory: in use until deleted"""
    zfs_arc_mib: float = 0.0
    """ZFS's cache above its minimum: given back slowly, counted by half"""
    overcommit_mode: int | None = None


class MemoryPressure(msgspec.Struct, frozen=True, kw_only=True):
    """How long processes waited for memory in the last ten seconds (PSI)."""

    source: str
    """the file: of our own group where it has one, else of the machine"""
    some_percent: float
    """of the time: at least one process waited"""
    full_percent: float
    """nothing ran, since all waited"""


class ProcessCap(msgspec.Struct, frozen=True, kw_only=True):
    """A limit on every single process. Its breach is a failed malloc and not a kill."""

    name: Literal["RLIMIT_AS", "RLIMIT_DATA"]
    limit_mib: float


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that a build writes to."""

    role: str
    """``TMPDIR``, ``build folder``, ``/dev/shm`` …"""
    path: str
    filesystem: str
    """``ext4``, ``tmpfs``, ``overlay`` …; empty when unknown"""
    in_memory: bool = False
    """what is written there takes memory until it is deleted"""
    total_mib: float | None = None
    """None when it cannot be asked, or when it is endless"""
    free_mib: float | None = None
    free_inodes: int | None = None
    """None also where the file system has no fixed number"""
    writable: bool = True
    read_only: bool = False
    """mounted so"""
    noexec: bool = False
    """no program there can be started: a configure step that runs what it compiled fails"""
    missing: bool = False
    """no such folder; what else is said here is true of the nearest one above that exists"""
    mount: str = ""
    """where the file system is mounted; empty when unknown"""
    device: str = ""
    """``major:minor`` as mountinfo has it: equal for two folders of one file system; empty when unknown"""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides how a build may run here."""

    schema: int = 1
    name: str = "this machine"
    cores: int
    cores_source: str
    """what allows no more: affinity, or a cgroup's quota"""
    limit_mib: float
    """the smallest limit of any level"""
    headroom_mib: float
    """what is free now at the level that leaves least, its reserve taken off"""
    budget_mib: float
    """headroom less the reserve: what compiler phases may hold together"""
    reserve_mib: float
    limited_by: str
    """the file, variable or flag of that level: not always the smallest limit"""
    levels: tuple[MemoryLevel, ...]
    holders: tuple[Holder, ...] = ()
    """what fills the level that leaves least, largest first; looked up only where the budget is too small to build"""
    unread: tuple[str, ...] = ()
    surroundings: Surroundings = Surroundings()
    """what makes running out worse here; the reserve grows with it"""
    hidden_above: bool = False
    """inside a cgroup namespace: limits above it cannot be seen"""
    pressure: MemoryPressure | None = None
    """None where the kernel does not tell"""
    host: HostMemory
    numa: Numa = Numa()
    platform: Platform
    process_caps: tuple[ProcessCap, ...] = ()
    places: tuple[Place, ...] = ()

    @property
    def limiting(self) -> MemoryLevel:
        """The level that ``limited_by`` names."""
        found = [level for level in self.levels if level.source == self.limited_by]
        return found[0] if found else min(self.levels, key=lambda level: level.headroom_mib)


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
    """Programs beside the build that end processes, or take memory when one crashes."""

    daemons: tuple[OomDaemon, ...] = ()
    dumps: CoreDumps | None = None
    """None when core_pattern cannot be read"""
    scope: str = ""
    """the systemd scope that this process lives in, such as ``session-3.scope``; empty outside of any"""
    unread: tuple[str, ...] = ()
    """why a daemon may run here unseen"""
