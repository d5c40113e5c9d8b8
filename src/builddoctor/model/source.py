"""A project's source tree as the doctor finds it: submodules, what its build files say, folders configured before.

Does *not* cover: reading it (``sensors.source``) or judging it (``doctor.source``, ``doctor.build_folders``).
"""

from __future__ import annotations

import msgspec


class Submodule(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a .gitmodules."""

    path: str
    """from the top of the checkout, ``3rdparty/cutlass``"""
    url: str = ""
    present: bool = False
    """its folder holds something beside a ``.git``"""
    named_in: str = ""
    """the build file that names its path, from the project's folder; empty when none does, and not
    looked for where the submodule is present"""
    certain: bool = False
    """that file names it outside of all conditions: its build does not do without"""
    nested: bool = False
    """a submodule of a submodule"""


class BuildFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that CMake configured, or that ninja built in. What was not there is empty."""

    path: str
    configured: bool = False
    """there is a CMakeCache.txt"""
    archs: str = ""
    """``CMAKE_CUDA_ARCHITECTURES`` as it stands there: ``90;100a``"""
    cuda_compiler: str = ""
    cuda_version: str = ""
    """of that compiler when the folder was configured, ``13.0.88``"""
    cxx_compiler: str = ""
    host_compiler: str = ""
    """what is set there for nvcc's host compiler: the compiler, or the flags that name or allow one, or a toolchain
    file that may"""
    policy_minimum: str = ""
    """``CMAKE_POLICY_VERSION_MINIMUM``"""
    make_program: str = ""
    generator: str = ""
    home: str = ""
    """the source folder that it was configured for"""
    moved_from: str = ""
    """the folder, or the source, that CMake expects and that is not there any more: it refuses to configure"""
    other_source: str = ""
    """the source folder that it was configured for, where that is there and is not this project's"""
    launchers: tuple[tuple[str, str], ...] = ()
    """(variable, program) of ``CMAKE_<LANG>_COMPILER_LAUNCHER``"""
    ninja_log: int | None = None
    """version of a .ninja_log that holds something: 5 up to ninja 1.11, 6 for 1.12, 7 from 1.13"""
    gone: tuple[str, ...] = ()
    """those of the programs named here that do not exist any more"""
    overlays: tuple[str, ...] = ()
    """those of the programs named here that are builddoctor's gates, there or gone"""


class BuildFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What setup.py, pyproject.toml and the CMake files say, as text: nothing in them was run."""

    read: int = 0
    """how many files were read"""
    truncated: bool = False
    """there were more, or larger ones, than are read"""
    backend: str = ""
    """``build-backend`` of pyproject.toml, ``scikit_build_core.build``"""
    requires: tuple[str, ...] = ()
    """``build-system.requires``"""
    uses_cmake: bool = False
    """the build runs cmake"""
    cmake_minimum: str = ""
    """``cmake_minimum_required`` of the outermost CMakeLists.txt, ``3.21`` or ``3.5...3.29``; the lowest of several"""
    cmake_minimum_certain: bool = False
    """it stands in the project's own CMakeLists.txt, outside of all conditions"""
    cuda: str = ""
    """the build file that speaks of compiling CUDA code; empty when none does"""
    cuda_certain: bool = False
    """and it does so outside of all conditions"""
    host_compiler: str = ""
    """the file that chooses nvcc's host compiler, or has nvcc take any"""
    uses_torch: str = ""
    """the file that imports or looks for torch"""
    imports_torch: bool = False
    """setup.py cannot be read by Python without torch: it is imported at its top level"""
    fetches_submodules: str = ""
    """the file that runs `git submodule` itself"""
    uses_sccache: str = ""
    """the file that names sccache"""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A project's folder."""

    folder: str
    checkout: str = ""
    """top of the git checkout that the folder is in; empty for an archive or a source distribution"""
    python: bool = False
    """pip builds it: there is a setup.py or a pyproject.toml"""
    cmake: bool = False
    """it has a CMakeLists.txt at its top"""
    submodules: tuple[Submodule, ...] = ()
    files: BuildFiles = BuildFiles()
    build_folders: tuple[BuildFolder, ...] = ()
    unread: tuple[str, ...] = ()
    """what is there and could not be read"""
