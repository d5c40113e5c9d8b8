"""Shows a running build: a live board on a terminal, else a line every few seconds and every event.

Covers: when which, passing the build's own output on above the board, what stays on the terminal afterwards.
Does *not* cover: what it looks like (``render``), the terminal (``supervise.live_board``), files and pipes that the
build prints to (``supervise.relay``), what its words mean (``supervise.hearing``).
Everything of ours goes to stderr; what the build prints goes where it would without us.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
from collections.abc import Mapping

from builddoctor.model.board import BoardState, EventRow
from builddoctor.render.lines import event_line, progress_line, wait_line
from builddoctor.render.passage import Passage
from builddoctor.render.signs import UNICODE, signs_for
from builddoctor.supervise.fronts import Fronts
from builddoctor.supervise.gathering import Gathering
from builddoctor.supervise.hearing import Hearing
from builddoctor.supervise.live_board import REFRESH_S, LiveBoard
from builddoctor.supervise.prepare import Prepared
from builddoctor.supervise.relay import Relay, is_open_and_no_terminal, same_file
from builddoctor.supervise.sampler import Sampler
from builddoctor.supervise.session import Session
from builddoctor.supervise.terminal import Terminal, is_watched_elsewhere

LINE_EVERY_S = 10.0
READ_BYTES = 64 * 1024
MOST_KEPT_EVENTS = 30
HURRIED_S = 5.0
"""After Ctrl-C a reader who does not read has this long to take what is left."""


def wants_board(env: Mapping[str, str]) -> bool:
    """A live board: on a terminal that can move its cursor, that nobody else writes to, and not in CI."""
    if not sys.stderr.isatty() or env.get("CI") or env.get("TERM", "dumb") == "dumb":
        return False
    return not is_watched_elsewhere(1)


class Screen:
    """Plain lines on stderr; the build writes to our own stdout and stderr, relayed where they are no terminal."""

    relayed: tuple[int, ...] = (1, 2)

    def __init__(
        self, session: Session, prepared: Prepared, fronts: Fronts, *, title: str, cwd: str, env: Mapping[str, str]
    ) -> None:
        self._session = session
        self._gathering = Gathering(session, prepared, fronts, title=title, cwd=cwd)
        # A file or a pipe takes everything; what a terminal shows is another matter.
        self._signs = signs_for(env) if sys.stderr.isatty() else UNICODE
        session.on_event = self.event
        self.hearing = Hearing(session.trace, session.at_s)
        self.hurry = asyncio.Event()
        """set: whoever does not read is not waited for"""
        self.stdout_fd: int | None = None
        self.stderr_fd: int | None = None
        self._relays: list[Relay] = []
        self._relay([fd for fd in self.relayed if is_open_and_no_terminal(fd)])

    def watch(self, sampler: Sampler) -> None:
        self._gathering.sampler = sampler

    def start(self) -> list[asyncio.Task[None]]:
        """Begin to show; the tasks are cancelled at the end."""
        self._start_relays()
        return [asyncio.create_task(self._lines())]

    async def stop(self) -> None:
        """Show what is still to be shown."""
        await self._close_relays()

    def _relay(self, fds: list[int]) -> None:
        """One for both where both lead to the same place: what was printed first comes first."""
        if len(fds) == 2 and same_file(*fds):
            self._relays = [Relay(1, self.hearing.listener(""))]
            self.stdout_fd = self.stderr_fd = self._relays[0].writer
            return
        for fd in fds:
            relay = Relay(fd, self.hearing.listener("stdout" if fd == 1 else "stderr"))
            self._relays.append(relay)
            if fd == 1:
                self.stdout_fd = relay.writer
            else:
                self.stderr_fd = relay.writer

    def _start_relays(self) -> None:
        for relay in self._relays:
            relay.start()

    async def _close_relays(self) -> None:
        for relay in self._relays:
            await relay.close(hurry=self.hurry, patience_s=HURRIED_S)

    def event(self, event: EventRow) -> None:
        self._say(event_line(event))

    def state(self) -> BoardState:
        """The picture now."""
        return self._gathering.state()

    async def _lines(self) -> None:
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            self._say_progress()

    def _say_progress(self) -> None:
        state = self.state()
        self._say(progress_line(state))
        if state.held is not None:
            self._say(wait_line(state.elapsed_s, state.held))

    def _say(self, text: str) -> None:
        # The terminal may be gone (SIGHUP); that must not stop the build from being ended in order.
        with contextlib.suppress(OSError, ValueError):
            print(self._signs.words(text), file=sys.stderr, flush=True)  # noqa: T201


class BoardScreen(Screen):
    """A live board at the foot of the terminal; what the build prints goes by above it."""

    relayed = (1,)

    def __init__(
        self, session: Session, prepared: Prepared, fronts: Fronts, *, title: str, cwd: str, env: Mapping[str, str]
    ) -> None:
        super().__init__(session, prepared, fronts, title=title, cwd=cwd, env=env)
        self._terminal = Terminal(2, env)
        self._terminal.on_room = self._read_again
        self._board = LiveBoard(self._terminal, env, self.state, on_quit=self._quit)
        self._reader, self.stderr_fd = os.pipe()
        os.set_blocking(self._reader, False)
        if sys.stdout.isatty():
            self.stdout_fd = self.stderr_fd
        self._hear = self.hearing.listener("" if self.stdout_fd == self.stderr_fd else "stderr")
        self._passage = Passage()
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
        style = self._passage.style
        self._board.text(self._passage.rest(), style=style)
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
        trace = shlex.quote(str(self._session.trace.path))
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
        style = self._passage.style
        lines = self._passage.feed(data)
        self._board.text(lines, unfinished=self._passage.unfinished, style=style)
        return True

    def _say(self, text: str) -> None:
        if self._over:
            super()._say(text)
            return
        self._board.text([self._signs.words(text).encode("utf-8", "replace")], unfinished=self._passage.unfinished)
