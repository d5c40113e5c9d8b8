"""A real Slurm of our own (``scripts/slurm``): builds and nodes as its jobs, and what it does to them.

Two emulated nodes on loopback, without cgroups: no memory is enforced by it here.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import ninja
import psutil
import pytest
import tomlkit

from builddoctor.core.events import Admit, NodeSeen, Note, PhaseEnded
from builddoctor.core.phase import Outcome
from builddoctor.ui.scripts.shell_files import render_slurm
from support.nodes import Place, await_that
from support.program import PATIENCE_S, Program
from support.recipes import PLAN, RECIPE
from support.slurm import Slurm, running_slurm
from system.test_rendered_scripts import BUILD, HOW, environment, project, small

pytestmark = [pytest.mark.slow, pytest.mark.needs_slurm]


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    with running_slurm() as started:
        yield started


@pytest.fixture
def place(tmp_path: Path, slurm: Slurm) -> Place:
    made = Place(tmp_path, waits=True)
    made.program.env.update(slurm.env)
    return made


def _sbatch(slurm: Slurm, *words: str, cwd: Path, env: dict[str, str]) -> str:
    """Submitted; gives the job."""
    words = ("sbatch", "--parsable", "--output=out", *words)
    done = subprocess.run(words, cwd=cwd, env={**env, **slurm.env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _nodes(job: str) -> str:
    return f"slurm:nodes={job},cores=1,memory=1GiB,host=127.0.0.1"


def test_a_rendered_script_is_a_job(tmp_path: Path, slurm: Slurm) -> None:
    """As ``recipe render --to slurm`` writes it: staged, without builddoctor on the node."""
    project(tmp_path, factor=0.05)
    script = tmp_path / "build.slurm"
    script.write_text(render_slurm(RECIPE, small(PLAN), HOW))
    job = _sbatch(slurm, str(script), *BUILD, cwd=tmp_path, env=environment())
    assert slurm.await_state(job, "COMPLETED", "FAILED") == "COMPLETED", (tmp_path / "out").read_text()
    assert (tmp_path / "build" / "cmake" / "lib.so").exists()


def test_jobs_of_a_build_run_its_phases(place: Place, slurm: Slurm) -> None:
    """More than fit at once: the last one waits in the queue when the build ends, and is cancelled with the others."""
    build = place.program.start(place.pair("--cluster", _nodes("9")))
    pids = place.began(2)
    (there,) = [env for pid in pids if "SLURM_ARRAY_JOB_ID" in (env := psutil.Process(pid).environ())]
    assert there["SLURM_JOB_NAME"] == "builddoctor-node"
    assert any(" PENDING" in line for line in slurm.jobs())
    place.go()
    output, _ = build.communicate(timeout=PATIENCE_S)
    assert build.returncode == 0, output
    ends = [e for e in place.program.records() if isinstance(e, PhaseEnded)]
    assert sorted(e.node != "" for e in ends) == [False, True]
    place.check()
    _check_gone(place, slurm)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_jobs_are_cancelled_with_a_build_that_is_ended(place: Place, slurm: Slurm, number: int) -> None:
    build = place.program.start(place.pair("--cluster", _nodes("9")))
    place.program.await_record(NodeSeen, build)
    build.send_signal(number)
    build.communicate(timeout=PATIENCE_S)
    _check_gone(place, slurm)


def test_a_build_that_is_a_job_itself_takes_its_nodes_along(place: Place, slurm: Slurm) -> None:
    """Its figures are not those of its nodes; and cancelled, it cancels them."""
    script = place.folder / "job.sh"
    script.write_text(f"#!/bin/sh\nexec {shlex.join(place.pair('--cluster', _nodes('2')))}\n")
    words = ("--mem=500M", "--cpus-per-task=2", str(script))
    job = _sbatch(slurm, *words, cwd=place.folder, env=place.program.env)
    pids = place.began(2)
    (there,) = [env for pid in pids if "SLURM_ARRAY_JOB_ID" in (env := psutil.Process(pid).environ())]
    assert there["SLURM_MEM_PER_NODE"] == "1024"
    slurm.ask("scancel", job, check=True)
    _check_gone(place, slurm)


def test_a_nodes_job_that_is_cancelled_costs_its_phase_time(place: Place, slurm: Slurm) -> None:
    """In mid-phase: it is redone by the other node."""
    build = place.program.start(place.pair("--cluster", _nodes("2")))
    pids = place.began(2)
    (there,) = [env for pid in pids if "SLURM_ARRAY_JOB_ID" in (env := psutil.Process(pid).environ())]
    slurm.ask("scancel", f"{there['SLURM_ARRAY_JOB_ID']}_{there['SLURM_ARRAY_TASK_ID']}", check=True)
    place.began(3)
    place.go()
    output, _ = build.communicate(timeout=PATIENCE_S)
    assert build.returncode == 0, output
    outcomes = [e.outcome for e in place.program.records() if isinstance(e, PhaseEnded)]
    assert sorted(outcomes) == sorted([Outcome.NODE_LOST, Outcome.OK, Outcome.OK])
    assert len([e for e in place.program.records() if isinstance(e, Admit) and e.node]) >= 2
    _check_gone(place, slurm)


def test_a_node_that_cannot_serve_says_why(place: Place, slurm: Slurm) -> None:
    """From the job's own output: it is not the build's."""
    build = place.program.start(place.pair("--cluster", "slurm:cores=1,memory=64MiB,host=127.0.0.1"))
    place.began()
    place.program.await_record(Note, build, text=lambda text: "has ended: no memory to build in" in text)
    place.go()
    output, _ = build.communicate(timeout=PATIENCE_S)
    assert build.returncode == 0, output
    _check_gone(place, slurm)


def test_what_slurm_refuses_is_said_before_the_build(place: Place) -> None:
    words = place.pair("--cluster", "slurm:nodes=2,partition=nosuch")
    done = subprocess.run(words, env=place.program.env, capture_output=True, text=True, check=False)
    assert done.returncode == 67
    assert "Invalid partition" in done.stderr
    assert not place.output.exists()


UNIT = """
import sys, time
from pathlib import Path
name = sys.argv[1]
with Path("../begun").open("a") as file:
    file.write(name + chr(10))
