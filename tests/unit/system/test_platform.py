"""What kind of place this is, and its cores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.core.limits import Surroundings
from builddoctor.core.machine import Platform
from builddoctor.system.platform import read_platform, surroundings, usable_cores
from builddoctor.system.root import page_size
from unit.numa_trees import GPUS, dgx_spark, gb200_tray, gpus, system
from unit.trees import TextRoot, plant

LXCFS = "512 490 0:52 /proc/meminfo /proc/meminfo rw,nosuid,nodev,relatime master:20 - fuse.lxcfs lxcfs rw,user_id=0\n"


def platform(files: dict[str, str] | None = None, **env: str) -> Platform:
    return read_platform(TextRoot(files), env)


def test_nothing_to_read_is_a_plain_place() -> None:
    """No file, no variable: every answer is empty, and the page is this kernel's own."""
    assert platform() == Platform(page_kib=page_size() // 1024)


def test_architecture_falls_back_to_what_the_caller_knows() -> None:
    """Linux says it from 6.1 on; cpuinfo before; else the interpreter."""
    assert read_platform(TextRoot(system("aarch64")), {}, machine="x86_64").architecture == "aarch64"
    old = {"/proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\n"}
    assert read_platform(TextRoot(old), {}, machine="riscv64").architecture == "x86_64"
    assert read_platform(TextRoot(), {}, machine="riscv64").architecture == "riscv64"


@pytest.mark.parametrize(("page_bytes", "page_kib"), [(4096, 4), (16384, 16), (65536, 64), (0, 1), (-1, 1)])
def test_pages_of_any_size(page_bytes: int, page_kib: int) -> None:
    """64 KiB is the default on Grace."""
    assert read_platform(TextRoot(), {}, page_bytes=page_bytes).page_kib == page_kib


@pytest.mark.parametrize(
    ("kernel", "version"),
    [
        ("5.15.153.1-microsoft-standard-WSL2", 2),
        ("4.19.104-microsoft-standard", 2),
        ("4.4.0-19041-Microsoft", 1),
        ("6.8.0-1024-azure", 0),
        ("6.18.44", 0),
    ],
)
def test_wsl_is_known_by_its_kernel(kernel: str, version: int) -> None:
    """Azure's kernels are not WSL; WSL1 is no virtual machine, and only WSL2's end takes everything with it."""
    found = platform({"/proc/sys/kernel/osrelease": f"{kernel}\n"})
    assert (found.kernel, found.wsl, found.wsl_version) == (kernel, version > 0, version)
    assert surroundings(found, group_kill=False) == Surroundings(whole_vm=version == 2)


def test_wsl_with_a_kernel_of_ones_own() -> None:
    """The bridge to Windows programs is there."""
    assert platform({"/proc/sys/fs/binfmt_misc/WSLInterop": "enabled\n"}).wsl_version == 2


def test_colab_is_known_by_its_release() -> None:
    """A variable that no other place sets."""
    assert platform(COLAB_RELEASE_TAG="release-colab_20250902-060114_RC00").notebook == "colab"
    assert platform(COLAB_RELEASE_TAG="").notebook == ""


@pytest.mark.parametrize(
    ("files", "env"),
    [
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}),
        ({"/var/run/secrets/kubernetes.io/serviceaccount/namespace": "ci"}, {}),
        ({"/run/secrets/kubernetes.io/serviceaccount/token": ""}, {}),
        ({"/proc/self/cgroup": "9:memory:/kubepods/burstable/pod1/abc\n"}, {}),
    ],
)
def test_kubernetes_by_any_of_its_signs(files: dict[str, str], env: dict[str, str]) -> None:
    """A pod may have no token, and a step may hide the variable. It is in a container, of whatever kind."""
    found = platform(files, **env)
    assert found.kubernetes
    assert found.container == "container"
    assert not platform().kubernetes


@pytest.mark.parametrize(
    ("files", "env", "kind"),
    [
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({"/run/systemd/container": "lxc\n"}, {}, "lxc"),
        ({"/run/systemd/container": "systemd-nspawn\n"}, {}, "container"),
        ({}, {"container": "podman"}, "podman"),
        ({}, {"container": "lxc"}, "lxc"),
        ({}, {"container": "oci"}, "container"),
        ({}, {"APPTAINER_CONTAINER": "/images/cuda.sif"}, "container"),
        ({"/proc/self/mountinfo": LXCFS}, {}, "lxc"),
        ({"/.dockerenv": "", "/proc/self/mountinfo": LXCFS}, {"KUBERNETES_SERVICE_HOST": "1"}, "docker"),
        ({"/run/systemd/container": ""}, {"container": ""}, ""),
    ],
)
def test_kinds_of_container(files: dict[str, str], env: dict[str, str], kind: str) -> None:
    """Empty marker files count by being there."""
    assert platform(files, **env).container == kind


@pytest.mark.parametrize(
    ("mountinfo", "lxcfs"),
    [
        (LXCFS, True),
        (LXCFS.replace(" master:20", ""), True),
        (LXCFS.replace("fuse.lxcfs", "proc"), False),
        (LXCFS.replace("/proc/meminfo", "/var/lib/lxcfs"), False),
        (LXCFS[:40], False),
    ],
)
def test_lxcfs_is_a_mount_over_meminfo(mountinfo: str, lxcfs: bool) -> None:
    """Its own folder on the host is nothing."""
    assert platform({"/proc/self/mountinfo": mountinfo}).lxcfs is lxcfs


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"GITHUB_ACTIONS": "true", "RUNNER_ENVIRONMENT": "github-hosted", "CI": "true"}, "github-hosted"),
        ({"GITHUB_ACTIONS": "true", "RUNNER_ENVIRONMENT": "self-hosted", "CI": "true"}, "github"),
        ({"GITHUB_ACTIONS": "true"}, "github"),
        ({"GITLAB_CI": "true", "CI": "true"}, "gitlab"),
        ({"CI": "1"}, "ci"),
        ({"TF_BUILD": "True"}, "ci"),
        ({"CI": "false"}, ""),
        ({"CI": ""}, ""),
    ],
)
def test_ci(env: dict[str, str], name: str) -> None:
    """The most telling variable wins; ``CI=false`` is no CI."""
    assert platform(**env).ci == name


