"""Which nvcc a plain build would take in an environment that has changed since the build began."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.runtime.later_toolchain import Caller, caller_in, later_nvcc
from builddoctor.toolchain.discover import OVERLAY_MARK

GIVEN = "/usr/local/cuda"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    return toolkit(tmp_path / "module")


def toolkit(home: Path) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").write_text("")
    (home / "bin" / "nvcc").chmod(0o755)
    return home


def gates(home: Path) -> Path:
    toolkit(home)
    (home / OVERLAY_MARK).write_text("")
    return home


def test_cmake_goes_by_path(module: Path, tmp_path: Path) -> None:
    ours = gates(tmp_path / "ours")
    nvcc, gate = f"{module}/bin/nvcc", f"{ours}/bin/nvcc"
    before, behind = f"{module}/bin:{ours}/bin", f"{ours}/bin:{module}/bin"
    assert later_nvcc({"PATH": before}, {}, given_home=GIVEN, by_cmake=True) == nvcc
    assert later_nvcc({"PATH": behind}, {}, given_home=GIVEN, by_cmake=True) == gate
    assert later_nvcc({"PATH": before}, {"CUDACXX": "/mine/nvcc"}, given_home="", by_cmake=True) == ""
    assert later_nvcc({"PATH": behind, "CUDA_HOME": str(module)}, {}, given_home=GIVEN, by_cmake=True) == gate


def test_torch_goes_by_cuda_home(module: Path, tmp_path: Path) -> None:
    nvcc, home = f"{module}/bin/nvcc", str(module)
    assert later_nvcc({"CUDA_HOME": home}, {}, given_home=GIVEN, by_cmake=False) == nvcc
    assert later_nvcc({"CUDA_PATH": home}, {}, given_home="", by_cmake=False) == nvcc
    assert later_nvcc({"CUDA_HOME": home}, {"PYTORCH_NVCC": "/mine"}, given_home="", by_cmake=False) == ""
    for start, given in (({"CUDA_HOME": home}, ""), ({"CUDA_PATH": home}, GIVEN), ({}, home)):
        assert later_nvcc({"CUDA_HOME": home}, start, given_home=given, by_cmake=False) == ""
    # As in an activated shell.
    ours = gates(tmp_path / "ours")
    assert later_nvcc({"CUDA_HOME": str(ours)}, {}, given_home="", by_cmake=False) == f"{ours}/bin/nvcc"
    assert later_nvcc({"CUDA_HOME": f"{tmp_path}/nothing"}, {}, given_home="", by_cmake=False) == ""


def test_torch_without_cuda_home_goes_by_path(module: Path) -> None:
    assert later_nvcc({"PATH": f"{module}/bin"}, {}, given_home="", by_cmake=False) == f"{module}/bin/nvcc"
    # We have named one: its headers are in the build.
    assert later_nvcc({"PATH": f"{module}/bin", "CUDA_HOME": GIVEN}, {}, given_home=GIVEN, by_cmake=False) == ""


def test_a_folder_on_path_that_depends_on_where_one_is_does_not_count(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(module / "bin")
    assert later_nvcc({"PATH": ".:"}, {}, given_home="", by_cmake=True) == ""


def test_when_cmake_has_settled_its_nvcc(tmp_path: Path) -> None:
    """While it looks for one it works below CMakeFiles, and there is no cache yet."""
    trial = tmp_path / "CMakeFiles" / "4.0.0" / "CompilerIdCUDA"
    trial.mkdir(parents=True)
    assert caller_in(str(trial)) == Caller("CMake")
    (tmp_path / "CMakeCache.txt").write_text("")
    assert caller_in(str(tmp_path)) == Caller("CMake")
    found = tmp_path / "CMakeFiles" / "4.0.0" / "CMakeCUDACompiler.cmake"
    found.write_text("")
    os.utime(found, (100, 100))
    # make works in folders below, each with a CMakeFiles of its own.
    inner = tmp_path / "src"
    (inner / "CMakeFiles").mkdir(parents=True)
    assert caller_in(str(tmp_path)) == caller_in(str(inner)) == caller_in(str(trial)) == Caller("CMake", 100)


def test_when_torch_has_written_what_ninja_does(tmp_path: Path) -> None:
    """Also in a folder below one that CMake has configured."""
    (tmp_path / "CMakeCache.txt").write_text("")
    folder = tmp_path / "build"
    folder.mkdir()
    (folder / "build.ninja").write_text("")
    os.utime(folder / "build.ninja", (100, 100))
    assert caller_in(str(folder)) == Caller("torch", 100)
    assert caller_in("/") == Caller("")
