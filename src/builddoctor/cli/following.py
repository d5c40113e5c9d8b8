"""A build that this process did not start, shown until it ends: the board on a terminal, lines elsewhere. ``watch`` and
``attach`` share it.

Does *not* cover: where its state comes from, the board itself (``ui.board``).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping

from builddoctor.core.board import BoardState, EventRow
from builddoctor.gates.own_signals import heeded_signals
from builddoctor.system.root import Clock
from builddoctor.ui.board import LiveBoard
from builddoctor.ui.layout import UNICODE, signs_for
from builddoctor.ui.progress import event_line, progress_lines
from builddoctor.ui.screen import LINE_EVERY_S, wants_board
from builddoctor.ui.terminal import Terminal

KEYS = "d details   q quits, the build goes on"


class Following:
    """``look``: False when there is nothing more to see. ``fresh``: events that were not shown yet, taken away."""

    def __init__(
        self,
        env: Mapping[str, str],
        clock: Clock,
        *,
        look: Callable[[], Awaitable[bool]],
        state: Callable[[], BoardState],
        fresh: Callable[[], list[EventRow]],
        every_s: Callable[[], float],
        board: bool = True,
    ) -> None:
        """``board``: one is wanted, where the terminal can show it."""
        self.quit = False
        """a person, or a signal, has had enough"""
        self._env = env
        self._clock = clock
        self._look = look
        self._state = state
        self._fresh = fresh
        self._every_s = every_s
        self._board = board and wants_board(env)
        self._signs = signs_for(env) if sys.stderr.isatty() else UNICODE
        self._ended = asyncio.Event()

    async def show(self) -> None:
        """Until it ends, or is quitted: by ``q``, Ctrl-C, or SIGTERM. Under `nohup` it goes on without its terminal."""
        loop = asyncio.get_running_loop()
        for number in heeded_signals():
            loop.add_signal_handler(number, self._quit)
        if self._board:
            await self._on_board()
        else:
            await self._in_lines()

    async def _on_board(self) -> None:
        terminal = Terminal(2, self._env)
        shown = LiveBoard(terminal, self._env, self._state, on_quit=self._quit, keys=KEYS)
        try:
            shown.open()
            while await self._look() and not self.quit:
                shown.refresh()
                await self._rest()
        finally:
            shown.close()
            await terminal.written()
            terminal.close()

    async def _in_lines(self) -> None:
        next_line_s = self._clock()
        while await self._look() and not self.quit:
            for event in self._fresh():
                self._say(event_line(event))
            if self._clock() >= next_line_s:
                next_line_s = self._clock() + LINE_EVERY_S
                for line in progress_lines(self._state()):
                    self._say(line)
            await self._rest()
        for event in self._fresh():
            self._say(event_line(event))

    async def _rest(self) -> None:
        try:
            await asyncio.wait_for(self._ended.wait(), self._every_s())
        except asyncio.TimeoutError:
            return

    def _quit(self) -> None:
        self.quit = True
        self._ended.set()

    def _say(self, text: str) -> None:
        print(self._signs.words(text), file=sys.stderr, flush=True)  # noqa: T201
