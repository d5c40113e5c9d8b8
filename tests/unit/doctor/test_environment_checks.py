"""What the doctor says of environment variables."""

from __future__ import annotations

from typing import Any

import pytest

from builddoctor.core.check import Check, Status
from builddoctor.doctor.build_tool_checks import build_tool_checks
from builddoctor.projects.archs import parse_archs
from builddoctor.projects.catalogue import find_known
from unit.source_trees import (
    NVCC,
    by_name,
    folder,
    source,
    tools,
)


def checked(project: Any = None, *, known: str = "", arch: str = "", **changed: Any) -> dict[str, Check]:
    """The checks of tools for a project, by name. Tools of ``tools()`` may be named: ``ninjas=()``."""
    fields: dict[str, Any] = {name: changed.pop(name) for name in ("toolkit", "env", "gpus") if name in changed}
    archs = parse_archs(arch) if arch else ()
    given = {"toolkit": NVCC, "env": {}} | fields
    return by_name(
        build_tool_checks(
            tools(**changed), source=project, known=find_known(known) if known else None, archs=archs, **given
        )
    )


CMAKE_PROJECT = source(python=False, cmake=True, uses_cmake=True, cmake_minimum="3.21")
TORCH_PROJECT = source(uses_torch="setup.py")


@pytest.mark.parametrize(
    ("value", "warned"), [("8", False), ("", False), ("-1", True), ("4 ", True), ("eight", True), ("2.5", True)]
)
def test_a_max_jobs_that_torch_ignores_is_a_warning(value: str, warned: bool) -> None:
    """Anything but digits, a blank behind them too."""
    assert ("max-jobs" in checked(TORCH_PROJECT, env={"MAX_JOBS": value})) is warned


def test_two_words_in_cc_break_nvcc() -> None:
    """torch hands CC to nvcc as one name; CMake, and CXX, may have a launcher."""
    env = {"CC": "ccache gcc-12", "CXX": "ccache g++-12"}
    check = checked(TORCH_PROJECT, env=env)["cc-words"]
    assert (check.status, check.hint) == (Status.PROBLEM, "export CC=gcc-12")
    check = checked(TORCH_PROJECT, env={"CC": "launcher /opt/bin/x86_64-linux-gnu-gcc -m64"})["cc-words"]
    assert check.hint == "export CC=/opt/bin/x86_64-linux-gnu-gcc"
    assert "cc-words" not in checked(CMAKE_PROJECT, env=env)
    assert "cc-words" not in checked(TORCH_PROJECT, env={"CC": "gcc-12"})


@pytest.mark.parametrize(
    ("value", "contradicts"),
    [
        ("8.0", True),
        ("10.0", False),
        ("10.0+PTX", False),
        ("9.0 10.0", True),
        ("9.0;10.0", True),
        ("Hopper", False),
        ("", False),
    ],
)
def test_a_list_of_architectures_that_contradicts_arch_is_a_warning(value: str, contradicts: bool) -> None:
    """--arch goes before it, so what it says is lost."""
    found = checked(TORCH_PROJECT, arch="sm_100", env={"TORCH_CUDA_ARCH_LIST": value})
    assert ("arch-variables" in found) is contradicts
    assert "arch-variables" not in checked(TORCH_PROJECT, env={"TORCH_CUDA_ARCH_LIST": value})


def test_the_projects_own_architecture_variable_counts_too() -> None:
    """NVTE_CUDA_ARCHS is TransformerEngine's."""
    check = checked(source(), arch="sm_100", env={"NVTE_CUDA_ARCHS": "90"})["arch-variables"]
    assert check.hint == "unset NVTE_CUDA_ARCHS"


def test_no_gpu_and_no_architecture_leaves_torch_without_any() -> None:
    """In a container build: torch would ask the GPUs."""
    assert checked(TORCH_PROJECT, gpus=0)["arch-unknown"].hint == "give one: `--arch sm_90`"
    for changed in (
        {"gpus": 1},
        {"gpus": None},
        {"gpus": 0, "arch": "sm_90"},
        {"gpus": 0, "env": {"TORCH_CUDA_ARCH_LIST": "9.0"}},
    ):
        assert "arch-unknown" not in checked(TORCH_PROJECT, **changed)


def test_sccache_is_mentioned_where_it_will_be_used() -> None:
    """Named by the environment or by a cache, or by its presence where the project looks for it."""
    on_path = {"sccache": "/usr/bin/sccache"}
    assert checked(TORCH_PROJECT, env={"CMAKE_CUDA_COMPILER_LAUNCHER": "sccache"})["sccache"].status is Status.WARNING
    assert "sccache" in checked(source(build_folders=(folder(launchers=(("X", "/opt/sccache"),)),)))
    assert "sccache" in checked(source(uses_sccache="CMakeLists.txt"), **on_path)
    assert "sccache" in checked(**on_path)
    assert "sccache" not in checked(source(), **on_path)
    assert checked(source(), known="vllm", **on_path)["sccache"].hint == "export VLLM_DISABLE_SCCACHE=1"
    assert "sccache" not in checked(source(), known="vllm", env={"VLLM_DISABLE_SCCACHE": "1"}, **on_path)
