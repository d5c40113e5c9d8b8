"""``activate``, ``status`` and ``deactivate``: what they print, and supervisors that gates start, with gcc alone."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from support.program import Program

SOCKETS = Path(f"/tmp/builddoctor-of-{os.geteuid()}")


def shell(program: Program, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Typed in a shell that is activated."""
    words = shlex.join(program.argv("activate", "--shell", "sh", *options))
    program_words = shlex.join(program.argv())
    text = f'set -e; builddoctor() {{ {program_words} "$@"; }}; eval "$({words})"\n{script}'
    return subprocess.run(
        ["bash", "-c", text],
        cwd=program.folder,
        env=program.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def builds(program: Program) -> list[dict]:
    return json.loads(program.run("trace", "list", "--json").stdout)


def write_project(program: Program) -> None:
    """Two sources and a Makefile."""
    for name in ("one", "two"):
        (program.folder / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
    (program.folder / "Makefile").write_text("all: one.o two.o\n")


def test_each_command_is_a_build_with_its_trace(program: Program) -> None:
    """`make` typed twice: two traces; what compiles nothing leaves none."""
    write_project(program)
    done = shell(program, "make; rm *.o; make -j2; make")
    assert done.returncode == 0, done.stderr
    # The supervisor ends with the build, a moment later.
    shell(program, "while builddoctor status --json | grep -q title; do :; done")
    found = builds(program)
    assert [each["result"] for each in found] == ["ok", "ok"]
    assert {each["header"]["title"] for each in found} == {"make", "make -j2"}


def test_a_compiler_that_was_typed_belongs_to_its_shell(program: Program) -> None:
    """Two such have one supervisor, whose build is the shell's; a second shell has another."""
    write_project(program)
    done = shell(program, "gcc -c one.c; gcc -c two.c; builddoctor status --json")
    assert done.returncode == 0, done.stderr
    (build,) = [each for each in json.loads(done.stdout)["builds"] if each["trace"].startswith(str(program.folder))]
    assert build["title"].startswith("bash -c")


def test_a_failed_compile_makes_it_a_failed_build(program: Program) -> None:
    """Its own exit code is nobody's to know."""
    write_project(program)
    (program.folder / "two.c").write_text("int two(void) { return }\n")
    done = shell(program, "make -k || true; while builddoctor status --json | grep -q title; do :; done")
    assert done.returncode == 0, done.stderr
    (found,) = builds(program)
    assert found["result"] == "failed"


def test_without_a_supervisor_the_tools_are_the_real_ones(program: Program) -> None:
    """It cannot be started: nothing is printed into the build, and nothing waits. `status` says why."""
    write_project(program)
    state = program.folder / "state"
    state.write_text("a file where a folder has to be")
    done = shell(program, "gcc -c one.c > said 2>&1; builddoctor status --json; make -B")
    assert done.returncode == 0, done.stderr
    assert (program.folder / "said").read_text() == ""
    refused = json.loads(done.stdout.splitlines()[0])["refused"]
    assert any(str(state) in each["message"] for each in refused)
    assert (program.folder / "two.o").exists()


@pytest.mark.alone
def test_a_socket_of_somebody_else_is_not_asked(program: Program) -> None:
    """A folder that others may write: compilers run, none of them waits or joins."""
    write_project(program)
    SOCKETS.mkdir(mode=0o700, exist_ok=True)
    SOCKETS.chmod(0o777)
    try:
        done = shell(program, "make")
        assert done.returncode == 0, done.stderr
        assert builds(program) == []
    finally:
        SOCKETS.chmod(0o700)


def test_deactivate_gives_everything_back(program: Program) -> None:
    """What the user had, and what was changed since."""
    script = """
        export MAX_JOBS=7 CUDACXX=/mine
        eval "$(builddoctor deactivate --shell sh)"
        env | sort > after
    """
    before = dict(program.env)
    done = shell(program, script)
    assert done.returncode == 0, done.stderr
    after = dict(line.split("=", 1) for line in (program.folder / "after").read_text().splitlines() if "=" in line)
    ours = {name for name in after if after[name] != before.get(name)} - {"_", "SHLVL", "PWD", "OLDPWD"}
    assert ours == {"MAX_JOBS", "CUDACXX"}
    assert before.keys() - after.keys() == set()


def test_activated_twice_is_activated_once(program: Program) -> None:
    """A second time in the same shell: the same variables."""
    done = shell(program, 'env | sort > first; eval "$(builddoctor activate --shell sh)"; env | sort > second')
    assert done.returncode == 0, done.stderr
    assert (program.folder / "first").read_text() == (program.folder / "second").read_text()


def test_run_inside_an_activated_shell_is_as_outside(program: Program) -> None:
    """Its own supervisor, one trace, and no cap from the shell's MAX_JOBS."""
    write_project(program)
    done = shell(program, "builddoctor run --trace run.jsonl -- make")
    assert done.returncode == 0, done.stderr
    assert "upper bound" not in done.stderr
    assert builds(program) == []
    assert '"t":"summary"' in (program.folder / "run.jsonl").read_text()


@pytest.mark.parametrize(
    ("options", "first"),
    [
        (["--uv", "flash-attn"], "[tool.uv.extra-build-variables]"),
        (["--docker"], "ENV "),
        (["--systemd"], "PATH="),
        (["--shell", "fish"], "set -gx PATH"),
    ],
)
def test_every_place_gets_its_own_form(program: Program, options: list[str], first: str) -> None:
    done = program.run("activate", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(first)
    assert "BUILDDOCTOR_ACTIVE" in done.stdout


def test_conda_hooks_come_and_go(program: Program) -> None:
    prefix = program.folder / "conda"
    env = {"CONDA_PREFIX": str(prefix)}
    assert program.run("activate", "--conda", "--memory", "8GiB", env=env).returncode == 0
    hook = prefix / "etc/conda/activate.d/builddoctor.sh"
    assert "--memory 8GiB" in hook.read_text()
    assert subprocess.run(["sh", "-n", str(hook)], check=False).returncode == 0
    assert program.run("deactivate", "--conda", env=env).returncode == 0
    assert not hook.exists()


def test_a_supervisor_that_is_told_to_end_ends_and_the_build_goes_on(program: Program) -> None:
    """SIGTERM to it: its trace has its last line, and the next compiler starts another."""
    write_project(program)
    done = shell(
        program,
        """
        gcc -c one.c; builddoctor status --json > status.json; cat status.json
        kill -TERM $(grep -o '"pid":[0-9]*' status.json | cut -d: -f2)
        gcc -c two.c
        """,
    )
    assert done.returncode == 0, done.stderr
    (build,) = [each for each in json.loads(done.stdout)["builds"] if each["trace"].startswith(str(program.folder))]
    shell(program, "while builddoctor status --json | grep -q title; do :; done")
    assert '"t":"summary"' in Path(build["trace"]).read_text()
