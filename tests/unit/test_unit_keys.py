"""What a unit is called across builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.intercept.unit_options import options_digest
from builddoctor.model.past import UnitKey
from builddoctor.supervise.unit_keys import UNNAMED, Project, Projects, Toolchain, project_of, unit_key
from unit.builders import unit

TOOLS = Toolchain(nvcc="13.0.88", host_compiler="12.2", host_arch="x86_64")


def named(source: str, cwd: str = "/home/me/demo/build", project: str = "/home/me/demo", **fields: object) -> UnitKey:
    place = Project(folder=Path(project), name=Path(project).name)
    key = unit_key(unit(source=source, **{"output": "x/a.o", **fields}), ["-c", "-O3"], cwd, place, TOOLS)
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


@pytest.mark.parametrize(
    "folder",
    ["pip-req-build-x1y2z3a4", "tmpab12cd34", "pip-install-77aa", "pip-install-77aa/demo_" + "9f" * 16, ".tmpAb12Cd"],
)
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
    place = Project(folder=Path("/home/me/demo"), name="demo")
    assert unit_key(trial, [], "/home/me/demo/build", place, TOOLS) is None


def test_a_link_is_named_by_what_it_makes() -> None:
    """It has no source."""
    assert named("", output="lib/libdemo.so", counted=False).place == "link libdemo.so"


def test_host_code_is_not_tied_to_an_nvcc() -> None:
    """Another toolkit leaves its figures as they are."""
    assert named("a.cpp", archs=()).nvcc == ""
    assert named("a.cu").nvcc == "13.0.88"


@pytest.mark.parametrize("mark", [".git", "pyproject.toml", "setup.py", "PKG-INFO"])
def test_the_projects_folder_is_the_nearest_that_looks_like_one(tmp_path: Path, mark: str) -> None:
    """From a build folder below it; without one, the folder itself."""
    deep = tmp_path / "demo" / "build" / "deep"
    deep.mkdir(parents=True)
    assert project_of(str(deep)).folder == deep
    (tmp_path / "demo" / mark).touch()
    found = project_of(str(deep))
    assert (found.folder, found.name) == (tmp_path / "demo", "demo")


def test_a_build_folder_of_cmake_belongs_to_the_outermost_list_file(tmp_path: Path) -> None:
    """Where nothing else marks a project."""
    (tmp_path / "demo" / "lib").mkdir(parents=True)
    (tmp_path / "demo" / "CMakeLists.txt").write_text("project(Attention LANGUAGES CUDA)\n")
    (tmp_path / "demo" / "lib" / "CMakeLists.txt").write_text("add_library(x)\n")
    assert project_of(str(tmp_path / "demo" / "lib")).name == "attention"


def test_two_projects_in_folders_of_one_name_are_two(tmp_path: Path) -> None:
    """``src`` is a name that many have: they are told apart by what they call themselves, or by the folder above."""
    for name, says in (("one", "[project]\nname = 'flash_attn'\n"), ("two", ""), ("three", "")):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / "src" / "pyproject.toml").write_text(says)
    names = [project_of(str(tmp_path / name / "src")).name for name in ("one", "two", "three")]
    assert names == ["flash-attn", "two/src", "three/src"]


@pytest.mark.parametrize("folder", ["pip-req-build-x1y2z3a4", "tmpab12cd34", ".tmpAb12Cd", "apex_" + "0a" * 16])
def test_what_pip_unpacks_has_the_projects_own_name_each_time(tmp_path: Path, folder: str) -> None:
    """Else its history would never be found again; without any name it is at least always the same."""
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "setup.py").write_text("from setuptools import setup\nsetup(name='apex')\n")
    assert project_of(str(tmp_path / folder)).name == "apex"
    (tmp_path / folder / "setup.py").write_text("")
    assert project_of(str(tmp_path / folder)).name == UNNAMED


def test_what_pip_fetches_is_the_fetched_projects_and_not_that_of_the_folder_it_is_run_in(tmp_path: Path) -> None:
    """``pip install flash-attn`` from anywhere: the same names each time."""
    (tmp_path / "home").mkdir()
    (tmp_path / "demo" / "csrc").mkdir(parents=True)
    (tmp_path / "demo" / "pyproject.toml").write_text("[project]\nname = 'demo'\n")
    keys = []
    for number, runs_in in (("1", "home"), ("2", "demo")):
        unpacked = tmp_path / f"pip-install-{number}" / f"flash-attn_{number * 32}"
        (unpacked / "csrc").mkdir(parents=True)
        (unpacked / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: flash_attn\nVersion: 2.8\n")
        projects = Projects(str(tmp_path / runs_in))
        each = unit(source="csrc/a.cu", output="a.o")
        keys.append(unit_key(each, ["-c"], str(unpacked), projects.of(each, str(unpacked)), TOOLS))
    assert keys[0] == keys[1]
    assert keys[0] is not None
    assert (keys[0].project, keys[0].place) == ("flash-attn", "csrc/a.cu")


def test_sources_of_the_builds_own_project_belong_to_it(tmp_path: Path) -> None:
    """Submodules, too, though they look like projects; and what lies elsewhere and looks like none."""
    (tmp_path / "demo" / "3rdparty" / "cutlass").mkdir(parents=True)
    (tmp_path / "demo" / "setup.py").touch()
    (tmp_path / "demo" / "3rdparty" / "cutlass" / "setup.py").touch()
    projects = Projects(str(tmp_path / "demo"))
    for source in ("3rdparty/cutlass/a.cu", str(tmp_path / "else" / "b.cu"), ""):
        assert projects.of(unit(source=source), str(tmp_path / "demo")).name == "demo"


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
