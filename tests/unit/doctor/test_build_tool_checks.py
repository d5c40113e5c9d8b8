"""What the doctor says of cmake and ninja."""

from __future__ import annotations

from typing import Any

import pytest

from builddoctor.core.check import Check, Status
from builddoctor.doctor.build_tool_checks import build_tool_checks
from builddoctor.projects.archs import parse_archs
from builddoctor.projects.catalogue import find_known
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
