"""A store that another machine offers (``phase_store.server``): asked over TLS, and never waited for long.

One connection for each question: what the other side does to one concerns no other. A question is a line, ``FORMAT
find KEY`` or ``FORMAT keep KEY BYTES`` and the bytes; the answer a line, and the bytes if there are any. Nothing
of it is run or written but a result with the right digest and key.

A store that is gone, slow, or answers what is no answer is not asked for a while, longer each time: a build loses
what it would have found, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable

from builddoctor.cluster.addresses import host_and_port
from builddoctor.phase_store.result import Result, packed, unpacked

FORMAT = b"builddoctor-store-1"
FOUND, NONE, KEPT, NOT_KEPT, HERE = b"found", b"none", b"kept", b"not-kept", b"here"

MOST_BYTES = 256 * 2**20
"""Of one result, compressed: all of TransformerEngine's for one architecture take some 200 MiB."""

ANSWER_S = 10.0
"""A question takes so long at most, with connecting and all bytes."""

REST_S = 60.0
"""For so long it is not asked after that; then twice as long."""

_CHUNK_BYTES = 2**18


class RemoteStore:
    """One store elsewhere, for one build. Its methods wait: they are called in threads that may."""

    def __init__(
        self,
        address: str,
        tls: ssl.SSLContext | None,
        *,
        answer_s: float = ANSWER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Asks whether somebody is there. ``address``: checked; ``tls``: of ``cluster.addresses.tls_for``."""
        self._address, self._tls = address, tls
        self._answer_s, self._clock = answer_s, clock
        self._rest_s, self._rests_until_s = REST_S, 0.0
        self._hosts: list[str] = []
        """its addresses: a name is looked up once, since that takes as long as it takes"""
        self.refused = 0
        self.problem = ""
        self._ask(b"hail", HERE)

    def find(self, key: str) -> Result | None:
        """The result of that key; None where there is none, or no answer."""
        answer = self._ask(b"find " + key.encode(), FOUND, NONE)
        if answer is None or answer[0] == NONE:
            return None
        result = unpacked(answer[1], key)
        if result is None:
            self.refuse(key)
            self._leave_alone("it answers with something that is no result")
        return result

    def refuse(self, key: str) -> None:
        """It is no result of that phase; the phase runs, and puts its own in that place."""
        del key
        self.refused += 1

    def put(self, result: Result) -> None:
        """Keep it there. Raises OSError where it is refused."""
        body = packed(result)
        if len(body) > MOST_BYTES:
            raise OSError(f"a result of {len(body) / 2**20:.0f} MiB is too large for a store elsewhere")
        answer = self._ask(b"keep %s %d" % (result.key.encode(), len(body)), KEPT, NOT_KEPT, body=body)
        if answer is not None and answer[0] == NOT_KEPT:
            raise OSError(f"{self._address} could not write it: is its disk full?")

    def close(self) -> None:
        """Nothing is open."""

    def _ask(self, words: bytes, *answers: bytes, body: bytes = b"") -> tuple[bytes, bytes] | None:
        """The answer, which is one of these, and its bytes; None where there is none."""
        if self._clock() < self._rests_until_s:
            return None
        try:
            self._hosts = self._hosts or _addresses(self._address)
            given = asyncio.run(asyncio.wait_for(self._talk(FORMAT + b" " + words + b"\n" + body), self._answer_s))
        except (asyncio.TimeoutError, TimeoutError):
            self._leave_alone(f"no answer in {self._answer_s:g} s")
            return None
        except ssl.SSLError as error:
            self._leave_alone(f"other keys, or no TLS there ({error.reason or error})")
            return None
        except OSError as error:
            # asyncio's own words name the address once more.
            number = error.errno or 0
            known = os.strerror(number) if number > 0 else error.strerror
            self._leave_alone(known or str(error) or type(error).__name__)
            return None
        if not given:
            self._leave_alone("it hangs up without a word: has it other keys?")
            return None
        line, _, rest = given.partition(b"\n")
        kind, _, word = line.partition(b" ")
        if kind != FORMAT or word not in answers or len(given) > MOST_BYTES:
            self._leave_alone("it answers as no store does")
            return None
        self._rest_s = REST_S
        return word, rest

    def _leave_alone(self, why: str) -> None:
        self.problem = f"{self._address}: {why}"
        self._rests_until_s = self._clock() + self._rest_s
        self._rest_s *= 2

    async def _talk(self, question: bytes) -> bytes:
        reader, writer = await self._connect()
        try:
            writer.write(question)
            await writer.drain()
            given: list[bytes] = []
            size = 0
            while size <= MOST_BYTES and (chunk := await reader.read(_CHUNK_BYTES)):
                given.append(chunk)
                size += len(chunk)
            return b"".join(given)
        finally:
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To the first of its addresses that takes us."""
        *others, last = self._hosts
        _, port = host_and_port(self._address)
        for host in others:
            with contextlib.suppress(ConnectionRefusedError):
                return await asyncio.open_connection(host, port, ssl=self._tls)
        return await asyncio.open_connection(last, port, ssl=self._tls)


def _addresses(address: str) -> list[str]:
    host, port = host_and_port(address)
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
