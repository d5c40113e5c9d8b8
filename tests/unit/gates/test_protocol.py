"""The gates' protocol: frames, messages, connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from builddoctor.gates.gate_program import MAX_FRAME, PROTOCOL
from builddoctor.gates.protocol import MOST_FRAMES, Asked, Connection, Ended, Message, Registered, Started, parse, serve


def test_a_phase_asks_with_its_arguments() -> None:
    """The tool is known by its name, its arguments may be empty words."""
    assert parse(
        ["ask", PROTOCOL, "12", "11", "u3", "/cache/o/nvvm/bin/cicc", "/b", "0=7", "1", "-arch", "", "x.ii"]
    ) == Asked(
        gate_pid=12,
        parent_pid=11,
        unit_id="u3",
        tool="cicc",
        cwd="/b",
        sizes="0=7",
        redoable=True,
        argv=("-arch", "", "x.ii"),
    )


@pytest.mark.parametrize("role", ["unit", "front"])
def test_nvcc_and_those_that_run_a_build_register(role: str) -> None:
    """Both tell what their gate cost so far."""
    assert parse([role, PROTOCOL, "12", "/cache/o/bin/nvcc", "/b", "0.012000", "8192", "-c", "a.cu"]) == Registered(
        role=role,
        pid=12,
        name="nvcc",
        shown="/cache/o/bin/nvcc",
        cwd="/b",
        gate_cpu_s=0.012,
        gate_peak_kib=8192,
        argv=("-c", "a.cu"),
    )


def test_a_start_and_an_end_are_told() -> None:
    """A start names the tool's pid, an end its wait status and what it used."""
    assert parse(["start", "13"]) == Started(pid=13)
    assert parse(["end", "9", "204800", "1.500", "0.010000", "8000"]) == Ended(
        status=9, peak_kib=204800, cpu_s=1.5, gate_cpu_s=0.01, gate_peak_kib=8000
    )


@pytest.mark.parametrize(
    "fields",
    [
        ["ask", "999", "12", "11", "", "cicc", "/", ""],
        ["unit", "", "12", "nvcc", "/", "0", "0"],
        ["hello", PROTOCOL],
        ["", PROTOCOL],
    ],
)
def test_another_protocol_is_no_message(fields: list[str]) -> None:
    """A gate of another version, or a stranger, is not talked to."""
    assert parse(fields) is None


@pytest.mark.parametrize(
    "fields",
    [
        [""],
        ["ask"],
        ["ask", PROTOCOL],
        ["ask", PROTOCOL, "x", "11", "", "cicc", "/", ""],
        ["ask", PROTOCOL, "12", "11", "", "cicc", "/"],
        ["unit", PROTOCOL, "12", "nvcc", "/", "soon", "0"],
        ["front", PROTOCOL, "12", "ninja", "/", "0"],
        ["start"],
        ["start", "x"],
        ["end", "0"],
        ["end", "0", "1", "2", "3", "4.5"],
    ],
)
def test_what_no_gate_sends_is_refused(fields: list[str]) -> None:
    """Missing fields and letters for numbers are the two errors that a connection expects."""
    with pytest.raises((ValueError, IndexError)):
        parse(fields)


def frame(*fields: str) -> bytes:
    body = "\0".join(fields).encode()
    return len(body).to_bytes(4, "little") + body


def ask(*argv: str) -> bytes:
    return frame("ask", PROTOCOL, "7", "6", "u1", "/usr/bin/cicc", "/src", "0=5", "1", *argv)


async def all_of(connection: Connection) -> list[Message]:
    found = []
    while (message := await connection.receive()) is not None:
        found.append(message)
    return found


async def end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    # The other side may have hung up first.
    with suppress(ConnectionError):
        await writer.wait_closed()


Speech = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def heard(path: Path, *speeches: Speech) -> list[list[Message]]:
    """What the supervisor hears of gates that speak at the same time, in the order in which they are gone."""

    async def run() -> list[list[Message]]:
        found: list[list[Message]] = []
        all_gone = asyncio.Event()

        async def handle(connection: Connection) -> None:
            found.append(await all_of(connection))
            if len(found) == len(speeches):
                all_gone.set()

        async def say(speech: Speech) -> None:
            reader, writer = await asyncio.open_unix_connection(path)
            await speech(reader, writer)
            await end(writer)

        server = await serve(path, handle)
        await asyncio.gather(*(say(speech) for speech in speeches))
        await asyncio.wait_for(all_gone.wait(), 60)
        server.close()
        return found

    return asyncio.run(run())


