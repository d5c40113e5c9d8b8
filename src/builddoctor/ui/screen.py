"""What a supervised build shows: a live board on a terminal, else a line every few seconds and every event.

Everything of ours goes to stderr. What the build prints goes where it would go without us:

- Where our stdout or stderr is no terminal, the build gets a pipe that a thread relays byte by byte (``Relay``).
  Nothing is changed, held back or lost. A slow reader makes the build wait, and a reader that is gone (``| head``)
  makes it get SIGPIPE, as both would without us. Where a disk is full, what does not fit is dropped, and the build goes
  on. After Ctrl-C nobody waits for a reader who does not read: a build that cannot write its last words would not end.
- Where there is a board, the build's output scrolls above it, line by line (``OutputFilter``).

Does *not* cover: the board's picture (``ui.board``), the terminal (``ui.terminal``), what the output means.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import select
import shlex
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from builddoctor.core.board import BoardState, EventRow
from builddoctor.ui.board import REFRESH_S, LiveBoard
from builddoctor.ui.layout import UNICODE, signs_for
from builddoctor.ui.progress import event_line, progress_lines
from builddoctor.ui.terminal import Terminal, is_watched_elsewhere

LINE_EVERY_S = 10.0
SELDOM_LINE_S = 300.0
"""While nothing compiles each line comes after twice the time of the one before, at most this: a server runs for
days."""
READ_BYTES = 64 * 1024
MOST_KEPT_EVENTS = 30
HURRIED_S = 3.0
"""After Ctrl-C, what comes is dropped once a reader took nothing for so long: less than the build has to end in."""

Listener = Callable[[bytes], None]
"""Takes what the build printed; never raises."""


MOST_UNFINISHED = 32 * 1024
"""A line without end is broken here."""
MOST_STYLES = 16
_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])"
    rb"|[\x00-\x06\x0b\x0c\x0e-\x1a]|\xc2[\x80-\x9f]|\x1b"
)
_PASSES = re.compile(rb"\x1b\[[0-9;:]*m|\x1b\[K|\x1b\]8;[^\x07\x1b]*(?:\x07|\x1b\\)")
_STYLE = re.compile(rb"\x1b\[([0-9;:]*)m")
_UNFINISHED_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,2048}\x1b?)?\Z")


def wants_board(env: Mapping[str, str]) -> bool:
    """A live board: on a terminal that can move its cursor, that no other program writes to, and not in CI."""
    if not sys.stderr.isatty() or env.get("CI") or env.get("TERM", "dumb") == "dumb":
        return False
    return not is_watched_elsewhere(1)


class Screen:
    """Plain lines on stderr; the build writes to our own stdout and stderr, relayed where they are no terminal.

    ``state``: the picture now. ``listener``: for ``stdout``, ``stderr``, or an empty name where both are one, what
    takes a copy of the build's output. ``trace``: the file that ``builddoctor watch`` reads.
    """

    relayed: tuple[int, ...] = (1, 2)
    every_decision = False
    """more events than a person usually wants to know of"""

    def __init__(
        self,
        state: Callable[[], BoardState],
        listener: Callable[[str], Listener],
        *,
        trace: Path,
        env: Mapping[str, str],
    ) -> None:
        self._state = state
        self._listener = listener
        self._trace = trace
        # A file or a pipe takes everything; what a terminal shows is another matter.
        self._signs = signs_for(env) if sys.stderr.isatty() else UNICODE
        self.stdout_fd: int | None = None
        self.stderr_fd: int | None = None
        self._relays: list[Relay] = []
        self._words: Relay | None = None
        """the one that our own words go by: no reader may keep the event loop waiting"""
        self._counted = (0, 0)
        self._line_gap_s, self._next_line_s = LINE_EVERY_S, 0.0
        self._relay([fd for fd in self.relayed if is_open_and_no_terminal(fd)])

    def start(self) -> list[asyncio.Task[None]]:
        """Begin to show; the tasks are cancelled at the end."""
        self._start_relays()
        return [asyncio.create_task(self._lines())]

    def hurry(self) -> None:
        """Do not wait for readers who do not read."""
        for relay in self._relays:
            relay.hurry()

    async def stop(self) -> None:
        """Show what is still to be shown."""
        await self._close_relays()

    def _relay(self, fds: list[int]) -> None:
        """One for both where both lead to the same place: what was printed first comes first."""
        if len(fds) == 2 and same_file(*fds):
            self._relays = [Relay(1, self._listener(""))]
            self.stdout_fd = self.stderr_fd = self._relays[0].writer
            self._words = self._relays[0]
            return
        for fd in fds:
            relay = Relay(fd, self._listener("stdout" if fd == 1 else "stderr"))
            self._relays.append(relay)
            if fd == 1:
                self.stdout_fd = relay.writer
            else:
                self.stderr_fd = relay.writer
                self._words = relay

    def _start_relays(self) -> None:
        for relay in self._relays:
            relay.start()

    async def _close_relays(self) -> None:
        for relay in self._relays:
            await relay.close()

    def event(self, event: EventRow) -> None:
        self._say(event_line(event))

    async def _lines(self) -> None:
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            self._say_progress()

    def _say_progress(self) -> None:
        state = self._state()
        counted = (state.units_done, state.phases_done)
        rests = not state.jobs and not state.waiting and counted == self._counted
        self._counted = counted
        if rests and state.elapsed_s < self._next_line_s:
            return
        self._line_gap_s = min(2 * self._line_gap_s, SELDOM_LINE_S) if rests else LINE_EVERY_S
        self._next_line_s = state.elapsed_s + self._line_gap_s
        for line in progress_lines(state):
            self._say(line)

    def _say(self, text: str) -> None:
        if self._words is not None and self._words.say(self._signs.words(text)):
            return
        # The terminal may be gone (SIGHUP); that must not stop the build from being ended in order.
        with contextlib.suppress(OSError, ValueError):
            print(self._signs.words(text), file=sys.stderr, flush=True)  # noqa: T201


class QuietScreen(Screen):
    """Nothing of ours: the build's output alone."""

    def start(self) -> list[asyncio.Task[None]]:
        self._start_relays()
        return []

    def event(self, event: EventRow) -> None:
        """It is in the trace."""


