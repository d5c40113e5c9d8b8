"""What this machine can do. A missing capability fails its tests unless BUILDDOCTOR_ALLOW_SKIP names it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from support.memcg import hierarchy
from support.slurm import has_slurm

SBIN = "/usr/sbin:/sbin"
CGROUP_V1 = Path("/sys/fs/cgroup/memory")


def has_nvcc() -> bool:
    """A CUDA compiler that the tests may use: on PATH, in /usr/local/cuda, or where BUILDDOCTOR_TEST_CUDA says."""
    return find_nvcc() is not None


def find_nvcc() -> Path | None:
    named = os.environ.get("BUILDDOCTOR_TEST_CUDA")
    places = [Path(named) / "bin" / "nvcc"] if named else []
    places += [Path("/usr/local/cuda/bin/nvcc")]
    on_path = shutil.which("nvcc")
    if on_path:
        places.append(Path(on_path))
    return next((place for place in places if place.is_file()), None)


def has_memcg() -> bool:
    """Memory cgroups of our own can be made, v1 or v2."""
    return hierarchy() is not None


def has_unshare() -> bool:
    """Root that may make mount and network namespaces."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "-n", "true"], check=False).returncode == 0


def has_loop() -> bool:
    """Root that may mount a disk that is a file: loop devices and ext4."""
    if not has_unshare() or shutil.which("mkfs.ext4") is None:
        return False
    with tempfile.TemporaryDirectory(prefix="bd-test-probe-") as folder:
        image = f"{folder}/image"
        script = 'truncate -s 1M "$0" && mkfs.ext4 -q "$0" && mkdir "$0-at" && mount -o loop "$0" "$0-at"'
        tried = subprocess.run(["unshare", "--mount", "sh", "-c", script, image], capture_output=True, check=False)
        return tried.returncode == 0


def has_cmake() -> bool:
    return shutil.which("cmake") is not None and shutil.which("ninja") is not None


def has_tmux() -> bool:
    return shutil.which("tmux") is not None


def has_openssh() -> bool:
    """Its program that makes keys and signs with them."""
    return shutil.which("ssh-keygen") is not None


def has_cvise() -> bool:
    return shutil.which("cvise") is not None


def has_chromium() -> bool:
    """A browser for the page, and what drives it."""
    return shutil.which("chromium") is not None and shutil.which("chromedriver") is not None


def has_cuda_packages() -> bool:
    """The package index that pip is configured for can be reached, and has NVIDIA's packages."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
        argv = [sys.executable, *words, folder, "cuda-toolkit==13.0.*"]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0


def has_qemu() -> bool:
    """What ``scripts/vm`` makes its images with, and boots them."""
    programs = ("qemu-system-x86_64", "mmdebstrap", "mke2fs", "cpio", "depmod", "modprobe", "xz", "zstd")
    return all(shutil.which(name) is not None for name in programs)


def has_sshd() -> bool:
    """An ssh server that we may start: it wants root."""
    return os.geteuid() == 0 and shutil.which("ssh") is not None and shutil.which("sshd", path=SBIN) is not None


CAPABILITIES: dict[str, Callable[[], bool]] = {
    "nvcc": has_nvcc,
    "memcg": has_memcg,
    "cmake": has_cmake,
    "unshare": has_unshare,
    "loop": has_loop,
    "chromium": has_chromium,
    "tmux": has_tmux,
    "cvise": has_cvise,
    "qemu": has_qemu,
    "openssh": has_openssh,
    "slurm": has_slurm,
    "sshd": has_sshd,
    "cuda_packages": has_cuda_packages,
}
"""Marker ``needs_NAME`` to the check."""


def allowed_to_skip() -> set[str]:
    return {name.strip() for name in os.environ.get("BUILDDOCTOR_ALLOW_SKIP", "").split(",") if name.strip()}
