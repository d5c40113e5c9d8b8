"""What kind of place this is: kernel, architecture, cores, container, WSL, CI, scheduler, one memory for CPU and GPU.

Covers: files and variables that name the place, and what follows for the reserve; the processor cores that this process
may really use: affinity (cpuset included), and every cgroup's quota.
Does *not* cover: limits that such a place sets (``system.cgroup``, ``system.memory_sensor``), NUMA (``system.numa``).

Nothing here is a limit, so nothing is guessed: what cannot be read is left empty. Variables are believed when they are
not empty: a step that hides ``KUBERNETES_SERVICE_HOST`` is still found by its token folder.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from builddoctor.core.limits import Surroundings
from builddoctor.core.machine import Platform
from builddoctor.core.units import whole_number
from builddoctor.system.cgroup import controller_directories
from builddoctor.system.root import SystemRoot, labelled, page_size

GPUS = "/proc/driver/nvidia/gpus"
"""One folder a GPU, named by its PCI address. In a container only those that it was given."""

_TOKEN_FOLDERS = (
    "/var/run/secrets/kubernetes.io/serviceaccount",
    "/run/secrets/kubernetes.io/serviceaccount",
)
_GB10 = re.compile(r"\bGB10\b")
_JETSON_GPU = re.compile(r"\b(?:Orin|Thor|Xavier|Tegra)\b")
_SPARK = re.compile(r"DGX[ _-]Spark|GB10(?!\d)", re.IGNORECASE)
"""``NVIDIA_DGX_Spark``, or what other makers call theirs: ``Dell Pro Max with GB10``."""
_WSL1_KERNEL = re.compile(r"\A4\.4\.0-\d+-Microsoft\Z")
"""What WSL1 says that it is (``4.4.0-26100-Microsoft``): no kernel, and no virtual machine."""
_LXC_NAMES = frozenset(("lxc", "lxd", "incus", "lxc-libvirt"))


class Cores(msgspec.Struct, frozen=True, kw_only=True):
    """How many, and what allows no more."""

    count: int
    source: str


def read_platform(
    root: SystemRoot, env: Mapping[str, str], *, machine: str = "", page_bytes: int | None = None
) -> Platform:
    """Everything that can be named. ``machine``: architecture where no file says it; ``page_bytes``: this kernel's."""
    kernel = (root.text("/proc/sys/kernel/osrelease") or "").strip()
    kubernetes = _is_kubernetes(root, env)
    lxcfs = _has_lxcfs(root.text("/proc/self/mountinfo") or "")
    gpus = gpu_models(root)
    wsl_version = _wsl_version(root, kernel)
    return Platform(
        kernel=kernel,
        architecture=read_architecture(root) or machine,
        page_kib=max(1, (page_size() if page_bytes is None else page_bytes) // 1024),
        wsl=wsl_version != 0,
        wsl_version=wsl_version,
        kubernetes=kubernetes,
        container=_container(root, env) or ("lxc" if lxcfs else "container" if kubernetes else ""),
        lxcfs=lxcfs,
        ci=_ci(env),
        scheduler=_scheduler(env),
        notebook="colab" if _says(env, "COLAB_RELEASE_TAG") else "",
        unified_memory=_unified(root, kernel, gpus),
        gpus=gpus,
    )


def surroundings(platform: Platform, *, group_kill: bool, unit_stops: str = "") -> Surroundings:
    """What the reserve is made from. ``group_kill``: ``memory.oom.group`` is set at some level, or may be.

    Only GitHub's runner counts as a CI agent in the same memory: its death loses the job and the log without a word
    (runner-images#9823). GitLab's and Jenkins' usually run elsewhere, or are told.
    """
    return Surroundings(
        unified_memory=bool(platform.unified_memory),
        ci_runner=platform.ci.startswith("github"),
        group_kill=group_kill,
        unit_stops=unit_stops,
        whole_vm=platform.wsl_version == 2,
    )


def usable_cores(root: SystemRoot) -> int:
    """At least 1. A quota of 1.5 cores counts as 2."""
    return read_cores(root).count


def read_cores(root: SystemRoot, *, allowed: int | None = None) -> Cores:
    """The least of affinity and the quotas from our own cgroup up. ``allowed``: cores by affinity; asked when None."""
    count = allowed if allowed is not None else len(os.sched_getaffinity(0))
    best = Cores(count=max(1, count), source="affinity of this process")
    for directory in controller_directories(root, "cpu"):
        quota, source = _quota(root, directory)
        if quota is not None and max(1, math.ceil(quota)) < best.count:
            best = Cores(count=max(1, math.ceil(quota)), source=source)
    return best


def read_architecture(root: SystemRoot) -> str:
    """``x86_64``, ``aarch64`` …; empty when no file says it.

    /proc/sys/kernel/arch is there from Linux 6.1 on; before that /proc/cpuinfo has lines that only one family has.
    """
    words = (root.text("/proc/sys/kernel/arch") or "").split()
    if words:
        return words[0]
    cpuinfo = root.text("/proc/cpuinfo") or ""
    for mark, architecture in (("vendor_id\t", "x86_64"), ("CPU implementer\t", "aarch64"), ("POWER", "ppc64le")):
        if mark in cpuinfo:
            return architecture
    return ""


def boot_id(root: SystemRoot) -> str:
    """Of this run of the kernel: a folder may outlive it, or be another machine's too; empty when unreadable."""
    return (root.text("/proc/sys/kernel/random/boot_id") or "").strip()[:64]


def gpu_models(root: SystemRoot) -> tuple[str, ...]:
    """Names of the GPUs of NVIDIA's driver, in order of their PCI address. Reading one wakes it if it sleeps."""
    models = [labelled(root.text(f"{GPUS}/{address}/information") or "", "Model") for address in root.names(GPUS)]
    return tuple(model for model in models if model)


def _is_kubernetes(root: SystemRoot, env: Mapping[str, str]) -> bool:
    """The variable, the token's folder, or a cgroup of kubelet's: a pod may lack any two of them."""
    return (
        _says(env, "KUBERNETES_SERVICE_HOST")
        or any(root.exists(folder) for folder in _TOKEN_FOLDERS)
        or "kubepods" in (root.text("/proc/self/cgroup") or "")
    )


def _wsl_version(root: SystemRoot, kernel: str) -> Literal[0, 1, 2]:
    """By the kernel's name, or, with a kernel of one's own, by the bridge to Windows's programs. A container inside of
    WSL2 has the first."""
    if _WSL1_KERNEL.match(kernel):
        return 1
    is_wsl = "microsoft" in kernel.lower() or root.exists("/proc/sys/fs/binfmt_misc/WSLInterop")
    return 2 if is_wsl else 0


def _container(root: SystemRoot, env: Mapping[str, str]) -> str:
    """Docker leaves /.dockerenv, podman /run/.containerenv; others name themselves to systemd or in ``container``.

    CRI-O leaves an empty /run/.containerenv too, and podman an empty one where it is not privileged: which of both is
    not told apart, and makes no difference here.
    """
    if root.exists("/.dockerenv"):
        return "docker"
    if root.exists("/run/.containerenv"):
        return "podman"
    named = (env.get("container") or root.text("/run/systemd/container") or "").strip().lower()
    if named in ("docker", "podman"):
        return named
    if named in _LXC_NAMES:
        return "lxc"
    if named or _says(env, "APPTAINER_CONTAINER") or _says(env, "SINGULARITY_CONTAINER"):
        return "container"
    return ""


def _has_lxcfs(mountinfo: str) -> bool:
    """lxcfs is mounted over /proc/meminfo itself: fifth field, and the type after the dash (kernel doc proc.rst)."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 4 and fields[4] == "/proc/meminfo" and after.split(" ")[0] == "fuse.lxcfs":
            return True
    return False


def _ci(env: Mapping[str, str]) -> str:
    if _says(env, "GITHUB_ACTIONS"):
        return "github-hosted" if env.get("RUNNER_ENVIRONMENT", "").strip().lower() == "github-hosted" else "github"
    if _says(env, "GITLAB_CI"):
        return "gitlab"
    return "ci" if any(_says(env, name) for name in ("CI", "TF_BUILD", "JENKINS_URL")) else ""


def _scheduler(env: Mapping[str, str]) -> Literal["", "slurm", "lsf", "pbs"]:
    if _says(env, "SLURM_JOB_ID") or _says(env, "SLURM_JOBID"):
        return "slurm"
    if _says(env, "LSB_JOBID"):
        return "lsf"
    return "pbs" if _says(env, "PBS_JOBID") else ""


def _unified(root: SystemRoot, kernel: str, gpus: tuple[str, ...]) -> str:
    """What says that CPU and GPU share one pool.

    GB10 by its name (not GB100 or GB102: those have memory of their own), or by the board where the driver is not
    loaded. Jetson by its device tree; a container hides that (/sys/firmware is masked), but not the kernel's name, the
    SoC's family and the GPU's.
    """
    for model in gpus:
        if _GB10.search(model):
            return "NVIDIA GB10"
        if _JETSON_GPU.search(model):
            return "Jetson"
    if _SPARK.search(root.text("/sys/class/dmi/id/product_name") or ""):
        return "NVIDIA GB10"
    family = (root.text("/sys/devices/soc0/family") or "").strip().lower()
    if "nvidia,tegra" in (root.text("/proc/device-tree/compatible") or "") or family == "tegra":
        return "Jetson"
    return "Jetson" if kernel.endswith("-tegra") else ""


def _says(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "").strip().lower() not in ("", "0", "false", "no")


def _quota(root: SystemRoot, directory: str) -> tuple[float | None, str]:
    """Cores that one cgroup's quota allows (v2 ``cpu.max``, v1 ``cpu.cfs_quota_us``); None without one."""
    quota, _, period = (root.text(f"{directory}/cpu.max") or "").strip().partition(" ")
    if quota:
        return _share(quota, period), f"{directory}/cpu.max"
    text = root.text(f"{directory}/cpu.cfs_quota_us") or ""
    return _share(text, root.text(f"{directory}/cpu.cfs_period_us") or ""), f"{directory}/cpu.cfs_quota_us"


def _share(quota: str, period: str) -> float | None:
    """Cores that a quota allows; None without one (``max``, -1)."""
    allowed, each = whole_number(quota), whole_number(period)
    return allowed / each if allowed and each else None
