"""``--strategy staged``: a build without gates, stage by stage by a recipe, under the guardian all the same."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builddoctor.core.events import Pause, PhaseAsked, Status
from support.memcg import memory_cgroup
from support.program import Program
from support.staged import UNTIL_KILLED, awaiting, write_recipe
from support.stand_ins import hogcc, stand_in

pytestmark = pytest.mark.slow

MIB = 1024**2
HOG_PY = Path(__file__).parents[1] / "support" / "steady_hog.py"


def edges(folder: Path, command: str, names: list[str]) -> None:
    rule = f"rule cc\n  command = {command}\n"
    (folder / "build.ninja").write_text(rule + "".join(f"build {name}: cc\n" for name in names))


def staged(program: Program, recipe: str, *command: str, options: tuple[str, ...] = ()) -> list[str]:
    return program.supervised(*command, options=["--strategy", "staged", "--recipe", recipe, *options])


def finished(program: Program, argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=program.folder, env=program.env, capture_output=True, text=True, check=False)


def test_a_staged_build_has_stages_and_no_gates(program: Program) -> None:
    """The compiler sees no gate and no socket; the trace has ticks and no phase; MAX_JOBS is the user's own."""
    recipe = write_recipe(program.folder, {"a.o": 100.0, "b.o": 100.0})
    edges(program.folder, "env >$out", ["a.o", "b.o", "c.o"])
    program.env["MAX_JOBS"] = "7"
    done = finished(program, staged(program, recipe, "ninja"))
    assert done.returncode == 0, done.stderr
    assert "builddoctor: stage light (2 of 2 units, -j " in done.stderr
    assert "in stages, without gates" in done.stderr
    seen = dict(line.split("=", 1) for line in (program.folder / "a.o").read_text().splitlines() if "=" in line)
    assert "overlays" not in seen["PATH"]
    assert seen["MAX_JOBS"] == "7"
    assert {"BUILDDOCTOR_SOCKET", "COMPILER_PATH"} & set(seen) == set()
    records = program.records()
    assert [record for record in records if isinstance(record, Status)]
    assert not [record for record in records if isinstance(record, PhaseAsked)]
    again = finished(program, staged(program, recipe, "ninja"))
    assert again.stdout.count("no work to do") == 2


@pytest.mark.needs_memcg
def test_units_that_do_not_fit_together_are_built_in_stages_that_do(program: Program) -> None:
    """Plain ninja loses one to the kernel; by the recipe's figures two run at once, and none is lost."""
    names = ["a.o", "b.o", "c.o", "d.o"]
    recipe = write_recipe(program.folder, dict.fromkeys(names, 320.0))
    with memory_cgroup(1100 * MIB) as group:
        # Kept until the kernel has ended one, or until two have been there: nobody has more than two.
        edges(program.folder, f"{UNTIL_KILLED} 300 {group.kills_file} && touch $out", names)
        plain = group.run(["ninja", "-j4"], cwd=program.folder, env=program.env)
        assert plain.returncode != 0
        assert group.kernel_kills > 0
    for each in program.folder.glob("*.o"):
        each.unlink()
    with memory_cgroup(1100 * MIB) as group:
        edges(program.folder, f"{sys.executable} -IS {HOG_PY} 300 1000 / && touch $out", names)
        argv = staged(program, recipe, "ninja", options=("--cores", "4"))
        done = group.run(argv, cwd=program.folder, env=program.env)
        kernel_kills = group.kernel_kills
    assert done.returncode == 0, done.stderr
    assert kernel_kills == 0, done.stderr
    assert "(4 of 4 units, -j 2)" in done.stderr
    assert program.summary()["kernel_oom_kills"] == 0


@pytest.mark.needs_memcg
def test_where_the_recipe_says_too_little_compilers_are_stopped_for_a_while(program: Program) -> None:
    """Four of 400 MiB in 1 GiB, by figures of 100: the sampler finds them and holds some back; none is killed."""
    names = ["a.o", "b.o", "c.o", "d.o"]
    recipe = write_recipe(program.folder, dict.fromkeys(names, 100.0))
    edges(program.folder, f"{hogcc(program.folder)} 400 150 / && touch $out", names)
    with memory_cgroup(1024 * MIB) as group:
        argv = staged(program, recipe, "ninja", options=("--cores", "4"))
        done = group.run(argv, cwd=program.folder, env=program.env)
        kernel_kills = group.kernel_kills
    assert done.returncode == 0, done.stderr
    assert kernel_kills == 0, done.stderr
    stopped = [record for record in program.records() if isinstance(record, Pause)]
    assert {record.process.name for record in stopped} == {"hogcc"}
    assert "a staged build has no gates" in done.stderr
    assert "the recipe's figures were too low" in done.stderr


