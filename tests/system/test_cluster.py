"""Phases on other machines, for real: TLS, Dask, a node that is a supervised build of its own; and each way to fail.

The toolkit is a stand-in whose one compiler says where it runs, and ends when it is told to. With the real one:
tests/e2e/test_cluster_nvcc.py.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path

import psutil
import pytest

from builddoctor.cluster.client import Cluster
from builddoctor.cluster.keys import make_keys
from builddoctor.cluster.node import LEAST_FREE_MIB
from builddoctor.cluster.parcels import program_digest
from builddoctor.core.cluster import NODE_PROGRAM
from builddoctor.core.events import Admit, NodeLost, NodeSeen, PhaseAsked, PhaseEnded, Requeue
from builddoctor.core.phase import Outcome
from support.memcg import memory_cgroup
from support.nodes import Meeting, Place, await_that
from support.program import PATIENCE_S

pytestmark = pytest.mark.slow


def _ends(place: Place, kind: Outcome | None = None) -> list[PhaseEnded]:
    return [e for e in place.program.records() if isinstance(e, PhaseEnded) and kind in (None, e.outcome)]


def _is_run_again(place: Place, build: subprocess.Popen[str]) -> str:
    """The phase, to its end; what the build printed."""
    place.began(2)
    place.go()
    output, _ = build.communicate(timeout=PATIENCE_S)
    assert build.returncode == 0, output
    place.check()
    assert [each.outcome for each in _ends(place)] == [Outcome.NODE_LOST, Outcome.OK]
    return output


def test_what_does_not_fit_here_runs_there(tmp_path: Path, meeting: Meeting) -> None:
    """With its output, and what it printed, as if it had run here."""
    place = Place(tmp_path, waits=False)
    meeting.worker("node", "--toolkit", str(place.toolkit))
    done = subprocess.run(
        place.build(meeting), cwd=tmp_path, env=place.program.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "made on the way" in done.stderr
    place.check()
    (ended,) = _ends(place)
    assert ended.outcome is Outcome.OK
    assert ended.node
    assert ended.transfer_s > 0
    # Known before the first phase asks: it would have run here else, alone.
    seen, asked = (e for e in place.program.records() if isinstance(e, NodeSeen | PhaseAsked))
    assert isinstance(seen, NodeSeen)
    assert isinstance(asked, PhaseAsked)
    assert seen.node == ended.node
    assert "cudafe++" in seen.tools
    place.program.check_traces()


def test_what_fits_here_stays(tmp_path: Path, meeting: Meeting) -> None:
    place = Place(tmp_path, waits=False)
    meeting.worker("node", "--toolkit", str(place.toolkit))
    subprocess.run(place.build(meeting, memory="4GiB"), cwd=tmp_path, env=place.program.env, check=True)
    assert [each.node for each in _ends(place)] == [""]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_node_that_goes_costs_the_phase_its_time_and_no_more(tmp_path: Path, meeting: Meeting, number: int) -> None:
    """Killed in mid-phase, or told to go, as Slurm does: its compiler ends, and another node runs the phase."""
    place = Place(tmp_path, waits=True)
    first = meeting.worker("first", "--toolkit", str(place.toolkit))
    build = place.program.start(place.build(meeting))
    (began,) = place.began()
    meeting.worker("second", "--toolkit", str(place.toolkit))
    first.send_signal(number)
    first.wait()
    await_that(lambda: None if psutil.pid_exists(began) else [began])
    output = _is_run_again(place, build)
    lost = [e for e in place.program.records() if isinstance(e, NodeLost)]
    assert len(lost) == 1
    assert "is gone, or was not reached" in output
    place.program.check_traces()


def test_a_compiler_that_is_told_to_end_there_is_run_again(tmp_path: Path, meeting: Meeting) -> None:
    """As by a node that is going, whose answer was there first: it says nothing of what was compiled."""
    place = Place(tmp_path, waits=True)
    meeting.worker("node", "--toolkit", str(place.toolkit))
    build = place.program.start(place.build(meeting))
    (began,) = place.began()
    os.kill(began, signal.SIGTERM)
    output = _is_run_again(place, build)
    assert "cudafe++ was told to end" in output
    place.program.check_traces()


@pytest.mark.needs_memcg
def test_a_limit_that_is_lowered_in_mid_phase_costs_the_phase_its_time_and_no_more(
    tmp_path: Path, meeting: Meeting
) -> None:
    """What the node promised is no longer there: the phase ends there, and a larger node runs it."""
    place = Place(tmp_path, waits=True, grows_mib=300)
    with memory_cgroup(1 << 30) as small, memory_cgroup(2 << 30) as large:
        meeting.worker("first", "--toolkit", str(place.toolkit), prefix=small.wrapped([]))
        build = place.program.start(place.build(meeting))
        place.began()
        small.limit(int(small.used_mib + 100) << 20)
        meeting.worker("second", "--toolkit", str(place.toolkit), prefix=large.wrapped([]))
        place.program.await_record(NodeSeen, build, budget_mib=lambda mib: mib > 1 << 10)
        place.go()
        output, _ = build.communicate(timeout=PATIENCE_S)
        assert build.returncode == 0, output
        place.check()
        ends = _ends(place)
        assert [each.outcome for each in ends] == [Outcome.KILLED_THERE, Outcome.OK]
        assert ends[0].node != ends[1].node != ""
        assert large.kernel_kills == 0
        place.program.check_traces()
        meeting.close()


def test_a_cluster_that_vanishes_leaves_a_local_build(tmp_path: Path, meeting: Meeting) -> None:
    """The meeting point is killed: the phase is run here, whatever it takes, as without a cluster."""
    place = Place(tmp_path, waits=True)
    meeting.worker("node", "--toolkit", str(place.toolkit))
    build = place.program.start(place.build(meeting))
    place.began()
    meeting.server.kill()
    place.program.await_record(NodeLost, build)
    place.began(2)
    place.go()
    output, _ = build.communicate(timeout=PATIENCE_S)
    assert build.returncode == 0, output
    place.check()
    assert _ends(place)[-1].node == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_goes_on_there_after_the_build(tmp_path: Path, meeting: Meeting, number: int) -> None:
    """Whether the build is told to end, or killed: the compiler on the node ends, and the node waits for the next."""
    place = Place(tmp_path, waits=True)
    meeting.worker("node", "--toolkit", str(place.toolkit))
    build = place.program.start(place.build(meeting))
    (began,) = place.began()
    build.send_signal(number)
    build.communicate(timeout=PATIENCE_S)
    await_that(lambda: None if psutil.pid_exists(began) else [began])
    assert not place.output.exists()
    (place.signs / f"began-{began}").unlink()
    place.go()
    again = subprocess.run(place.build(meeting), cwd=tmp_path, env=place.program.env, check=False)
    assert again.returncode == 0
    assert [each.node != "" for each in _ends(place)] == [True]


def test_a_compile_error_there_is_the_units_own(tmp_path: Path, meeting: Meeting) -> None:
    place = Place(tmp_path, waits=False)
    tool = place.toolkit / "bin" / "cudafe++"
    tool.write_text("#!/bin/sh\necho 'in.cpp4.ii(1): error: expected a semicolon' >&2\nexit 3\n")
    meeting.worker("node", "--toolkit", str(place.toolkit))
    done = subprocess.run(
        place.build(meeting), cwd=tmp_path, env=place.program.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "expected a semicolon" in done.stderr
    assert [(each.outcome, each.exit_code) for each in _ends(place)] == [(Outcome.FAILED, 3)]
    assert not [e for e in place.program.records() if isinstance(e, Requeue)]


def test_another_compiler_is_of_no_use(tmp_path: Path, meeting: Meeting) -> None:
    """Byte for byte: a node whose programs differ gets none of their phases, and the build says so."""
    place = Place(tmp_path, waits=False)
    other = tmp_path / "other"
    shutil.copytree(place.toolkit, other)
    for program in (*(other / "bin").iterdir(), other / "nvvm" / "bin" / "cicc"):
        if program.name != "nvcc":
            program.write_text(f"{program.read_text()}# another release\n")
    meeting.worker("node", "--toolkit", str(other))
    done = subprocess.run(
        place.build(meeting), cwd=tmp_path, env=place.program.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [e.node for e in place.program.records() if isinstance(e, Admit)] == [""]
    assert "has other files as" in done.stderr
    assert "cudafe++" in done.stderr


def _copied(place: Place, folder: Path) -> Path:
    """A node's own toolkit, with the same files."""
    shutil.copytree(place.toolkit, folder)
    return folder


