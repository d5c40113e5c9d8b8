"""The supervisor's side of the gates' protocol: frames in, typed messages out; and the socket that takes them.

Covers: framing, bounds, the peer's uid, one handler call a connection. The frame is described in ``gate_program``.
Does *not* cover: what is answered (``runtime.session``).
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from builddoctor.gates.gate_program import MAX_FRAME, PROTOCOL

BACKLOG = 4096
BUFFER_BYTES = 65536
LENGTH_BYTES = 4
MOST_FRAMES = 8
"""Beyond so many unread frames the rest stay in the socket: a gate sends one and waits, or two at most."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A phase gate asks."""

    gate_pid: int
    parent_pid: int
    unit_id: str
    """from the nvcc gate above it; empty without one"""
    tool: str
    cwd: str
    sizes: str
    redoable: bool
    """it reads and writes files only, and can be run again"""
    argv: tuple[str, ...]


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """nvcc (``unit``) or a program that runs a build (``front``) is about to start, under this pid."""

    role: str
    pid: int
    name: str
    shown: str
    cwd: str
    gate_cpu_s: float
    gate_peak_kib: int
    argv: tuple[str, ...]


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The tool runs."""

    pid: int


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The tool ended. ``status`` is a wait status; the rest is its resource use and the gate's own."""

    status: int
    peak_kib: int
    cpu_s: float
    gate_cpu_s: float
    gate_peak_kib: int
    printed: str | None = None
    """what it said, where that was asked for"""


Message = Asked | Registered | Started | Ended


class Connection(asyncio.BufferedProtocol):
    """One gate; ``handle`` is called with it once, and it is closed afterwards. ``buffer`` may be all the others' too.

    No streams: they ask the system for 256 KiB at each reading, which costs more than all else they do for a phase.
    """

    def __init__(self, handle: Callable[[Connection], Awaitable[None]], buffer: memoryview) -> None:
        self.peer_pid = 0
        """the process that connected, as the kernel says"""
        self._handle = handle
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._unread = bytearray()
        self._frames: deque[bytes] = deque()
        self._gone = False
        self._news: asyncio.Future[None] | None = None

    # -- what asyncio calls --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        try:
            self.peer_pid, uid = _peer(transport)
            if uid != os.getuid():
                transport.abort()
                return
            self._task = asyncio.get_running_loop().create_task(self._serve())
        except BaseException:
            # It would get no answer (no memory for a task, say): when it is let go, it goes on by itself.
            transport.abort()
            raise

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._gone:
            return
        self._unread += self._buffer[:nbytes]
        while len(self._unread) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._unread[:LENGTH_BYTES], "little")
            if end > LENGTH_BYTES + MAX_FRAME:
                self._gone = True
                break
            if len(self._unread) < end:
                break
            self._frames.append(bytes(self._unread[LENGTH_BYTES:end]))
            del self._unread[:end]
        if len(self._frames) >= MOST_FRAMES and self._transport is not None:
            self._transport.pause_reading()
        if self._frames or self._gone:
            self._tell()

    def connection_lost(self, _: Exception | None) -> None:
        self._gone = True
        self._tell()

    # -- what the supervisor calls -------------------------------------------------------------------------

    async def receive(self) -> Message | None:
        """The next message; None when the gate is gone, or speaks another protocol. One caller at a time."""
        while not self._frames:
            if self._gone:
                return None
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        body = self._frames.popleft()
        if self._transport is not None and not self._gone:
            self._transport.resume_reading()
        try:
            return parse(os.fsdecode(body).split("\0"))
        except (ValueError, IndexError):
            return None

    def send(self, *fields: str) -> None:
        """Answer; a gate that is gone is noticed at the next ``receive``."""
        body = b"\0".join([os.fsencode(field) for field in fields])
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(len(body).to_bytes(LENGTH_BYTES, "little") + body)

    async def _serve(self) -> None:
        try:
            await self._handle(self)
        except Exception as error:  # noqa: BLE001 - a fault of ours: said now, not when this task is collected
            asyncio.get_running_loop().call_exception_handler({"message": "a gate is let go", "exception": error})
        finally:
            if self._transport is not None:
                self._transport.close()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def parse(fields: list[str]) -> Message | None:
    """One frame's fields; ValueError or IndexError when they are not what a gate sends."""
    kind = fields[0]
    if kind == "start":
        return Started(pid=int(fields[1]))
    if kind == "end":
        return Ended(
            status=int(fields[1]),
            peak_kib=int(fields[2]),
            cpu_s=float(fields[3]),
            gate_cpu_s=float(fields[4]),
            gate_peak_kib=int(fields[5]),
            printed=fields[6] if fields[6:] else None,
        )
    if fields[1] != PROTOCOL:
        return None
    if kind == "ask":
        return Asked(
            gate_pid=int(fields[2]),
            parent_pid=int(fields[3]),
            unit_id=fields[4],
            tool=fields[5].rsplit("/", 1)[-1],
            cwd=fields[6],
            sizes=fields[7],
            redoable=fields[8] == "1",
            argv=tuple(fields[9:]),
        )
    if kind in ("unit", "front"):
        return Registered(
            role=kind,
            pid=int(fields[2]),
            name=fields[3].rsplit("/", 1)[-1],
            shown=fields[3],
            cwd=fields[4],
            gate_cpu_s=float(fields[5]),
            gate_peak_kib=int(fields[6]),
            argv=tuple(fields[7:]),
        )
    return None


async def serve(path: Path, handle: Callable[[Connection], Awaitable[None]]) -> asyncio.Server:
    """Listen on a Unix socket, for processes of this user alone."""
    # What is read into it is taken out at once: one does for all.
    buffer = memoryview(bytearray(BUFFER_BYTES))
    server = await asyncio.get_running_loop().create_unix_server(
        lambda: Connection(handle, buffer), path=str(path), backlog=BACKLOG
    )
    os.chmod(path, 0o600)
    return server


def _peer(transport: asyncio.Transport) -> tuple[int, int]:
    """pid and uid of the process that connected (SO_PEERCRED)."""
    peer = transport.get_extra_info("socket")
    pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid, uid
