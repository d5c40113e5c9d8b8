"""Stub libraries of the driver."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from builddoctor.toolkits.driver_stubs import STUBS, function_names, shared_library
from support.made_wheels import CUDA_H


def test_functions_are_read_from_the_drivers_header() -> None:
    """Those declared, and those that a macro calls them; a type or a macro of another kind is none."""
    header = CUDA_H + "#define cuFoo cuBar\ntypedef struct CUctx_st *CUcontext;\n#define X __CUDA_API_PTSZ(cuMemcpy)\n"
    assert function_names(header, STUBS[0]) == {"cuInit", "cuMemAlloc", "cuMemAlloc_v2", "cuMemcpy", "cuMemcpy_ptsz"}


def test_a_stub_library_is_one_that_the_loader_takes(tmp_path: Path) -> None:
    """Every function is found by name and answers that it is a stub; 1000 of them as well."""
    names = sorted(f"cuFunction{number}" for number in range(1000))
    machine = os.uname().machine
    path = tmp_path / "libcuda-of-a-test.so"
    path.write_bytes(shared_library(names, soname="libcuda-of-a-test.so.1", arch=machine, answer=34))
    library = ctypes.CDLL(str(path))
    assert {getattr(library, name)() for name in names} == {34}
    assert not hasattr(library, "cuAbsent")


def test_a_stub_for_the_other_processor_says_so() -> None:
    """e_machine: 62 for x86-64, 183 for aarch64; its code returns the same answer."""
    image = shared_library(["cuInit"], soname="libcuda.so.1", arch="aarch64", answer=34)
    assert image[:4] == b"\x7fELF"
    assert int.from_bytes(image[18:20], "little") == 183
    assert b"\x40\x04\x80\x52\xc0\x03\x5f\xd6" in image
