"""The machines that ``scripts/vm`` boots: kernel, memory, devices, and how a job is started in each.

Covers: names and settings; nothing here runs. A machine's kernel comes from Debian's package, but for pages of 64 KiB,
which Debian does not have. All run Debian stable's programs: what differs is the kernel and what it is told.
"""

from __future__ import annotations

from dataclasses import dataclass, field

JOB = "/job"
"""Where the job's disk is, in every machine."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of Debian's, or ours when ``package`` is empty."""

    suite: str
    package: str
    arch: str = "amd64"


@dataclass(frozen=True)
class Machine:
    """One machine. ``prepare`` is a shell script that runs before the job, as root."""

    name: str
    what: str
    kernel: Kernel
    memory_mib: int = 6144
    systemd: bool = False
    """systemd is the first process; otherwise a shell is: up in a third of the time"""
    cmdline: tuple[str, ...] = ()
    qemu: tuple[str, ...] = ()
    """more words for qemu, behind all others"""
    prepare: str = ""
    enter: tuple[str, ...] = ()
    """what the job's command is the last words of: a container, a slice"""
    nodes_mib: tuple[int, ...] = field(default=())
    """memory of each NUMA node; the first two have the CPUs"""


STABLE = Kernel(suite="bookworm", package="linux-image-cloud-amd64")

# As Kubernetes makes it: a pod's group with the limit, a container's below it with its own, and a kill that takes all.
_CONTAINER = """
pod=/sys/fs/cgroup/kubepods/pod1
mkdir -p $pod
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
echo +memory > /sys/fs/cgroup/kubepods/cgroup.subtree_control
echo 3221225472 > $pod/memory.max
echo +memory > $pod/cgroup.subtree_control
"""

MACHINES = (
    Machine("v2", "Debian stable, unified hierarchy, a shell as the first process", STABLE),
    Machine("v2-systemd", "the same under systemd", STABLE, systemd=True),
    Machine(
        "v2-container",
        "a container by crun: memory.max on the pod above, memory.oom.group, cgroup namespace",
        STABLE,
        prepare=_CONTAINER,
        enter=("python3", f"{JOB}/guest/container.py", "--group", "/kubepods/pod1/c1", "--memory-mib", "4096"),
    ),
    Machine(
        "v2-user",
        "a user's own delegated group: systemd-run --user -p MemoryMax=3G",
        STABLE,
        systemd=True,
        enter=("sh", f"{JOB}/guest/as-user.sh"),
    ),
    Machine(
        "hybrid",
        "v1's memory controller beside an empty unified hierarchy, as systemd mounts it",
        STABLE,
        systemd=True,
        cmdline=("systemd.unified_cgroup_hierarchy=0", "systemd.legacy_systemd_cgroup_controller=0"),
    ),
    Machine("nopsi", "the same as v2, without pressure files: psi=0", STABLE, cmdline=("psi=0",)),
    Machine(
        "swap",
        "1 GiB of swap on a disk",
        STABLE,
        prepare="truncate -s 1G /swap && chmod 600 /swap && dd if=/dev/zero of=/swap bs=1M count=1024 status=none"
        " && mkswap -q /swap && swapon /swap",
    ),
    Machine(
        "zram",
        "2 GiB of swap in compressed memory",
        STABLE,
        prepare="modprobe zram num_devices=1 && echo 2G > /sys/block/zram0/disksize && mkswap -q /dev/zram0"
        " && swapon -p 100 /dev/zram0",
    ),
    Machine(
        "oomd",
        "systemd-oomd and earlyoom, both active",
        STABLE,
        systemd=True,
        prepare="systemctl unmask -q systemd-oomd.service earlyoom.service"
        " && systemctl start systemd-oomd.service earlyoom.service",
    ),
    Machine(
        "old",
        "Linux 5.10, from Debian's oldest release that installs; psi=0, with which a group's file refuses to be read",
        Kernel("bullseye", "linux-image-5.10.0-32-cloud-amd64"),
        cmdline=("psi=0",),
    ),
    Machine("next", "Linux of Debian's next stable release", Kernel("trixie", "linux-image-cloud-amd64")),
    Machine("newest", "Linux of Debian unstable", Kernel("sid", "linux-image-cloud-amd64")),
    Machine(
        "plugged",
        "two nodes, and a third whose 1 GiB was plugged in and is not yet online",
        STABLE,
        memory_mib=4096,
        nodes_mib=(2048, 2048),
        qemu=(
            *("-m", "slots=1,maxmem=6G", "-numa", "node,nodeid=2"),
            *("-object", "memory-backend-ram,id=plugged,size=1G", "-device", "pc-dimm,memdev=plugged,node=2"),
        ),
        cmdline=("memhp_default_state=offline",),
    ),
    Machine(
        "grace",
        "aarch64, 64 KiB pages, two nodes with CPUs and 32 without",
        Kernel("bookworm", "", arch="arm64"),
        memory_mib=34 * 512,
        nodes_mib=(512,) * 34,
    ),
    Machine(
        "arm16k", "aarch64, Debian's kernel with 16 KiB pages", Kernel("trixie", "linux-image-arm64-16k", arch="arm64")
    ),
)


def machine(name: str) -> Machine:
    """By name; KeyError."""
    return {each.name: each for each in MACHINES}[name]
