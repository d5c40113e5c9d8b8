"""The toolchain of this machine as facts: toolkits, compilers, libraries, and the programs that a build runs.

Covers: a CUDA toolkit and host compilers, as found and proved; everything that decides whether nvcc can compile; cmake,
ninja, make and the python that builds.
Does *not* cover: finding them (``toolchain``) or judging them (``doctor``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

HEADER_ONLY = ("nvml", "nvtx", "profiler")
"""A build takes no library of these from the toolkit: NVML's comes with the driver, NVTX is in its headers, and the
profiler's functions are in cudart."""

LIBRARIES = ("cudart", "cublas", "cudnn", "nccl", "nvrtc", "cufft", "curand", "cusparse", "cusolver", *HEADER_ONLY)
"""Names of the libraries that are looked for, as ``toolkit install --with`` takes them."""

WHEEL_NAMES = {
    "cudart": "cuda_runtime",
    "nvrtc": "cuda_nvrtc",
    "nvml": "nvml_dev",
    "profiler": "cuda_profiler_api",
}
"""Library to the folder below ``nvidia`` of its python package up to CUDA 12, where that has another name."""

NvccTrouble = Literal["none", "broken", "host-compiler", "temporary", "silent", "host-silent"]
"""Why there is no toolkit: no nvcc; it does not run; no gcc for it; it cannot write to TMPDIR; it, or gcc, does not
answer."""

Origin = Literal["path", "package", "folder"]


class Toolkit(msgspec.Struct, frozen=True, kw_only=True):
    """One CUDA toolkit by the nvcc that stands for it. All paths absolute."""

    nvcc: str
    """the real nvcc program, seen through wrappers"""
    version: str
    """such as ``13.0.88``; empty when nvcc did not say"""
    here: str
    """its folder, spelled as nvcc spells it"""
    top: str
    cicc: str
    tools: tuple[tuple[str, str], ...]
    """(name, path) of cudafe++, ptxas, nvlink, as nvcc finds them"""
    libdevice_folder: str = ""
    include_flags: tuple[str, ...] = ()
    library_flags: tuple[str, ...] = ()

    @property
    def home(self) -> str:
        """What CUDA_HOME should be."""
        return self.here.rsplit("/", 1)[0] or "/"


class HostCompiler(msgspec.Struct, frozen=True, kw_only=True):
    """One gcc. It looks for its programs in COMPILER_PATH under ``<machine>/<version>/`` first."""

    driver: str
    machine: str
    version: str
    programs: tuple[tuple[str, str], ...]
    """(name, path) of cc1, cc1plus, lto1, collect2"""


class NvccPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One nvcc that answers."""

    nvcc: str
    """its path, as it was found"""
    version: str = ""
    """such as ``12.8.93``; empty when it did not say"""
    archs: tuple[str, ...] = ()
    """``sm_90a`` and so on that it can compile for; empty when it did not say"""

    @property
    def folder(self) -> str:
        """What ``--toolkit`` and CUDA_HOME take."""
        head, _, tail = self.nvcc.rpartition("/bin/")
        return head if head and tail == "nvcc" else self.nvcc


class NvccChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which nvcc a build tool takes by itself, without builddoctor."""

    taken_by: Literal["builddoctor", "CMake", "torch"]
    because: str
    """``CUDACXX``, ``CUDA_HOME``, ``CUDA_PATH``, ``PATH`` …"""
    nvcc: str
    version: str = ""


class HostCompilerChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One C++ compiler as nvcc's host compiler. Its versions are those that it gives to the preprocessor."""

    driver: str
    because: str = "PATH"
    """``PATH``, ``NVCC_CCBIN``, ``NVCC_PREPEND_FLAGS``, ``CUDAHOSTCXX`` …"""
    taken_by: Literal["nvcc", "CMake", "torch", ""] = "nvcc"
    """empty: it is there, and no build tool takes it"""
    kind: Literal["gnu", "clang", ""] = ""
    """empty when it did not say"""
    version: str = ""
    """such as ``12.2.0``"""
    glibc: str = ""
    """version of the C library's headers that it includes (``2.36``); a conda compiler brings its own"""
    silent: bool = False
    """it did not answer"""

    @property
    def major(self) -> int | None:
        head = self.version.partition(".")[0]
        return int(head) if head.isdigit() else None


class HostLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a toolkit's ``crt/host_config.h`` accepts. None: it says nothing, or could not be read."""

    gnu_newest: int | None = None
    """newest gcc, major version"""
    clang_newest: int | None = None
    clang_oldest: int | None = None


class LibraryCopy(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of a library. Paths are empty where that part is missing."""

    name: str
    """one of LIBRARIES"""
    place: str
    """how a person finds it: a folder, with the variable that names it where there is one"""
    kind: Literal["toolkit", "system", "conda", "variable", "python"]
    header: str = ""
    header_version: str = ""
    library: str = ""
    library_version: str = ""
    """from the file's name: ``9.13.0``, or only ``9``"""
    linkable: bool = False
    """``lib<name>.so`` or a static one: what ``-l<name>`` finds"""


class Toolchain(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides whether nvcc can compile here."""

    wanted: str = ""
    """what ``--toolkit`` said"""
    toolkit: Toolkit | None = None
    problem: str = ""
    """why there is no toolkit"""
    trouble: NvccTrouble = "none"
    """the same, as a kind"""
    hint: str = ""
    archs: tuple[str, ...] = ()
    """what the toolkit's nvcc can compile for, ``sm_75`` to ``sm_121f``; empty when it did not say"""
    choices: tuple[NvccChoice, ...] = ()
    others: tuple[NvccPlace, ...] = ()
    """further nvcc on this machine"""
    hosts: tuple[HostCompilerChoice, ...] = ()
    """nvcc's own first; then those that CMake or torch hand to it instead, where a variable says so"""
    host_problem: str = ""
    """why nvcc found no host compiler"""
    host_silent: bool = False
    """it did not answer when it was asked for that"""
    broken_variables: tuple[str, ...] = ()
    """NVCC_PREPEND_FLAGS, NVCC_APPEND_FLAGS, NVCC_CCBIN: those without which nvcc answers ``host_problem`` no more"""
    silent: tuple[str, ...] = ()
    """every nvcc and host compiler that did not answer"""
    lost_homes: tuple[str, ...] = ()
    """CUDA_HOME, CUDA_PATH: those that name no CUDA toolkit"""
    spare_hosts: tuple[HostCompilerChoice, ...] = ()
    """further g++-N and clang++-N on PATH"""
    limits: HostLimits = HostLimits()
    unsupported_allowed_by: str = ""
    """the variable in which ``-allow-unsupported-compiler`` stands"""
    bare_functions: tuple[str, ...] | None = None
    """of cospi, sinpi and rsqrt those that the toolkit's headers declare without an exception specification: they clash
    with a glibc that has them; None when the header could not be read"""
    links: bool | None = None
    """nvcc's library folders hold cudart and cudadevrt; None when they are not known"""
    library_folder: str = ""
    """where cudart lies when nvcc does not look there"""
    wheels_without_nvcc: str = ""
    """a folder of CUDA 12's python packages: ptxas, but neither nvcc nor cudafe++"""
    libraries: tuple[LibraryCopy, ...] = ()


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
    sccache: str = ""
    python: BuildPython | None = None
    """None when there is none on PATH"""
