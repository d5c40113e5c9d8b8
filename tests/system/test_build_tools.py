"""The real cmake, ninja, python and git of this machine, and what the checks make of real trees."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from builddoctor.core.check import Check, Status
from builddoctor.core.toolchain import BuildTools
from builddoctor.doctor.build_tool_checks import build_tool_checks
from builddoctor.doctor.examine import Question, Subject, examine_briefly
from builddoctor.doctor.source_checks import source_checks
from builddoctor.gates.subprocesses import run_captured
from builddoctor.projects.source_tree import examine_source
from builddoctor.system.root import SystemRoot
from builddoctor.toolchain.build_tools import examine_build_tools
from builddoctor.toolchain.discover import OVERLAY_MARK

CMAKE_LISTS = "cmake_minimum_required(VERSION 3.18)\nproject(demo CXX)\nadd_library(demo demo.cpp)\n"


def command(path: Path, text: str) -> Path:
    """A shell script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def looked_at(folder: Path, env: Mapping[str, str]) -> dict[str, Check]:
    """All checks of a folder, by name."""
    source = examine_source(folder, env)
    tools = examine_build_tools(env, source, run=run_captured)
    checks = source_checks(source, known=None, archs=(), toolkit=None, tools=tools, env=env)
    checks += build_tool_checks(tools, source=source, known=None, archs=(), toolkit=None, env=env)
    return {check.name: check for check in checks}


def git(where: Path, *words: str) -> None:
    """git with a configuration of the test's own, which lets it clone from a folder."""
    home = where.parent / "home"
    home.mkdir(exist_ok=True)
    settings = ("protocol.file.allow=always", "user.name=t", "user.email=t@example.org", "init.defaultBranch=main")
    flags = [word for setting in settings for word in ("-c", setting)]
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(where.parent),
    }
    subprocess.run(["git", *flags, *words], cwd=where, env=env, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone, without its submodules, of a project with one that setup.py names."""
    library, project = tmp_path / "library", tmp_path / "project"
    for folder, file, text in ((library, "lib.h", ""), (project, "setup.py", 'include = "3rdparty/lib"\n')):
        folder.mkdir()
        (folder / file).write_text(text)
        git(folder, "init")
        git(folder, "add", ".")
        git(folder, "commit", "-m", "one")
    git(project, "submodule", "add", str(library), "3rdparty/lib")
    git(project, "commit", "-am", "two")
    git(tmp_path, "clone", "project", "clone")
    return tmp_path / "clone"


def test_a_real_clone_without_its_submodules_is_stopped(checkout: Path) -> None:
    """git leaves an empty folder; after `git submodule update` all is well."""
    check = looked_at(checkout, os.environ)["submodules"]
    assert (check.status, check.stops_build) == (Status.PROBLEM, True)
    assert check.text == "3rdparty/lib is empty, and setup.py needs it"
    git(checkout, "submodule", "update", "--init", "--recursive")
    assert looked_at(checkout, os.environ)["submodules"].status is Status.OK


def test_a_worktree_and_an_archive_of_it(checkout: Path, tmp_path: Path) -> None:
    """A worktree's .git is a file, and it is a checkout; an archive has none, and only another source helps."""
    git(checkout, "worktree", "add", str(tmp_path / "tree"))
    assert looked_at(tmp_path / "tree", os.environ)["submodules"].fix == "submodules"
    archive = tmp_path / "away" / "archive"
    archive.mkdir(parents=True)
    git(checkout, "archive", "-o", str(archive / "a.tar"), "HEAD")
    subprocess.run(["tar", "-xf", "a.tar"], cwd=archive, check=True)
    check = looked_at(archive, os.environ)["submodules"]
    assert (check.stops_build, check.fix) == (True, "")


@pytest.mark.needs_cmake
def test_the_tools_of_this_machine_say_what_they_are() -> None:
    """The first of each is the one that a shell finds, and each has a version."""
    tools = examine_build_tools(os.environ, run=run_captured)
    assert tools.cmakes[0].path == shutil.which("cmake")
    assert any(program.path == shutil.which("ninja") for program in tools.ninjas)
    for program in (tools.cmakes[0], *(ninja for ninja in tools.ninjas if ninja.path == shutil.which("ninja"))):
        said = subprocess.run([program.path, "--version"], capture_output=True, text=True, check=True).stdout
        assert program.version in said.split()


def test_the_python_that_builds_is_the_one_on_the_path() -> None:
    """Its own headers and packages, whatever runs builddoctor."""
    env = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    python = examine_build_tools(env, run=run_captured).python
    assert python is not None
    assert (python.problem, python.version) == ("", ".".join(str(part) for part in sys.version_info[:3]))
    assert python.headers is Path(python.include, "Python.h").exists()
    assert python.version_of("setuptools")


def fake_torch(site: Path, more: str = "") -> Mapping[str, str]:
    """A torch that ends the process when it is imported, on PYTHONPATH."""
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text("import os\nos._exit(3)\n")
    (site / "torch" / "version.py").write_text(f"__version__ = '2.8.0+cu128'\ncuda = '12.8'\n{more}")
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(site)}


