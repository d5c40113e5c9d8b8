"""Staged builds that are refused before they start, and stages that are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.cli.staging import require_ninja, staged_lines, staged_request, write_stages
from builddoctor.core.errors import FolderNotWritableError, RecipeError, UsageError
from builddoctor.core.request import RunRequest
from support.staged import a_plan, a_stage, rest, write_recipe

PROGRAM = Path("/cache/staged/bin/ninja")


def refused(folder: Path, *command: str, env: dict[str, str] | None = None, **more: object) -> UsageError:
    request = RunRequest(command=command, cwd=str(folder), nvcc_by_path=bool(more.get("nvcc_by_path")))
    with pytest.raises(UsageError) as caught:
        require_ninja(request, env or {}, program=PROGRAM, build_folder=str(more.get("build_folder", "")))
    return caught.value


def configured(folder: Path, generator: str, program: str) -> None:
    folder.mkdir()
    (folder / "CMakeCache.txt").write_text(
        f"CMAKE_GENERATOR:INTERNAL={generator}\nCMAKE_MAKE_PROGRAM:FILEPATH={program}\n"
    )


def test_builds_without_ninja_are_refused_with_the_way_out(tmp_path: Path) -> None:
    """make, a setup.py without ninja, and CMake with makefiles."""
    assert "calls make" in str(refused(tmp_path, "/usr/bin/make", "-j8"))
    assert "setup.py" in str(refused(tmp_path, "pip", "wheel", nvcc_by_path=True))
    error = refused(tmp_path, "sh", env={"CMAKE_GENERATOR": "Unix Makefiles"}, build_folder=str(tmp_path / "build"))
    assert "Unix Makefiles" in str(error)
    assert "--strategy staged" in error.hint
    configured(tmp_path / "build", "Unix Makefiles", "/usr/bin/gmake")
    assert "Unix Makefiles" in str(refused(tmp_path, "cmake", "--build", "build"))


def test_a_folder_that_was_configured_with_another_ninja_is_refused(tmp_path: Path) -> None:
    """CMake calls it by its own path, past the stages; the hint is the line that changes it."""
    configured(tmp_path / "build", "Ninja", "/usr/bin/ninja")
    error = refused(tmp_path, "cmake", "--build", "build")
    assert "/usr/bin/ninja" in str(error)
    assert error.hint == f"cmake -DCMAKE_MAKE_PROGRAM={PROGRAM} {tmp_path}/build"


@pytest.mark.parametrize("generator", ["Ninja", "Ninja Multi-Config"])
def test_builds_with_ninja_are_not_refused(tmp_path: Path, generator: str) -> None:
    """One that was configured in stages before, or not yet; and whatever nobody can tell beforehand."""
    configured(tmp_path / "build", generator, str(PROGRAM))
    for command, build in (
        (("cmake", "--build", "build"), ""),
        (("sh", "-c", "cmake -B new"), str(tmp_path / "new")),
        (("pip", "wheel", "."), ""),
        (("ninja",), ""),
    ):
        request = RunRequest(command=command, cwd=str(tmp_path))
        require_ninja(request, {}, program=PROGRAM, build_folder=build)


def test_stages_are_written_once_for_the_same_plan(tmp_path: Path) -> None:
    """Another plan gets another folder: a build that runs keeps its stages. The program's path is always the same."""
    plan = a_plan(a_stage("light", 2, ["a.o"]), rest())
    first = write_stages(tmp_path, plan)
    stamp = (first / "stages").stat().st_mtime_ns
    assert write_stages(tmp_path, plan) == first
    assert (first / "stages").stat().st_mtime_ns == stamp
    other = write_stages(tmp_path, a_plan(a_stage("light", 1, ["a.o"]), rest()))
    assert other != first
    assert (first / "stage-1").read_text() == "a.o\n"
    assert (tmp_path / "bin" / "ninja").stat().st_mode & 0o777 == 0o755
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bin", "plans"]


def test_a_cache_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """With the variable that names another one."""
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderNotWritableError, match="cannot write the stages") as caught:
        write_stages(tmp_path / "file", a_plan(rest()))
    assert "BUILDDOCTOR_CACHE_DIR" in caught.value.hint


def test_what_is_said_before_the_build() -> None:
    """The stages with their jobs and units."""
    plan = a_plan(a_stage("light", 4, ["a.o", "b.o"]), a_stage("heavy", 1, ["c.o"]), rest())
    assert staged_lines(plan) == ["stages    light -j 4 (2 units), heavy -j 1 (1 unit), then the rest"]


def env_of(folder: Path) -> dict[str, str]:
    return {"BUILDDOCTOR_CACHE_DIR": str(folder / "ca che"), "PATH": "/bin", "HOME": str(folder)}


def test_a_request_gets_the_stages_of_its_recipe(tmp_path: Path) -> None:
    """Planned for this machine and written below the cache folder; the rest of the request is as it was."""
    recipe = write_recipe(tmp_path, {"a.o": 10.0, "b.o": 10.0})
    asked = RunRequest(command=("ninja",), cwd=str(tmp_path), recipe=recipe, strategy="staged", cores=2)
    found = staged_request(asked, env_of(tmp_path), say=lambda _: None)
    assert found.command == asked.command
    assert found.extra_env == ()
    assert sorted((Path(found.stages) / "stage-1").read_text().split()) == ["a.o", "b.o"]
    assert (Path(found.stages) / "stages").read_text().splitlines()[1].startswith("1\t2\t1\t")


def test_a_recipe_without_targets_is_refused(tmp_path: Path) -> None:
    """Of a build without ninja: nobody knows what ninja would call its units."""
    recipe = write_recipe(tmp_path, {"a.o": 10.0}, named=False)
    asked = RunRequest(command=("ninja",), cwd=str(tmp_path), recipe=recipe, strategy="staged")
    with pytest.raises(RecipeError, match="does not say what ninja calls its units"):
        staged_request(asked, env_of(tmp_path), say=lambda _: None)


def test_scikit_build_core_is_told_which_ninja_to_take(tmp_path: Path) -> None:
    """It would take that of Python's package; the user's own CMAKE_ARGS stay, the path is one word for it."""
    (tmp_path / "pyproject.toml").write_text('[build-system]\nbuild-backend = "scikit_build_core.build"\n')
    configured(tmp_path / "build", "Ninja", "/usr/bin/ninja")
    asked = RunRequest(
        command=("pip", "wheel", "."),
        cwd=str(tmp_path),
        recipe=write_recipe(tmp_path, {"a.o": 10.0}),
        strategy="staged",
        extra_env=(("CMAKE_ARGS", "-DX=1"), ("OTHER", "2")),
    )
    found = staged_request(asked, env_of(tmp_path), say=lambda _: None, build_folder=str(tmp_path / "build"))
    program = tmp_path / "ca che" / "staged" / "bin" / "ninja"
    assert found.extra_env == (("CMAKE_ARGS", f"-DX=1 -DCMAKE_MAKE_PROGRAM='{program}'"), ("OTHER", "2"))
