"""All CUDA toolkits of this machine, and what each lacks.

Asks every nvcc that ``toolchain.discover`` knows of. Managed ones for another processor are named without being
asked.
Does *not* cover: choosing one (``toolchain.discover``), or whether a host compiler suits it (``doctor``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from builddoctor.core.toolchain import HEADER_ONLY, LIBRARIES, Toolkit
from builddoctor.core.word import Word
from builddoctor.gates.subprocesses import run_captured
from builddoctor.system.root import SystemRoot
from builddoctor.toolchain import cuda_libraries
from builddoctor.toolchain.discover import Trouble, candidates, probe
from builddoctor.toolkits.managed import manifests


class ToolkitKind(Word):
    """Where a toolkit comes from."""

    MANAGED = "managed"
    """builddoctor put it together"""
    SYSTEM = "system"
    CONDA = "conda"
    WHEELS = "wheels"
    """NVIDIA's packages for python, as they were installed"""
    NAMED = "named"
    """somewhere else, named by the user"""


class FoundToolkit(msgspec.Struct, frozen=True, kw_only=True):
    """One CUDA toolkit of this machine."""

    path: str
    """what ``--toolkit`` and CUDA_HOME take"""
    version: str = ""
    """nvcc's; empty when it did not say"""
    kind: ToolkitKind
    arch: str
    lacks: tuple[str, ...] = ()
    """of nvcc, cudart, cublas, cudnn …: what a build would not find in it"""
    problem: str = ""
    """why it cannot be used"""


def all_toolkits(
    root: SystemRoot, env: Mapping[str, str], *, site_folders: Sequence[Path], managed: Path | None
) -> list[FoundToolkit]:
    """Each once, the one that a build would take first. Never raises for what is on the machine."""
    found: list[FoundToolkit] = []
    seen: set[str] = set()
    for nvcc in candidates(root, env, wanted="", site_folders=site_folders):
        real = os.path.realpath(nvcc)
        if real in seen:
            continue
        seen.add(real)
        kind = _kind(nvcc, env, site_folders, managed)
        answer = probe(nvcc, env, run=run_captured)
        if isinstance(answer, Trouble):
            path = str(nvcc.parent.parent if nvcc.parent.name == "bin" else nvcc)
            found.append(FoundToolkit(path=path, kind=kind, arch=cuda_libraries.machine_name(), problem=answer.text))
            continue
        home = os.path.realpath(answer.home)
        if home not in seen:
            seen.add(home)
            found.append(_described(root, answer, kind, nvcc))
    found += [_managed(root, path) for path in _others(managed, seen)]
    if wheels := cuda_libraries.wheels_without_nvcc(root, site_folders):
        found.append(
            FoundToolkit(
                path=wheels, kind=ToolkitKind.WHEELS, arch=cuda_libraries.machine_name(), lacks=("nvcc", "cudafe++")
            )
        )
    return found


def _described(root: SystemRoot, toolkit: Toolkit, kind: ToolkitKind, nvcc: Path) -> FoundToolkit:
    machine = cuda_libraries.machine_name()
    facts = cuda_libraries.toolkit_facts(root, {}, toolkit=toolkit, machine=machine)
    # Debian spreads its toolkit over /usr.
    spread = toolkit.home.startswith("/usr/lib")
    lacks = missing(root, toolkit, machine, spread=spread)
    if facts.links is False:
        lacks = ("libcudart_static.a where nvcc looks", *lacks)
    path = toolkit.home if nvcc.parent.name == "bin" else str(nvcc)
    return FoundToolkit(path=path, version=toolkit.version, kind=kind, arch=machine, lacks=lacks)


def missing(root: SystemRoot, toolkit: Toolkit, machine: str, *, spread: bool = False) -> tuple[str, ...]:
    """Of LIBRARIES those that a build does not find in the toolkit: by name, or by the file that ``-lX`` would take."""
    copies = cuda_libraries.library_copies(root, {}, toolkit=toolkit, site_folders=(), machine=machine)
    kinds = ("toolkit", "system") if spread else ("toolkit",)
    lacks: list[str] = []
    for name in LIBRARIES:
        there = [copy for copy in copies if copy.name == name and copy.kind in kinds]
        if not any(copy.header for copy in there):
            lacks.append(name)
        elif name not in HEADER_ONLY and not any(copy.linkable for copy in there):
            lacks.append(f"lib{name}.so")
    return tuple(lacks)


def _kind(nvcc: Path, env: Mapping[str, str], site_folders: Sequence[Path], managed: Path | None) -> ToolkitKind:
    real = Path(os.path.realpath(nvcc))
    if managed is not None and real.is_relative_to(os.path.realpath(managed)):
        return ToolkitKind.MANAGED
    if env.get("CONDA_PREFIX") and real.is_relative_to(os.path.realpath(env["CONDA_PREFIX"])):
        return ToolkitKind.CONDA
    if (nvcc.parent.parent.parent / "conda-meta").is_dir() or (real.parent.parent / "conda-meta").is_dir():
        return ToolkitKind.CONDA
    if any(real.is_relative_to(os.path.realpath(site)) for site in site_folders):
        return ToolkitKind.WHEELS
    return ToolkitKind.SYSTEM if real.is_relative_to("/usr") or real.is_relative_to("/opt") else ToolkitKind.NAMED


def _others(managed: Path | None, seen: set[str]) -> list[Path]:
    """Managed ones that no nvcc here stood for."""
    paths = [path for path, _ in manifests(managed)] if managed is not None else []
    return [path for path in paths if not {os.path.realpath(path), os.path.realpath(path / "bin" / "nvcc")} & seen]


def _managed(root: SystemRoot, home: Path) -> FoundToolkit:
    manifest = dict(manifests(home.parent))[home]
    toolkit = Toolkit(
        nvcc=f"{home}/bin/nvcc", version=manifest.version, here=f"{home}/bin", top=str(home), cicc="", tools=()
    )
    return FoundToolkit(
        path=str(home),
        version=manifest.version,
        kind=ToolkitKind.MANAGED,
        arch=manifest.arch,
        lacks=missing(root, toolkit, manifest.arch),
    )
