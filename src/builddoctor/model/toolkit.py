"""A CUDA toolkit and host compilers, as found and proved on this machine."""

from __future__ import annotations

import msgspec


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
