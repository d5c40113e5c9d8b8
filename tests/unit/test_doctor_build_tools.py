"""What the doctor says of cmake, ninja, python, torch and the variables that they read."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from builddoctor.doctor.build_tools import build_tool_checks
from builddoctor.doctor.versions import log_version, numbers, short
from builddoctor.intercept.build_python import parse_requires, torch_of
from builddoctor.model.build_tools import Torch
from builddoctor.model.check import Check, Status
from builddoctor.projects.archs import parse_archs
from builddoctor.projects.known import find_known
from unit.source_trees import (
    CMAKE,
    NINJA_11,
    NINJA_13,
    NVCC,
    by_name,
    change,
    folder,
    program,
    python,
    source,
    tools,
    worst,
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


def test_healthy_tools_get_one_line_a_topic() -> None:
    """And of what a project does not use, nothing is said."""
    found = checked(source(uses_torch="setup.py", uses_cmake=True))
    assert [check.topic for check in found.values()] == ["cmake", "ninja", "python", "torch"]
    assert worst(list(found.values())) is Status.OK
    assert [check.topic for check in checked(CMAKE_PROJECT).values()] == ["cmake", "ninja"]
    assert [check.topic for check in checked(source()).values()] == ["python"]


def test_without_a_project_the_tools_are_listed() -> None:
    """`builddoctor doctor` alone: what is missing may not be needed."""
    assert [check.status for check in checked().values()] == [Status.OK] * 4
    bare = checked(cmakes=(), ninjas=(), python=None)
    assert worst(list(bare.values())) is Status.WARNING
    assert not any(check.stops_build for check in bare.values())


@pytest.mark.parametrize(
    ("version", "minimum", "name", "status"),
    [
        ("3.25.1", "3.21", "cmake", Status.OK),
        ("3.25.1", "3.26", "cmake-version", Status.PROBLEM),
        ("3.9.6", "3.18", "cmake-version", Status.PROBLEM),
        ("3.26.0-rc1", "3.26", "cmake", Status.OK),
        ("4.1.0", "3.5", "cmake", Status.OK),
        ("4.1.0", "3.1", "cmake-policy", Status.PROBLEM),
        ("4.1.0", "3.1...3.10", "cmake", Status.OK),
        ("3.25.1", "3.1", "cmake", Status.OK),
        ("4.1.0", "", "cmake", Status.OK),
    ],
)
def test_cmake_is_as_new_as_the_project_asks(version: str, minimum: str, name: str, status: Status) -> None:
    """Compared as numbers; CMake 4 has a lower bound of its own."""
    project = source(python=False, cmake=True, uses_cmake=True, cmake_minimum=minimum, cmake_minimum_certain=True)
    check = checked(project, cmakes=(program("/usr/bin/cmake", version),))[name]
    assert (check.status, check.stops_build) == (status, status is Status.PROBLEM)


@pytest.mark.parametrize(("version", "minimum"), [("3.9.6", "3.18"), ("4.1.0", "3.1")])
def test_a_minimum_under_a_condition_stops_nothing(version: str, minimum: str) -> None:
    """Nobody knows here whether CMake gets to it."""
    project = source(python=False, cmake=True, uses_cmake=True, cmake_minimum=minimum)
    found = checked(project, cmakes=(program("/usr/bin/cmake", version),))
    assert {"cmake-version", "cmake-policy"} & set(found)
    assert not any(check.stops_build for check in found.values())


def test_what_does_not_answer_in_time_stops_nothing() -> None:
    """A network file system is slow at first; it is said, and the build may try."""
    slow = {"problem": "no answer in 5 s", "silent": True}
    found = checked(CMAKE_PROJECT, cmakes=(program("/nfs/cmake", **slow),), ninjas=(program("/nfs/ninja", **slow),))
    assert [found[name].status for name in ("cmake", "ninja")] == [Status.WARNING] * 2
    assert not any(check.stops_build for check in found.values())
    check = checked(TORCH_PROJECT, python=python(**slow))["python"]
    assert (check.status, check.stops_build) == (Status.WARNING, False)
    assert "no answer in 5 s" in check.text


def test_a_cmake_that_is_missing_or_broken_stops_a_cmake_project() -> None:
    """A Python project may bring its own."""
    assert checked(CMAKE_PROJECT, cmakes=())["cmake"].stops_build
    broken = program("/shims/cmake", problem="cmake: command not found")
    assert checked(CMAKE_PROJECT, cmakes=(broken, CMAKE))["cmake"].stops_build
    assert not checked(source(uses_cmake=True), cmakes=())["cmake"].stops_build


def test_the_policy_variable_is_taken_at_its_word() -> None:
    """With CMAKE_POLICY_VERSION_MINIMUM set, CMake 4 takes old projects."""
    project = source(python=False, cmake=True, uses_cmake=True, cmake_minimum="3.1")
    env = {"CMAKE_POLICY_VERSION_MINIMUM": "3.5"}
    cmakes = (program("/c/cmake", "4.1.0"),)
    assert "cmake-policy" in checked(project, cmakes=cmakes)
    assert "cmake-policy" not in checked(project, cmakes=cmakes, env=env)
    kept = change(project, build_folders=(folder(policy_minimum="3.5"),))
    assert "cmake-policy" not in checked(kept, cmakes=cmakes)


def test_the_cmake_that_the_project_takes_is_the_one_that_counts() -> None:
    """PATH's first for most; python's package first for scikit-build-core and TransformerEngine."""
    both = (CMAKE, program("/site/cmake/data/bin/cmake", "4.1.0", origin="package"))
    project = source(uses_cmake=True, cmake_minimum="3.26")
    assert "cmake-version" in checked(project, cmakes=both)
    assert "cmake" in checked(project, cmakes=both, known="te")
    assert "cmake" in checked(
        source(uses_cmake=True, cmake_minimum="3.26", backend="scikit_build_core.build"), cmakes=both
    )


def test_a_second_ninja_is_no_news() -> None:
    """Only where a folder would be built again from the start, which is said of that folder (``ninja-log``)."""
    check = checked(TORCH_PROJECT, ninjas=(NINJA_13, NINJA_11))["ninja"]
    assert (check.status, check.text) == (Status.OK, "1.13.2 (/venv/bin/ninja)")


def test_torch_and_cmake_take_ninjas_of_different_names() -> None:
    """CMake every ``ninja-build`` first, torch only ``ninja``."""
    both = (program("/usr/bin/ninja-build", "1.11.1"), program("/venv/bin/ninja", "1.11.0"))
    assert "/venv/bin/ninja" in checked(TORCH_PROJECT, ninjas=both)["ninja"].text
    assert "/usr/bin/ninja-build" in checked(CMAKE_PROJECT, ninjas=both)["ninja"].text


def test_without_ninja_builddoctor_lends_its_own() -> None:
    """So the build is all right; by itself torch would be slow, and that is said."""
    check = checked(TORCH_PROJECT, ninjas=())["ninja"]
    assert check.status is Status.OK
    assert "lends its own" in check.text


def test_a_first_ninja_that_does_not_run_is_worse_than_none() -> None:
    """A version manager's shim: torch asks it, gets nothing, and goes without."""
    broken = program("/shims/ninja", problem="pyenv: ninja: command not found")
    check = checked(TORCH_PROJECT, ninjas=(broken, NINJA_11))["ninja"]
    assert check.status is Status.WARNING
    assert "command not found" in check.text


