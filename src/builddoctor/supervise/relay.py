"""Passes on what the build prints, byte by byte as it comes, and lets somebody listen.

Covers: a pipe in the place of our own stdout or stderr where that is no terminal: one for both where both are the same
file, so that order is kept. Nothing is changed, held back or lost: a slow reader makes the build wait, as it would
without us; one that is gone (``| head``) makes the build get SIGPIPE, as it would without us. Where a file's disk is
full what does not fit is dropped, and the build goes on: to print is not what it is for.
Does *not* cover: terminals, which the build keeps (``supervise.screen``), or what is heard (``supervise.hearing``).

A thread of its own: neither a reader that does not read nor a busy event loop may hold up the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import Callable

READ_BYTES = 64 * 1024

Listener = Callable[[bytes], None]
"""Never raises."""


class Relay:
    """One pipe to one of our own descriptors: hand ``writer`` to the build, then ``start``; ``close`` at the end."""

    def __init__(self, target: int, listener: Listener) -> None:
        self._target = target
        self._listener = listener
        self._reader, self.writer = os.pipe()
        self._wakes, self._wake = os.pipe()
        os.set_blocking(self._reader, False)
        self._thread = threading.Thread(target=self._run, name=f"relay {target}", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done = asyncio.Event()

    def start(self) -> None:
        """The build has the writer now. To be called in the event loop."""
        os.close(self.writer)
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def close(self, *, hurry: asyncio.Event, patience_s: float) -> None:
        """Pass on what is left. Returns when that is done; once ``hurry`` is set, within ``patience_s`` at any rate.

        What holds the writer still, a process that got away, is not waited for.
        """
        os.write(self._wake, b"x")
        done, hurried = (asyncio.ensure_future(each.wait()) for each in (self._done, hurry))
        await asyncio.wait((done, hurried), return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            await asyncio.wait((done,), timeout=patience_s)
        done.cancel()
        hurried.cancel()
        if self._done.is_set():
            self._thread.join()
            os.close(self._wake)
            os.close(self._wakes)

    # -- in its thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._pass_all()
        finally:
            os.close(self._reader)
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._done.set)

    def _pass_all(self) -> None:
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        poll.register(self._wakes, select.POLLIN)
        # Asked for nothing, it still says when the one who reads is gone.
        poll.register(self._target, 0)
        ending = False
        while True:
            try:
                data = os.read(self._reader, READ_BYTES)
            except BlockingIOError:
                if ending:
                    return
                for fd, event in poll.poll():
                    if fd == self._wakes:
                        ending = True
                        poll.unregister(self._wakes)
                    elif fd == self._target and event & (select.POLLERR | select.POLLHUP):
                        return
                continue
            if not data or not self._write(data):
                return
            self._listener(data)

    def _write(self, data: bytes) -> bool:
        """False when nobody reads any more."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._target, view) :]
            except BlockingIOError:
                # Somebody made our stdout so: a build would have failed by it.
                select.select([], [self._target], [])
            except BrokenPipeError:
                return False
            except OSError:
                return True
        return True


def same_file(one: int, other: int) -> bool:
    """Both descriptors lead to the same file, pipe or socket."""
    first, second = os.fstat(one), os.fstat(other)
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


def is_open_and_no_terminal(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return not os.isatty(fd)
