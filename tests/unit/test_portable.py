"""How a project is built on a machine that is not this one."""

from __future__ import annotations

from pathlib import Path

from builddoctor.projects.archs import parse_archs
from builddoctor.projects.known import find_known
from builddoctor.projects.portable import portable_build

ARCHS = parse_archs("sm_90,sm_100a")


def test_a_known_project_needs_no_sources() -> None:
    """Its own variables for architectures and for what it does not build without; the kept folder is a mark."""
    build = portable_build(find_known("transformer_engine"), None, ARCHS)
    assert build.archs == (("NVTE_CUDA_ARCHS", "90;100"),)
    assert dict(build.settings) == {"NVTE_CMAKE_BUILD_DIR": "{build}", "NVTE_PYTORCH_FORCE_BUILD": "TRUE"}
    assert build.command[0] == "{python}"
    assert build.command[-3:] == ("--wheel-dir", "{wheels}", "{source}")


def test_architectures_in_cmake_args_are_one_word_there() -> None:
    """A list of architectures does not end at its semicolon for whoever splits CMAKE_ARGS."""
    build = portable_build(find_known("llama_cpp_python"), None, ARCHS)
    assert build.archs == (("CMAKE_ARGS", "-DGGML_CUDA=on '-DCMAKE_CUDA_ARCHITECTURES=90;100a'"),)


def test_no_path_of_this_machine_is_in_a_command(tmp_path: Path) -> None:
    """Sources, wheels, kept folder and python are marks; packages are those that pyproject.toml asks for."""
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["scikit-build-core>=0.9", "cmake<4"]\nbuild-backend = "scikit_build_core.build"\n'
    )
    build = portable_build(None, tmp_path, ARCHS)
    assert str(tmp_path) not in " ".join(build.command)
    assert "--config-settings=build-dir={build}" in build.command
    assert build.command[0] == "{python}"
    assert build.packages == ("scikit-build-core>=0.9", "cmake<4", "ninja")


def test_a_cmake_project_is_configured_where_it_lies(tmp_path: Path) -> None:
    """With relative paths alone, and by Ninja, whatever its folder is configured for here."""
    (tmp_path / "CMakeLists.txt").touch()
    (tmp_path / "build").mkdir()
    (tmp_path / "build/CMakeCache.txt").touch()
    build = portable_build(None, tmp_path, ARCHS)
    assert build.kind == "cmake"
    script = "cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES='90;100a'"
    assert build.command == ("/bin/sh", "-c", f"{script} && exec cmake --build build")


def test_a_makefile_is_said_to_be_one(tmp_path: Path) -> None:
    """Stages are runs of Ninja: whoever renders has to know."""
    (tmp_path / "Makefile").touch()
    assert portable_build(None, tmp_path, ()).kind == "make"


def test_torch_is_installed_for_projects_that_import_it() -> None:
    """Their builds fail at once without it."""
    assert "torch" in portable_build(find_known("flash_attn"), None, ()).packages
