"""Follow a build by its trace, from another terminal, until it ends.

Covers: the loop; a trace that stops short, is removed, or written by nobody any more.
Does *not* cover: the picture (``supervise.following``), the terminal (``supervise.live_board``). The build is never
touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from builddoctor.errors import TraceError
from builddoctor.model.board import BoardState
from builddoctor.render.lines import event_line, progress_line, wait_line
from builddoctor.render.signs import UNICODE, signs_for
from builddoctor.supervise.following import Following
from builddoctor.supervise.live_board import LiveBoard
from builddoctor.supervise.screen import LINE_EVERY_S, wants_board
from builddoctor.supervise.terminal import Terminal
from builddoctor.trace.tail import TraceTail
from builddoctor.units import format_clock

LOOK_EVERY_S = 0.25
GOES_ON_S = 1.5
"""Clocks on the board go on this long without a word."""
SILENT_END_S = 15.0
"""After this long without a word from anybody who holds the trace open, nobody writes it any more."""

KEYS = "d details   q quits, the build goes on"


class Watched:
    """How following ended: the build's end is in ``following.summary``; None after ``q``."""

    def __init__(self, following: Following) -> None:
        self.following = following
        self.quit = False


def watch_build(path: Path, env: Mapping[str, str], *, clock: Callable[[], float] = time.monotonic) -> Watched:
    """Show the build of this trace until it ends, or ``q``.

    Raises TraceError when it is no trace, or stops short: then the last state has been shown.
    """
    return asyncio.run(_Watch(path, env, clock).run())


class _Watch:
    def __init__(self, path: Path, env: Mapping[str, str], clock: Callable[[], float]) -> None:
        self._path = path
        self._env = env
        self._clock = clock
        self._signs = signs_for(env) if sys.stderr.isatty() else UNICODE
        self._following = Following()
        self._watched = Watched(self._following)
        self._heard_s = clock()
        self._ended = asyncio.Event()

    async def run(self) -> Watched:
        with contextlib.closing(TraceTail(self._path)) as tail:
            await self._read(tail)
            self._following.fresh.clear()
            if self._following.has_ended():
                return self._watched
            if wants_board(self._env):
                await self._on_board(tail)
            else:
                await self._in_lines(tail)
        return self._watched

    async def _read(self, tail: TraceTail) -> None:
        """All that is new."""
        for records in tail.new():
            for record in records:
                self._following.take(record)
            self._heard_s = self._clock()
            # A long trace takes a while: keys are heard meanwhile.
            await asyncio.sleep(0)

    async def _look(self, tail: TraceTail) -> bool:
        """Read on; False when the build has ended. Raises TraceError when it never will."""
        await self._read(tail)
        if self._following.has_ended():
            return False
        if tail.is_written:
            return True
        if self._silent_s() < SILENT_END_S and not tail.is_removed:
            return True
        # Its last words may have come just now.
        await self._read(tail)
        if self._following.has_ended():
            return False
        removed = "; the trace was removed" if tail.is_removed else ""
        took = format_clock(self._following.last_at_s)
        raise TraceError(
            f"the trace stops short after {took}: its builddoctor was killed, or the machine stopped{removed}",
            hint=f"`builddoctor trace show {self._path}` shows how far it came" if not removed else "",
        )

    def _silent_s(self) -> float:
        return self._clock() - self._heard_s

    def _state(self) -> BoardState:
        silent_s = self._silent_s()
        return self._following.state(later_s=min(silent_s, GOES_ON_S), silent_s=silent_s)

    async def _on_board(self, tail: TraceTail) -> None:
        terminal = Terminal(2, self._env)
        shown = LiveBoard(terminal, self._env, self._state, on_quit=self._quit, keys=KEYS)
        try:
            shown.open()
            while await self._look(tail) and not self._watched.quit:
                shown.refresh()
                try:
                    await asyncio.wait_for(self._ended.wait(), LOOK_EVERY_S)
                except asyncio.TimeoutError:
                    continue
        finally:
            shown.close()
            await terminal.written()
            terminal.close()

    def _quit(self) -> None:
        self._watched.quit = True
        self._ended.set()

    async def _in_lines(self, tail: TraceTail) -> None:
        next_line_s = self._clock()
        while await self._look(tail):
            for event in self._following.fresh:
                self._say(event_line(event))
            self._following.fresh.clear()
            if self._clock() >= next_line_s:
                next_line_s = self._clock() + LINE_EVERY_S
                state = self._state()
                self._say(progress_line(state))
                if state.held is not None:
                    self._say(wait_line(state.elapsed_s, state.held))
            await asyncio.sleep(LOOK_EVERY_S)

    def _say(self, text: str) -> None:
        print(self._signs.words(text), file=sys.stderr, flush=True)  # noqa: T201
