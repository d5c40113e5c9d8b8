"""The terminal that a board is drawn on: written without ever waiting for it, its keys read, its modes put back.

Covers: one terminal, opened a second time so that other processes do not share its non-blocking mode; whether we are in
the foreground; stopping (Ctrl-Z) and going on.
Does *not* cover: what is drawn (``ui``), what keys mean (``ui.board``).

A terminal that is stopped (Ctrl-S) or slow must not stop the supervisor: what cannot be written is kept, and callers
check ``crowded`` before they add more.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import stat
import termios
from collections.abc import Callable, Iterator, Mapping

CROWDED_BYTES = 256 * 1024
DEFAULT_SIZE = (80, 24)
WRITE_BYTES = 16 * 1024


class Terminal:
    """The terminal behind ``fd``. Use inside an event loop; ``close`` puts everything back."""

    def __init__(self, fd: int, env: Mapping[str, str], *, on_room: Callable[[], None] = lambda: None) -> None:
        """``on_room``: called when what was kept has been written."""
        self._env = env
        self._own = True
        try:
            name = os.ttyname(fd)
            self.fd = os.open(name, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            # A terminal of another mount namespace: written as it is, not read.
            self.fd = os.dup(fd)
            self._own = False
        self._left = bytearray()
        self._writing = False
        self._gone = False
        self._modes: list[int | list[bytes | int]] | None = None
        self._on_key: Callable[[str], None] | None = None
        self._room: asyncio.Event = asyncio.Event()
        self._room.set()
        self._on_room = on_room

    def size(self) -> tuple[int, int]:
        """Columns and rows; the environment's where the terminal does not know."""
        try:
            columns, rows = os.get_terminal_size(self.fd)
        except OSError:
            columns = rows = 0
        told = [self._env.get(name, "") for name in ("COLUMNS", "LINES")]
        known = [int(word) if word.isascii() and word.isdigit() and len(word) < 6 else 0 for word in told]
        return columns or known[0] or DEFAULT_SIZE[0], rows or known[1] or DEFAULT_SIZE[1]

    @property
    def is_ours(self) -> bool:
        """It is our controlling terminal: Ctrl-C on it reaches us, and it has a foreground process group."""
        try:
            os.tcgetpgrp(self.fd)
        except OSError:
            return False
        return True

    @property
    def in_foreground(self) -> bool:
        """No other process group has it now."""
        try:
            return os.tcgetpgrp(self.fd) == os.getpgrp()
        except OSError:
            return True

    # -- writing -----------------------------------------------------------------------------------------

    @property
    def crowded(self) -> bool:
        """At least ``CROWDED_BYTES`` are kept that could not be written yet."""
        return len(self._left) >= CROWDED_BYTES

    @property
    def behind(self) -> bool:
        """Something is kept: a picture drawn now would be outdated when it is shown."""
        return bool(self._left)

    def write(self, data: bytes) -> None:
        """Write all of it, if necessary some of it later."""
        if self._gone or not data:
            return
        self._left += data
        if not self._writing:
            self._write_some()

    def _write_some(self) -> None:
        try:
            while self._left:
                written = os.write(self.fd, self._left[:WRITE_BYTES])
                del self._left[:written]
        except BlockingIOError:
            self._wait_for_room()
            return
        except OSError:
            # The terminal hung up.
            self._gone = True
            self._left.clear()
        self._stop_waiting()
        self._room.set()
        self._on_room()

    def _wait_for_room(self) -> None:
        self._room.clear()
        if not self._writing:
            self._writing = True
            asyncio.get_running_loop().add_writer(self.fd, self._write_some)

    def _stop_waiting(self) -> None:
        if self._writing:
            self._writing = False
            asyncio.get_running_loop().remove_writer(self.fd)

    async def written(self) -> None:
        """Wait until all has been written."""
        await self._room.wait()

    # -- keys --------------------------------------------------------------------------------------------

    @property
    def reads_keys(self) -> bool:
        return self._modes is not None

    def read_keys(self, on_key: Callable[[str], None]) -> None:
        """From now on keys come one by one, and are not shown. Only in the foreground of a terminal of ours."""
        if self._modes is not None or not self._own or not self.is_ours or not self.in_foreground:
            return
        try:
            modes = termios.tcgetattr(self.fd)
            changed = termios.tcgetattr(self.fd)
        except termios.error:
            return
        assert isinstance(changed[3], int)
        changed[3] &= ~(termios.ICANON | termios.ECHO)
        with _no_stop(), contextlib.suppress(termios.error):
            termios.tcsetattr(self.fd, termios.TCSANOW, changed)
            self._modes = modes
            self._on_key = on_key
            atexit.register(self.restore)
            asyncio.get_running_loop().add_reader(self.fd, self._read)

    def _read(self) -> None:
        if not self.in_foreground:
            self.restore()
            return
        try:
            # Another process may take the foreground just now: then reading fails, and we are not stopped.
            with _no_stop():
                data = os.read(self.fd, 256)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.restore()
            return
        if self._on_key is not None and not data.startswith(b"\x1b"):
            for char in data.decode("ascii", "ignore"):
                self._on_key(char)

    def restore(self) -> None:
        """Put the modes back, if we are still in the foreground."""
        modes, self._modes = self._modes, None
        if modes is None:
            return
        atexit.unregister(self.restore)
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(self.fd)
        if self.in_foreground:
            with _no_stop(), contextlib.suppress(termios.error):
                termios.tcsetattr(self.fd, termios.TCSANOW, modes)

    def stop_ourselves(self) -> None:
        """Stop like a program does on Ctrl-Z; returns when we are continued. Modes must have been restored before."""
        with contextlib.suppress(OSError):
            os.set_blocking(self.fd, True)
            if self._left:
                os.write(self.fd, self._left)
                self._left.clear()
            os.set_blocking(self.fd, not self._own)
        signal.raise_signal(signal.SIGSTOP)

    def close(self) -> None:
        """Put everything back; what could not be written by now is dropped."""
        self.restore()
        self._stop_waiting()
        os.close(self.fd)


def is_watched_elsewhere(fd: int) -> bool:
    """Another program reads this output, and may show it on the same terminal: `builddoctor run … | tee log`."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextlib.contextmanager
def _no_stop() -> Iterator[None]:
    """In the background, setting modes works and reading fails; without this, either would stop us."""
    blocked = {signal.SIGTTIN, signal.SIGTTOU}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