@pytest.mark.parametrize(
    ("changed", "hint"),
    [
        ({"include": "/usr/include/python3.11"}, "apt install python3-dev python3.11-dev"),
        ({"include": "/opt/conda/include/python3.11", "conda": True}, "conda install python=3.11"),
        ({"include": "/opt/python/include"}, "take a python that came with its headers"),
    ],
)
def test_missing_headers_are_a_problem_with_a_hint_for_that_python(changed: dict, hint: str) -> None:
    """Only where pip builds the project."""
    bare = python(headers=False, **changed)
    check = checked(TORCH_PROJECT, python=bare)["python-headers"]
    assert (check.status, check.stops_build) == (Status.PROBLEM, False)
    assert check.hint.startswith(hint)
    assert "python-headers" not in checked(CMAKE_PROJECT, python=bare)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (None, "python"),
        (python(problem="pyenv: python: command not found"), "python"),
        (python(packages="setuptools=80.0"), "python-pip"),
        (python(packages="pip=25.0"), "python-backend"),
        (python(packages="pip=25.0 setuptools=65.5.0"), "python-wheel"),
    ],
)
def test_a_python_that_cannot_build_wheels_stops_the_build(given: Any, name: str) -> None:
    """None, one that does not run, without pip, without setuptools, with an old setuptools and no wheel."""
    check = checked(TORCH_PROJECT, python=given)[name]
    assert (check.status, check.stops_build) == (Status.PROBLEM, True)


def test_a_new_setuptools_needs_no_wheel_package() -> None:
    """From 70.1 on, also where pyproject.toml still asks for it."""
    new = python(packages="pip=25.0 setuptools=70.1.0")
    assert checked(source(requires=("setuptools", "wheel")), python=new)["python"].status is Status.OK


def test_a_missing_backend_stops_the_build_and_its_requirements_are_the_hint() -> None:
    """Without isolation pip fetches nothing."""
    project = source(backend="scikit_build_core.build", requires=("scikit-build-core>=0.10", "pybind11"))
    check = checked(project, python=python(missing_backend="scikit_build_core"))["python-backend"]
    assert check.stops_build
    assert shlex.split(check.hint) == [
        "/venv/bin/python",
        "-m",
        "pip",
        "install",
        "scikit-build-core>=0.10",
        "pybind11",
    ]