while name == "3.o" and not Path("../go").exists():
    time.sleep(0.02)
Path(name).write_text(name)
"""
"""The third of four waits: for what does not come before its job ends."""


def _job(folder: Path, program: Program, *lines: str) -> Path:
    """A script for sbatch; its build has four units, one after the other."""
    (folder / "unit.py").write_text(UNIT)
    (folder / "build").mkdir()
    edges = "".join(f"build {number}.o: unit\n" for number in range(1, 5))
    (folder / "build" / "build.ninja").write_text(f"rule unit\n  command = {sys.executable} ../unit.py $out\n{edges}")
    script = folder / "job.sh"
    script.write_text("\n".join(["#!/bin/sh", f'builddoctor() {{ {" ".join(program.argv())} "$@"; }}', *lines, ""]))
    program.env["PATH"] = f"{ninja.BIN_DIR}:{program.env['PATH']}"
    return script


def _begun(folder: Path) -> list[str]:
    return (folder / "begun").read_text().split() if (folder / "begun").exists() else []


def test_a_job_that_is_queued_again_goes_on(tmp_path: Path, slurm: Slurm) -> None:
    """A node fails or a job has more weight: Slurm ends the build's job and begins it anew. What was compiled stays."""
    program = Program(tmp_path)
    script = _job(tmp_path, program, "builddoctor run -- ninja -C build -j1")
    job = _sbatch(slurm, "--requeue", str(script), cwd=tmp_path, env=program.env)
    await_that(lambda: [] if len(_begun(tmp_path)) == 3 else None)
    slurm.ask("scontrol", "requeue", job, check=True)
    slurm.await_state(job, "PENDING")
    (tmp_path / "go").touch()
    assert slurm.await_state(job, "COMPLETED", "FAILED") == "COMPLETED", (tmp_path / "out").read_text()
    assert _begun(tmp_path) == ["1.o", "2.o", "3.o", "3.o", "4.o"]


