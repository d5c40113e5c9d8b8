"""A store that another machine offers: real TLS, a real server; each way to fail costs the hit, and nothing else."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import random
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from builddoctor.cluster.addresses import host_and_port, tls_for
from builddoctor.cluster.keys import make_keys
from builddoctor.cluster.parcels import pack_file
from builddoctor.core.events import PhaseAsked
from builddoctor.core.phase import PhaseKind
from builddoctor.phase_store.remote import FORMAT, HERE, MOST_BYTES, REST_S, RemoteStore
from builddoctor.phase_store.result import Result, packed
from support.messages import no_text, too_deep, whole
from support.nodes import Meeting
from support.program import PATIENCE_S, Program

pytestmark = pytest.mark.slow


def result(number: int, size: int = 1000) -> Result:
    content = random.Random(number).randbytes(size)
    return Result(
        key=f"{number:064x}", outputs=(pack_file("0", content), None), printed=b"said", peak_mib=900.0, cpu_s=12.0
    )


_PLAIN: Mapping[str, object] = msgspec.to_builtins(result(1), builtin_types=(bytes,))
UNREADABLE = (whole(no_text(_PLAIN)), whole(too_deep(_PLAIN)))
"""With the right digest."""


class Offered:
    """``cluster serve --store``, and builds that use it."""

    def __init__(self, folder: Path, keys: Path | None, size: str = "100MiB") -> None:
        self.folder, self.keys = folder / "store", keys
        self.meeting = Meeting(folder / "meeting", keys=keys, serve=["--store", str(self.folder), "--store-size", size])
        self.address = self.meeting.await_line("serve", "--store ").rpartition("--store ")[2].strip("`")

    def store(self, keys: Path | None = None, clock: Callable[[], float] = lambda: 0.0) -> RemoteStore:
        there = keys or self.keys
        tls = tls_for(self.address, there, "client") if there is not None else None
        return RemoteStore(self.address, tls, answer_s=PATIENCE_S, clock=clock)

    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def said_to(self, words: bytes) -> bytes:
        """What comes back, without our own client."""
        with socket.create_connection(host_and_port(self.address), timeout=PATIENCE_S) as plain:
            tls = tls_for(self.address, self.keys, "client") if self.keys is not None else None
            with tls.wrap_socket(plain) if tls is not None else plain as secure:
                answer = b""
                # It may hang up while there is more to be sent.
                with contextlib.suppress(ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
                    secure.sendall(words)
                    while chunk := secure.recv(65536):
                        answer += chunk
                return answer


@pytest.fixture
def offered(tmp_path: Path, keys: Path) -> Iterator[Offered]:
    made = Offered(tmp_path, keys)
    yield made
    made.meeting.close()


def test_what_one_has_put_another_finds(offered: Offered) -> None:
    """Whole, of any size; on the server it is a file as a build here would have written it."""
    ours, theirs = offered.store(), offered.store()
    for each in (result(1), result(2, 8 << 20)):
        assert theirs.find(each.key) is None
        ours.put(each)
        assert theirs.find(each.key) == each
    assert [path.read_bytes() for path in offered.files()] == [packed(result(1)), packed(result(2, 8 << 20))]
    assert (ours.problem, theirs.problem, theirs.refused) == ("", "", 0)


def test_on_the_loopback_it_needs_no_keys(tmp_path: Path) -> None:
    made = Offered(tmp_path, None)
    with contextlib.closing(made.meeting):
        assert made.address.startswith("tcp://127.0.0.1:")
        made.meeting.await_line("serve", "any user of this machine may read and write")
        made.store().put(result(1))
        assert made.store().find(result(1).key) == result(1)


def test_strangers_are_refused(tmp_path: Path, offered: Offered) -> None:
    """Without a certificate, with another authority's, with one that has expired."""
    offered.store().put(result(1))
    make_keys(tmp_path / "others")
    make_keys(tmp_path / "expired", days=1, now=datetime.now(timezone.utc) - timedelta(days=3))
    alike = tmp_path / "alike"
    make_keys(alike)
    # It trusts our server; but its own certificate is another authority's.
    (alike / "ca.pem").write_bytes((offered.keys / "ca.pem").read_bytes() if offered.keys else b"")
    for folder in (tmp_path / "others", tmp_path / "expired", alike):
        store = offered.store(folder)
        assert "other keys" in store.problem
        assert store.find(result(1).key) is None
        store.put(result(2))
    plain = RemoteStore(offered.address.replace("tls", "tcp"), None)
    assert plain.problem
    assert plain.find(result(1).key) is None
    assert len(offered.files()) == 1
    # Of the first two the other side trusts us no more than we it, and hangs up; the last one speaks no TLS.
    for reason in ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER"):
        offered.meeting.await_line("serve", f"store: refused: TLS handshake failed: {reason}")


