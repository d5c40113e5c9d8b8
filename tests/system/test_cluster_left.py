"""What the processes of a cluster leave among the temporary files: nothing, or what the next start removes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import psutil
import pytest

from builddoctor.cluster.node_program import NodeSettings
from builddoctor.core.cluster import NODE_PROGRAM
from support.fake_toolkit import fake_toolkit
from support.nodes import Meeting, Place
from support.program import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture
def meeting(tmp_path: Path) -> Iterator[Meeting]:
    with closing(Meeting(tmp_path / "meeting")) as there:
        yield there


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_worker_that_ends(tmp_path: Path, meeting: Meeting, number: signal.Signals, busy: bool) -> None:
    place = Place(tmp_path, waits=True)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    worker = meeting.worker("node", "--toolkit", str(place.toolkit), prefix=["env", f"TMPDIR={temporary}"])
    assert len(list(temporary.glob("builddoctor-node-*"))) == 1
    build = place.program.start(place.build(meeting)) if busy else None
    if build is not None:
        place.began()
    family = psutil.Process(worker.pid).children(recursive=True)
    worker.send_signal(number)
    worker.wait(PATIENCE_S)
    psutil.wait_procs(family, PATIENCE_S)
    left = [str(each.relative_to(temporary)) for each in temporary.rglob("*")]
    if build is not None:
        build.terminate()
        build.communicate(timeout=PATIENCE_S)
    assert left == [], meeting.log("node")


def test_a_node_that_is_told_again_and_again_to_end(tmp_path: Path, meeting: Meeting) -> None:
    """Once it is ending, no signal keeps it from removing its folder."""
    worker, node, temporary = _joined(tmp_path, meeting)
    with suppress(psutil.NoSuchProcess):
        while node.status() != psutil.STATUS_ZOMBIE:
            node.terminate()
    assert worker.wait(PATIENCE_S) == 0, meeting.log("node")
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_node_that_is_told_to_end_before_it_has_joined(tmp_path: Path, number: signal.Signals) -> None:
    """Its meeting point may be gone with the build: it does not wait for that."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_S)
        settings = NodeSettings(
            address=f"tcp://127.0.0.1:{silent.getsockname()[1]}", keys="", cores=1, cuda=(), host=()
        )
        words = [sys.executable, "-m", NODE_PROGRAM, msgspec.json.encode(settings).decode()]
        node = subprocess.Popen(words, env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE, text=True)
        with silent.accept()[0]:
            node.send_signal(number)
            _, said = node.communicate(timeout=PATIENCE_S)
    assert (node.returncode, said) == (0, "")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_node_has_left_goes_when_the_next_one_starts(tmp_path: Path, meeting: Meeting) -> None:
    worker, node, temporary = _joined(tmp_path, meeting)
    node.kill()
    worker.wait(PATIENCE_S)
    (left,) = temporary.iterdir()
    assert (left / "dask-scratch-space").exists()
    options = ["--toolkit", str(tmp_path / "cuda")]
    next_one = meeting.worker("next", *options, prefix=["env", f"TMPDIR={temporary}"])
    assert not left.exists()
    assert len(list(temporary.glob("builddoctor-node-*"))) == 1
    next_one.terminate()
    next_one.wait(PATIENCE_S)
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_meeting_point_that_ends(tmp_path: Path, number: signal.Signals) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with closing(Meeting(tmp_path / "meeting", prefix=["env", f"TMPDIR={temporary}"])) as meeting:
        assert list(temporary.iterdir())
        meeting.server.send_signal(number)
        meeting.server.wait(PATIENCE_S)
    assert not list(temporary.iterdir())


def _joined(folder: Path, meeting: Meeting) -> tuple[subprocess.Popen[bytes], psutil.Process, Path]:
    """A worker, its node, and the folder for their temporary files."""
    toolkit = fake_toolkit(folder / "cuda", "")
    temporary = folder / "temporary"
    temporary.mkdir()
    worker = meeting.worker("node", "--toolkit", str(toolkit), prefix=["env", f"TMPDIR={temporary}"])
    family = psutil.Process(worker.pid).children(recursive=True)
    # Its guardian has its words too, and comes before it.
    node = [each for each in family if NODE_PROGRAM in each.cmdline()][-1]
    return worker, node, temporary
