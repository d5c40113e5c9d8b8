"""Shows a running build: a live board on a terminal, else a line every few seconds and every event.

Covers: gathering the board's state, refreshing it, passing the build's own output on above it.
Does *not* cover: what it looks like (``render``). Everything goes to stderr; the build's stdout stays stdout.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import sys
from collections.abc import Mapping

from rich.console import Console
from rich.live import Live

from builddoctor.model.board import BoardState, EventRow, RunningRow, WaitingRow
from builddoctor.render.board import board
from builddoctor.render.lines import event_line, progress_line
from builddoctor.supervise.fronts import Fronts
from builddoctor.supervise.prepare import Prepared
from builddoctor.supervise.sampler import Sampler
from builddoctor.supervise.session import Session

BOARD_EVERY_S = 0.25
LINE_EVERY_S = 10.0


def wants_board(env: Mapping[str, str]) -> bool:
    """A live board: only on a terminal that can move its cursor, and not in CI."""
    return sys.stderr.isatty() and not env.get("CI") and env.get("TERM", "dumb") != "dumb"


def short_name(source: str, cwd: str) -> str:
    """A source as the user knows it: below the build's folder without that, elsewhere by its last three parts."""
    if source.startswith(cwd + "/"):
        return source[len(cwd) + 1 :]
    return "/".join(source.split("/")[-3:]) if source.startswith("/") else source


class Screen:
    """Plain lines on stderr; the build writes to our own stdout and stderr."""

    stdout_fd: int | None = None
    stderr_fd: int | None = None

    def __init__(self, session: Session, prepared: Prepared, fronts: Fronts, *, title: str, cwd: str) -> None:
        self._cwd = cwd
        self._session = session
        self._prepared = prepared
        self._fronts = fronts
        self._title = title
        self._sampler: Sampler | None = None
        session.on_event = self.event

    def watch(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def start(self) -> list[asyncio.Task[None]]:
        """Begin to show; the tasks are cancelled at the end."""
        return [asyncio.create_task(self._refresh())]

    async def stop(self) -> None:
        """Show what is still to be shown."""

    def event(self, event: EventRow) -> None:
        self._say(event_line(event))

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            self._say(progress_line(self.state()))

    @staticmethod
    def _say(text: str) -> None:
        # The terminal may be gone (SIGHUP); that must not stop the build from being ended in order.
        with contextlib.suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)  # noqa: T201

    def state(self) -> BoardState:
        """The picture now."""
        session, accounts = self._session, self._session.accounts
        now_s = accounts.start_s + session.at_s()
        reading = self._sampler.reading if self._sampler else self._prepared.reading
        running = tuple(
            RunningRow(
                kind=live.phase.kind.value,
                source=short_name(live.phase.source, self._cwd),
                arch=live.phase.arch,
                rss_mib=live.rss_mib,
                estimate_mib=live.estimate.peak_mib if live.estimate else 0.0,
                running_s=now_s - live.admitted_at_s,
            )
            for live in session.live.values()
            if live.admitted_at_s is not None
        )
        planned = self._fronts.planned
        return BoardState(
            title=self._title,
            elapsed_s=session.at_s(),
            units_done=accounts.units_done,
            units_open=accounts.units - accounts.units_done - len(session.holding),
            units_total=max(planned, accounts.units) if planned else None,
            phases_done=accounts.phases_done,
            requeued=accounts.requeued,
            kernel_kills=session.evidence.total(),
            used_mib=self._sampler.total_mib if self._sampler else 0.0,
            budget_mib=session.governor.budget_mib,
            limit_mib=reading.limit_mib,
            limited_by=reading.tightest.source,
            jobs=session.governor.running,
            jobs_mean=accounts.jobs_mean(now_s),
            jobs_max=accounts.jobs_max,
            window=self._prepared.knobs.window,
            threads=self._prepared.knobs.threads,
            running=running,
            waiting=session.governor.waiting,
            held=self._held(now_s),
            events=tuple(session.events),
        )

    def _held(self, now_s: float) -> WaitingRow | None:
        held = self._session.held
        live = self._session.live.get(held.phase_id) if held is not None else None
        if held is None or live is None or live.admitted_at_s is not None:
            return None
        return WaitingRow(
            kind=live.phase.kind.value,
            source=short_name(live.phase.source, self._cwd),
            needs_mib=held.needs_mib,
            free_mib=max(0.0, self._session.governor.budget_mib - self._session.governor.committed_mib),
            reason=held.reason,
            waited_s=now_s - live.asked_at_s,
        )


class BoardScreen(Screen):
    """A live board at the foot of the terminal; what the build prints goes by above it."""

    def __init__(self, session: Session, prepared: Prepared, fronts: Fronts, *, title: str, cwd: str) -> None:
        super().__init__(session, prepared, fronts, title=title, cwd=cwd)
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._reader, self.stderr_fd = os.pipe()
        os.set_blocking(self._reader, False)
        # Where stdout goes to a file or a pipe, it is left alone.
        self.stdout_fd = self.stderr_fd if sys.stdout.isatty() else None
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._unfinished = ""

    def start(self) -> list[asyncio.Task[None]]:
        if self.stderr_fd is not None:
            # The build has it now; end of file comes when the last of it has gone.
            os.close(self.stderr_fd)
        asyncio.get_running_loop().add_reader(self._reader, self._pass_on)
        self._live.start()
        return [asyncio.create_task(self._refresh())]

    async def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._reader)
        self._pass_on()
        os.close(self._reader)
        if self._unfinished:
            self._print(self._unfinished)
        self._live.stop()

    def event(self, event: EventRow) -> None:
        """Events are part of the board."""

    async def _refresh(self) -> None:
        while True:
            self._live.update(board(self.state(), self._console.width), refresh=True)
            await asyncio.sleep(BOARD_EVERY_S)

    def _pass_on(self) -> None:
        """Print whole lines of what the build wrote above the board, as they are."""
        while True:
            try:
                data = os.read(self._reader, 65536)
            except BlockingIOError:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(self._reader)
                return
            *lines, self._unfinished = (self._unfinished + self._decoder.decode(data)).split("\n")
            if lines:
                self._print("\n".join(lines))

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._console.out(text, highlight=False)