def _lost_to(place: Place, build: subprocess.Popen[str], words: str) -> None:
    """It ran again here, and the build said so."""
    output, _ = build.communicate(timeout=PATIENCE_S)
    assert build.returncode == 0, output
    place.check()
    assert "gets nothing more: " in output
    assert words in output
    assert [(each.outcome, each.node != "") for each in _ends(place)] == [
        (Outcome.NODE_LOST, True),
        (Outcome.OK, False),
    ]
    place.program.check_traces()


def test_a_compiler_that_is_replaced_in_mid_phase_is_not_trusted(tmp_path: Path, meeting: Meeting) -> None:
    """As by an upgrade of the toolkit: what the node said of its programs is no longer true."""
    place = Place(tmp_path, waits=True)
    there = _copied(place, tmp_path / "there")
    meeting.worker("node", "--toolkit", str(there))
    build = place.program.start(place.build(meeting))
    place.began()
    other = there / "bin" / "other"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.replace(there / "bin" / "cudafe++")
    place.go()
    _lost_to(place, build, "cudafe++ is another file than when this node joined")


@pytest.mark.needs_unshare
@pytest.mark.parametrize("notices", [True, False])
def test_a_disk_that_fills_in_mid_phase_is_nothing_of_the_builds(
    tmp_path: Path, meeting: Meeting, notices: bool
) -> None:
    """The compiler fails for want of room, as cicc does, or writes a part and ends well, as ptxas does."""
    place = Place(tmp_path, waits=True)
    if not notices:
        tool = place.toolkit / "bin" / "cudafe++"
        tool.write_text(
            f"#!/usr/bin/env python3\nimport os, sys\nsys.excepthook = lambda *_: os._exit(0)\n{tool.read_text()}"
        )
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={LEAST_FREE_MIB + 50}m", "bd-disk", str(disk)], check=True)
    try:
        meeting.worker("node", "--toolkit", str(place.toolkit), prefix=["env", f"TMPDIR={disk}"])
        build = place.program.start(place.build(meeting))
        place.began()
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(1 << 20)):
                pass
        place.go()
        _lost_to(place, build, "its disk is full")
    finally:
        meeting.close()
        subprocess.run(["umount", str(disk)], check=True)