def test_a_failed_build_passes_its_exit_code_on(program: Program) -> None:
    """As a gated one does."""
    recipe = write_recipe(program.folder, {"a.o": 100.0})
    edges(program.folder, "exit 3", ["a.o"])
    plain = subprocess.run(["ninja"], cwd=program.folder, env=program.env, capture_output=True, check=False)
    done = finished(program, staged(program, recipe, "ninja"))
    assert done.returncode == plain.returncode != 0
    assert program.summary()["result"] == "failed"


def test_a_ninja_that_is_named_by_its_path_is_called_in_stages(program: Program) -> None:
    """``run -- /usr/bin/ninja``: that one, through the program in front of it."""
    recipe = write_recipe(program.folder, {"a.o": 100.0})
    edges(program.folder, "touch $out", ["a.o"])
    real = shutil.which("ninja", path=program.env["PATH"])
    assert real is not None
    done = finished(program, staged(program, recipe, real))
    assert done.returncode == 0, done.stderr
    assert "stage light (1 of 1 units" in done.stderr


def test_a_build_that_runs_no_stage_says_so(program: Program) -> None:
    """Its memory was kept by nothing: the way out is a gated build."""
    recipe = write_recipe(program.folder, {"a.o": 100.0})
    done = finished(program, staged(program, recipe, "true"))
    assert done.returncode == 0
    assert "no stage was run" in done.stderr


@pytest.mark.parametrize("named", [[], ["--recipe", "none"]])
def test_without_a_recipe_it_is_refused(program: Program, named: list[str]) -> None:
    """Before anything starts, with the commands that make one."""
    edges(program.folder, "touch $out", ["a.o"])
    done = finished(program, program.supervised("ninja", options=["--strategy", "staged", *named]))
    assert done.returncode == 89
    assert "recipe from-trace" in done.stderr
    assert not (program.folder / "a.o").exists()


@pytest.mark.needs_cmake
def test_a_folder_that_was_built_in_stages_is_built_with_gates_afterwards(program: Program) -> None:
    """And plainly: CMake has kept the path of our program, which then steps aside for the gates, or for ninja."""
    source, calls = program.folder / "source", program.folder / "calls"
    source.mkdir()
    real = shutil.which("ninja", path=program.env["PATH"])
    stand_in(program, f'echo "$*" >>{calls}\nexec {real} "$@"', name="ninja")
    (source / "a.c").write_text("int a;\n")
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(demo C)\nadd_library(demo STATIC a.c)\n"
    )
    recipe = write_recipe(program.folder, {"CMakeFiles/demo.dir/a.c.o": 100.0})
    script = "cmake -G Ninja -S source -B build && cmake --build build"
    done = finished(program, staged(program, recipe, "sh", "-c", script))
    assert done.returncode == 0, done.stderr
    assert "stage light (1 of 1 units" in done.stderr
    cached = (program.folder / "build" / "CMakeCache.txt").read_text()
    assert f"{program.folder}/cache/staged/bin/ninja" in cached
    (source / "a.c").write_text("int a2;\n")
    calls.unlink()
    build = ("env", "-u", "CMAKE_BUILD_PARALLEL_LEVEL", "cmake", "--build", "build")
    gated = finished(program, program.supervised(*build))
    assert gated.returncode == 0, gated.stderr
    assert [record.phase.kind for record in program.records() if isinstance(record, PhaseAsked)]
    # ninja's gate was asked: it puts the window in. Its version and how much there is to build are asked beside it.
    lines = [line.split() for line in calls.read_text().splitlines()]
    assert [words[:1] for words in lines if not {"--version", "-t"} & set(words)] == [["-j"]]
    (source / "a.c").write_text("int a3;\n")
    plain = subprocess.run(
        ["cmake", "--build", "build"], cwd=program.folder, env=program.env, capture_output=True, text=True, check=False
    )
    assert plain.returncode == 0, plain.stderr
    assert calls.read_text().splitlines()[-1] == ""
    assert "builddoctor" not in plain.stdout + plain.stderr


def test_an_interrupted_build_ends_whole_and_goes_on_later(program: Program) -> None:
    """SIGINT to builddoctor alone: ninja, the program in front of it and the compiler end; nothing is made twice."""
    recipe = write_recipe(program.folder, {"a.o": 100.0})
    waits, go = program.folder / "waits", program.folder / "go"
    edges(
        program.folder,
        f"echo $out >>log; [ $out = a.o ] || [ -e {go} ] || {{ : >{waits}; exec sleep 1000; }}; touch $out",
        ["a.o", "b.o"],
    )
    one_at_a_time = staged(program, recipe, "ninja", options=("--cores", "1"))
    process = program.start(one_at_a_time)
    awaiting(process, waits)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[0]
    assert process.returncode == 128 + signal.SIGINT, said
    go.touch()
    done = finished(program, one_at_a_time)
    assert done.returncode == 0, done.stderr
    assert (program.folder / "log").read_text().split() == ["a.o", "b.o", "b.o"]