class VerboseScreen(Screen):
    """Plain lines, also on a terminal, and one for every decision."""

    every_decision = True


class BoardScreen(Screen):
    """A live board at the foot of the terminal; what the build prints goes by above it."""

    relayed = (1,)

    def __init__(
        self,
        state: Callable[[], BoardState],
        listener: Callable[[str], Listener],
        *,
        trace: Path,
        env: Mapping[str, str],
    ) -> None:
        super().__init__(state, listener, trace=trace, env=env)
        self._terminal = Terminal(2, env, on_room=self._read_again)
        self._board = LiveBoard(self._terminal, env, state, on_quit=self._quit)
        self._reader, self.stderr_fd = os.pipe()
        os.set_blocking(self._reader, False)
        if sys.stdout.isatty():
            self.stdout_fd = self.stderr_fd
        self._hear = self._listener("" if self.stdout_fd == self.stderr_fd else "stderr")
        self._output = OutputFilter()
        self._reading = False
        self._kept: list[EventRow] = []
        self._begun = self._ended = self._over = False

    def start(self) -> list[asyncio.Task[None]]:
        if self.stderr_fd is not None:
            # The build has it now; end of file comes when the last of it has gone.
            os.close(self.stderr_fd)
        self._begun = True
        self._start_relays()
        self._read_again()
        self._board.open()
        return [asyncio.create_task(self._refresh()), asyncio.create_task(self._lines())]

    async def stop(self) -> None:
        self._ended = True
        await self._close_relays()
        self._stop_reading()
        while self._pass_on():
            # What the build printed last is never dropped, however slow the terminal is.
            await self._terminal.written()
        os.close(self._reader)
        style = self._output.style
        self._board.text(self._output.rest(), style=style)
        self._board.close()
        self._say_kept()
        await self._terminal.written()
        self._terminal.close()
        self._over = True

    def event(self, event: EventRow) -> None:
        """On the board, and a warning for good when that has gone; where there is none at the moment, at once."""
        if self._begun and not self._board.visible:
            self._say(event_line(event))
        elif event.warning:
            self._kept.append(event)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            self._board.refresh()

    async def _lines(self) -> None:
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            if not self._board.visible:
                self._say_progress()

    def _quit(self) -> None:
        self._board.close()
        trace = shlex.quote(str(self._trace))
        self._say(f"the board is closed, the build goes on; `builddoctor watch {trace}` shows it again")
        self._say_kept()

    def _say_kept(self) -> None:
        for event in self._kept[-MOST_KEPT_EVENTS:]:
            self._say(event_line(event))
        self._kept.clear()

    # -- the build's output --------------------------------------------------------------------------------

    def _read_again(self) -> None:
        if not self._reading and not self._ended:
            self._reading = True
            asyncio.get_running_loop().add_reader(self._reader, self._pass_on)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            asyncio.get_running_loop().remove_reader(self._reader)

    def _pass_on(self) -> bool:
        """Show a piece of what the build wrote; False when there was none. The build waits for a slow terminal."""
        if self._terminal.crowded and not self._ended:
            self._stop_reading()
            return True
        try:
            data = os.read(self._reader, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._ended = True
            self._stop_reading()
            return False
        self._hear(data)
        style = self._output.style
        lines = self._output.feed(data)
        self._board.text(lines, unfinished=self._output.unfinished, style=style)
        return True

    def _say(self, text: str) -> None:
        if self._over:
            super()._say(text)
            return
        self._board.text([self._signs.words(text).encode("utf-8", "replace")], unfinished=self._output.unfinished)


class Relay:
    """One pipe to one of our own descriptors: hand ``writer`` to the build, then ``start``; ``close`` at the end."""

    def __init__(self, target: int, listener: Listener) -> None:
        self._target = target
        self._listener = listener
        self._reader, self.writer = os.pipe()
        self._wakes, self._wake = os.pipe()
        for fd in (self._reader, self._wakes, self._wake):
            os.set_blocking(fd, False)
        self._said: deque[bytes] = deque()
        self._ending = self._hurried = False
        self._stalled = False
        """nobody has read for too long; what comes is dropped until somebody does"""
        self._thread = threading.Thread(target=self._run, name=f"relay {target}", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done = asyncio.Event()

    def start(self) -> None:
        """The build has the writer now. To be called in the event loop."""
        os.close(self.writer)
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def say(self, line: str) -> bool:
        """A line of ours, between what the build prints; False where the relay does not run."""
        if not self._thread.is_alive():
            return False
        self._said.append(f"{line}\n".encode("utf-8", "backslashreplace"))
        self._rouse()
        return True

    def hurry(self) -> None:
        """From now on, drop what the reader does not take within ``HURRIED_S``."""
        self._hurried = True
        self._rouse()

    async def close(self) -> None:
        """Pass on what is left. What holds the writer still, a process that got away, is not waited for."""
        self._ending = True
        self._rouse()
        await self._done.wait()
        self._thread.join()
        os.close(self._wake)
        os.close(self._wakes)
        self._wake = -1

    def _rouse(self) -> None:
        # Full or closed: it is awake, or over.
        with contextlib.suppress(OSError):
            os.write(self._wake, b"x")

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
        # Polled for no event, it still reports when its reader is gone.
        poll.register(self._target, 0)
        is_open = True
        while True:
            ending = self._ending
            while self._said:
                if not self._write(self._said.popleft()):
                    return
            data = self._read() if is_open else None
            if data:
                if not self._write(data):
                    return
                self._listener(data)
            elif data is not None:
                is_open = False
                poll.unregister(self._reader)
            elif ending:
                return
            else:
                for fd, event in poll.poll():
                    if fd == self._wakes:
                        os.read(self._wakes, READ_BYTES)
                    elif fd == self._target and event & (select.POLLERR | select.POLLHUP):
                        return

    def _read(self) -> bytes | None:
        """None: nothing is there yet."""
        try:
            return os.read(self._reader, READ_BYTES)
        except BlockingIOError:
            return None

    def _write(self, data: bytes) -> bool:
        """False when the reader is gone."""
        view = memoryview(data)
        while view and self._has_room():
            try:
                # A pipe with any room has room for so much: the write does not block.
                view = view[os.write(self._target, view[: select.PIPE_BUF]) :]
            except BlockingIOError:
                # Somebody made our stdout so, and another writer was faster: a build would have failed by it.
                continue
            except BrokenPipeError:
                return False
            except OSError:
                return True
        return True

    def _has_room(self) -> bool:
        """Wait until the reader takes something. False: in a hurry, and he took nothing for ``HURRIED_S`` or since."""
        poll = select.poll()
        poll.register(self._target, select.POLLOUT)
        poll.register(self._wakes, select.POLLIN)
        until_s = math.inf
        while True:
            now_s = time.monotonic()
            if self._hurried:
                until_s = min(until_s, now_s + (0.0 if self._stalled else HURRIED_S))
            ready = [fd for fd, _ in poll.poll(None if until_s == math.inf else max(0.0, 1000 * (until_s - now_s)))]
            if self._wakes in ready:
                os.read(self._wakes, READ_BYTES)
            if self._target in ready:
                self._stalled = False
                return True
            if time.monotonic() >= until_s:
                self._stalled = True
                return False


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


class OutputFilter:
    """Takes bytes as they come, in pieces of any size."""

    def __init__(self) -> None:
        self._unfinished = b""
        self._styles: list[bytes] = []

    @property
    def style(self) -> bytes:
        """Colours that the next line begins with."""
        return b"".join(self._styles)

    @property
    def unfinished(self) -> str:
        """The start of a line that has no end yet, as a terminal shows it: from its last carriage return on."""
        visible = self._unfinished.rstrip(b"\r").rpartition(b"\r")[2]
        text = _ESCAPE.sub(b"", _UNFINISHED_ESCAPE.sub(b"", visible)).decode(errors="replace").expandtabs()
        return "".join(char for char in text if char.isprintable())

    def feed(self, data: bytes) -> list[bytes]:
        """Whole lines, without their ends."""
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        while len(self._unfinished) > MOST_UNFINISHED:
            # A progress bar writes over itself: all but its last state is gone anyway.
            kept = self._unfinished.rpartition(b"\r")[2] or self._unfinished
            if len(kept) > MOST_UNFINISHED:
                lines.append(kept[:MOST_UNFINISHED])
                kept = kept[MOST_UNFINISHED:]
            self._unfinished = kept
        return [self._clean(line) for line in lines]

    def rest(self) -> list[bytes]:
        """What is left when nothing more comes."""
        return self.feed(b"\n") if self._unfinished else []

    def _clean(self, line: bytes) -> bytes:
        if line.endswith(b"\r"):
            line = line.rstrip(b"\r")
        for style in _STYLE.findall(line) if b"\x1b" in line else ():
            self._note(style)
        return _ESCAPE.sub(_kept, line)

    def _note(self, style: bytes) -> None:
        if style in (b"", b"0"):
            self._styles.clear()
            return
        if style.startswith(b"0;"):
            self._styles.clear()
        self._styles = [*self._styles, b"\x1b[" + style + b"m"][-MOST_STYLES:]


def _kept(match: re.Match[bytes]) -> bytes:
    return match[0] if _PASSES.fullmatch(match[0]) else b""
