"""``-q`` and ``-v``: how much builddoctor says beside the build's own output."""

from __future__ import annotations

import re

import pytest

from support.program import Program
from support.waiting_build import SMALL, waiting_build


@pytest.mark.parametrize("words", ["run -q", "-q run", "run --quiet"])
def test_a_quiet_build_prints_its_own_output_alone(program: Program, words: str) -> None:
    """No word of ours; the trace is written all the same."""
    done = program.run(*words.split(), "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "err\n")
    assert len(list(program.folder.glob("state/traces/*.jsonl"))) == 1


def test_a_quiet_build_that_fails_says_why(program: Program) -> None:
    """That is what a person has to know."""
    done = program.run("run", "-q", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    assert "failed with exit code 3" in done.stderr


def test_a_verbose_build_tells_every_decision(program: Program) -> None:
    """Which limit binds, what waits and why, what starts and what is expected of it; the build's output stays."""
    command = waiting_build(program)
    (program.folder / "done").touch()
    done = program.run("run", "-v", *SMALL, "--", *command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all built\n")
    lines = [line.partition("] ")[2] for line in done.stderr.splitlines()]
    assert [line for line in lines if re.match(r"\S.* binds: 1\.2 GiB, of which compilers may take", line)]
    assert sum(line.startswith("starts host code of ") for line in lines) == 3
    assert [line for line in lines if re.match(r"waits: host code of \S+\.cpp needs .* free \(", line)]
    usual = program.run("run", *SMALL, "--", *command).stderr
    assert " binds: " not in usual
    assert "] starts " not in usual


@pytest.mark.slow
def test_what_is_typed_behind_the_command_counts_before_what_is_set(program: Program) -> None:
    """Nearest first: behind the command, before it, the variable."""
    loud, quiet = {"BUILDDOCTOR_VERBOSE": "1"}, {"BUILDDOCTOR_QUIET": "1"}
    assert " binds: " in program.run("run", "--", "true", env=loud).stderr
    assert program.run("run", "--", "true", env=quiet).stderr == ""
    assert program.run("run", "-q", "--", "true", env=loud).stderr == ""
    assert program.run("-q", "run", "--", "true", env=loud).stderr == ""
    assert " binds: " in program.run("-q", "run", "-v", "--", "true", env=quiet).stderr


def test_settings_count_also_where_a_flag_stands_before_the_command(program: Program) -> None:
    """The command is the first word that is no flag."""
    done = program.run("-v", "run", "--", "true", env={"BUILDDOCTOR_MEMORY": "2GiB"})
    assert " binds: 2.0 GiB" in done.stderr


def test_a_quiet_dry_run_prints_what_was_asked_for(program: Program) -> None:
    """The command, and nothing of where the sources are from."""
    (program.folder / "Makefile").write_text("all:\n")
    done = program.run("build", ".", "--dry-run", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert "make" in done.stdout
