"""What a folder is, and the command that builds it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from builddoctor.errors import NoBuildSystemError, ProjectNotFoundError
from builddoctor.projects.archs import parse_archs
from builddoctor.projects.detect import Project, find_project


def found(folder: Path, *files: str, archs: str = "", env: dict | None = None, wheels: Path | None = None) -> Project:
    """The project of a folder with these (empty) files."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    return find_project(folder, parse_archs(archs) if archs else (), env or {}, wheels)


def configure(project: Project) -> list[str]:
    """The words of a CMake project's configure step."""
    shell, flag, script = project.command
    assert (shell, flag) == ("/bin/sh", "-c")
    return shlex.split(script.partition(" && ")[0])


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (("setup.py",), "python"),
        (("pyproject.toml", "CMakeLists.txt"), "python"),
        (("CMakeLists.txt", "build.ninja"), "cmake"),
        (("build.ninja",), "ninja"),
    ],
)
def test_a_project_is_what_its_files_say(tmp_path: Path, files: tuple[str, ...], kind: str) -> None:
    """Python before CMake before a configured folder."""
    project = found(tmp_path, *files)
    assert (project.kind, project.name, project.path) == (kind, tmp_path.name, tmp_path)


def test_a_python_project_becomes_a_wheel_in_this_very_environment(tmp_path: Path) -> None:
    """Build isolation would hide its torch and our gates."""
    project = found(tmp_path, "setup.py", env={"PATH": "/nowhere"})
    assert project.command[:4] == ("python3", "-m", "pip", "wheel")
    assert {"--no-build-isolation", "--no-deps"} <= set(project.command)
    assert project.command[-3:] == ("--wheel-dir", f"{tmp_path}/dist", str(tmp_path))
    assert found(tmp_path, wheels=Path("/wheels")).output == "/wheels"


def test_the_python_on_the_path_builds(tmp_path: Path) -> None:
    """The user's own environment, not builddoctor's."""
    python = tmp_path / "venv" / "python"
    found(tmp_path, "setup.py", "venv/python")
    python.chmod(0o755)
    assert found(tmp_path, env={"PATH": str(python.parent)}).command[0] == str(python)


def test_a_cmake_project_is_configured_and_built(tmp_path: Path) -> None:
    """With Ninja and in Release, archs as CMake spells them; names with blanks are quoted."""
    folder = tmp_path / "my project"
    project = found(folder, "CMakeLists.txt", archs="sm_100,sm_90a")
    assert configure(project) == [
        *("cmake", "-S", str(folder), "-B", f"{folder}/build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"),
        "-DCMAKE_CUDA_ARCHITECTURES=100;90a",
    ]
    assert shlex.split(project.command[2].partition(" && ")[2]) == ["exec", "cmake", "--build", f"{folder}/build"]


def test_a_configured_cmake_project_keeps_its_choices(tmp_path: Path) -> None:
    """Another generator would be an error, another build type a full rebuild."""
    words = configure(found(tmp_path, "CMakeLists.txt", "build/CMakeCache.txt"))
    assert words == ["cmake", "-S", str(tmp_path), "-B", f"{tmp_path}/build"]


def test_the_users_generator_and_build_type_stand(tmp_path: Path) -> None:
    """As exported for CMake."""
    env = {"CMAKE_GENERATOR": "Unix Makefiles", "CMAKE_BUILD_TYPE": "Debug"}
    assert configure(found(tmp_path, "CMakeLists.txt", env=env))[5:] == ["-G", "Unix Makefiles"]


def test_a_path_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    """With the path as it was given."""
    with pytest.raises(ProjectNotFoundError, match=r"no such path: .*missing"):
        found(tmp_path / "missing")


def test_a_file_is_no_project_but_its_folder_may_be(tmp_path: Path) -> None:
    """The hint can be pasted, blanks and all."""
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "setup.py").write_text("")
    with pytest.raises(NoBuildSystemError, match="is a file") as error:
        found(tmp_path / "a b" / "setup.py")
    assert f"builddoctor build '{tmp_path}/a b'" in error.value.hint


def test_an_unknown_build_system_can_still_be_supervised(tmp_path: Path) -> None:
    """The hint says how."""
    with pytest.raises(NoBuildSystemError, match="no build system found") as error:
        found(tmp_path, "meson.build")
    assert "builddoctor run --" in error.value.hint


def test_a_makefile_is_made_with_every_core(tmp_path: Path) -> None:
    """make takes one job unless it is told otherwise; memory is for the gates to keep."""
    project = found(tmp_path, "Makefile")
    assert (project.kind, project.command) == ("make", ("make", f"-j{os.cpu_count()}"))


def test_after_a_failure_the_rest_is_built_when_that_is_asked_for(tmp_path: Path) -> None:
    """In ninja's words, and in make's."""
    for name, files in (("n", ("build.ninja",)), ("m", ("Makefile",)), ("c", ("CMakeLists.txt",))):
        folder = tmp_path / name
        found(folder, *files)
        command = find_project(folder, (), {}, None, keep_going=True).command
        assert command[-1].endswith({"n": "0", "m": "-k", "c": "-- -k 0"}[name])
    made = find_project(tmp_path / "c", (), {"CMAKE_GENERATOR": "Unix Makefiles"}, None, keep_going=True)
    assert made.command[-1].endswith("-- -k")
