"""The environment of a supervised build."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from builddoctor.core.errors import UsageError
from builddoctor.core.toolchain import HostCompiler, Toolkit
from builddoctor.gates.environment import (
    SOCKET,
    UNIT,
    build_environment,
    cache_settings,
    chosen_cache,
    identity,
    net,
    programs_of,
)

TOOLKIT = Toolkit(
    nvcc="/usr/local/cuda/bin/nvcc",
    version="13.0.88",
    here="/usr/local/cuda/bin",
    top="/usr/local/cuda/bin/..",
    cicc="/usr/local/cuda/nvvm/bin/cicc",
    tools=(),
    libdevice_folder="/usr/local/cuda/bin/../nvvm/libdevice",
    include_flags=("-I/usr/local/cuda/include",),
    library_flags=("-L/usr/local/cuda/lib",),
)
HOST, CUDA = Path("/cache/host"), Path("/cache/cuda")


def make(base: dict[str, str], *, cuda: bool = True, fallback: str = "") -> dict[str, str]:
    return build_environment(
        base,
        socket="/run/socket",
        host=HOST,
        cuda=CUDA if cuda else None,
        toolkit=TOOLKIT if cuda else None,
        fallback_folder=fallback,
    )


def test_the_overlays_come_first_and_the_users_path_stays() -> None:
    """Gates are found before the real tools; a fallback ninja comes last; nothing is there twice."""
    env = make({"PATH": "/usr/bin::/cache/host/bin:/bin"}, fallback="/site/ninja/bin")
    assert env["PATH"] == "/cache/host/bin:/cache/cuda/bin:/usr/bin:/bin:/site/ninja/bin"


@pytest.mark.parametrize("base", [{}, {"PATH": ""}])
def test_without_a_path_the_systems_own_folders_are_still_searched(base: dict[str, str]) -> None:
    """A build started with an empty environment finds its shell tools and compilers as before."""
    assert "/usr/bin" in make(base)["PATH"].split(":")


def test_gcc_is_caught_inside() -> None:
    """COMPILER_PATH leads to the gates, before the user's own; CC and CXX are left alone."""
    env = make({"PATH": "/bin", "COMPILER_PATH": "/mine", "CC": "gcc-12", "CXX": "ccache g++"})
    assert env["COMPILER_PATH"] == "/cache/host/gcc:/mine"
    assert (env["CC"], env["CXX"]) == ("gcc-12", "ccache g++")
    assert make({})["COMPILER_PATH"] == "/cache/host/gcc"


def test_nvcc_is_the_gate_and_cuda_home_the_real_toolkit() -> None:
    """No include path or RPATH ever names an overlay; a CUDA_HOME of the user's own stands."""
    env = make({"PATH": "/bin"})
    assert env["CUDACXX"] == env["PYTORCH_NVCC"] == "/cache/cuda/bin/nvcc"
    assert env["CUDA_HOME"] == "/usr/local/cuda"
    assert make({"CUDA_HOME": "/opt/cuda"})["CUDA_HOME"] == "/opt/cuda"
    assert env["DG_JIT_NVCC_COMPILER"] == env["CUDACXX"], "DeepGEMM calls nvcc by its path, from no build tool"
    assert make({"DG_JIT_NVCC_COMPILER": "/mine/nvcc"})["DG_JIT_NVCC_COMPILER"] == "/mine/nvcc"


def test_without_a_toolkit_nothing_of_cuda_is_set() -> None:
    """Host compilers alone are supervised."""
    env = make({"PATH": "/bin"}, cuda=False)
    assert not {"CUDACXX", "PYTORCH_NVCC", "CUDA_HOME"} & env.keys()
    assert env["PATH"] == "/cache/host/bin:/bin"


def test_the_socket_is_set_and_a_unit_of_another_build_is_not_passed_on() -> None:
    """The rest of the environment is handed on as it is, and the given one is not changed."""
    base = {"PATH": "/bin", UNIT: "u7", SOCKET: "/old", "KEEP": "me"}
    env = make(base)
    assert (env[SOCKET], env["KEEP"]) == ("/run/socket", "me")
    assert UNIT not in env
    assert base[SOCKET] == "/old"


def test_the_net_gives_nvcc_its_tools_and_its_own_flags_back() -> None:
    """Without its profile nvcc takes both from here; the user's own flags come first."""
    assert net(cuda=CUDA, toolkit=TOOLKIT) == {
        "NVCC_PREPEND_FLAGS": "-noprof @NVCC_PREPEND_FLAGS@",
        "NVCC_APPEND_FLAGS": "@NVCC_APPEND_FLAGS@ -I/usr/local/cuda/include -L/usr/local/cuda/lib",
        "CICC_PATH": "/cache/cuda/nvvm/bin",
        "PATH": "/cache/cuda/nvvm/bin:/cache/cuda/bin:@PATH@:/usr/local/cuda/bin",
        "NVVMIR_LIBRARY_DIR": "/usr/local/cuda/bin/../nvvm/libdevice",
    }


def test_the_net_leaves_out_a_libdevice_that_is_not_known() -> None:
    """An empty setting would hide nvcc's own."""
    toolkit = msgspec.structs.replace(TOOLKIT, libdevice_folder="")
    assert "NVVMIR_LIBRARY_DIR" not in net(cuda=CUDA, toolkit=toolkit)


@pytest.mark.parametrize("field", ["include_flags", "library_flags"])
def test_there_is_no_net_for_a_toolkit_with_blanks_in_its_path(field: str) -> None:
    """These variables cannot quote: better none than a broken one."""
    toolkit = msgspec.structs.replace(TOOLKIT, **{field: ("-I/my cuda/include",)})
    assert net(cuda=CUDA, toolkit=toolkit) == {}


def program(path: Path, text: str = "#!/bin/sh\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_ccache_is_taken_where_it_is_and_sccache_when_it_is_asked_for(tmp_path: Path) -> None:
    """ccache compiles in place; what was asked for by name and is not there is an error."""
    env = {"PATH": str(tmp_path)}
    assert chosen_cache("auto", env) == ""
    sccache = program(tmp_path / "sccache")
    assert (chosen_cache("auto", env), chosen_cache("sccache", env)) == ("", sccache)
    ccache = program(tmp_path / "ccache")
    assert (chosen_cache("auto", env), chosen_cache("none", env)) == (ccache, "")
    with pytest.raises(UsageError, match="no ccache on PATH"):
        chosen_cache("ccache", {"PATH": "/nowhere"})


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