@pytest.mark.parametrize(
    ("variable", "scheduler"),
    [("SLURM_JOB_ID", "slurm"), ("SLURM_JOBID", "slurm"), ("LSB_JOBID", "lsf"), ("PBS_JOBID", "pbs"), ("JOB_ID", "")],
)
def test_schedulers(variable: str, scheduler: str) -> None:
    """By the job's number."""
    assert platform(**{variable: "4711"}).scheduler == scheduler


def test_gpus_are_named_as_the_driver_names_them(tmp_path: Path) -> None:
    """In order of their address; four on a tray. That is not unified memory: the GPUs have their own."""
    found = read_platform(plant(tmp_path, gb200_tray()), {}, page_bytes=65536)
    assert found.gpus == ("NVIDIA GB200",) * 4
    assert found.unified_memory == ""
    assert (found.architecture, found.page_kib) == ("aarch64", 64)


@pytest.mark.trap(42)
def test_a_spark_has_one_memory_for_both(tmp_path: Path) -> None:
    """By its GPU, or by its board when the driver is not loaded; then the reserve knows."""
    files = dgx_spark()
    assert read_platform(plant(tmp_path, files), {}).unified_memory == "NVIDIA GB10"
    board = {name: text for name, text in files.items() if not name.startswith(GPUS)}
    found = platform(board)
    assert (found.gpus, found.unified_memory) == ((), "NVIDIA GB10")
    assert surroundings(found, group_kill=False).unified_memory


@pytest.mark.trap(42)
@pytest.mark.parametrize(
    "files",
    [
        {"/proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0"},
        {"/proc/device-tree/compatible": "nvidia,p3971-0089+p3834-0008\0nvidia,p3834-0008\0nvidia,tegra264\0"},
        {"/proc/sys/kernel/osrelease": "5.15.148-tegra\n"},
        {"/sys/devices/soc0/family": "Tegra\n"},
        gpus("NVIDIA Thor", ("0000:01:00.0",)),
    ],
)
def test_a_jetson_has_one_memory_for_both(files: dict[str, str]) -> None:
    """Orin, Thor, and either in a container that hides the device tree."""
    assert platform(files).unified_memory == "Jetson"


@pytest.mark.parametrize("model", ["NVIDIA GB100", "NVIDIA GB102GL", "NVIDIA GH200 480GB", "NVIDIA GeForce RTX 5090"])
def test_gpus_with_memory_of_their_own_are_not_unified(model: str) -> None:
    """Names that only look like GB10."""
    assert platform(gpus(model, ("0000:01:00.0",))).unified_memory == ""


@pytest.mark.parametrize(
    ("ci", "runner"), [("github-hosted", True), ("github", True), ("gitlab", False), ("ci", False), ("", False)]
)
def test_a_github_runner_lives_in_the_same_memory(ci: str, runner: bool) -> None:
    """Whoever hosts it: the agent is a process beside the build."""
    assert surroundings(Platform(ci=ci), group_kill=False) == Surroundings(ci_runner=runner)


def test_group_kill_is_the_cgroups_to_say() -> None:
    """It is passed on."""
    assert surroundings(Platform(), group_kill=True) == Surroundings(group_kill=True)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00\x01", b"Model\n", b" - \n : \n", b"0" * 5000])
def test_garbage_in_every_file_is_no_error(tmp_path: Path, content: bytes) -> None:
    """Nothing is made of it."""
    found = read_platform(plant(tmp_path, dict.fromkeys(dgx_spark(), content)), {})
    assert (found.gpus, found.unified_memory, found.wsl, found.lxcfs) == ((), "", False, False)


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000", 8),
        ("400000 100000", 4),
        ("150000 100000", 2),
        ("50000 100000", 1),
        ("6400000 100000", 8),
        ("400000 0", 8),
        ("", 8),
        ("400000", 8),
        ("many 100000", 8),
        ("² 100000", 8),
    ],
)
def test_a_v2_quota_limits_the_cores(tmp_path: Path, quota: str, cores: int) -> None:
    """Rounded up, never above the cores we may run on, never below one; what is no quota limits nothing."""
    assert usable_cores(plant(tmp_path, {"/sys/fs/cgroup/cpu.max": quota})) == cores


@pytest.mark.parametrize(
    ("quota", "period", "cores"), [("-1", "100000", 8), ("250000", "100000", 3), ("250000", "0", 8), ("250000", "", 8)]
)
def test_a_v1_quota_limits_the_cores(tmp_path: Path, quota: str, period: str, cores: int) -> None:
    """-1 means none."""
    files = {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": quota, "/sys/fs/cgroup/cpu/cpu.cfs_period_us": period}
    assert usable_cores(plant(tmp_path, files)) == cores


def test_without_a_quota_the_affinity_counts(tmp_path: Path) -> None:
    """taskset and cpusets are seen this way."""
    assert usable_cores(plant(tmp_path, {})) == 8
