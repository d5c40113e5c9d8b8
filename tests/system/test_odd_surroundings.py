"""The program where its surroundings are odd: no threads, no current folder, no TMPDIR, variables that lead nowhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from builddoctor.core.events import PhaseAsked
from builddoctor.core.phase import PhaseKind
from support.fake_toolkit import fake_toolkit
from support.program import Program

NINJA = "rule said\n  command = printenv CUDA_HOME > $out\nbuild out: said\n"


@pytest.mark.parametrize("limit_kib", [150_000, *range(226_000, 242_000, 4_000), 250_000, 400_000, 600_000])
def test_a_low_limit_of_address_space_is_named_and_no_obstacle(program: Program, limit_kib: int) -> None:
    """Threads may not start there, and that limit is what the page is read for. At 234,000 KiB those that did left
    nothing for the thread that started them."""
    command = ["/bin/sh", "-c", f'ulimit -v {limit_kib}; exec "$@"', "sh", *program.argv("doctor", "--json")]
    done = subprocess.run(command, env=program.env, cwd=program.folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert any(check["name"] == "memory-rlimit" for check in json.loads(done.stdout)["checks"])


def test_a_current_folder_that_was_deleted_is_no_obstacle(program: Program) -> None:
    """A full path is examined; without one, the machine alone."""
    project = program.folder / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text("project(x)\n")
    for named, title in (([str(project)], "project"), ([], "")):
        script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
        done = subprocess.run(
            ["/bin/sh", "-c", script, "sh", *program.argv("doctor", "--json", *named)],
            env=program.env,
            cwd=program.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert json.loads(done.stdout)["project"] == title, done.stderr


def test_a_yes_without_a_question_is_a_mistake(program: Program) -> None:
    """Nobody believes that something was put right."""
    done = program.run("doctor", "--yes")
    assert (done.returncode, done.stdout) == (64, "")
    assert "doctor --fix --yes" in done.stderr


def test_a_build_without_tmpdir_says_so_and_blames_no_toolkit(program: Program) -> None:
    """Before anything is asked; `run`, whose command may need no nvcc, goes on."""
    toolkit = fake_toolkit(program.folder / "cuda", "")
    project = program.folder / "project"
    project.mkdir()
    (project / "build.ninja").write_text(NINJA)
    env = {"TMPDIR": str(program.folder / "nowhere")}
    done = program.run("build", str(project), "--toolkit", str(toolkit), env=env)
    assert done.returncode == 76
    assert f"TMPDIR={program.folder}/nowhere does not exist" in done.stderr
    assert f"hint: mkdir -p {program.folder}/nowhere" in done.stderr
    assert program.run("run", "--", "true", env=env).returncode == 0


def test_a_cuda_home_that_leads_nowhere_is_replaced_for_a_build(program: Program) -> None:
    """And that is said. `run` warns alone: its command may be what puts a toolkit there."""
    toolkit = fake_toolkit(program.folder / "cuda", "")
    project = program.folder / "project"
    project.mkdir()
    (project / "build.ninja").write_text(NINJA)
    env = {"CUDA_HOME": "/nowhere"}
    done = program.run("build", str(project), "--toolkit", str(toolkit), "--no-doctor", env=env)
    assert done.returncode == 0, done.stderr
    assert Path((project / "out").read_text().strip()).samefile(toolkit)
    assert "CUDA_HOME=/nowhere" in done.stderr
    done = program.run("run", "--toolkit", str(toolkit), "--", "printenv", "CUDA_HOME", env=env)
    assert done.stdout == "/nowhere\n"
    assert "no CUDA toolkit is where CUDA_HOME points" in done.stderr


def test_a_gcc_that_was_not_on_path_is_gated_once_it_is(program: Program) -> None:
    """The build's own script loads its module."""
    tools, module = program.folder / "tools", program.folder / "module"
    for folder, names in ((tools, ("sh", "make")), (module, ("g++",))):
        folder.mkdir()
        for name in names:
            found = shutil.which(name)
            assert found
            (folder / name).symlink_to(found)
    (program.folder / "one.cpp").write_text("int one() { return 1; }\n")
    (program.folder / "Makefile").write_text("one.o: one.cpp\n\tg++ -c $< -o $@\n")
    # gcc takes its assembler from PATH.
    script = f'export PATH="{module}:$PATH:{os.path.dirname(shutil.which("as") or "")}"\nmake'
    command = ("run", "--trace", str(program.trace_file), "--", "sh", "-ec", script)
    done = program.run(*command, env={"PATH": str(tools)})
    assert done.returncode == 0, done.stderr
    asked = [record.phase for record in program.records() if isinstance(record, PhaseAsked)]
    assert [(each.kind, each.source) for each in asked] == [(PhaseKind.HOST, "one.cpp")]