def test_torch_is_found_and_never_imported(tmp_path: Path) -> None:
    """Importing this one would end the python that was asked."""
    python = examine_build_tools(fake_torch(tmp_path / "site"), run=run_captured).python
    assert python is not None
    assert python.torch is not None
    assert (python.torch.version, python.torch.cuda) == ("2.8.0+cu128", "12.8")


def test_asking_leaves_nothing_behind(tmp_path: Path) -> None:
    """No __pycache__ where modules were loaded from."""
    env = fake_torch(tmp_path / "site")
    (tmp_path / "site" / "sitecustomize.py").write_text("import helper_of_mine\n")
    (tmp_path / "site" / "helper_of_mine.py").write_text("")
    before = sorted(tmp_path.rglob("*"))
    examine_build_tools(
        {name: value for name, value in env.items() if name != "PYTHONDONTWRITEBYTECODE"}, run=run_captured
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_a_projects_own_folder_is_not_taken_for_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's checkout has a folder of that name, and python looks where it is started first."""
    fake_torch(tmp_path)
    monkeypatch.chdir(tmp_path)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    python = examine_build_tools(env, run=run_captured).python
    assert python is None or python.torch is None


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 3", "it ended with status 3"),
        ("echo 'pyenv: python: command not found' >&2; exit 127", "pyenv: python: command not found"),
        ("echo hello", "hello"),
        ("printf '\\036{\\036'", None),
    ],
)
def test_a_python_that_does_not_answer_is_a_problem_and_no_crash(
    tmp_path: Path, script: str, problem: str | None
) -> None:
    """A shim without a version behind it, a wrapper that prints something else."""
    command(tmp_path / "bin/python", script)
    python = examine_build_tools({"PATH": str(tmp_path / "bin")}, run=run_captured).python
    assert python is not None
    assert python.problem == problem if problem else python.problem


def test_odd_programs_on_the_path(tmp_path: Path) -> None:
    """One that fails, one that says nothing, a link to the first, a folder, a plain file, our own gate."""
    command(tmp_path / "a/ninja", "echo no such luck; exit 1")
    command(tmp_path / "b/ninja", "exit 0")
    (tmp_path / "c").mkdir()
    (tmp_path / "c/ninja").symlink_to(tmp_path / "a/ninja")
    (tmp_path / "d/ninja").mkdir(parents=True)
    command(tmp_path / "e/ninja", "echo 1.0.0").chmod(0o644)
    command(tmp_path / "overlay/bin/ninja", "echo 9.9.9")
    (tmp_path / "overlay" / OVERLAY_MARK).write_text("")
    command(tmp_path / "f/ninja", "echo 1.12.1")
    path = ":".join(str(tmp_path / name) for name in ("overlay/bin", "a", "b", "c", "d", "e", "f"))
    tools = examine_build_tools({"PATH": f"relative::{path}"}, run=run_captured)
    assert [(os.path.basename(os.path.dirname(n.path)), n.version, n.problem) for n in tools.ninjas] == [
        ("a", "", "no such luck"),
        ("b", "", "`--version` ended with status 0"),
        ("f", "1.12.1", ""),
    ]


def test_nothing_at_all_on_the_path(tmp_path: Path) -> None:
    """A machine without tools is described, not an error."""
    assert examine_build_tools({"PATH": str(tmp_path)}, run=run_captured) == BuildTools()


def configure(folder: Path, *ninjas: str) -> None:
    """Build folders whose CMakeCache.txt names these."""
    for number, ninja in enumerate(ninjas):
        cache = folder / f"build/{number}/CMakeCache.txt"
        cache.parent.mkdir(parents=True)
        cache.write_text(f"CMAKE_MAKE_PROGRAM:FILEPATH={ninja}\n")


def test_a_ninja_that_a_folder_names_is_not_run_for_that(tmp_path: Path) -> None:
    """It may have come in the same archive, inside of the project or beside it: named, with no version."""
    ninjas = [tmp_path / place / "ninja" for place in ("archive/project", "archive/tools")]
    for program in ninjas:
        command(program, f": > {tmp_path}/ran-in-{program.parent.name}; echo 1.13.0")
    configure(tmp_path / "archive/project", *map(str, ninjas))
    tools = examine_build_tools(
        {"PATH": "/nowhere"}, examine_source(tmp_path / "archive/project", {}), run=run_captured
    )
    assert [(each.path, each.version) for each in tools.configured_ninjas] == [(str(ninja), "") for ninja in ninjas]
    assert not list(tmp_path.glob("ran-*"))


