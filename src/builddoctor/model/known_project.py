"""What is known of one project before its first build here: how it is built, and what that takes.

Does *not* cover: which projects (``projects.catalogue``), finding them (``projects.known``), or carrying it out
(``projects.plan``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

Library = Literal[
    "cublas", "cudart", "cudnn", "curand", "cusolver", "cusparse", "nccl", "nvml", "nvrtc", "nvtx", "profiler"
]

Spelling = Literal["number", "dotted"]
"""of an architecture: ``100a`` or ``10.0a``"""


class ArchKnob(msgspec.Struct, frozen=True, kw_only=True):
    """Where a project reads its architectures from."""

    variable: str
    """an environment variable, or a CMake cache variable as ``-DNAME``, which goes into ``CMAKE_ARGS``"""
    spelling: Spelling
    separator: str = ";"
    letters: bool = True
    """it takes ``100a``; else the letter is left out, and the project itself knows which sources need it"""
    ptx: bool = False
    """it takes ``+PTX``"""


class Knob(msgspec.Struct, frozen=True, kw_only=True):
    """A variable that says how many at once, and what holds without it."""

    variable: str
    default: str = ""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A part that a build can do without."""

    name: str
    off: str
    """the setting that leaves it out"""
    what: str
    """what is missing then"""


class VersionNote(msgspec.Struct, frozen=True, kw_only=True):
    """What is different from some version on."""

    since: str = ""
    """first version that it is true of; empty: from the beginning"""
    until: str = ""
    """first version that it is no longer true of; empty: still is"""
    text: str


class KnownProject(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a project, each from its sources or from a measurement."""

    name: str
    """as it is imported: ``flash_attn``"""
    title: str
    """as its people write it: ``FlashAttention 2``"""
    aliases: tuple[str, ...] = ()
    """further names that people type; dashes, underscores and case make no difference"""
    repository: str = ""
    """what to clone"""
    marks: tuple[str, ...] = ()
    """files and folders that its checkout alone has, all of them; empty where its name must do"""
    needed_submodules: tuple[str, ...] = ()
    """submodules that a CUDA build reads, in any version; those that a checkout does not have do not count"""
    needed_libraries: tuple[Library, ...] = ()
    """headers and libraries of CUDA that its build looks for, beyond the compiler's own"""
    always_cuda: bool = False
    """there is no building it without nvcc: no option leaves CUDA out, and no finished wheel comes instead"""
    needs_torch: bool = False
    """its build fails at once where torch cannot be imported"""
    optional_packages: tuple[str, ...] = ()
    """packages in its ``build-system.requires`` that it also builds without"""
    python_cmake_first: bool = False
    """it takes the cmake of its python's packages before the one on PATH"""
    force_build: str = ""
    """the setting without which it takes a finished wheel from the network and compiles nothing"""
    avoids_sccache: str = ""
    """it uses sccache by its mere presence on PATH; the setting that stops that"""
    heavy_phase_mib: float | None = None
    """the most that one compiler process (or one nvcc thread) took; None when nobody said so"""
    heavy_source: str = ""
    """where that figure comes from"""
    tag: str = "v{version}"
    """of a release in the repository"""
    subfolder: str = ""
    """the folder of the checkout that is built"""
    package: str = ""
    """its source distribution in the package index; empty where that cannot be built from"""
    no_package: str = ""
    """why its source distribution cannot be built from, or that there is none"""
    backend: str = ""
    """what builds it, in words: ``setup.py, CMake and Ninja``"""
    jobs: tuple[Knob, ...] = ()
    """of build jobs, the one that counts most first"""
    threads: Knob | None = None
    """of nvcc's threads in one job"""
    archs: ArchKnob | None = None
    fixed_archs: str = ""
    """why architectures cannot be chosen, or not all of them"""
    settings: tuple[str, ...] = ()
    """set for every build; ``{build}`` stands for the folder that is kept from one build to the next"""
    cmake_args: tuple[str, ...] = ()
    """what ``CMAKE_ARGS`` has to hold"""
    config_settings: tuple[str, ...] = ()
    """for the build backend, as ``pip wheel -C`` takes them; ``{build}`` as above"""
    components: tuple[Component, ...] = ()
    debug_off: str = ""
    """the setting that builds without debug information"""
    traps: tuple[str, ...] = ()
    """what goes wrong there, a sentence each"""
    versions: tuple[VersionNote, ...] = ()
