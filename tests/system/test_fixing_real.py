"""Fixes that start a program: a real git with real submodules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from builddoctor.core.check import Check, FixName, Status, Topic
from builddoctor.doctor.fixes import Fix, plan_fixes
from builddoctor.gates.subprocesses import MOST_LINE_BYTES, run_streamed
from builddoctor.runtime import fixing
from builddoctor.system.root import SystemRoot

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


CHECK = Check(name="submodules", topic=Topic.SOURCE, status=Status.PROBLEM, text="", fix=FixName.SUBMODULES)


def fetch(project: Path, output: Path, env: Mapping[str, str] = ENV) -> fixing.Applied:
    (fix,) = plan_fixes([CHECK], [], project=str(project))
    with output.open("wb") as file:
        return fixing.apply(fix, env, output_fd=file.fileno())


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A program that leaves a mark."""
    program = tmp_path / "trap"
    program.write_text(f"#!/bin/sh\n: > {tmp_path}/ran-${{0##*/}}\nexit 1\n")
    program.chmod(0o755)
    return program


def sprung(tmp_path: Path) -> list[str]:
    return sorted(path.name.removeprefix("ran-") for path in tmp_path.glob("ran-*"))


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
    fix = Fix(name=FixName.SUBMODULES, what="", command=("no-such-program",), cwd="/")
    applied = fixing.apply(fix, ENV)
    assert not applied.done
    assert "could not be started: there is no no-such-program on PATH" in applied.text


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
        "from builddoctor.gates.subprocesses import run_streamed\n"
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


@pytest.mark.parametrize("path", [".:", ":", "tools:", "PROJECT:PROJECT/tools:"])
def test_programs_that_came_with_the_project_are_not_run(
    tmp_path: Path, clone: Path, trap: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a git of its own, nor a sed or sh for git's own scripts, with its folder first on PATH."""
    for place in (clone, clone / "tools"):
        place.mkdir(exist_ok=True)
        for name in ("git", "sed", "sh", "uname", "basename", "git-submodule", "git-upload-pack"):
            if not path.startswith("PROJECT") or name == "git":
                (place / name).symlink_to(trap)
                (place / name).unlink()
                (place / name).write_bytes(trap.read_bytes())
                (place / name).chmod(0o755)
    monkeypatch.chdir(clone)
    env = {**ENV, "PATH": path.replace("PROJECT", str(clone)) + ENV["PATH"]}
    applied = fetch(clone, tmp_path / "said", env)
    assert applied.done, (tmp_path / "said").read_text()
    assert sprung(tmp_path) == []


def test_programs_below_the_home_folder_may_be_run(
    tmp_path: Path, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's own ~/bin, also when the current folder is the home folder."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text(f"#!/bin/sh\n: > {tmp_path}/ran-own\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    applied = fetch(clone, tmp_path / "said", {**ENV, "HOME": str(tmp_path), "PATH": f"{tmp_path}/bin:{ENV['PATH']}"})
    assert applied.done
    assert sprung(tmp_path) == ["own"]


def half_fetched(clone: Path) -> Path:
    """A checkout as an archive may bring it: the submodule's git folder is there, and its files are not."""
    git(clone, "submodule", "update", "--init")
    for path in (clone / "third_party/inner").iterdir():
        path.unlink()
    return clone / ".git/modules/third_party/inner"


def test_hooks_and_helpers_of_the_checkout_are_not_run(tmp_path: Path, clone: Path, trap: Path) -> None:
    """In the checkout and in its submodules: git would run each of these (see the next test)."""
    inner = half_fetched(clone)
    set_traps(clone, inner, trap)
    applied = fetch(clone, tmp_path / "said")
    assert applied.done, (tmp_path / "said").read_text()
    assert (clone / "third_party/inner/header.h").exists()
    assert sprung(tmp_path) == []


def test_git_itself_runs_them(tmp_path: Path, clone: Path, trap: Path) -> None:
    """The traps of the test before are real ones."""
    inner = half_fetched(clone)
    set_traps(clone, inner, trap)
    git(clone, "submodule", "update", "--init", "--recursive")
    assert sprung(tmp_path) == ["inner-hook", "monitor", "trap"]


def set_traps(clone: Path, inner: Path, trap: Path) -> None:
    for name in ("monitor", "inner-hook"):
        (trap.parent / name).symlink_to(trap)
    git(clone, "config", "core.fsmonitor", str(trap.parent / "monitor"))
    (inner / "hooks").mkdir(exist_ok=True)
    (inner / "hooks/post-checkout").write_text(f"#!/bin/sh\n{trap.parent / 'inner-hook'}\ntrue\n")
    (inner / "hooks/post-checkout").chmod(0o755)
    git(inner, "config", "core.fsmonitor", str(trap))


@pytest.mark.parametrize("where", ["checkout", "submodule"])
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("submodule.third_party/inner.update", "!TRAP"),
        ("core.sshCommand", "TRAP"),
        ("filter.x.smudge", "TRAP"),
        ("remote.origin.uploadpack", "TRAP"),
        ("credential.helper", "!TRAP"),
        ("include.path", "/elsewhere"),
    ],
)
def test_with_programs_that_cannot_be_left_out_nothing_is_fetched(
    clone: Path, trap: Path, where: str, setting: str, value: str
) -> None:
    """As git itself writes them: the plan says which, and is not possible."""
    git(half_fetched(clone) if where == "submodule" else clone, "config", setting, value.replace("TRAP", str(trap)))
    (planned,) = fixing.plan([CHECK], ENV, SystemRoot(), project=clone)
    assert setting.split(".")[-1 if setting != "include.path" else 0].lower() in planned.obstacle
    assert "config" in planned.obstacle