def test_a_job_that_ends_too_early_is_continued_by_the_next(tmp_path: Path, slurm: Slurm) -> None:
    """``--until`` ends the build before the job's time limit, with 75; the job saves it and is queued again, and what
    it had on its own disk is gone then."""
    program = Program(tmp_path)
    script = _job(
        tmp_path,
        program,
        "if [ -e saved.tar.gz ]; then builddoctor restore saved.tar.gz && touch go; fi",
        "until=5s; [ ! -e go ] || until=1h",
        "builddoctor run --until $until -- ninja -C build -j1",
        "status=$?",
        "[ $status = 75 ] || exit $status",
        "builddoctor save saved.tar.gz && rm -rf build && scontrol requeue $SLURM_JOB_ID",
    )
    job = _sbatch(slurm, "--requeue", "--open-mode=append", "--time=5", str(script), cwd=tmp_path, env=program.env)
    slurm.await_state(job, "COMPLETED", "FAILED")
    output = (tmp_path / "out").read_text()
    assert slurm.state(job) == "COMPLETED", output
    assert _begun(tmp_path) == ["1.o", "2.o", "3.o", "3.o", "4.o"], output
    assert "is to be continued" in output


MATRIX_UNIT = """
import os, sys, time
from pathlib import Path
folder, name = Path.cwd().parent, sys.argv[1]
with (folder / "begun").open("a") as file:
    print(Path(name).name.partition(".")[0], os.environ["MATRIX_PYTHON"], os.environ["CUDAARCHS"], file=file)
if (folder.parent.name, os.path.basename(name)) == ("sm_90-cp312", "rope.cu.o"):
    sys.exit("no such kernel")
while folder.parent.name == "sm_100-cp312" and "attention_forward" in name and not (folder.parent / "go").exists():
    time.sleep(0.02)
Path(name).write_text(name)
"""
"""In one cell a unit fails, in another the last of its stages waits: for what does not come before its job ends."""

CELLS = ("sm_90-cp311", "sm_90-cp312", "sm_100-cp311", "sm_100-cp312")
FAILING, LAST = CELLS[1], CELLS[3]
"""The last waits: its job has the number of the whole array, and what is done to that is done to all."""

LONG_S = 240.0
"""For a limit of a minute: Slurm looks for those that have reached theirs twice a minute, and waits before it kills."""


@pytest.fixture
def matrix(tmp_path: Path, program: Program) -> Path:
    """The sources of four builds, and a Python for each: all of them the one that is here. Sources are a checkout
    with a wheel of before, within another that ignores all there is."""
    (tmp_path / "sources" / "build").mkdir(parents=True)
    (tmp_path / "sources" / "unit.py").write_text(MATRIX_UNIT)
    edges = "".join(f"build {unit.target}: unit\n" for unit in RECIPE.units)
    rule = f"rule unit\n  command = {sys.executable} ../unit.py $out\n"
    (tmp_path / "sources" / "build" / "build.ninja").write_text(f"{rule}{edges}")
    for folder, ignored in ((tmp_path, "*"), (tmp_path / "sources", "dist")):
        subprocess.run(("git", "init", "--quiet", str(folder)), check=True)
        (folder / ".gitignore").write_text(f"{ignored}\n")
    (tmp_path / "sources" / "dist").mkdir()
    (tmp_path / "recipe.toml").write_text(tomlkit.dumps(msgspec.to_builtins(RECIPE)))
    for version in ("3.11", "3.12"):
        python = tmp_path / "pythons" / version / "bin" / f"python{version}"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
    (tmp_path / "bin").mkdir()
    ours = tmp_path / "bin" / "builddoctor"
    ours.write_text(f'#!/bin/sh\nexec {shlex.join(program.argv())} "$@"\n')
    ours.chmod(0o755)
    program.env["PYTHONS"] = str(tmp_path / "pythons")
    program.env["PATH"] = f"{tmp_path / 'bin'}:{ninja.BIN_DIR}:{program.env['PATH']}"
    return tmp_path


