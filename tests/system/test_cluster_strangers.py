"""What was recorded is of no use to a stranger, and what was sent once is of no use a second time: refused, and said.

Without the keys, with others, or with expired ones: ``test_cluster.py``. What a node refuses of one message:
tests/unit/cluster/test_node.py.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from distributed.core import rpc

from builddoctor.cluster.client import Cluster, Ticket
from builddoctor.cluster.keys import security_for
from builddoctor.cluster.parcels import pack, program_digest
from builddoctor.core.errors import ClusterError
from builddoctor.core.events import PhaseEnded
from builddoctor.core.phase import Outcome
from builddoctor.toolchain.travelling import FileOfPhase, Travelling
from support.nodes import Meeting, Place
from support.program import PATIENCE_S
from support.rogue_node import BEFORE, rogue

pytestmark = pytest.mark.slow


class Recorder:
    """Somebody on the way, who passes one connection on and keeps what the caller sent."""

    def __init__(self, port: int) -> None:
        self.sent = bytearray()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._to = port
        self._threads = [threading.Thread(target=self._pass_on)]
        self._threads[0].start()

    def close(self) -> None:
        for each in self._threads:
            each.join()

    def _pass_on(self) -> None:
        with self._server, self._server.accept()[0] as near, socket.create_connection(("127.0.0.1", self._to)) as far:
            back = threading.Thread(target=self._copy, args=(far, near, None))
            back.start()
            self._copy(near, far, self.sent)
            back.join()

    @staticmethod
    def _copy(one: socket.socket, other: socket.socket, kept: bytearray | None) -> None:
        while chunk := one.recv(1 << 16):
            if kept is not None:
                kept += chunk
            other.sendall(chunk)
        other.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("role", ["node", "meeting point"])
def test_a_recorded_session_does_nothing_again(tmp_path: Path, keys: Path, meeting: Meeting, role: str) -> None:
    """Byte for byte: of a call that makes a folder, which whoever has keys may do. The second folder never appears."""
    place = Place(tmp_path, waits=False)
    meeting.worker("node", "--toolkit", str(place.toolkit))
    address = meeting.address
    if role == "node":
        address = meeting.await_line("node", "serves ").partition(" as ")[2].partition(": ")[0]
    port = int(address.rpartition(":")[2])
    recorder, made = Recorder(port), tmp_path / "made"

    async def call() -> None:
        security = security_for(address, keys, "client")
        assert security is not None
        # The meeting point runs nothing for itself; there it is asked to have it run by the node.
        there = rpc(f"tls://127.0.0.1:{recorder.port}", connection_args=security.get_connection_args("client"))
        words = {"function": pickle.dumps(os.mkdir), "args": pickle.dumps((str(made),)), "kwargs": pickle.dumps({})}
        if role == "node":
            await there.run(**words)
        else:
            await there.broadcast(msg={"op": "run", **words})
        await there.close_rpc()

    asyncio.run(call())
    recorder.close()
    made.rmdir()
    name = "node" if role == "node" else "serve"
    assert "TLS" not in meeting.log(name)
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as again:
        try:
            again.sendall(recorder.sent)
            again.shutdown(socket.SHUT_WR)
            while again.recv(1 << 16):
                pass
        except TimeoutError:
            raise
        except OSError:
            pass  # refused at its first bytes: the connection may be gone while the rest is still being sent
    meeting.await_line(name, "TLS handshake failed")
    assert not made.exists()


def test_a_phase_that_is_sent_twice_runs_once(tmp_path: Path, keys: Path, meeting: Meeting) -> None:
    """The same message, from one who has keys: refused by the node, which says so; another of the same content runs."""
    place = Place(tmp_path, waits=False)
    meeting.worker("node", "--toolkit", str(place.toolkit))
    (tmp_path / "a.ii").write_text("int a;\n")
    digest = program_digest(str(place.toolkit / "bin" / "cudafe++"))
    phase = Travelling(
        tool="cudafe++",
        words=("--gen_c_file_name", "@folder@/a.c", "@folder@/a.ii"),
        inputs=(FileOfPhase(name="a.ii", path="a.ii"),),
        outputs=(FileOfPhase(name="a.c", path="a.c"),),
        needed="a.c",
    )
    cluster = Cluster(meeting.address, keys, programs=frozenset((digest,)))
    try:
        nodes, _ = cluster.look()
        (node,) = nodes
        parcel = pack(phase, str(tmp_path), digest)
        answer = cluster.run(parcel, node.address, Ticket())
        assert (answer.status, answer.parcel_id) == (0, parcel.parcel_id)
        place.began(1)
        with pytest.raises(ClusterError, match="it was sent before"):
            cluster.run(parcel, node.address, Ticket())
        assert f"refused: it was sent before: {parcel.parcel_id}" in meeting.log("node")
        assert len(place.began(1)) == 1
        assert cluster.run(pack(phase, str(tmp_path), digest), node.address, Ticket()).status == 0
        place.began(2)
    finally:
        cluster.close()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (BEFORE, "it answers with what it was sent before"),
        ("an object that nobody else knows", "its answer cannot be read"),
        ("an answer whose files are none", "it answers with something that is no answer"),
        ("an answer whose text is no UTF-8", "it answers with something that is no answer"),
        ("an answer that is nested too deeply", "it answers with something that is no answer"),
    ],
)
def test_a_wrong_answer_is_not_taken(tmp_path: Path, meeting: Meeting, kind: str, words: str) -> None:
    """Such as what it said of the phase before: the node gets nothing more, which is all that is said of it."""
    place = Place(tmp_path, waits=False)
    sign = tmp_path / "sign"
    meeting.worker("node", "--toolkit", str(place.toolkit), prefix=rogue(kind, sign))
    subprocess.run(place.build(meeting), cwd=tmp_path, env=place.program.env, check=True)
    place.check()
    place.output.unlink()
    sign.touch()
    done = subprocess.run(
        place.build(meeting), cwd=tmp_path, env=place.program.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    place.check()
    assert f"gets nothing more: {words}" in done.stderr
    assert "Traceback" not in done.stderr
    ends = [each for each in place.program.records() if isinstance(each, PhaseEnded)]
    assert [each.outcome for each in ends] == [Outcome.NODE_LOST, Outcome.OK]
    assert ends[1].node == ""
