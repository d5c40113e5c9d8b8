"""The supervisor's side of the gates' protocol: frames in, typed messages out; and the socket that takes them.

Covers: framing, bounds, the peer's uid, one handler call a connection. The frame is described in ``gate_program``.
Does *not* cover: what is answered (``supervise.session``).
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from builddoctor.intercept.gate_program import MAX_FRAME, PROTOCOL

BACKLOG = 4096


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


Message = Asked | Registered | Started | Ended


class Connection:
    """One gate. ``receive`` gives None when it is gone, or speaks another protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer_pid: int) -> None:
        self._reader = reader
        self._writer = writer
        self.peer_pid = peer_pid
        """the kernel's word for who this is"""

    async def receive(self) -> Message | None:
        try:
            length = int.from_bytes(await self._reader.readexactly(4), "little")
            if length > MAX_FRAME:
                return None
            body = await self._reader.readexactly(length)
            return parse(os.fsdecode(body).split("\0"))
        except (asyncio.IncompleteReadError, OSError, ValueError, IndexError):
            return None

    def send(self, *fields: str) -> None:
        """Answer; a gate that is gone is noticed at the next ``receive``."""
        body = b"\0".join(os.fsencode(field) for field in fields)
        self._writer.write(len(body).to_bytes(4, "little") + body)

    def close(self) -> None:
        self._writer.close()


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

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            pid, uid = _peer(writer)
            if uid == os.getuid():
                await handle(Connection(reader, writer, pid))
        finally:
            writer.close()

    server = await asyncio.start_unix_server(accept, path=path, backlog=BACKLOG, limit=MAX_FRAME)
    os.chmod(path, 0o600)
    return server


def _peer(writer: asyncio.StreamWriter) -> tuple[int, int]:
    """pid and uid of the process that connected (SO_PEERCRED)."""
    peer = writer.get_extra_info("socket")
    pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid, uid
