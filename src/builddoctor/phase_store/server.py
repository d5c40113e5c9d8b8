"""A folder of results, offered to other machines: who has a certificate may read and write it (``phase_store.remote``).

Covers: one question a connection, bounded in size and time, and all of them in memory; room made as soon as more is
held than may be. The folder checks each file as it does for a build; what comes in is checked before it is written.
Does *not* cover: the meeting point beside which it runs (``cluster.server``).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Callable

from builddoctor.cluster.addresses import host_and_port
from builddoctor.core.errors import ClusterError
from builddoctor.phase_store.folder import StoreFolder
from builddoctor.phase_store.remote import CHUNK_BYTES, FORMAT, FOUND, HERE, KEPT, MOST_BYTES, NONE, NOT_KEPT, send
from builddoctor.phase_store.result import unpacked

TALK_S = 60.0
"""Whoever takes longer is let go."""

MOST_AT_ONCE = 16
"""Questions that are being answered."""

MOST_IN_MEMORY = 2 * MOST_BYTES
"""Of all results together. While one is checked, what is in it is there a second time."""

_KEY = re.compile(rb"[0-9a-f]{64}")


class StoreServer:
    """One folder, for as long as it is offered."""

    def __init__(self, store: StoreFolder, said: Callable[[str], None]) -> None:
        """``said`` is told of each who was refused."""
        self._store = store
        self._said = said
        self._free = asyncio.Semaphore(MOST_AT_ONCE)
        self._memory = _Memory(MOST_IN_MEMORY)
        self._talks: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()
        self._held_mib = 0.0

    @contextlib.asynccontextmanager
    async def serving(self, address: str, tls: ssl.SSLContext | None) -> AsyncIterator[int]:
        """Gives the port. Raises ClusterError where it cannot listen."""
        host, port = host_and_port(address)
        self._held_mib = self._store.make_room()
        if tls is not None:
            tls.sslobject_class = _telling(self._said)
        try:
            server = await asyncio.start_server(self._meet, host, port, ssl=tls)
        except OSError as error:
            raise ClusterError(
                f"cannot offer the store at {address}: {error.strerror or error}",
                hint="it takes the port after that of `--listen`: name another one there",
            ) from error
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            # Its own ``wait_closed`` waits for all who are connected, also for one who says nothing.
            server.close()
            for talk in self._talks:
                talk.cancel()
            await asyncio.gather(*self._talks, return_exceptions=True)

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.ensure_future(self._converse(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Whatever they send, or do not: only their own connection is lost.
            with contextlib.suppress(
                OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError
            ):
                await asyncio.wait_for(self._answer(reader, writer), TALK_S)
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        form, word, *more = (await reader.readuntil(b"\n")).split()
        if form != FORMAT or (more and _KEY.fullmatch(more[0]) is None):
            return
        async with self._free:
            if word == b"hail" and not more:
                _say(writer, HERE)
            elif word == b"find" and len(more) == 1:
                await self._find(more[0].decode(), writer)
            elif word == b"keep" and len(more) == 2 and 0 <= (size := int(more[1])) <= MOST_BYTES:
                async with self._memory.of(size):
                    _say(writer, await self._keep(more[0].decode(), await _read(reader, size)))
            else:
                return
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    async def _find(self, key: str, writer: asyncio.StreamWriter) -> None:
        size = await asyncio.to_thread(self._store.size_bytes, key)
        if not 0 < size <= MOST_BYTES:
            _say(writer, NONE)
            return
        async with self._memory.of(size):
            body = await asyncio.to_thread(self._store.body, key)
            _say(writer, NONE if body is None else FOUND)
            await send(writer, body or b"")

    async def _keep(self, key: str, body: bytearray) -> bytes:
        try:
            if await asyncio.to_thread(unpacked, body, key) is None:
                return NOT_KEPT
            await asyncio.to_thread(self._store.put_body, key, body)
        except OSError:
            return NOT_KEPT
        async with self._lock:
            self._held_mib += len(body) / 2**20
            if self._held_mib > self._store.most_mib:
                self._held_mib = await asyncio.to_thread(self._store.make_room)
        return KEPT


def _telling(said: Callable[[str], None]) -> type[ssl.SSLObject]:
    """For what asyncio keeps to itself: the other side's certificate is not one of ours, or it speaks no TLS."""

    class Telling(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                said(f"refused: TLS handshake failed: {error.reason or error}")
                raise

    return Telling


class _Memory:
    """A number of bytes, which whoever wants some of them waits for."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def of(self, size: int) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: size <= self._left)
            self._left -= size
        try:
            yield
        finally:
            self._left += size
            async with self._changed:
                self._changed.notify_all()


def _say(writer: asyncio.StreamWriter, answer: bytes) -> None:
    writer.write(FORMAT + b" " + answer + b"\n")


async def _read(reader: asyncio.StreamReader, size: int) -> bytearray:
    """So many bytes; ``readexactly`` would hold them twice."""
    body = bytearray()
    while len(body) < size:
        chunk = await reader.read(min(CHUNK_BYTES, size - len(body)))
        if not chunk:
            raise asyncio.IncompleteReadError(b"", size)
        body += chunk
    return body