def test_a_torn_file_is_not_given_and_is_put_anew(offered: Offered) -> None:
    store = offered.store()
    store.put(result(1))
    (file,) = offered.files()
    file.write_bytes(file.read_bytes()[:-7])
    assert store.find(result(1).key) is None
    assert offered.files() == []
    store.put(result(1))
    assert store.find(result(1).key) == result(1)


def test_what_is_no_question_gets_no_answer(offered: Offered) -> None:
    """Paths that lead out, wrong sizes, another version: nothing is read or written; others are served on."""
    key, body = result(1).key.encode(), packed(result(2))
    for words in (
        b"find ../../keys/ca.pem",
        b"find " + key + b" more",
        b"keep ../" + key[3:] + b" 4",
        b"keep " + key + b" -1",
        b"keep " + key + b" 99999999999",
        b"keep " + key + b" x",
        b"drop " + key,
        b"",
    ):
        assert offered.said_to(FORMAT + b" " + words + b"\n") == b"", words
    assert offered.said_to(b"GET / HTTP/1.1\r\n\r\n") == b""
    assert offered.said_to(b"x" * 200_000) == b""
    # Another phase's result, and what is none.
    for sent in (body, b"x" * 50, *UNREADABLE):
        assert b"not-kept" in offered.said_to(FORMAT + b" keep %s %d\n" % (key, len(sent)) + sent)
    assert offered.files() == []
    store = offered.store()
    assert (store.find(result(1).key), store.problem) == (None, "")


def test_it_never_holds_much_more_than_it_may(tmp_path: Path, keys: Path) -> None:
    made = Offered(tmp_path, keys, size="1MiB")
    with contextlib.closing(made.meeting):
        store = made.store()
        for number in range(30):
            store.put(result(number, 100_000))
            assert sum(path.stat().st_size for path in made.files()) <= 1 << 20
        assert store.find(result(29).key) == result(29, 100_000)
        assert store.find(result(0).key) is None


def test_a_store_that_is_gone_is_asked_again_when_it_may_be_back(tmp_path: Path, keys: Path) -> None:
    """Killed: one question fails, then none is asked for a while; what it held is there again with the next server."""
    made = Offered(tmp_path, keys)
    late = [0.0]
    store = made.store(clock=lambda: late[0])
    store.put(result(1))
    made.meeting.server.kill()
    made.meeting.server.wait()
    assert store.find(result(1).key) is None
    assert "refused" in store.problem
    store.put(result(2))
    listener = Listener(made.address, lambda _: b"never read")
    with listener.listening():
        assert store.find(result(1).key) is None
        assert listener.asked == 0
        late[0] = REST_S
        assert store.find(result(1).key) is None
        assert listener.asked == 1
        # Twice as long now.
        late[0] += REST_S
        assert store.find(result(1).key) is None
        assert listener.asked == 1


class Listener:
    """Somebody else at that address, who says what he likes; without TLS."""

    def __init__(self, address: str, answer: Callable[[bytes], bytes | None]) -> None:
        """``answer``: to a question; None: silence."""
        self._at, self._answer = host_and_port(address), answer
        self.asked = 0
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._listens = threading.Event()
        self._done = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        self._thread.start()
        self._listens.wait()
        yield
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._converse, *self._at)
        self.address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._listens.set()
        await self._done.wait()
        server.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        question = await reader.read(65536)
        answer = self._answer(question)
        if answer is None:
            await self._done.wait()
        else:
            writer.write(answer)
            with contextlib.suppress(OSError):
                await writer.drain()
        writer.close()


def _looked_up(monkeypatch: pytest.MonkeyPatch, port: int, *hosts: str) -> None:
    """Any name has these addresses."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


def test_an_address_without_a_way_there_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of IPv6 often is: it is not refused, there is no way to it."""
    listener = Listener("tcp://127.0.0.1:0", lambda _: FORMAT + b" " + HERE + b"\n")
    with listener.listening():
        _, port = host_and_port(listener.address)
        _looked_up(monkeypatch, port, "255.255.255.255", "127.0.0.1")
        store = RemoteStore(f"tcp://store.invalid:{port}", None, answer_s=PATIENCE_S)
    assert (store.problem, listener.asked) == ("", 1)


def test_an_address_that_says_nothing_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch, offered: Offered, keys: Path
) -> None:
    _, port = host_and_port(offered.address)
    with socket.create_server(("127.0.0.2", port)):
        _looked_up(monkeypatch, port, "127.0.0.2", "127.0.0.1")
        store = RemoteStore(f"tls://store.invalid:{port}", tls_for("tls://", keys, "client"), answer_s=6.0)
    assert store.problem == ""


