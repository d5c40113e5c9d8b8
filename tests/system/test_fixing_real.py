"""Fixes that start a program: a real git with real submodules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builddoctor.doctor.fixes import Fix, plan_fixes
from builddoctor.intercept.streamed import run_streamed
from builddoctor.model.check import Check, Status
from builddoctor.supervise import fixing

ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    # A submodule that lies in a local folder is refused since git 2.38.1, if it is not allowed.
    "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "protocol.file.allow",
    "GIT_CONFIG_VALUE_0": "always",
    "GIT_CONFIG_KEY_1": "user.name",
    "GIT_CONFIG_VALUE_1": "x",
    "GIT_CONFIG_KEY_2": "user.email",
    "GIT_CONFIG_VALUE_2": "x@example",
}


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], env=ENV, check=True, capture_output=True)


def repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "header.h").write_text("int x;\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "x")
    return folder


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout whose submodule was not fetched."""
    inner = repository(tmp_path / "inner")
    outer = repository(tmp_path / "outer")
    git(outer, "submodule", "add", "-q", str(inner), "third_party/inner")
    git(outer, "commit", "-qm", "y")
    git(tmp_path, "clone", "-q", str(outer), "clone")
    return tmp_path / "clone"


def fetch(project: Path, output: Path) -> fixing.Applied:
    check = Check(name="submodules", topic="source", status=Status.PROBLEM, text="", fix="submodules")
    (fix,) = plan_fixes([check], [], project=str(project))
    with output.open("wb") as file:
        return fixing.apply(fix, ENV, output_fd=file.fileno())


def test_missing_submodules_are_fetched(tmp_path: Path, clone: Path) -> None:
    """An empty submodule folder is filled, and what git says goes where the caller wants it."""
    assert not (clone / "third_party/inner/header.h").exists()
    applied = fetch(clone, tmp_path / "said")
    assert applied.done, (tmp_path / "said").read_text()
    assert (clone / "third_party/inner/header.h").exists()
    assert "checked out" in (tmp_path / "said").read_text()


def test_a_fetch_that_fails_is_told_with_its_code(tmp_path: Path, clone: Path) -> None:
    """A submodule whose source is gone: not done, git's own words and exit code."""
    (tmp_path / "inner").rename(tmp_path / "gone")
    applied = fetch(clone, tmp_path / "said")
    assert not applied.done
    assert "exit code" in applied.text
    assert "inner" in (tmp_path / "said").read_text()


def test_a_program_that_is_not_there_is_told() -> None:
    """No git on this machine: not done, and why."""
    fix = Fix(name="submodules", what="", command=("no-such-program",), cwd="/")
    applied = fixing.apply(fix, ENV)
    assert not applied.done
    assert "could not be started: No such file" in applied.text


def test_it_has_no_terminal_to_ask_on(tmp_path: Path) -> None:
    """No input, no controlling terminal: what would ask for a password fails at once."""
    said = tmp_path / "said"
    with said.open("wb") as file:
        script = "cat; if (: < /dev/tty) 2> /dev/null; then echo terminal; else echo none; fi"
        ended = run_streamed(["sh", "-c", script], env=ENV, cwd="/", output_fd=file.fileno())
    assert (ended.status, said.read_text()) == (0, "none\n")


def test_ctrl_c_ends_it_with_us(tmp_path: Path) -> None:
    """An interrupt during a fix ends the program and what it started; nothing stays behind."""
    code = (
        "import signal, sys\n"
        # A shell's background job ignores it, and its children with it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from builddoctor.intercept.streamed import run_streamed\n"
        "try:\n"
        "    run_streamed(['sh', '-c', 'echo ready; sleep 1000 & wait'], env={}, cwd='/', output_fd=1)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(7)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    # Ends when the last of them has let go of the pipe.
    assert process.stdout.read() == b""
    assert process.wait() == 7
    process.stdout.close()
