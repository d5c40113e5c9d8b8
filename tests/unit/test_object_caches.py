"""ccache and sccache in front of a build: which one, and by what it knows the compilers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.errors import UsageError
from builddoctor.intercept.object_caches import cache_settings, chosen, identity, programs_of
from builddoctor.model.toolkit import HostCompiler, Toolkit


def program(path: Path, text: str = "#!/bin/sh\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_ccache_is_taken_where_it_is_and_sccache_when_it_is_asked_for(tmp_path: Path) -> None:
    """ccache compiles in place; what was asked for by name and is not there is an error."""
    env = {"PATH": str(tmp_path)}
    assert chosen("auto", env) == ""
    sccache = program(tmp_path / "sccache")
    assert (chosen("auto", env), chosen("sccache", env)) == ("", sccache)
    ccache = program(tmp_path / "ccache")
    assert (chosen("auto", env), chosen("none", env)) == (ccache, "")
    with pytest.raises(UsageError, match="no ccache on PATH"):
        chosen("ccache", {"PATH": "/nowhere"})


def test_another_compiler_in_the_same_place_is_another(tmp_path: Path) -> None:
    """Its size or its time is another: an upgrade in place would otherwise find the objects of the old one."""
    one, two = program(tmp_path / "cicc"), program(tmp_path / "ptxas")
    first = identity([one, two])
    assert identity([two, one, one]) == first
    os.utime(two, ns=(1, 1))
    later = identity([one, two])
    assert later != first
    program(tmp_path / "cicc", "#!/bin/sh\nexit 0\n")
    assert identity([one, two]) not in (first, later)
    assert identity([one, "/nowhere/ptxas"]) == identity([one])


def test_all_that_makes_an_object_counts() -> None:
    """Not only the driver: cicc and ptxas are files of their own, and so is cc1plus."""
    toolkit = Toolkit(
        nvcc="/c/nvcc", version="13.0", here="/c", top="/", cicc="/c/cicc", tools=(("ptxas", "/c/ptxas"),)
    )
    gcc = HostCompiler(driver="/u/g++", machine="m", version="12", programs=(("cc1plus", "/u/cc1plus"),))
    assert set(programs_of(toolkit, [gcc])) == {"/c/nvcc", "/c/cicc", "/c/ptxas", "/u/g++", "/u/cc1plus"}
    assert programs_of(None, []) == []


def test_cmake_and_torch_are_told(tmp_path: Path) -> None:
    """The gate stays behind the cache; sccache has a server of its own, which ends with the build."""
    real = program(tmp_path / "nvcc")
    told = cache_settings("/bin/ccache", [real], nvcc=Path("/o/nvcc"), run_folder=tmp_path)
    assert told["CMAKE_CUDA_COMPILER_LAUNCHER"] == told["CMAKE_CXX_COMPILER_LAUNCHER"] == "/bin/ccache"
    assert told["PYTORCH_NVCC"] == "/bin/ccache /o/nvcc"
    assert told["CCACHE_COMPILERCHECK"] == f"string:{identity([real])}"
    told = cache_settings("/bin/sccache", [real], nvcc=None, run_folder=tmp_path)
    assert told["SCCACHE_SERVER_UDS"].startswith(str(tmp_path))
    assert told["SCCACHE_C_CUSTOM_CACHE_BUSTER"] == identity([real])
    assert "PYTORCH_NVCC" not in told