def says(*pieces: bytes) -> Speech:
    async def speech(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            # The other side's turn: it reads this piece by itself.
            for _ in range(20):
                await asyncio.sleep(0)

    return speech


def test_frames_may_come_in_pieces_and_together(tmp_path: Path) -> None:
    whole = ask("a.ii") + frame("start", "8") + frame("start", "9")
    for cuts in ([], [1], [3], [4], [5], [len(whole) - 1], [2, 30, 40]):
        places = [0, *cuts, len(whole)]
        pieces = [whole[begin:end] for begin, end in pairwise(places)]
        (found,) = heard(tmp_path / f"s{cuts}", says(*pieces))
        assert [type(each) for each in found] == [Asked, Started, Started], cuts
        assert found[0].argv == ("a.ii",)
        assert [each.pid for each in found[1:]] == [8, 9]


def test_gates_that_speak_at_once_are_not_mixed_up(tmp_path: Path) -> None:
    """Their bytes go through the same buffer."""
    size = 1 << 18
    speeches = [says(ask(letter * size)[:4000], ask(letter * size)[4000:]) for letter in "abcdef"]
    found = heard(tmp_path / "s", *speeches)
    assert sorted(each.argv[0] for (each,) in found) == [letter * size for letter in "abcdef"]


def test_a_frame_beyond_all_bounds_ends_the_talk(tmp_path: Path) -> None:
    """What came before it counts; what comes after it does not."""
    (found,) = heard(tmp_path / "s", says(ask("a.ii") + ask("a" * MAX_FRAME) + frame("start", "8")))
    assert [type(each) for each in found] == [Asked]


@pytest.mark.parametrize("nonsense", [frame("what", "1"), frame("ask", "other"), frame("start", "x"), frame("ask")])
def test_what_is_no_message_ends_the_talk(tmp_path: Path, nonsense: bytes) -> None:
    (found,) = heard(tmp_path / "s", says(ask("a.ii") + nonsense + frame("start", "8")))
    assert [type(each) for each in found] == [Asked]


def test_half_a_frame_is_none(tmp_path: Path) -> None:
    (found,) = heard(tmp_path / "s", says(frame("start", "8") + ask("a.ii")[:-1]))
    assert [type(each) for each in found] == [Started]


def test_more_than_anybody_reads_is_left_in_the_socket_and_not_lost(tmp_path: Path) -> None:
    """A handler that does not listen for a while: reading stops, and goes on with it."""
    count = 20_000

    async def run() -> None:
        path = tmp_path / "s"
        listens, done = asyncio.Event(), asyncio.Event()
        found: list[Message] = []
        ours: list[Connection] = []

        async def handle(connection: Connection) -> None:
            ours.append(connection)
            await listens.wait()
            found.extend(await all_of(connection))
            done.set()

        server = await serve(path, handle)
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(b"".join(frame("start", str(number)) for number in range(count)))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert MOST_FRAMES <= len(ours[0]._frames) < count, "it stopped too early, or not at all"
        listens.set()
        await writer.drain()
        await end(writer)
        await asyncio.wait_for(done.wait(), 60)
        assert [each.pid for each in found] == list(range(count))
        server.close()

    asyncio.run(run())


def test_an_answer_reaches_the_gate_and_nobody_minds_one_that_is_gone(tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "s"
        done = asyncio.Event()

        async def handle(connection: Connection) -> None:
            await connection.receive()
            connection.send("go", "a", "")
            assert await connection.receive() is None
            connection.send("again")
            done.set()

        server = await serve(path, handle)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(ask("a.ii"))
        assert await reader.readexactly(9) == frame("go", "a", "")
        await end(writer)
        await asyncio.wait_for(done.wait(), 60)
        server.close()

    asyncio.run(run())


@pytest.mark.parametrize("fault", ["taken", "served"])
def test_a_gate_is_let_go_where_we_cannot_serve_it(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on by itself then, where silence would hold its compiler for ever; and the fault is heard of at once."""

    def refuse(*_: object) -> tuple[int, int]:
        raise MemoryError

    async def handle(connection: Connection) -> None:
        await connection.receive()
        refuse()

    async def run() -> list[object]:
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: faults.append(what["exception"]))
        server = await serve(tmp_path / "s", handle)
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(ask("a.ii"))
        # What it said may be unread: the kernel calls that a reset.
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 60) == b""
        await end(writer)
        server.close()
        return faults

    if fault == "taken":
        monkeypatch.setattr("builddoctor.gates.protocol._peer", refuse)
    assert [type(each) for each in asyncio.run(run())] == [MemoryError]
