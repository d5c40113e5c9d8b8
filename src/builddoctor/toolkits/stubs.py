"""Stub libraries of the driver: what ``-lcuda`` and ``-lnvidia-ml`` link with where there is no driver.

NVIDIA's packages for python have none. They are made from the functions that ``cuda.h`` and ``nvml.h`` declare, for
either processor, without a compiler; each function answers that this is a stub. A program that was linked with one
loads the driver's own (``libcuda.so.1``) at run time: they lie in ``lib/stubs``, where no loader looks.
Does *not* cover: functions that a header does not declare.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from builddoctor.toolkits.elf import shared_library


class Stub(msgspec.Struct, frozen=True, kw_only=True):
    """One library of the driver."""

    file: str
    soname: str
    headers: tuple[str, ...]
    prefix: str
    declares: str
    """what stands before the name in a declaration"""
    answer: int


STUBS = (
    Stub(
        file="libcuda.so",
        soname="libcuda.so.1",
        headers=("cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"),
        prefix="cu",
        declares=r"CUresult\s+CUDAAPI",
        answer=34,  # CUDA_ERROR_STUB_LIBRARY
    ),
    Stub(
        file="libnvidia-ml.so",
        soname="libnvidia-ml.so.1",
        headers=("nvml.h",),
        prefix="nvml",
        declares=r"nvmlReturn_t\s+DECLDIR|const\s+DECLDIR\s+char\s*\*|const\s+char\s*\*\s*DECLDIR",
        answer=12,  # NVML_ERROR_LIBRARY_NOT_FOUND
    ),
)


def add_stubs(target: Path, arch: str) -> None:
    """Into ``lib/stubs`` of ``target``, from its headers; none for a library whose header is not there. OSError."""
    folder = target / "lib" / "stubs"
    for stub in STUBS:
        texts = [
            path.read_text(errors="replace") for name in stub.headers if (path := target / "include" / name).exists()
        ]
        names = sorted({name for text in texts for name in function_names(text, stub)})
        if names and not (folder / stub.file).exists():
            folder.mkdir(parents=True, exist_ok=True)
            library = folder / stub.file
            library.write_bytes(shared_library(names, soname=stub.soname, arch=arch, answer=stub.answer))
            library.chmod(0o755)


def function_names(header: str, stub: Stub) -> set[str]:
    """The functions of a header, and those that its macros call them (``#define cuInit cuInit_v2``)."""
    word = rf"{stub.prefix}[A-Z]\w*"
    names = set(re.findall(rf"(?:{stub.declares})\s*({word})\s*\(", header))
    for name, target in re.findall(rf"^\s*#\s*define\s+({word})\s+({word})\s*$", header, re.MULTILINE):
        if name in names:
            names.add(target)
    for kind, name in re.findall(rf"__CUDA_API_PT(SZ|DS)\(({word})\)", header):
        # The same functions for the thread's own default stream.
        names |= {name, f"{name}_pt{kind.lower()}"}
    return names