def test_a_plain_clone_is_fetched(tmp_path: Path, clone: Path) -> None:
    """What git writes into a clone by itself is no obstacle, before and after its submodules are there."""
    (planned,) = fixing.plan([CHECK], ENV, SystemRoot(), project=clone)
    assert planned.possible, planned.obstacle
    assert fixing.apply(planned, ENV, output_fd=os.open(tmp_path / "said", os.O_CREAT | os.O_WRONLY)).done
    (again,) = fixing.plan([CHECK], ENV, SystemRoot(), project=clone)
    assert again.possible, again.obstacle


def test_git_refuses_a_command_in_gitmodules(tmp_path: Path, clone: Path, trap: Path) -> None:
    """Since 2.24.1 by itself: nothing of ours looks there."""
    git(clone, "config", "-f", ".gitmodules", "submodule.third_party/inner.update", f"!{trap}")
    assert not fetch(clone, tmp_path / "said").done
    assert sprung(tmp_path) == []


@pytest.mark.parametrize("allow", ["", "always"])
def test_addresses_that_are_commands_are_refused(tmp_path: Path, clone: Path, trap: Path, allow: str) -> None:
    """``ext::`` runs what follows: git refuses it by itself, and with us also where the submodule allows it."""
    inner = half_fetched(clone)
    git(tmp_path / "inner", "commit", "-q", "--allow-empty", "-m", "newer")
    newer = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path / "inner", env=ENV, capture_output=True, text=True
    )
    git(clone, "update-index", "--cacheinfo", f"160000,{newer.stdout.strip()},third_party/inner")
    git(inner, "config", "remote.origin.url", f"ext::{trap}")
    if allow:
        git(inner, "config", "protocol.ext.allow", allow)
    assert not fetch(clone, tmp_path / "said").done
    assert "transport 'ext' not allowed" in (tmp_path / "said").read_text()
    assert sprung(tmp_path) == []


def test_a_token_in_an_address_is_not_shown(tmp_path: Path, clone: Path) -> None:
    """git repeats the address that it cannot reach; what else it says stays."""
    address = "https://me:SECRET@localhost:1/a?private_token=HIDDEN"
    git(clone, "config", "-f", ".gitmodules", "submodule.third_party/inner.url", address)
    applied = fetch(clone, tmp_path / "said")
    said = (tmp_path / "said").read_text()
    assert not applied.done
    assert "https://****@localhost:1/a?private_token=****" in said
    assert "SECRET" not in said + applied.text
    assert "HIDDEN" not in said + applied.text


def shown(tmp_path: Path, script: str) -> str:
    said = tmp_path / "said"
    with said.open("wb") as file:
        ended = run_streamed(["sh", "-c", script], env=ENV, cwd="/", output_fd=file.fileno())
    assert ended.status == 0
    return said.read_text()


def test_what_is_passed_on_cannot_move_the_cursor(tmp_path: Path) -> None:
    """Names in a .gitmodules may hold anything; lines stay lines, the last one too."""
    assert shown(tmp_path, r"printf 'one\033[2J\ttwo\n\n10%%\r20%%\n\377 end'") == (
        "one\\x1b[2J two\n10%\n20%\n\N{REPLACEMENT CHARACTER} end\n"
    )


def test_a_line_without_end_is_cut_and_hides_what_is_cut_in_two(tmp_path: Path) -> None:
    """No memory without bound; half an address is not shown."""
    script = (
        f"head -c {MOST_LINE_BYTES - 20} /dev/zero | tr '\\0' 'x'; printf ' https://me:SECRET0123456789@host\nnext\n'"
    )
    first, second = shown(tmp_path, script).splitlines()
    assert first == "x" * (MOST_LINE_BYTES - 20) + " …"
    assert second == "next"
    assert shown(tmp_path, "head -c 5000000 /dev/zero | tr '\\0' 'x'; echo; echo next") == " …\nnext\n"


def test_it_ends_though_something_keeps_its_output(tmp_path: Path) -> None:
    """As ssh does with a connection that is kept for later."""
    marker = tmp_path / "pid"
    try:
        assert shown(tmp_path, f"sleep 1000 & echo $! > {marker}; echo done") == "done\n"
    finally:
        os.kill(int(marker.read_text()), signal.SIGKILL)
        os.waitpid(int(marker.read_text()), 0)
