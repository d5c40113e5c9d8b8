"""What a unit is called across builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.intercept.unit_options import options_digest
from builddoctor.model.past import UnitKey
from builddoctor.supervise.unit_keys import Toolchain, project_folder, unit_key
from unit.builders import unit

TOOLS = Toolchain(nvcc="13.0.88", host_compiler="12.2", host_arch="x86_64")


def named(source: str, cwd: str = "/home/me/demo/build", project: str = "/home/me/demo", **fields: object) -> UnitKey:
    key = unit_key(unit(source=source, **{"output": "x/a.o", **fields}), ["-c", "-O3"], cwd, Path(project), TOOLS)
    assert key is not None
    return key


@pytest.mark.parametrize("source", ["../src/a.cu", "/home/me/demo/src/a.cu", "/home/me/demo/./build/../src/a.cu"])
def test_a_source_is_named_by_its_place_in_the_project(source: str) -> None:
    """However the build names it."""
    assert named(source).place == "src/a.cu"
    assert named(source).project == "demo"


def test_the_same_project_in_another_folder_has_the_same_names() -> None:
    """A second checkout, another user."""
    here = named("/home/me/demo/src/a.cu")
    there = named("/srv/ci/demo/src/a.cu", cwd="/srv/ci/demo/out", project="/srv/ci/demo")
    assert here == there


@pytest.mark.parametrize("folder", ["pip-req-build-x1y2z3a4", "tmpab12cd34", "pip-install-77aa"])
def test_a_temporary_folder_is_no_part_of_a_name(folder: str) -> None:
    """What pip unpacks lies in another folder each time."""
    assert named(f"/tmp/{folder}/csrc/a.cu").place == "csrc/a.cu"


def test_a_source_elsewhere_is_named_by_the_end_of_its_path() -> None:
    """Its last three parts."""
    assert named("/opt/other/lib/deep/src/a.cu").place == "deep/src/a.cu"


@pytest.mark.parametrize(
    ("source", "output", "counted"),
    [
        ("/home/me/demo/build/CMakeFiles/CMakeScratch/TryCompile-x/t.cu", "t.o", False),
        ("", "cmTC_12ab", False),
        ("", "a.out", False),
        ("conftest.c", "", False),
        ("", "", False),
    ],
)
def test_what_a_configure_step_tries_out_has_no_name(source: str, output: str, counted: bool) -> None:
    """It is never the same twice."""
    trial = unit(source=source, output=output, counted=counted)
    assert unit_key(trial, [], "/home/me/demo/build", Path("/home/me/demo"), TOOLS) is None


def test_a_link_is_named_by_what_it_makes() -> None:
    """It has no source."""
    assert named("", output="lib/libdemo.so", counted=False).place == "link libdemo.so"


def test_host_code_is_not_tied_to_an_nvcc() -> None:
    """Another toolkit leaves its figures as they are."""
    assert named("a.cpp", archs=()).nvcc == ""
    assert named("a.cu").nvcc == "13.0.88"


@pytest.mark.parametrize("mark", [".git", "pyproject.toml", "setup.py"])
def test_the_projects_folder_is_the_nearest_that_looks_like_one(tmp_path: Path, mark: str) -> None:
    """From a build folder below it; without one, the folder itself."""
    (tmp_path / "demo" / "build" / "deep").mkdir(parents=True)
    assert project_folder(str(tmp_path / "demo" / "build" / "deep")).name == "deep"
    (tmp_path / "demo" / mark).touch()
    assert project_folder(str(tmp_path / "demo" / "build" / "deep")) == tmp_path / "demo"


BASE = ["-c", "a.cu", "-o", "a.o", "-O3", "-DNDEBUG", "-std=c++17", "-Xcompiler", "-fPIC,-O3"]


@pytest.mark.parametrize(
    "other",
    [
        ["-c", "/else/a.cu", "-o", "/else/b.o", *BASE[4:]],
        [*BASE, "-I/usr/include", "-isystem", "/opt/x", "-MD", "-MF", "a.d"],
        [*BASE, "-gencode", "arch=compute_90,code=sm_90", "--threads", "4", "-arch=sm_80"],
        [BASE[0], *BASE[4:], *BASE[1:4]],
        [*BASE, "-Wall", "-Xcompiler", "-Wextra", "-ccbin", "/usr/bin/g++"],
        [*BASE, "--options-file", "CMakeFiles/x.rsp", "-lcuda", "-L/usr/lib"],
    ],
)
def test_options_that_do_not_matter_for_memory_leave_the_digest(other: list[str]) -> None:
    """Paths, include folders, dependency files, architectures, threads, warnings, order."""
    assert options_digest(other) == options_digest(BASE)


@pytest.mark.parametrize(
    "other",
    [["-O0"], ["-g"], ["-G"], ["-DBIG=1"], ["-D", "BIG"], ["-lineinfo"], ["-Xptxas", "-O1"], ["--param", "x=1"]],
)
def test_options_that_matter_change_it(other: list[str]) -> None:
    """Optimisation, debug information, macros, what is passed on to the tools."""
    assert options_digest([*BASE, *other]) != options_digest(BASE)


def test_a_macro_with_a_path_is_told_by_its_name_alone() -> None:
    """The path changes with the folder."""
    assert options_digest(["-DROOT=/a/b"]) == options_digest(["-DROOT=/c/d"]) != options_digest(["-DOTHER=/a/b"])
