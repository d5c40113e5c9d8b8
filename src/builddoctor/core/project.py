"""A project as data: its sources, and what the catalogue knows of it before its first build here.

Covers: which sources are wanted and which were obtained; facts of a source tree; ``KnownProject``, the schema of
``projects/catalogue/*.toml`` (``docs/reference/project.schema.json``), which other packages add to by an entry point.
Does *not* cover: getting sources (``projects.sources``), reading them (``projects.source_tree``), judging them
(``doctor.source_checks``), finding a project (``projects.catalogue``).

Figures without a source are left out. A gigabyte in a source (10^9 bytes) stands here as 953.7 MiB.
"""

from __future__ import annotations

import re
from typing import Literal

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


class SourceWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look, in the order of ``place``, ``package``, ``repository``."""

    name: str
    """the project's, for folders and messages"""
    place: str = ""
    """``--source``: a folder, an archive, or a URL of git or of an archive; empty for ``pypi:NAME``"""
    version: str = ""
    """``--version``: empty for the newest release"""
    package: str = ""
    """source distribution in the package index"""
    no_package: str = ""
    """why there is none that can be built"""
    repository: str = ""
    """to be cloned, with its submodules"""
    tag: str = "v{version}"
    """of a release in the repository"""
    offline: bool = False
    """the cache, and nothing else"""


class Obtained(msgspec.Struct, frozen=True, kw_only=True):
    """Sources that lie on this machine."""

    folder: str
    version: str = ""
    """as its release is numbered; empty for a folder of the user's"""
    origin: str = ""
    """to be shown: ``flash-attn 2.8.3 from the package index, sha256 1a2b…``"""
    cached: bool = False
    """it was here already"""


Library = Literal[
    "cublas", "cudart", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nccl", "nvml", "nvrtc", "nvtx", "profiler"
]

Spelling = Literal["number", "dotted"]
"""of an architecture: ``100a`` or ``10.0a``"""


class ArchKnob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a project reads its architectures from."""

    variable: str
    """an environment variable, or a CMake cache variable as ``-DNAME``, which goes into ``CMAKE_ARGS``"""
    spelling: Spelling
    separator: str = ";"
    letters: bool = True
    """it takes ``100a``; else the letter is left out, and the project itself knows which sources need it"""
    ptx: bool = False
    """it takes ``+PTX``"""


class Knob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variable that says how many at once, and what holds without it."""

    variable: str
    default: str = ""


class Component(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part that a build can do without."""

    name: str
    off: str
    """the setting that leaves it out"""
    what: str
    """what is missing then"""
    submodules: tuple[str, ...] = ()
    """those of the project's ``needed_submodules`` that nothing else reads"""


class VersionNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is different from some version on."""

    since: str = ""
    """first version that it is true of; empty: from the beginning"""
    until: str = ""
    """first version that it is no longer true of; empty: still is"""
    text: str


_NUMBERS = re.compile(r"(?:^|[^0-9a-zA-Z])v?(?P<numbers>\d+(?:\.\d+)*)")


def holds_for(note: VersionNote, version: str) -> bool:
    """The note is true of this version.

    What is no number (``main``, a commit) is newer than any: notes that have ended by then do not hold for it.
    """
    return not (note.since and is_before(version, note.since)) and not (
        note.until and not is_before(version, note.until)
    )


def is_before(version: str, other: str) -> bool:
    """An older one than ``other``, which is a number; 2.8 and 2.8.0 are the same."""
    ours, theirs = numbers_of(version), numbers_of(other)
    if ours is None or theirs is None:
        return False
    length = max(len(ours), len(theirs))
    return ours + (0,) * (length - len(ours)) < theirs + (0,) * (length - len(theirs))


def numbers_of(version: str) -> tuple[int, ...] | None:
    """``(2, 8, 3)`` of ``2.8.3.post2``, ``v2.8.3``, ``release_v2.8.3``; None for what is no version."""
    match = _NUMBERS.search(version.strip())
    return tuple(int(each) for each in match["numbers"].split(".")) if match else None


class KnownProject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts about a project, each from its sources or from a measurement."""

    name: str
    """as it is imported: ``flash_attn``"""
    title: str
    """as its own documentation writes it: ``FlashAttention 2``"""
    aliases: tuple[str, ...] = ()
    """further names; dashes, underscores and case make no difference"""
    repository: str = ""
    """what to clone"""
    marks: tuple[str, ...] = ()
    """files and folders that its checkout alone has, all of them; empty where its name must do"""
    needed_submodules: tuple[str, ...] = ()
    """submodules that a CUDA build reads, in any version; those that a checkout does not have do not count"""
    needed_libraries: tuple[Library, ...] = ()
    """headers and libraries of CUDA that its build looks for, beyond the compiler's own. torch's header
    ATen/cuda/CUDAContextLight.h, and so most extensions in CUDA, include cublas, cusolver and cusparse; those that take
    torch's stable interface or c10's headers alone do not (causal-conv1d 1.6, Mamba 2.3, xFormers 0.0.35)"""
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
    """the most that one compiler process (or one nvcc thread) took; None where no source says"""
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
    built_by: Literal["python", "cmake"] = "python"
    """what is called for it: pip, or CMake without Python"""
    compiles_nothing: str = ""
    """why its build compiles no CUDA code, and where that is compiled instead; then no nvcc is asked for"""
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
    """what ``CMAKE_ARGS`` has to hold; of one that CMake builds without Python, what CMake is told"""
    config_settings: tuple[str, ...] = ()
    """for the build backend, as ``pip wheel -C`` takes them; ``{build}`` as above"""
    components: tuple[Component, ...] = ()
    debug_off: str = ""
    """the setting that builds without debug information"""
    traps: tuple[str, ...] = ()
    """what goes wrong there, a sentence each"""
    versions: tuple[VersionNote, ...] = ()
