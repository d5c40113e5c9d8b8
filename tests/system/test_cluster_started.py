"""Nodes that a build starts itself, on this machine and by ssh: they join, help, and end with it, however it ends.

As Slurm's jobs: ``test_slurm.py``.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from builddoctor.core.events import Note, PhaseEnded
from builddoctor.core.phase import Outcome
from support.nodes import Place, await_that
from support.program import PATIENCE_S
from support.ssh import SshServer

pytestmark = pytest.mark.slow


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[SshServer]:
    server = SshServer(tmp_path / "ssh")
    yield server
    server.close()


def _outcomes(place: Place) -> list[tuple[bool, Outcome]]:
    """Of phases: whether a node ran it, and how it ended."""
    ends = [e for e in place.program.records() if isinstance(e, PhaseEnded)]
    return sorted((e.node != "", e.outcome) for e in ends)


def _check_gone(place: Place) -> None:
    """Neither a process, nor keys, nor a node's folder."""
    await_that(lambda: None if any(map(_lives, psutil.Process().children(recursive=True))) else [])
    assert not list(place.folder.glob("builddoctor-*"))
    assert not list((place.folder / "tmp").iterdir())


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _place(folder: Path) -> Place:
    place = Place(folder, waits=True)
    (folder / "tmp").mkdir()
    place.program.env["TMPDIR"] = str(folder / "tmp")
    return place


def test_nodes_on_this_machine_come_and_go_with_the_build(tmp_path: Path) -> None:
    """It begins before they are there; what had to wait goes to one of them."""
    place = _place(tmp_path)
    build = place.program.start(place.pair("--cluster", "local:2,cores=1"))
    place.began(2)
    place.go()
    output, _ = build.communicate(timeout=PATIENCE_S)
    assert build.returncode == 0, output
    assert _outcomes(place) == [(False, Outcome.OK), (True, Outcome.OK)]
    place.check()
    _check_gone(place)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_they_end_with_a_build_that_is_ended(tmp_path: Path, number: int) -> None:
    place = _place(tmp_path)
    build = place.program.start(place.pair("--cluster", "local:1,memory=1GiB"))
    place.began(2)
    build.send_signal(number)
    build.communicate(timeout=PATIENCE_S)
    _check_gone(place)
    assert not place.output.exists()


def test_a_node_that_fails_is_told_and_the_build_goes_on(tmp_path: Path) -> None:
    place = _place(tmp_path)
    build = place.program.start(place.pair("--cluster", "local:1,memory=64MiB"))
    place.began()
    place.program.await_record(Note, build, text=lambda text: "node 1 has ended: no memory to build in" in text)
    place.go()
    output, _ = build.communicate(timeout=PATIENCE_S)
    assert build.returncode == 0, output
    assert "node 1 has ended: no memory to build in" in output
    assert _outcomes(place) == [(False, Outcome.OK)] * 2


@pytest.mark.needs_sshd
def test_nodes_by_ssh(tmp_path: Path, ssh: SshServer) -> None:
    """One host answers, one does not: that is told, and the other one is used. Its keys are gone afterwards."""
    place = _place(tmp_path)
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(f"# ours\n{ssh.host} --cores 1 --memory 1GiB\nnowhere.invalid\n")
    place.program.env["PATH"] = f"{ssh.client}:{place.program.env['PATH']}"
    build = place.program.start(place.pair("--cluster", f"ssh:{hosts},host=127.0.0.1"))
    place.began(2)
    place.program.await_record(Note, build, text=lambda text: "node 2, nowhere.invalid, has ended: " in text)
    place.go()
    output, _ = build.communicate(timeout=PATIENCE_S)
    assert build.returncode == 0, output
    assert _outcomes(place) == [(False, Outcome.OK), (True, Outcome.OK)]
    ssh.close()
    _check_gone(place)
    assert not list(ssh.temporary.iterdir())


@pytest.mark.parametrize("words", ["local:0", "local:two", "slurm:nodes=4,partiton=gpu", "ssh:nohosts.txt", "lokal:2"])
def test_what_cannot_be_started_is_said_before_the_build(tmp_path: Path, words: str) -> None:
    place = _place(tmp_path)
    done = place.program.run("run", "--cluster", words, "--", "touch", "begun", cwd=tmp_path)
    assert done.returncode == 64
    assert "hint: " in done.stderr
    assert not (tmp_path / "begun").exists()


def test_keys_that_are_missing_are_said_before_the_build(tmp_path: Path) -> None:
    place = _place(tmp_path)
    done = place.program.run("run", "--cluster", "local:1", "--keys", "none", "--", "touch", "begun", cwd=tmp_path)
    assert done.returncode == 67
    assert not (tmp_path / "begun").exists()


def test_a_machine_without_the_program_is_told_so(tmp_path: Path) -> None:
    place = _place(tmp_path)
    words = place.pair("--cluster", "slurm:nodes=1,host=127.0.0.1")
    env = {**place.program.env, "PATH": "/bin-without-slurm"}
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 67
    assert "Slurm takes no job for nodes" in done.stderr
    _check_gone(place)
