"""Places that people build in, as kernel files and variables: WSL2, Jetson, Colab, RunPod, Kubernetes, GitHub, GitLab.

Each says which public dump or thread its files are taken from; a figure that none of them has is named there as chosen.
Files are cut down to what is read, and names of hosts and containers are made up.
"""

from __future__ import annotations

import msgspec

from unit.trees import MIB, level_v1, level_v2

CONTAINER = "3f5f9a6c1d0e4b27"
DISK = "86 60 8:32 / / rw,relatime - ext4 /dev/sdc rw,discard,errors=remount-ro,data=ordered\n"
OVERLAY = "580 534 0:52 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/docker/l/A,upperdir=/var/lib/docker/B\n"
CGROUP2_RW = "99 90 0:26 {root} {point} rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
CGROUP2_RO = "590 588 0:26 {root} {point} ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw\n"

MEMINFO = """MemTotal:       {total} kB
MemFree:        {free} kB
MemAvailable:   {available} kB
Active(file):   {active} kB
Inactive(file): {inactive} kB
Mapped:         {mapped} kB
Shmem:          {shmem} kB
SwapTotal:      {swap} kB
SwapFree:       {swap} kB
CommitLimit:    {total} kB
Committed_AS:    2997748 kB
HugePages_Total:       0
Hugepagesize:       2048 kB
Hugetlb:               0 kB
"""


class MadePlace(msgspec.Struct, frozen=True, kw_only=True):
    """What a process sees there."""

    files: dict[str, str]
    env: dict[str, str] = {}
    cores: int = 4
    """by affinity"""


def wsl2(*, drives: str = "9p") -> MadePlace:
    """Windows with 24 GB, WSL before 2.9: no cgroup sets a limit.

    Memory: microsoft/WSL#9636 (top's figures). Mounts: microsoft/WSL#7152, alumet-dev/alumet#472,
    lamyj/wsl-path-converter#4. Drives by virtiofs: PKU-YuanGroup/OpenAI4S#151.
    """
    drive = {
        "9p": "114 86 0:61 / /mnt/c rw,noatime - 9p C:\\134 rw,dirsync,aname=drvfs;path=C:\\134;uid=1000;gid=1000;"
        "symlinkroot=/mnt/,mmap,access=client,msize=65536,trans=fd,rfd=8,wfd=8\n",
        "virtiofs": "114 86 0:61 / /mnt/c rw,noatime - virtiofs drvfsC0 rw\n",
    }[drives]
    drivers = (
        "83 86 0:37 / /usr/lib/wsl/drivers ro,nosuid,nodev,noatime - 9p drivers "
        "ro,aname=drivers;fmask=222;dmask=222,cache=0x5,access=client,msize=65536,trans=fd,rfd=8,wfd=8\n"
    )
    return MadePlace(
        files={
            "/proc/sys/kernel/osrelease": "5.15.79.1-microsoft-standard-WSL2\n",
            "/proc/sys/fs/binfmt_misc/WSLInterop": "enabled\ninterpreter /init\nflags: PF\noffset 0\nmagic 4d5a\n",
            "/proc/cpuinfo": "vendor_id\t: AuthenticAMD\n",
            "/proc/meminfo": meminfo(12178227, 11678106, 11612262, files=166195, swap=3145728),
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": DISK + CGROUP2_RW.format(root="/", point="/sys/fs/cgroup") + drivers + drive,
            "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
        },
        cores=16,
    )


def wsl2_with_cgroups() -> MadePlace:
    """WSL 2.9: each distribution in a group of its own, below one that leaves 32 MiB of the VM to WSL's own processes.

    The path: microsoft/WSL#41492, moby/moby#53531. The limit: microsoft/WSL#40519. Memory as in ``wsl2``.
    """
    before = wsl2()
    group = "/sys/fs/cgroup/wsl-user"
    total_kib = 12178227
    limit = total_kib * 1024 - 32 * MIB
    return msgspec.structs.replace(
        before,
        files={
            **before.files,
            "/proc/sys/kernel/osrelease": "6.18.40.1-microsoft-standard-WSL2\n",
            "/proc/self/cgroup": "0::/wsl-user/distro-280/non-systemd\n",
            **level_v2(group, limit=limit, usage=400 * MIB, stat="inactive_file 94371840\nactive_file 52428800\n"),
            **level_v2(f"{group}/distro-280", usage=380 * MIB),
            **level_v2(f"{group}/distro-280/non-systemd", usage=200 * MIB),
        },
    )


def wsl1() -> MadePlace:
    """No virtual machine: memory is Windows's own, and there are no cgroups.

    Kernel: microsoft/WSL#12802. Drive: lamyj/wsl-path-converter#4. The figures, without MemAvailable: chosen.
    """
    return MadePlace(
        files={
            "/proc/sys/kernel/osrelease": "4.4.0-26100-Microsoft\n",
            "/proc/meminfo": "MemTotal:       33357528 kB\nMemFree:        17011560 kB\nSwapTotal:       2097152 kB\n",
            "/proc/self/mountinfo": "2 2 0:2 / / rw,noatime - wslfs rootfs rw\n"
            "9 2 0:9 / /mnt/c rw,noatime - drvfs C: rw,uid=1000,gid=1000,case=off\n",
            "/proc/self/cgroup": "",
        },
        cores=16,
    )


