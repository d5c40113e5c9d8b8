"""A folder of results, offered to other machines: who has a certificate may read and write it (``phase_store.remote``).

Covers: one question a connection, bounded in size and time; room made as soon as more is held than may be. The folder
checks each file as it does for a build; what comes in is checked before it is written.
Does *not* cover: the meeting point beside which it runs (``cluster.server``).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator

from builddoctor.cluster.addresses import host_and_port
from builddoctor.core.errors import ClusterError
from builddoctor.phase_store.folder import StoreFolder
from builddoctor.phase_store.remote import FORMAT, FOUND, HERE, KEPT, MOST_BYTES, NONE, NOT_KEPT
from builddoctor.phase_store.result import unpacked

TALK_S = 60.0
"""Whoever takes longer is let go."""

MOST_AT_ONCE = 16
"""Results in memory."""

_KEY = re.compile(rb"[0-9a-f]{64}")


class StoreServer:
    """One folder, for as long as it is offered."""

    def __init__(self, store: StoreFolder) -> None:
        self._store = store
        self._free = asyncio.Semaphore(MOST_AT_ONCE)
        self._lock = asyncio.Lock()
        self._held_mib = 0.0

    @contextlib.asynccontextmanager
    async def serving(self, address: str, tls: ssl.SSLContext | None) -> AsyncIterator[int]:
        """Gives the port. Raises ClusterError where it cannot listen."""
        host, port = host_and_port(address)
        self._held_mib = self._store.make_room()
        try:
            server = await asyncio.start_server(self._converse, host, port, ssl=tls)
        except OSError as error:
            raise ClusterError(
                f"cannot offer the store at {address}: {error.strerror or error}",
                hint="it takes the port after that of `--listen`: name another one there",
            ) from error
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Whatever they send, or do not: only their own connection is lost.
        with contextlib.suppress(
            OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError
        ):
            await asyncio.wait_for(self._answer(reader, writer), TALK_S)
        writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        form, word, *more = (await reader.readuntil(b"\n")).split()
        if form != FORMAT or (more and _KEY.fullmatch(more[0]) is None):
            return
        async with self._free:
            if word == b"hail" and not more:
                answer, body = HERE, b""
            elif word == b"find" and len(more) == 1:
                found = await asyncio.to_thread(self._store.body, more[0].decode())
                answer, body = (NONE, b"") if found is None or len(found) > MOST_BYTES else (FOUND, found)
            elif word == b"keep" and len(more) == 2 and 0 <= (size := int(more[1])) <= MOST_BYTES:
                answer, body = await self._keep(more[0].decode(), await reader.readexactly(size)), b""
            else:
                return
            writer.write(FORMAT + b" " + answer + b"\n" + body)
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    async def _keep(self, key: str, body: bytes) -> bytes:
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