def _array(matrix: Path, program: Program, slurm: Slurm, *words: str) -> str:
    """As ``recipe render`` writes it; submitted."""
    axes = ("--matrix", "arch=sm_90,sm_100", "--matrix", "python=3.11,3.12")
    size = ("--cores", "2", "--memory", "3GiB")
    render = ("recipe", "render", "recipe.toml", "--to", "slurm", *axes, *size, *words, "-o", "all.slurm")
    done = program.run(*render, cwd=matrix)
    assert done.returncode == 0, done.stderr
    command = ("sbatch", "--parsable", "--output=out-%a", "all.slurm", "sources", "--", "ninja", "-C", "build")
    sent = subprocess.run(
        command, cwd=matrix, env={**program.env, **slurm.env}, capture_output=True, text=True, check=False
    )
    assert sent.returncode == 0, sent.stderr
    return sent.stdout.strip()


def _units_of(matrix: Path, cell: str) -> list[str]:
    begun = matrix / "matrix" / cell / "source" / "begun"
    return begun.read_text().splitlines() if begun.exists() else []


def _waits(matrix: Path, times: int = 1) -> list[str] | None:
    """Of that cell the last unit has begun so many times, and all others are done."""
    forward = [each for each in _units_of(matrix, LAST) if each.startswith("attention_forward")]
    log = matrix / "matrix" / LAST / "source" / "build" / ".ninja_log"
    done = sum(unit.target in log.read_text() for unit in RECIPE.units) if log.exists() else 0
    return forward if len(forward) == times and done == len(RECIPE.units) - 1 else None


def _check_cells(matrix: Path, slurm: Slurm, job: str, *, within_s: float = PATIENCE_S) -> None:
    """Three are built, each with its own Python and architectures and nothing twice; one has failed, and says so."""
    states = [
        slurm.await_state(f"{job}_{at}", "COMPLETED", "FAILED", "TIMEOUT", within_s=within_s)
        for at in range(len(CELLS))
    ]
    said = {cell: (matrix / f"out-{at}").read_text() for at, cell in enumerate(CELLS)}
    assert states == ["COMPLETED", "FAILED", "COMPLETED", "COMPLETED"], said
    names = sorted(unit.place.removeprefix("src/").removesuffix(".cu") for unit in RECIPE.units)
    assert [cell for cell in CELLS if "attempt 2" in said[cell]] == [LAST], said
    for cell in (cell for cell in CELLS if cell != FAILING):
        arch, _, tag = cell.partition("-cp3")
        again = ["attention_forward"] * (cell == LAST)
        begun = sorted(f"{name} 3.{tag} {arch.removeprefix('sm_')}" for name in [*names, *again])
        assert sorted(_units_of(matrix, cell)) == begun, said[cell]
        made = matrix / "matrix" / cell / "source" / "build"
        assert [unit.target for unit in RECIPE.units if not (made / unit.target).exists()] == []
        assert not (made.parent / "dist").exists()
    assert f"{FAILING} failed: exit code 1" in said[FAILING]
    assert f"{LAST} goes on in another attempt" in said[LAST]
    assert not (matrix / "sources" / "build" / ".ninja_log").exists()