def rests(store: RemoteStore) -> bool:
    """Asked anew each time: it changes with its clock."""
    return store.resting


def test_threads_that_fail_at_once_have_one_failure() -> None:
    """Else each would double the time in which it is left alone."""
    both = threading.Barrier(2)
    late = [0.0]

    def say(question: bytes) -> bytes:
        return FORMAT + b" " + HERE + b"\n" if b"hail" in question else b""

    class Waiting(RemoteStore):
        async def _talk(self, question: bytes, body: bytes) -> bytearray:
            given = await super()._talk(question, body)
            if b"find" in question:
                both.wait(PATIENCE_S)
            return given

    listener = Listener("tcp://127.0.0.1:0", say)
    with listener.listening():
        store = Waiting(listener.address, None, answer_s=PATIENCE_S, clock=lambda: late[0])
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            asked = [threads.submit(store.find, result(1).key) for _ in range(2)]
        assert [each.result() for each in asked] == [None, None]
        assert store.unanswered == 2
        assert rests(store)
        late[0] = REST_S
        assert not rests(store)
        store.put(result(1))
        # The second failure: twice as long.
        late[0] += 2 * REST_S - 1
        assert rests(store)
        late[0] += 1
        assert not rests(store)


def test_what_is_no_result_makes_its_rest_longer() -> None:
    """Each time: an answer that cannot be used is none."""
    late = [0.0]
    listener = Listener(
        "tcp://127.0.0.1:0",
        lambda question: FORMAT + (b" " + HERE + b"\n" if b"hail" in question else b" found\nnothing"),
    )
    with listener.listening():
        store = RemoteStore(listener.address, None, answer_s=PATIENCE_S, clock=lambda: late[0])
        for rest_s in (REST_S, 2 * REST_S, 4 * REST_S):
            assert store.find(result(1).key) is None
            late[0] += rest_s - 1
            assert rests(store)
            late[0] += 1
            assert not rests(store)


def test_a_store_that_was_late_has_answered_all_that_it_was_asked() -> None:
    """Nobody was there at first, which was said then: nothing is left to be said at the end."""
    late = [0.0]
    with socket.create_server(("127.0.0.1", 0)) as place:
        address = f"tcp://127.0.0.1:{place.getsockname()[1]}"
    store = RemoteStore(address, None, answer_s=PATIENCE_S, clock=lambda: late[0])
    assert "refused" in store.problem
    late[0] = REST_S
    listener = Listener(address, lambda _: FORMAT + b" none\n")
    with listener.listening():
        assert store.find(result(1).key) is None
    assert (listener.asked, store.unanswered) == (1, 0)


def _altered(body: bytes) -> bytes:
    return body[:200] + bytes([body[200] ^ 1]) + body[201:]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0" * 1000,
        b"HTTP/1.1 200 OK\r\n\r\n",
        FORMAT + b" found",
        FORMAT + b" found\n",
        FORMAT + b" kept\n",
        FORMAT + b" found\n" + packed(result(1))[:-1],
        FORMAT + b" found\n" + _altered(packed(result(1))),
        FORMAT + b" found\n" + packed(result(2)),
        *(FORMAT + b" found\n" + each for each in UNREADABLE),
        b"builddoctor-store-2 found\n" + packed(result(1)),
        None,
    ],
    ids=[
        "nothing",
        "zeroes",
        "http",
        "half",
        "empty",
        "another",
        "torn",
        "altered",
        "other key",
        "no text",
        "too deep",
        "version",
        "silence",
    ],
)
def test_garbage_is_never_taken_and_not_asked_for_again(answer: bytes | None) -> None:
    def say(question: bytes) -> bytes | None:
        return FORMAT + b" " + HERE + b"\n" if b"hail" in question else answer

    listener = Listener("tcp://127.0.0.1:0", say)
    with listener.listening():
        store = RemoteStore(listener.address, None, answer_s=0.5 if answer is None else PATIENCE_S, clock=lambda: 0.0)
        assert store.problem == ""
        assert store.find(result(1).key) is None
        assert store.problem
        assert store.find(result(1).key) is None
        store.put(result(1))
        assert listener.asked == 2