def jetson() -> MadePlace:
    """Orin Nano, 8 GB, with NVIDIA's zram: half of memory.

    Memory in all: dusty-nv/jetson-containers#1558; L4T 36.4: #768 there. That zram is half: a dump of a TX2 (SwapTotal
    4019376 of MemTotal 8038788). What is free: chosen, with a desktop that runs.
    """
    return MadePlace(
        files={
            "/proc/sys/kernel/osrelease": "5.15.148-tegra\n",
            "/proc/device-tree/compatible": "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0",
            "/proc/cpuinfo": "CPU implementer\t: 0x41\n",
            "/proc/meminfo": meminfo(7801856, 4200000, 5600000, files=1400000, swap=3900928),
            "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n",
            "/proc/self/mountinfo": DISK + CGROUP2_RW.format(root="/", point="/sys/fs/cgroup"),
            **level_v2("/sys/fs/cgroup/user.slice", usage=1200 * MIB),
            **level_v2("/sys/fs/cgroup/user.slice/user-1000.slice", usage=1200 * MIB),
            **level_v2("/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope", usage=60 * MIB),
            "/sys/block/zram0/mm_stat": "4096 74 12288 0 12288 0 0 0\n",
        },
        cores=6,
    )


def colab() -> MadePlace:
    """A container whose processes were moved out of its cgroup namespace, into one that a second mount shows.

    The path and that mount: dotnet/runtime#130092; what a JVM says there (``'/sys/fs/cgroup' seems to have moved to
    '/../../jupyter-children'``) and the kernel's log of a kill (``oom_memcg=/jupyter-children``) are in public notes.
    Memory: a dump of /proc/meminfo from Colab, MemTotal 13302912. The limit of 12 GiB is chosen: such a VM kills at
    11.7 GB (the same notes); no dump has the number. Variables: a dump of 2025-09.
    """
    outer, group = "/sys/fs/cgroup", "/var/colab/cgroup/jupyter-children"
    mounts = CGROUP2_RO.format(root="/", point=outer) + CGROUP2_RO.format(root="/../../jupyter-children", point=group)
    return MadePlace(
        files={
            "/.dockerenv": "",
            "/proc/sys/kernel/osrelease": "6.1.123+\n",
            "/proc/cpuinfo": "vendor_id\t: GenuineIntel\n",
            "/proc/meminfo": meminfo(13302912, 10317044, 12229152, files=1800000),
            "/proc/self/cgroup": "0::/../../jupyter-children\n",
            "/proc/self/mountinfo": OVERLAY + mounts,
            "/proc/self/stat": "4176 (python3) S 81\n",
            f"{outer}/cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
            f"{outer}/cgroup.procs": "1\n7\n",
            **level_v2(outer, usage=900 * MIB),
            **level_v2(group, limit=12288 * MIB, usage=1024 * MIB, stat="inactive_file 268435456\nactive_file 0\n"),
            f"{group}/cgroup.procs": "81\n4176\n",
        },
        env={
            "COLAB_RELEASE_TAG": "release-colab_20250902-060114_RC00",
            "COLAB_GPU": "",
            "COLAB_BACKEND_VERSION": "next",
        },
        cores=2,
    )


