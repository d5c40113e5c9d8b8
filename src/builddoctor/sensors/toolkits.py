"""Where CUDA compilers may be on this machine: candidates only; each must prove itself (``intercept.toolkit``).

Order: what the user named (``--toolkit``), CUDACXX, CUDA_HOME and CUDA_PATH, the nvcc on PATH, conda's prefix, the pip
wheels of this Python (``nvidia/cu13``), /usr/local/cuda, /usr/local/cuda-X (newest first), managed ones
(``builddoctor toolkit install``), Debian's split layout.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.search_path import first_program

OVERLAY_MARK = ".builddoctor-overlay"
"""A folder with this file in it is an overlay of ours, not a toolkit."""

_VERSION = re.compile(r"\A\d+(\.\d+)*\Z")


def candidates(
    root: SystemRoot, env: Mapping[str, str], *, wanted: str, site_folders: Sequence[Path]
) -> Iterator[Path]:
    """Paths of nvcc programs that exist, best first, without our own overlays. May repeat."""
    for path in _guesses(root, env, wanted=wanted, site_folders=site_folders):
        if os.path.isfile(path) and not is_overlay(path):
            yield path


def is_overlay(nvcc: Path) -> bool:
    """This nvcc is a gate of ours."""
    return os.path.exists(nvcc.parent.parent / OVERLAY_MARK)


def lost_homes(env: Mapping[str, str]) -> list[str]:
    """Those of CUDA_HOME and CUDA_PATH that name no toolkit, nor anything of one: torch takes them as they are."""
    parts = ("bin/nvcc", "include/cuda.h", "include/cuda_runtime.h", "include/cuda_runtime_api.h")
    return [
        name
        for name in ("CUDA_HOME", "CUDA_PATH")
        if env.get(name) and not any(os.path.exists(os.path.join(env[name], part)) for part in parts)
    ]


def _guesses(root: SystemRoot, env: Mapping[str, str], *, wanted: str, site_folders: Sequence[Path]) -> Iterator[Path]:
    if wanted and not _VERSION.match(wanted):
        # Absolute: nvcc is asked from another folder.
        named = Path(os.path.abspath(os.path.expanduser(wanted)))
        yield named if named.name == "nvcc" else named / "bin" / "nvcc"
        return
    installed = _by_version(root)
    managed = _managed(root, env)
    if wanted:
        yield from (nvcc for version, nvcc in managed + installed if _matches(version, wanted))
    if env.get("CUDACXX"):
        program = env["CUDACXX"]
        if found := program if "/" in program else first_program(program, env):
            yield Path(found)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if env.get(name):
            yield Path(env[name]) / "bin" / "nvcc"
    for folder in env.get("PATH", "").split(":"):
        # Another entry stands for the current folder, which may be somebody's source tree.
        if folder.startswith("/"):
            yield Path(folder) / "nvcc"
    if env.get("CONDA_PREFIX"):
        yield Path(env["CONDA_PREFIX"]) / "bin" / "nvcc"
    for site in site_folders:
        yield from sorted(_matches_in(site, "nvidia/cu[0-9]*/bin/nvcc"), reverse=True)
        yield site / "nvidia" / "cuda_nvcc" / "bin" / "nvcc"
    yield root.at("/usr/local/cuda/bin/nvcc")
    yield from (nvcc for _, nvcc in installed + managed)
    yield root.at("/usr/lib/nvidia-cuda-toolkit/bin/nvcc")


def _matches_in(folder: Path, pattern: str) -> list[Path]:
    """As ``folder.glob``; a folder that may not be read holds nothing, where pathlib would raise."""
    return [Path(path) for path in glob.glob(f"{glob.escape(str(folder))}/{pattern}")]


def _by_version(root: SystemRoot) -> list[tuple[Version, Path]]:
    """Toolkits in /usr/local/cuda-X and /opt/cuda-X, newest first."""
    found: list[tuple[Version, Path]] = []
    for parent in ("/usr/local", "/opt"):
        for folder in _matches_in(root.at(parent), "cuda-*"):
            try:
                found.append((Version(folder.name.removeprefix("cuda-")), folder / "bin" / "nvcc"))
            except InvalidVersion:
                continue
    return sorted(found, reverse=True)


def managed_folder(root: SystemRoot, env: Mapping[str, str]) -> Path | None:
    """Where ``toolkit install`` keeps toolkits. None without a HOME."""
    named = env.get("BUILDDOCTOR_DATA_DIR")
    if named:
        return Path(os.path.abspath(named), "toolkits")
    base = env.get("XDG_DATA_HOME", "")
    if not base.startswith("/"):
        base = f"{env['HOME']}/.local/share" if env.get("HOME", "").startswith("/") else ""
    return root.at(f"{base}/builddoctor/toolkits") if base else None


def _managed(root: SystemRoot, env: Mapping[str, str]) -> list[tuple[Version, Path]]:
    """Managed toolkits for this machine's processor, newest first."""
    folder = managed_folder(root, env)
    found: list[tuple[Version, Path]] = []
    for home in _matches_in(folder, f"cuda-*-{os.uname().machine}") if folder is not None else []:
        try:
            found.append((Version(home.name.split("-")[1]), home / "bin" / "nvcc"))
        except InvalidVersion:
            continue
    return sorted(found, reverse=True)


def _matches(version: Version, wanted: str) -> bool:
    parts = [int(part) for part in wanted.split(".")]
    return list(version.release[: len(parts)]) == parts