@pytest.mark.parametrize("how", ["staged", "gated"])
def test_an_array_builds_all_cells_of_a_matrix(
    matrix: Path, program: Program, slurm: Slurm, how: Literal["staged", "gated"]
) -> None:
    """One fails and ends no other. One gets the signal of a job that is about to end: its next attempt goes on."""
    job = _array(matrix, program, slurm, *(["--with-builddoctor"] * (how == "gated")))
    await_that(lambda: _waits(matrix))
    slurm.ask("scancel", "--signal=USR1", "--batch", f"{job}_3", check=True)
    await_that(lambda: _waits(matrix, times=2))
    (matrix / "matrix" / LAST / "go").touch()
    _check_cells(matrix, slurm, job)
    traces = [sorted(each.name for each in (matrix / "matrix" / cell).glob("trace-*")) for cell in CELLS]
    first, second = (f"trace-{job}-{attempt}.jsonl" for attempt in (1, 2))
    expected = [[first], [first], [first], [first, second]]
    assert traces == (expected if how == "gated" else [[], [], [], []])
    assert slurm.jobs() == []


def test_a_cell_that_is_cancelled_stays_cancelled(matrix: Path, program: Program, slurm: Slurm) -> None:
    """It does not queue itself again, and nothing of it goes on."""
    job = _array(matrix, program, slurm, "--exclude", "arch=sm_90")
    await_that(lambda: _waits(matrix))
    slurm.ask("scancel", f"{job}_1", check=True)
    assert slurm.await_state(f"{job}_1", "CANCELLED", "COMPLETED", "FAILED", "PENDING") == "CANCELLED"
    await_that(lambda: None if slurm.jobs() else [])
    assert "another attempt" not in (matrix / "out-1").read_text()


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["staged", "gated"])
def test_an_array_goes_on_after_a_real_time_limit(
    matrix: Path, program: Program, slurm: Slurm, how: Literal["staged", "gated"]
) -> None:
    """The smallest that Slurm has, one minute, and the signal that Slurm sends."""
    job = _array(matrix, program, slurm, "--time", "1m", *(["--with-builddoctor"] * (how == "gated")))
    await_that(lambda: _waits(matrix))
    slurm.await_state(f"{job}_3", "PENDING", within_s=LONG_S)
    (matrix / "matrix" / LAST / "go").touch()
    _check_cells(matrix, slurm, job, within_s=LONG_S)


@pytest.mark.nightly
def test_what_slurm_ends_by_its_time_limit_is_gone_on_with(tmp_path: Path, program: Program, slurm: Slurm) -> None:
    """No signal was asked for, no ``--until``: SIGTERM at the limit, and SIGKILL a little later. Units that were done
    stay done, the trace says how it ended, and the next job goes on."""
    script = _job(tmp_path, program, 'builddoctor run --trace "trace-$1.jsonl" -- ninja -C build -j1')
    first = _sbatch(slurm, "--time=1", str(script), "1", cwd=tmp_path, env=program.env)
    slurm.await_state(first, "TIMEOUT", "COMPLETED", "FAILED", "CANCELLED", within_s=LONG_S)
    assert slurm.state(first) == "TIMEOUT", (tmp_path / "out").read_text()
    assert _begun(tmp_path) == ["1.o", "2.o", "3.o"]
    assert not (tmp_path / "build" / "3.o").exists()
    told = json.loads(program.run("trace", "show", "trace-1.jsonl", "--json", cwd=tmp_path).stdout)
    assert (told["whole"], told["result"], told["exit_code"]) == (True, "interrupted", 143)
    (tmp_path / "go").touch()
    second = _sbatch(slurm, "--time=1", str(script), "2", cwd=tmp_path, env=program.env)
    assert slurm.await_state(second, "COMPLETED", "FAILED") == "COMPLETED", (tmp_path / "out").read_text()
    assert _begun(tmp_path) == ["1.o", "2.o", "3.o", "3.o", "4.o"]


def _check_gone(place: Place, slurm: Slurm) -> None:
    """No job, no keys, nothing of what jobs printed; processes are looked for after every test."""

    def left() -> list[object]:
        folders = [*place.folder.glob("builddoctor-*"), *place.folder.glob("state/nodes-*")]
        return [*slurm.jobs(), *folders]

    await_that(lambda: None if left() else [], left)
