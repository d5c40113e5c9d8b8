"""A cell's copy of the sources: real shells as the jobs of an array, one after the other, over one folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from builddoctor.ui.scripts.slurm_array import render_slurm_array
from support.recipes import PLAN, RECIPE, array_cells
from system.test_rendered_scripts import HOW, SHELLS, environment

pytestmark = pytest.mark.slow

CELL = "cuda13.0"
BEGAN_S = 1_000_000_000
"""The date of all sources."""

MANIFEST = """\
rule unit
  command = cp $in $out && echo $out >>begun
build a.o: unit ../a.cu
build b.o: unit ../kernels/b.cu
"""


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


class Array:
    """A cell's jobs: the sources are a checkout with two units."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.shell = shell
        self.sources = folder / "sources"
        (self.sources / "build").mkdir(parents=True)
        (self.sources / "kernels").mkdir()
        self.write("build/build.ninja", MANIFEST)
        self.write("a.cu", "first")
        self.write("kernels/b.cu", "first")
        self.script = folder / "wheels.slurm"
        cells = [msgspec.structs.replace(each, values=each.values[1:], name=CELL) for each in array_cells(*MADE)[1:2]]
        self.script.write_text(render_slurm_array(cells))
        self.matrix = self.sources / "matrix"

    def write(self, name: str, text: str, at_s: float = BEGAN_S) -> None:
        path = self.sources / name
        path.write_text(text)
        os.utime(path, (at_s, at_s))

    @property
    def copy(self) -> Path:
        return self.matrix / CELL / "source"

    def job(self, *words: str, cwd: Path | None = None, **extra: str) -> subprocess.CompletedProcess[str]:
        task = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_JOB_ID": "7", "SLURM_JOB_ID": "8", "MEMORY_MIB": "3000"}
        return subprocess.run(
            [*self.shell.split(), str(self.script), *words, "--", "ninja", "-C", "build"],
            cwd=cwd or self.sources,
            env={**environment(), **task, **extra},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def built(self, *words: str, cwd: Path | None = None, **extra: str) -> list[str]:
        """Units that a job has compiled, which ended well."""
        begun = self.copy / "build" / "begun"
        begun.unlink(missing_ok=True)
        done = self.job(*words, cwd=cwd, **extra)
        assert done.returncode == 0, done.stderr
        return sorted(begun.read_text().split()) if begun.exists() else []


MADE = (RECIPE, PLAN, HOW)


@pytest.fixture
def array(tmp_path: Path, shell: str) -> Array:
    return Array(tmp_path, shell)


def test_another_job_compiles_what_has_changed(array: Array) -> None:
    """Also what was put back, with an older date than what was compiled of it; nothing else."""
    assert array.built() == ["a.o", "b.o"]
    assert array.built() == []
    assert (array.copy / "a.cu").stat().st_mtime == BEGAN_S
    array.write("a.cu", "other", BEGAN_S + 100)
    assert array.built() == ["a.o"]
    array.write("a.cu", "first")
    assert array.built() == ["a.o"]
    assert (array.copy / "build" / "a.o").read_text() == "first"
    assert array.built() == []


def test_another_job_has_no_source_that_is_gone(array: Array) -> None:
    """What the build has made beside it stays, and a build that still wants it fails."""
    array.built()
    (array.copy / "kernels" / "made.h").touch()
    (array.sources / "kernels" / "b.cu").unlink()
    array.write("a.cu", "a second")
    done = array.job()
    assert done.returncode != 0
    assert "kernels/b.cu" in done.stdout + done.stderr
    assert [each.name for each in (array.copy / "kernels").iterdir()] == ["made.h"]
    shutil.rmtree(array.sources / "kernels")
    array.write("build/build.ninja", MANIFEST[: MANIFEST.index("build b.o")])
    array.built()
    assert (array.copy / "kernels" / "made.h").exists()


def test_another_job_takes_a_file_for_a_folder_and_back(array: Array) -> None:
    """And a link for either: what the build has made in a folder that is none any more goes with it."""
    array.built()
    (array.copy / "kernels" / "made.h").touch()
    shutil.move(array.sources / "kernels", array.sources / "moved")
    array.write("kernels", "a file")
    array.write("build/build.ninja", MANIFEST.replace("kernels", "moved"))
    array.built()
    assert (array.copy / "kernels").read_text() == "a file"
    (array.sources / "kernels").unlink()
    (array.sources / "kernels").symlink_to("moved")
    array.built()
    assert (array.copy / "kernels").readlink() == Path("moved")
    (array.sources / "kernels").unlink()
    shutil.move(array.sources / "moved", array.sources / "kernels")
    array.write("build/build.ninja", MANIFEST)
    array.built()
    assert (array.copy / "kernels" / "b.cu").exists()
    assert not (array.copy / "moved").exists()


def test_an_attempt_more_takes_the_copy_as_it_is(array: Array) -> None:
    """A job of hours ends with the sources that it began with."""
    array.built()
    array.write("a.cu", "other")
    assert array.built(SLURM_RESTART_COUNT="1") == []


def test_half_a_copy_is_made_anew(array: Array) -> None:
    """Without its list it is not known to be whole."""
    array.built()
    (array.matrix / CELL / "copied").unlink()
    (array.copy / "a.cu").write_text("fir")
    assert array.built(SLURM_RESTART_COUNT="1") == ["a.o", "b.o"]
    assert (array.copy / "build" / "a.o").read_text() == "first"


@pytest.mark.parametrize(("cwd", "words", "where"), [("ci", ("..",), {}), (".", (), {"MATRIX": "ci/matrix"})])
def test_the_copies_may_lie_deep_in_the_sources(
    array: Array, cwd: str, words: tuple[str, ...], where: dict[str, str]
) -> None:
    """No copy has a copy in it."""
    (array.sources / "ci").mkdir()
    array.matrix = array.sources / "ci" / "matrix"
    for _ in range(2):
        array.built(*words, cwd=array.sources / cwd, **where)
        assert (array.copy / "ci").is_dir()
        assert not (array.copy / "ci" / "matrix").exists()


def test_sources_among_their_copies_are_refused(array: Array) -> None:
    done = array.job(MATRIX=".")
    assert done.returncode == 2
    assert "set MATRIX to another folder" in done.stderr
    assert not (array.sources / CELL).exists()


def test_a_limit_that_leaves_no_time_is_said_at_once(array: Array) -> None:
    """It would be queued again as often as may be, and none of its attempts would begin anything."""
    gated = array_cells(RECIPE, PLAN, msgspec.structs.replace(HOW, with_builddoctor=True))
    array.script.write_text(render_slurm_array(gated[:1]))
    done = array.job(SLURM_JOB_END_TIME=str(int(time.time()) + 60))
    assert done.returncode == 2
    assert "the time limit is too short" in done.stderr
