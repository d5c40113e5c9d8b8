"""Units: each ends once, with the last of its driver and its phases; what one is called across builds."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from builddoctor.core.past import UnitKey
from builddoctor.gates.protocol import Asked
from builddoctor.runtime.units import UNNAMED, Project, Projects, Toolchain, Units, project_of, unit_key
from builddoctor.system.process import Processes
from unit.builders import unit
from unit.trees import TextRoot


def units() -> tuple[Units, list[str]]:
    """Units, and the ids of those that ended."""
    ended: list[str] = []
    return Units(Processes(TextRoot()), began=lambda *_: None, ended=lambda unit: ended.append(unit.unit_id)), ended


def test_a_unit_ends_with_the_last_of_driver_and_phases() -> None:
    """The driver's end is often known before that of its last phase's gate, which came earlier."""

    async def run() -> None:
        found, ended = units()
        unit = found.register_nvcc(os.getpid(), ["-c", "a.cu"], "/")
        for _ in range(2):
            found.enter(unit.unit_id)
        found.leave(unit.unit_id)
        found._end(unit.unit_id)
        assert ended == []
        assert unit.unit_id in found.open
        found.leave(unit.unit_id)
        assert ended == [unit.unit_id]
        assert not found.open

    asyncio.run(run())


def test_a_ptxas_that_no_nvcc_called_belongs_to_no_unit() -> None:
    """Triton's: the server that called it would be a unit for as long as it runs."""
    root = TextRoot({"/proc/20/cmdline": "python\0serve.py\0"})
    found = Units(Processes(root), began=lambda *_: None, ended=lambda _: None)
    asked = Asked(
        gate_pid=21,
        parent_pid=20,
        unit_id="",
        tool="/cache/0/ptxas",
        cwd="/",
        sizes="",
        redoable=True,
        argv=("a.ptx", "-o", "a.o"),
    )
    assert found.of(asked) == ""
    assert not found.open


def test_a_unit_goes_on_between_two_phases() -> None:
    """No phase of it runs, but its driver does."""

    async def run() -> None:
        found, ended = units()
        unit = found.register_nvcc(os.getpid(), ["-c", "a.cu"], "/")
        found.enter(unit.unit_id)
        found.leave(unit.unit_id)
        assert ended == []
        found._end(unit.unit_id)
        assert ended == [unit.unit_id]
        found.leave(unit.unit_id)
        assert ended == [unit.unit_id]

    asyncio.run(run())


def test_at_the_end_of_a_build_all_units_end_whatever_their_phases_do() -> None:
    """Nothing is waited for any more, and nothing ends twice."""

    async def run() -> None:
        found, ended = units()
        unit = found.register_nvcc(os.getpid(), ["-c", "a.cu"], "/")
        found.enter(unit.unit_id)
        found.close()
        found.leave(unit.unit_id)
        assert ended == [unit.unit_id]

    asyncio.run(run())


def test_a_driver_whose_number_is_nobody_s_here_ends_at_once() -> None:
    """A gate in a pid namespace that cannot be seen from here: its unit must not stay open for ever."""

    async def run() -> None:
        found, ended = units()
        unit = found.register_nvcc(0, ["-c", "a.cu"], "/")
        assert ended == [unit.unit_id]

    asyncio.run(run())


# -- names across builds -----------------------------------------------------------------------------------


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