def runpod() -> MadePlace:
    """A pod on cgroup v1: 125 GB and 27.2 cores, where ``free`` says a terabyte and ``nproc`` 256.

    The figures: public notes on an L40S pod of 2026-09 (125.0 GB by memory.limit_in_bytes, 27.2 by cpu.cfs_quota_us,
    ``RUNPOD_MEM_GB=125`` in the environment of pid 1, not in a login shell). The host: Comfy-Org/ComfyUI#14938. Mounts:
    dotnet/coreclr#18044.
    """
    own = f"/docker/{CONTAINER}"
    mount = (
        "{n} 699 0:{n} " + own + " /sys/fs/cgroup/{name} ro,nosuid,nodev,noexec,relatime - cgroup cgroup rw,{name}\n"
    )
    return MadePlace(
        files={
            "/.dockerenv": "",
            "/proc/sys/kernel/osrelease": "5.15.0-113-generic\n",
            "/proc/cpuinfo": "vendor_id\t: AuthenticAMD\n",
            "/proc/meminfo": meminfo(1056450248, 151986772, 880426716, files=725076540),
            "/proc/self/cgroup": f"8:memory:{own}\n5:cpu,cpuacct:{own}\n1:name=systemd:{own}\n0::/system.slice\n",
            "/proc/self/mountinfo": OVERLAY
            + "699 698 0:85 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755\n"
            + mount.format(n=41, name="memory")
            + mount.format(n=42, name="cpu,cpuacct"),
            **level_v1("/sys/fs/cgroup/memory", limit=124999999488, usage=2 * 1024 * MIB, stat=""),
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "2720000\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
        cores=256,
    )


def runner_pod() -> MadePlace:
    """GitHub's runner as a pod, whose runner container has 800 MiB and 4 cores.

    Limits: actions/actions-runner-controller#2284. ``memory.oom.group``: containerd/containerd#12560. The node's
    32 GB are chosen.
    """
    return MadePlace(
        files=pod(800, usage_mib=190, cpu_max="400000 100000"),
        env={"GITHUB_ACTIONS": "true", "RUNNER_ENVIRONMENT": "self-hosted", "KUBERNETES_SERVICE_HOST": "10.100.0.1"},
        cores=8,
    )


def gitlab_pod() -> MadePlace:
    """The build container of GitLab's Kubernetes executor, beside its helper container.

    That it is the build container which is killed: kubernetes/kubernetes#135490. The limit of 4 GiB is chosen.
    """
    return MadePlace(
        files=pod(4096, usage_mib=60, cpu_max="max 100000"),
        env={"GITLAB_CI": "true", "CI": "true", "KUBERNETES_SERVICE_HOST": "10.100.0.1"},
        cores=8,
    )


def github_hosted() -> MadePlace:
    """GitHub's own runner for public repositories: the steps run in its agent's cgroup.

    Memory and kernel: a dump of 2026 (MemTotal 16379472, 6.11.0-1018-azure). The cgroup: ``MEMORY_PRESSURE_WATCH`` in
    dumps of the environment.
    """
    agent = "/sys/fs/cgroup/system.slice/hosted-compute-agent.service"
    return MadePlace(
        files={
            "/proc/sys/kernel/osrelease": "6.11.0-1018-azure\n",
            "/proc/cpuinfo": "vendor_id\t: AuthenticAMD\n",
            "/proc/meminfo": meminfo(16379472, 7094052, 15037412, files=8000052, swap=4194300, mapped=378436),
            "/proc/self/cgroup": "0::/system.slice/hosted-compute-agent.service\n",
            "/proc/self/mountinfo": DISK + CGROUP2_RW.format(root="/", point="/sys/fs/cgroup"),
            **level_v2(agent, usage=900 * MIB),
            **level_v2("/sys/fs/cgroup/system.slice", usage=1500 * MIB),
        },
        env={"GITHUB_ACTIONS": "true", "RUNNER_ENVIRONMENT": "github-hosted", "CI": "true"},
    )


def gitlab_hosted() -> MadePlace:
    """GitLab.com's small runner: a container without a limit, in a machine of 8 GB (gitlab-org/gitlab#388162).

    What of the 8 GB the kernel shows is chosen.
    """
    return MadePlace(
        files={
            "/.dockerenv": "",
            "/proc/sys/kernel/osrelease": "5.15.154+\n",
            "/proc/cpuinfo": "vendor_id\t: AuthenticAMD\n",
            "/proc/meminfo": meminfo(8145464, 5200000, 7300000, files=2100000, swap=2097148),
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": OVERLAY + CGROUP2_RO.format(root="/", point="/sys/fs/cgroup"),
            **level_v2("/sys/fs/cgroup", usage=40 * MIB),
        },
        env={"GITLAB_CI": "true", "CI": "true"},
        cores=2,
    )


def meminfo(total: int, free: int, available: int, *, files: int, swap: int = 0, mapped: int = 180000) -> str:
    """/proc/meminfo in KiB. ``files``: page cache, most of it inactive."""
    active = files // 5
    return MEMINFO.format(
        total=total,
        free=free,
        available=available,
        active=active,
        inactive=files - active,
        mapped=mapped,
        shmem=46608,
        swap=swap,
    )


def pod(limit_mib: int, *, usage_mib: int, cpu_max: str) -> dict[str, str]:
    """A container of containerd's in a cgroup namespace of its own, cgroup v2, Kubernetes from 1.28 on."""
    return {
        "/proc/sys/kernel/osrelease": "6.12.73-95.123.amzn2023.x86_64\n",
        "/proc/cpuinfo": "vendor_id\t: GenuineIntel\n",
        "/proc/meminfo": meminfo(32386496, 20100000, 28100000, files=8000000),
        "/proc/self/cgroup": "0::/\n",
        "/proc/self/ns/cgroup": "",
        "/proc/self/mountinfo": OVERLAY + CGROUP2_RO.format(root="/", point="/sys/fs/cgroup"),
        "/run/secrets/kubernetes.io/serviceaccount/namespace": "ci",
        **level_v2("/sys/fs/cgroup", limit=limit_mib * MIB, usage=usage_mib * MIB, stat="inactive_file 20971520\n"),
        "/sys/fs/cgroup/memory.oom.group": "1\n",
        "/sys/fs/cgroup/cpu.max": f"{cpu_max}\n",
    }
