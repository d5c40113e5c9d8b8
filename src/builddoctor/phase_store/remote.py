"""A store that another machine offers (``phase_store.server``): asked over TLS, and never waited for long.

One connection for each question: what the other side does to one concerns no other. A question is a line, ``FORMAT
find KEY`` or ``FORMAT keep KEY BYTES`` and the bytes; the answer a line, and the bytes if there are any. Nothing
of it is run or written but a result with the right digest and key.

A store that is gone, slow, or answers what is no answer is not asked for a while, longer each time: a build loses
what it would have found, and nothing else. Only the look-up of a name has no bound of ours: that is the system's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable

from builddoctor.cluster.addresses import host_and_port
from builddoctor.phase_store.result import Result, packed, unpacked

FORMAT = b"builddoctor-store-1"
FOUND, NONE, KEPT, NOT_KEPT, HERE = b"found", b"none", b"kept", b"not-kept", b"here"

MOST_BYTES = 256 * 2**20
"""Of one result, compressed: all of TransformerEngine's for one architecture take some 200 MiB."""

ANSWER_S = 10.0
"""A question takes so long at most, with connecting and all bytes; but for the look-up of a name, once in a build."""

REST_S = 60.0
"""For so long it is not asked after that; then twice as long."""

CHUNK_BYTES = 2**18
_LINE_BYTES = 2**10

HUNG_UP = "it hangs up without a word: has it other keys?"


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
        self._lock = threading.Lock()
        self._rest_s, self._rests_until_s = REST_S, 0.0
        self._hosts: list[str] = []
        """its addresses: a name is looked up once, since that takes as long as it takes"""
        self.refused = 0
        self.problem = ""
        self.unanswered = 0
        if self._ask(b"hail", HERE) is not None:
            self._answered()
        # Whether it is there is told by itself: nothing was lost by that.
        self.unanswered = 0

    @property
    def resting(self) -> bool:
        """It is left alone."""
        return self._clock() < self._rests_until_s

    def find(self, key: str) -> Result | None:
        """The result of that key; None where there is none, or no answer."""
        answer = self._ask(b"find " + key.encode(), FOUND, NONE)
        if answer is None:
            return None
        word, body = answer
        result = unpacked(body, key) if word == FOUND else None
        if word == FOUND and result is None:
            self.refuse(key)
            self._leave_alone("it answers with something that is no result")
        else:
            self._answered()
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
        if answer is None:
            return
        self._answered()
        if answer[0] == NOT_KEPT:
            raise OSError(f"{self._address} could not write it: is its disk full?")

    def close(self) -> None:
        """The build is over; each question has closed its own connection."""

    def _ask(self, words: bytes, *answers: bytes, body: bytes = b"") -> tuple[bytes, memoryview] | None:
        """The answer, which is one of these, and its bytes; None where there is none."""
        if self.resting:
            return None
        try:
            self._hosts = self._hosts or _addresses(self._address)
            given = asyncio.run(asyncio.wait_for(self._talk(FORMAT + b" " + words + b"\n", body), self._answer_s))
        except (asyncio.TimeoutError, TimeoutError):
            self._leave_alone(f"no answer in {self._answer_s:g} s")
            return None
        except ssl.SSLError as error:
            self._leave_alone(f"other keys, or no TLS there ({error.reason or error})")
            return None
        except (BrokenPipeError, ConnectionResetError):
            # What a server says of a certificate is lost where our question comes after it.
            self._leave_alone(HUNG_UP)
            return None
        except OSError as error:
            # asyncio's own words name the address once more.
            number = error.errno or 0
            known = os.strerror(number) if number > 0 else error.strerror
            self._leave_alone(known or str(error) or type(error).__name__)
            return None
        if not given:
            self._leave_alone(HUNG_UP)
            return None
        end = given.find(b"\n", 0, _LINE_BYTES)
        kind, _, word = bytes(given[: max(end, 0)]).partition(b" ")
        rest = memoryview(given)[end + 1 :]
        if kind != FORMAT or word not in answers or len(rest) > MOST_BYTES:
            self._leave_alone("it answers as no store does")
            return None
        return word, rest

    def _answered(self) -> None:
        """As a store does, to the end of what it said."""
        with self._lock:
            self._rest_s = REST_S

    def _leave_alone(self, why: str) -> None:
        with self._lock:
            self.unanswered += 1
            self.problem = f"{self._address}: {why}"
            # Threads that failed at the same time have one failure between them.
            if not self.resting:
                self._rests_until_s = self._clock() + self._rest_s
                self._rest_s *= 2

    async def _talk(self, question: bytes, body: bytes) -> bytearray:
        reader, writer = await self._connect()
        try:
            writer.write(question)
            await send(writer, body)
            given = bytearray()
            while len(given) <= MOST_BYTES + _LINE_BYTES and (chunk := await reader.read(CHUNK_BYTES)):
                given += chunk
            return given
        finally:
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To the first of its addresses that takes us; each has its share of the time."""
        *others, last = self._hosts
        _, port = host_and_port(self._address)
        for host in others:
            try:
                return await asyncio.wait_for(
                    asyncio.open_connection(host, port, ssl=self._tls), self._answer_s / len(self._hosts)
                )
            except ssl.SSLError:
                raise
            except (OSError, asyncio.TimeoutError):
                # Such as one of IPv6, to which there is no way from here.
                continue
        return await asyncio.open_connection(last, port, ssl=self._tls)


async def send(writer: asyncio.StreamWriter, body: bytes) -> None:
    """All of it, piece by piece: TLS keeps copies of what waits to be sent."""
    whole = memoryview(body)
    for start in range(0, len(whole), CHUNK_BYTES):
        writer.write(whole[start : start + CHUNK_BYTES])
        await writer.drain()


def _addresses(address: str) -> list[str]:
    """In the order in which the system prefers them. Takes as long as its name server does."""
    host, port = host_and_port(address)
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
