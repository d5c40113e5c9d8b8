"""A CUDA toolkit that builddoctor put together, and the packages that it is made of.

Does *not* cover: putting it together (``toolkits``), or toolkits that were here before (``model.toolkit``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["managed", "system", "conda", "wheels", "named"]


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """One of NVIDIA's packages, as it was merged in."""

    name: str
    version: str
    file: str
    """name of the wheel"""
    sha256: str
    """of the wheel"""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in a managed toolkit, as ``builddoctor-toolkit.json`` there."""

    schema: int = 1
    name: str
    """``cuda-13.0.88-x86_64``: its folder"""
    version: str
    """nvcc's"""
    release: str
    """the toolkit's release that pins the packages: ``13.0.3.0``"""
    arch: Literal["x86_64", "aarch64"]
    components: tuple[str, ...]
    """what ``--with`` asked for, since it was first installed"""
    packages: tuple[Package, ...]


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """What ``toolkit install`` came to."""

    path: str
    """CUDA_HOME"""
    toolkit: Manifest
    already: bool = False
    """it was there as asked for: nothing was done"""
    fetched_mib: float = 0.0


class PlannedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """What an installation would take."""

    requirement: str
    cached: bool
    """the wheel is in the cache"""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What ``toolkit install`` would do. Sizes are those of release 13.0: what will come is known when it has come."""

    release: str
    arch: str
    components: tuple[str, ...]
    packages: tuple[PlannedPackage, ...]
    folder: str
    """where the toolkit's own folder would be made"""
    fetch_mib: float
    disk_mib: float
    free_mib: float | None


class FoundToolkit(msgspec.Struct, frozen=True, kw_only=True):
    """One CUDA toolkit of this machine."""

    path: str
    """what ``--toolkit`` and CUDA_HOME take"""
    version: str = ""
    """nvcc's; empty when it did not say"""
    kind: Kind
    arch: str
    lacks: tuple[str, ...] = ()
    """of nvcc, cudart, cublas, cudnn …: what a build would not find in it"""
    problem: str = ""
    """why it cannot be used"""