def test_strangers_are_refused(tmp_path: Path, keys: Path, meeting: Meeting) -> None:
    """Without a certificate, with another authority's, with one that has expired: no node, no status, no build."""
    place = Place(tmp_path, waits=False)
    make_keys(tmp_path / "others")
    make_keys(tmp_path / "expired", days=1, now=datetime.now(timezone.utc) - timedelta(days=3))
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (tmp_path / "others", tmp_path / "expired", empty):
        asked = place.program.run("cluster", "status", meeting.address, "--keys", str(folder))
        assert asked.returncode == 67, asked.stderr
        assert "hint: " in asked.stderr
        joining = place.program.run("worker", meeting.address, "--keys", str(folder), "--toolkit", str(place.toolkit))
        assert joining.returncode != 0
    plain = place.program.run("cluster", "status", meeting.address.replace("tls", "tcp"))
    assert plain.returncode == 67
    asked = place.program.run("cluster", "status", meeting.address, "--keys", str(keys), "--json")
    assert asked.stdout.strip() == "[]"


def test_no_cluster_is_said_before_the_build(tmp_path: Path, keys: Path) -> None:
    place = Place(tmp_path, waits=False)
    options = ["--cluster", "tls://127.0.0.1:1", "--keys", str(keys), "--toolkit", str(place.toolkit)]
    done = subprocess.run(
        place.program.supervised(*place.command, options=options),
        cwd=tmp_path,
        env=place.program.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 67
    assert "cluster serve" in done.stderr
    assert not place.output.exists()


def test_a_node_that_does_not_answer_keeps_none_from_being_met(tmp_path: Path, keys: Path, meeting: Meeting) -> None:
    """And is met itself as soon as it does."""
    place = Place(tmp_path, waits=False)
    worker = meeting.worker("silent", "--toolkit", str(place.toolkit))
    meeting.worker("node", "--toolkit", str(place.toolkit))
    below = psutil.Process(worker.pid).children(recursive=True)
    (silent,) = [each for each in below if each.cmdline()[1:3] == ["-m", NODE_PROGRAM]]
    silent.suspend()
    try:
        programs = frozenset((program_digest(str(place.toolkit / "bin" / "cudafe++")),))
        cluster = Cluster(meeting.address, keys, programs=programs)
        try:
            (node,) = await_that(lambda: cluster.look()[0] or None)
            said = await_that(lambda: cluster.look()[1] or None)
            assert [("does not answer" in each, node.address in each) for each in said] == [(True, False)]
            assert cluster.known() == [node]
            silent.resume()
            assert node in await_that(lambda: nodes if len(nodes := cluster.look()[0]) == 2 else None)
        finally:
            cluster.close()
    finally:
        silent.resume()
