"""Where builds run: no root, a HOME nobody can write, TMPDIR in memory, no terminal, a step of Slurm, docker build.

Not root is shown in a user namespace: the same files, another uid, and no capability over them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from builddoctor.core.events import Header, Note
from support.program import Program

SOURCES = ("one", "two")

AS_USER = """
mount --bind "$HOME" "$HOME" && mount -o remount,ro,bind "$HOME"
mount -t tmpfs -o size=200m,mode=1777 none "$TMPDIR"
exec unshare --user --map-user=1000 --map-group=1000 "$@"
"""


@pytest.fixture
def project(program: Program) -> Path:
    """Two files of C++ and a build.ninja."""
    folder = program.folder / "project"
    folder.mkdir()
    for name in SOURCES:
        (folder / f"{name}.cpp").write_text(f"int {name}() {{ return 1; }}\n")
    rule = "rule cxx\n  command = g++ -c $in -o $out\n"
    (folder / "build.ninja").write_text(rule + "".join(f"build {name}.o: cxx {name}.cpp\n" for name in SOURCES))
    return folder


def built(folder: Path) -> bool:
    return all((folder / f"{name}.o").exists() for name in SOURCES)


def clean_env(program: Program, **more: str) -> dict[str, str]:
    """What a container has: PATH, and what is given."""
    return {"PATH": program.env["PATH"], **more}


@pytest.mark.needs_unshare
def test_no_root_no_home_and_no_terminal(program: Program, project: Path) -> None:
    """As uid 1000, HOME read-only, TMPDIR a tmpfs, no terminal: builds, says where its files go, leaves HOME alone."""
    home, temporary = program.folder / "home", program.folder / "tmp"
    home.mkdir()
    temporary.mkdir()
    script = ["unshare", "--mount", "--propagation", "private", "setsid", "--wait", "sh", "-euc", AS_USER, "sh"]
    done = subprocess.run(
        [*script, *program.argv("build", str(project))],
        env=clean_env(program, HOME=str(home), TMPDIR=str(temporary)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert built(project)
    assert f"HOME cannot be written: cache and traces go to {temporary}/builddoctor-of-1000" in done.stderr
    assert list(home.iterdir()) == []


def test_a_step_of_slurm_keeps_to_what_the_job_has(program: Program, project: Path) -> None:
    """Slurm's variables alone, no cgroup of its own: its memory is the limit, and the job's number is in the trace."""
    program.env.update(SLURM_JOB_ID="77", SLURM_STEP_ID="0", SLURM_MEM_PER_NODE="1500", SLURM_JOB_NUM_NODES="1")
    done = program.run("build", str(project), "--trace", str(program.trace_file))
    assert done.returncode == 0, done.stderr
    assert built(project)
    header = next(each for each in program.records() if isinstance(each, Header))
    assert header.limit_mib == 1500.0
    assert "SLURM_MEM_PER_NODE" in header.limited_by
    assert any("SLURM_MEM_PER_NODE" in each.text for each in program.records() if isinstance(each, Note))


@pytest.mark.needs_unshare
def test_a_step_of_docker_build(program: Program, project: Path) -> None:
    """A process namespace of its own where the build is init's child, no HOME, no USER, nothing on stdin."""
    alone = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh"]
    state = {name: str(program.folder / name) for name in ("BUILDDOCTOR_CACHE_DIR", "BUILDDOCTOR_STATE_DIR")}
    done = subprocess.run(
        [*alone, *program.argv("build", ".")],
        env=clean_env(program, **state),
        cwd=project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert built(project)
    assert "\x1b" not in done.stdout + done.stderr
