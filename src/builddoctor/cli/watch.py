"""``builddoctor watch [BUILD]``: follow a build from another terminal, by its trace, until it ends.

Covers: a trace that stops short, that is removed, or that no process writes any more. The build is never touched.
Does *not* cover: the state that a trace tells (``trace.state``), showing it (``cli.following``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from builddoctor.cli.following import Following
from builddoctor.cli.loudness import Verbose
from builddoctor.cli.naming import BuildArgument, find_trace
from builddoctor.cli.output import print_notes
from builddoctor.cli.trace import last_words
from builddoctor.core.board import BoardState, EventRow
from builddoctor.core.errors import TraceError
from builddoctor.core.events import BuildResult
from builddoctor.core.units import format_clock
from builddoctor.system.root import Clock, monotonic
from builddoctor.trace.board import board_state
from builddoctor.trace.reader import TraceTail
from builddoctor.trace.state import BuildState
from builddoctor.trace.words import Decisions, event_row
from builddoctor.ui.progress import closing

LOOK_EVERY_S = 0.25
GOES_ON_S = 1.5
"""Clocks on the board go on this long without a record."""
SILENT_END_S = 15.0
"""A trace that no process holds open and that did not grow for this long is not written any more."""


def watch(
    trace: BuildArgument = "last",
    verbose: Verbose = False,
) -> int:
    """Follow a running build from another terminal, with the same board, until it ends.

    The exit code is that of the build. `q` stops watching with exit code 0; the build goes on.

    \b
    Examples:
      builddoctor watch                             # the build that began last
      builddoctor watch -v                          # its decisions, as lines
    """
    path = find_trace(trace)
    watched = watch_build(path, os.environ, verbose=verbose)
    build = watched.build
    if build.summary is None or build.header is None:
        return 0
    title = build.header.title or " ".join(build.header.command)
    summary = build.summary
    last = last_words(str(path)) if summary.result is BuildResult.FAILED else []
    blamed = build.given_up.row if build.given_up is not None else None
    blame, peak_mib = (blamed.name, blamed.peak_mib) if blamed is not None else ("", 0.0)
    print_notes(closing(summary, title=title, blame=blame, peak_mib=peak_mib, last=last))
    return summary.exit_code


class Watched:
    """How following ended: the build's end is in ``build.summary``; None after ``q``."""

    def __init__(self, build: BuildState) -> None:
        self.build = build
        self.quit = False


def watch_build(path: Path, env: Mapping[str, str], *, clock: Clock = monotonic, verbose: bool = False) -> Watched:
    """Show the build of this trace until it ends, or ``q``. ``verbose``: every decision as a line, and no board.

    Raises TraceError when it is no trace, or stops short: then the last state has been shown.
    """
    return asyncio.run(_Watch(path, env, clock, verbose).run())


class _Watch:
    def __init__(self, path: Path, env: Mapping[str, str], clock: Clock, verbose: bool) -> None:
        self._path = path
        self._env = env
        self._clock = clock
        self._build = BuildState(rows=False)
        self._decisions = Decisions(self._build) if verbose else None
        self._fresh: list[EventRow] = []
        """events that have not been shown"""
        self._heard_s = clock()

    async def run(self) -> Watched:
        watched = Watched(self._build)
        with contextlib.closing(TraceTail(self._path)) as tail:
            over = await self._read(tail)
            self._fresh.clear()
            if not over:
                following = Following(
                    self._env,
                    self._clock,
                    look=lambda: self._look(tail),
                    state=self._state,
                    fresh=self._taken,
                    every_s=lambda: LOOK_EVERY_S,
                    board=self._decisions is None,
                )
                await following.show()
                watched.quit = following.quit
        return watched

    def _taken(self) -> list[EventRow]:
        fresh, self._fresh = self._fresh, []
        return fresh

    async def _read(self, tail: TraceTail) -> bool:
        """All that is new; True where the build has ended."""
        for events in tail.new():
            for event in events:
                seen = self._build.apply(event)
                row = event_row(seen) if seen is not None else None
                if row is None and self._decisions is not None:
                    row = self._decisions.row(event)
                if row is not None:
                    self._fresh.append(row)
            self._heard_s = self._clock()
            # A long trace takes a while: keys are read meanwhile.
            await asyncio.sleep(0)
        return self._build.has_ended

    async def _look(self, tail: TraceTail) -> bool:
        """Read on; False when the build has ended. Raises TraceError when it never will."""
        if await self._read(tail):
            return False
        if tail.is_written:
            return True
        if self._silent_s() < SILENT_END_S and not tail.is_removed:
            return True
        # Its last words may have come just now.
        if await self._read(tail):
            return False
        removed = "; the trace was removed" if tail.is_removed else ""
        took = format_clock(self._build.last_at_s)
        raise TraceError(
            f"the trace stops short after {took}: its builddoctor was killed, or the machine stopped{removed}",
            hint=f"`builddoctor trace show {self._path}` shows how far it came" if not removed else "",
        )

    def _silent_s(self) -> float:
        return self._clock() - self._heard_s

    def _state(self) -> BoardState:
        silent_s = self._silent_s()
        now_s = self._build.last_at_s + min(silent_s, GOES_ON_S)
        return board_state(self._build, now_s=now_s, silent_s=silent_s)