def test_a_ninja_that_a_folder_names_has_its_version_where_it_is_on_the_path(tmp_path: Path) -> None:
    """By another name or link, too; and a name that no file can have is passed over."""
    ninja = command(tmp_path / "bin/ninja", "echo 1.12.1")
    (tmp_path / "link").symlink_to(tmp_path / "bin")
    configure(tmp_path / "project", str(ninja), f"{tmp_path}/link/ninja", "/a\0b/ninja", "\x1b/ninja")
    tools = examine_build_tools(
        {"PATH": str(tmp_path / "bin")}, examine_source(tmp_path / "project", {}), run=run_captured
    )
    assert [each.version for each in tools.configured_ninjas] == ["1.12.1", "1.12.1"]


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    """A CMake project that was configured and built."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(CMAKE_LISTS)
    (folder / "demo.cpp").write_text("int demo() { return 1; }\n")
    subprocess.run(["cmake", "-G", "Ninja", "-S", ".", "-B", "build"], cwd=folder, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", "build"], cwd=folder, check=True, capture_output=True)
    return folder


def configures(folder: Path) -> bool:
    """CMake takes the folder as it is."""
    done = subprocess.run(["cmake", "-S", ".", "-B", "build"], cwd=folder, capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.needs_cmake
def test_a_folder_that_cmake_takes_is_fine(configured: Path) -> None:
    """No check of build folders, and no ninja that would start over."""
    assert configures(configured)
    found = looked_at(configured, os.environ)
    assert not [name for name in found if name.startswith("build-folder") or name == "ninja-log"]


@pytest.mark.needs_cmake
@pytest.mark.parametrize("entry", ["CMAKE_CXX_COMPILER", "CMAKE_MAKE_PROGRAM"])
def test_a_program_that_is_gone_is_what_cmake_refuses(configured: Path, entry: str) -> None:
    """What the check says is what CMake does, and its hint helps."""
    cache = configured / "build/CMakeCache.txt"
    lines = [
        f"{entry}:FILEPATH=/gone/program" if line.startswith(f"{entry}:") else line
        for line in cache.read_text().splitlines()
    ]
    cache.write_text("\n".join(lines) + "\n")
    check = looked_at(configured, os.environ)["build-folder-programs"]
    assert check.stops_build
    assert not configures(configured)
    subprocess.run(["/bin/sh", "-c", check.hint], check=True)
    subprocess.run(["cmake", "-G", "Ninja", "-S", ".", "-B", "build"], cwd=configured, check=True, capture_output=True)
    assert "build-folder-programs" not in looked_at(configured, os.environ)


@pytest.mark.needs_cmake
def test_a_copied_project_is_what_cmake_refuses(configured: Path, tmp_path: Path) -> None:
    """The copy is stopped, the original is not."""
    copy = tmp_path / "copy"
    shutil.copytree(configured, copy)
    assert looked_at(copy, os.environ)["build-folder-moved"].stops_build
    assert not configures(copy)
    assert "build-folder-moved" not in looked_at(configured, os.environ)


@pytest.mark.needs_cmake
def test_a_log_that_ninja_does_not_read_starts_over(configured: Path, tmp_path: Path) -> None:
    """As the check says before: everything is compiled again."""
    log = configured / "build/.ninja_log"
    head, _, rest = log.read_text().partition("\n")
    log.write_text(f"# ninja log v{ {'7': 5}.get(head[-1], 7) }\n{rest}")
    assert "builds everything again" in looked_at(configured, os.environ)["ninja-log"].text
    said = subprocess.run(
        ["cmake", "--build", "build"], cwd=configured, capture_output=True, text=True, check=True
    ).stdout
    assert "[2/2]" in said
    assert "ninja-log" not in looked_at(configured, os.environ)


@pytest.mark.parametrize("build", [False, True])
@pytest.mark.parametrize("with_tools", [False, True])
def test_before_a_command_of_ones_own_tools_are_asked_only_for_what_an_earlier_build_left(
    tmp_path: Path, build: bool, with_tools: bool
) -> None:
    asked = tmp_path / "asked"
    for name in ("cmake", "ninja", "python3"):
        command(tmp_path / "bin" / name, f"echo {name} >> {asked}; echo 3.30.1")
    project = tmp_path / "project"
    (project / "build").mkdir(parents=True)
    (project / "CMakeLists.txt").write_text(CMAKE_LISTS)
    if build:
        (project / "build" / "CMakeCache.txt").write_text("CMAKE_GENERATOR:INTERNAL=Ninja\n")
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
    question = Question(subject=Subject(folder=project))
    examine_briefly(SystemRoot(), env, question, with_tools=with_tools)
    names = set(asked.read_text().split()) if asked.exists() else set()
    assert ("cmake" in names, "ninja" in names) == ((True, True) if with_tools or build else (False, False))