def _compile(program: Program, source: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = program.supervised("g++", "-c", str(source), "-o", "host.o", options=["--no-doctor", *options])
    return subprocess.run(
        command, cwd=program.folder, env=program.env, capture_output=True, text=True, check=False, timeout=120
    )


def test_a_build_goes_on_without_its_store_and_says_so(tmp_path: Path, keys: Path) -> None:
    program, source = Program(tmp_path), tmp_path / "host.cpp"
    source.write_text("int f() { return 1; }\n")
    done = _compile(program, source, "--store", "tls://127.0.0.1:1", "--keys", str(keys))
    assert done.returncode == 0, done.stderr
    assert "no store at tls://127.0.0.1:1" in done.stderr
    assert "cluster serve --store" in done.stderr
    # Nothing is prepared for a store that is left alone.
    kinds = [each.phase.kind for each in program.records() if isinstance(each, PhaseAsked)]
    assert PhaseKind.HOST in kinds
    assert PhaseKind.PREPROCESS not in kinds
    done = _compile(program, source, "--store", "tls://no-such-host.invalid", "--keys", str(keys))
    assert done.returncode == 0, done.stderr
    assert "no store at tls://no-such-host.invalid:8787" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--store", "tls:/build-host"], 64, "no address of a store"),
        (["--store", "https://build-host"], 64, "no address of a store"),
        (["--store", "build-host:8787"], 64, "no address of a store"),
        (["--store", "[::1]:8787"], 64, "no address of a store"),
        (["--store", "tls://[::1"], 64, "no address of a store"),
        (["--store", "tls//build-host:87870x"], 64, "no address of a store"),
        (["--store", "tcp://10.0.0.1:8787"], 64, "not encrypted"),
        (["--store", "tls://127.0.0.1", "--store-size", "1GiB"], 64, "--store-size"),
        (["--store", "tls://127.0.0.1", "--keys", "/nowhere"], 67, "ca.pem and client.pem"),
    ],
)
def test_a_mistyped_store_is_said_before_the_build(tmp_path: Path, words: list[str], code: int, says: str) -> None:
    source = tmp_path / "host.cpp"
    source.write_text("int f() { return 1; }\n")
    done = _compile(Program(tmp_path), source, *words)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "hint: " in done.stderr
    assert not (tmp_path / "host.o").exists()


@pytest.mark.parametrize(
    ("listen", "store", "says"),
    [
        ("tcp://127.0.0.1:65535", "made", "no port is left for a store"),
        ("tcp://127.0.0.1:0", "tls://build-host:8787", "a folder is to be offered"),
        ("tcp://127.0.0.1:0", "[::1]:8787", "a folder is to be offered"),
    ],
)
def test_what_cannot_be_offered_is_said_before_a_folder_is_made(
    tmp_path: Path, listen: str, store: str, says: str
) -> None:
    program = Program(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = program.run("cluster", "serve", "--listen", listen, "--store", store)
    assert done.returncode == 64, done.stderr
    assert says in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    """The store's is the one after the meeting point's."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        program = Program(tmp_path)
        done = program.run(
            "cluster", "serve", "--listen", f"tcp://127.0.0.1:{port - 1}", "--store", str(tmp_path / "s")
        )
    assert done.returncode == 67, done.stderr
    assert "--listen" in done.stderr


def test_the_server_ends_when_it_is_told_to(offered: Offered) -> None:
    """Also while somebody holds a connection."""
    with socket.create_connection(host_and_port(offered.address)):
        offered.meeting.server.send_signal(signal.SIGTERM)
        assert offered.meeting.server.wait(PATIENCE_S) == 0
    assert "Traceback" not in offered.meeting.log("serve")


def test_ctrl_c_ends_a_conversation_without_a_word(tmp_path: Path) -> None:
    made = Offered(tmp_path, None)
    with contextlib.closing(made.meeting), socket.create_connection(host_and_port(made.address)) as silent:
        # Half a question: it is being listened to.
        silent.sendall(FORMAT)
        assert made.store().problem == ""
        made.meeting.server.send_signal(signal.SIGINT)
        assert made.meeting.server.wait(PATIENCE_S) == 0
    assert "Traceback" not in made.meeting.log("serve")


def test_large_results_at_once_wait_for_memory(tmp_path: Path) -> None:
    """Two that are as large as may be are on their way: what is found meanwhile is sent when one of them is gone."""
    made = Offered(tmp_path, None)
    keep = FORMAT + b" keep %s %d\n" % (result(1).key.encode(), MOST_BYTES)
    with contextlib.closing(made.meeting), contextlib.ExitStack() as left:
        made.store().put(result(2))

        def asked(words: bytes) -> socket.socket:
            connection = socket.create_connection(host_and_port(made.address), timeout=PATIENCE_S)
            connection.sendall(words)
            return left.enter_context(connection)

        large = [asked(keep) for _ in range(2)]
        waits = asked(FORMAT + b" find " + result(2).key.encode() + b"\n")
        for _ in range(5):
            assert made.store().problem == ""
        waits.setblocking(False)
        with pytest.raises(BlockingIOError):
            waits.recv(1)
        large[0].close()
        waits.settimeout(PATIENCE_S)
        assert waits.makefile("rb").read() == FORMAT + b" found\n" + packed(result(2))
