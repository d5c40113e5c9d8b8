"""The programs that a build runs beside compilers: cmake, ninja, make, and the python that builds.

Does *not* cover: finding them (``intercept.build_tools``), judging them (``doctor.build_tools``, ``doctor.python``), or
compilers (``model.toolkit``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

Origin = Literal["path", "package", "folder"]


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program that exists."""

    name: str
    path: str
    version: str = ""
    """as it says itself, ``1.13.0``; empty when it does not run, or was not asked"""
    problem: str = ""
    """why it does not run"""
    silent: bool = False
    """it did not answer in time, which is no proof that it does not run: a network file system is slow at first"""
    origin: Origin = "path"
    """on PATH, in the packages of the python that builds, or named by a folder that was configured before"""


class Torch(msgspec.Struct, frozen=True, kw_only=True):
    """torch as its version.py says, without importing it."""

    version: str
    cuda: str = ""
    """the CUDA that it was made with, ``12.8``; empty for one without"""
    rocm: bool = False
    folder: str = ""


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """A package that is installed for the python that builds."""

    name: str
    version: str


class BuildPython(msgspec.Struct, frozen=True, kw_only=True):
    """The python that pip builds with."""

    path: str
    version: str = ""
    problem: str = ""
    """why it does not run; then nothing else here means anything"""
    silent: bool = False
    """it did not answer in time; ``problem`` says so"""
    include: str = ""
    """where its headers should be"""
    headers: bool = False
    """Python.h is there"""
    virtual: bool = False
    """a virtual environment, whose headers come from the python that it was made from"""
    conda: bool = False
    packages: tuple[Package, ...] = ()
    """those of pip, setuptools, wheel, ninja, cmake, pybind11 and the project's own requirements that are installed"""
    missing_backend: str = ""
    """the module of the project's build-backend, when it cannot be found"""
    torch: Torch | None = None

    def version_of(self, name: str) -> str:
        """Of a package, empty when it is not installed."""
        return next((package.version for package in self.packages if package.name == name), "")


class BuildTools(msgspec.Struct, frozen=True, kw_only=True):
    """What a build would find now. Gates of ours on PATH are left out."""

    cmakes: tuple[Program, ...] = ()
    """on PATH in its order, one entry a real file; last the one in python's packages when PATH does not have it"""
    ninjas: tuple[Program, ...] = ()
    """likewise; as CMake looks: every ``ninja-build`` before every ``ninja`` before every ``samu``"""
    configured_ninjas: tuple[Program, ...] = ()
    """those that the project's build folders were configured with; only those that are on PATH or in python's packages,
    too, have a version"""
    make: str = ""
    git: str = ""
    ccache: str = ""
    sccache: str = ""
    python: BuildPython | None = None
    """None when there is none on PATH"""