def test_other_requirements_that_are_not_met_are_a_warning() -> None:
    """By version too; what does not apply here, what PATH has, and torch (which has lines of its own) are left out."""
    needs = (
        "setuptools>=99",
        "ninja",
        "cmake>=3.18",
        "torch",
        "jax; sys_platform == 'win32'",
        "???",
        "pybind11[global]",
    )
    check = checked(source(requires=needs))["python-packages"]
    assert (check.status, check.stops_build) == (Status.WARNING, False)
    assert shlex.split(check.hint)[4:] == ["setuptools>=99", "pybind11[global]"]
    assert "python-packages" in checked(source(requires=("jax",)))
    assert "python-packages" not in checked(source(requires=("jax",)), known="te")


def test_a_hostile_requirement_is_quoted_or_left_out() -> None:
    """What pyproject.toml says ends up in a line that people paste."""
    assert parse_requires(("$(touch x)", "a;rm -rf /", "`x`", "a\nb")) == []
    url = "a @ https://example.org/$(touch${IFS}x).whl"
    hint = checked(source(requires=(url,)))["python-packages"].hint
    assert "$(touch" not in hint or "'" in hint
    assert len(shlex.split(hint)) == 5


def test_torch_is_needed_where_the_project_says_so() -> None:
    """Known to need it: the build stops. Imported at the top of setup.py: a problem. Used if there: a warning."""
    without = python(torch=None)
    assert checked(TORCH_PROJECT, known="flash_attn", python=without)["torch"].stops_build
    imported = checked(source(uses_torch="setup.py", imports_torch=True), python=without)["torch"]
    assert (imported.status, imported.stops_build) == (Status.PROBLEM, False)
    assert checked(TORCH_PROJECT, known="te", python=without)["torch"].status is Status.WARNING
    assert "torch" not in checked(source(), python=without)
    assert "torch" not in checked(TORCH_PROJECT, known="pytorch", python=without)


@pytest.mark.parametrize(
    ("cuda", "nvcc", "name", "status"),
    [
        ("13.0", "13.0.88", "torch", Status.OK),
        ("13.0", "13.2.10", "torch", Status.OK),
        ("12.8", "13.0.88", "torch-cuda", Status.PROBLEM),
        ("", "13.0.88", "torch-cuda", Status.WARNING),
        ("13.0", "", "torch", Status.OK),
    ],
)
def test_torch_refuses_another_major_version_only(cuda: str, nvcc: str, name: str, status: Status) -> None:
    """A minor one gets a note."""
    toolkit = type(NVCC)(nvcc="n", version=nvcc, here="h", top="t", cicc="c", tools=())
    check = checked(TORCH_PROJECT, python=python(torch=Torch(version="2.9.0", cuda=cuda)), toolkit=toolkit)[name]
    assert check.status is status
    assert ("will do" in check.text) is (nvcc == "13.2.10")


def test_torch_for_amd_is_no_torch_for_cuda() -> None:
    """A problem for a project that needs it."""
    amd = python(torch=Torch(version="2.9.0+rocm6.4", rocm=True))
    assert checked(TORCH_PROJECT, known="xformers", python=amd)["torch-cuda"].status is Status.PROBLEM


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


def test_versions_are_compared_as_numbers() -> None:
    """And what is no version is none."""
    assert numbers("1.13.0.git.kitware.jobserver-pipe-1") == (1, 13, 0)
    assert [numbers(text) for text in ("", "x1", "v2")] == [(), (), ()]
    assert (short("3.26.0-rc1"), short("odd")) == ("3.26.0", "odd")
    assert [log_version(text) for text in ("1.5.3", "1.11.9", "1.12", "1.13.2", "2.0", "1", "")] == [
        5,
        5,
        6,
        7,
        7,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("text", "torch"),
    [
        (
            "__version__ = '2.8.0+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n",
            ("2.8.0+cu128", "12.8", False),
        ),
        ("__version__ = '2.1.0'\ncuda = '11.8'\nhip = None\n", ("2.1.0", "11.8", False)),
        ('__version__ = "2.9.0+cpu"\ncuda: str | None = None\n', ("2.9.0+cpu", "", False)),
        ("__version__ = '2.9.0+rocm6.4'\ncuda = None\nhip = '6.4.43482'\n", ("2.9.0+rocm6.4", "", True)),
        ("", ("7.7", "", False)),
        ("\0\xff cuda = ", ("7.7", "", False)),
    ],
)
def test_torchs_version_is_read_and_not_imported(tmp_path: Path, text: str, torch: tuple[str, str, bool]) -> None:
    """From version.py as torch writes it; from what pip says where that is odd."""
    (tmp_path / "version.py").write_text(text)
    found = torch_of(tmp_path, "7.7")
    assert found is not None
    assert (found.version, found.cuda, found.rocm) == torch


def test_a_folder_that_is_called_torch_is_not_torch(tmp_path: Path) -> None:
    """Without a version.py, and without a package of that name."""
    assert torch_of(tmp_path, "") is None
    assert torch_of(tmp_path, "2.9.0") == Torch(version="2.9.0", folder=str(tmp_path))
