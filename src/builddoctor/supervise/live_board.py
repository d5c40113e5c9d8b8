"""A board at the foot of a terminal: drawn, kept up to date, closed by a key, away while we are in the background.

Covers: keys, Ctrl-Z, another size of the terminal, text above the board. The same for a build of ours and for one that
is followed by its trace.
Does *not* cover: where the state comes from (``supervise.gathering``, ``trace.following``), or what the build prints.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from builddoctor.model.board import BoardState
from builddoctor.render.board import KEYS, board, fit_left
from builddoctor.render.painting import HIDE_CURSOR, SHOW_CURSOR, Painter
from builddoctor.render.signs import signs_for
from builddoctor.supervise.terminal import Terminal

REFRESH_S = 0.25


class LiveBoard:
    """``open`` it inside the event loop, ``close`` it whatever happens."""

    def __init__(
        self,
        terminal: Terminal,
        env: Mapping[str, str],
        state: Callable[[], BoardState],
        *,
        on_quit: Callable[[], None],
        keys: str = KEYS,
    ) -> None:
        self.terminal = terminal
        self.closed = True
        self._signs = signs_for(env)
        self._state = state
        self._on_quit = on_quit
        self._keys = keys
        self._detailed = False
        self._painter = Painter()
        self._lines: list[bytes] = []
        self._unfinished = ""
        self._drawn = False
        self._console = Console(file=io.StringIO(), force_terminal=True, highlight=False, legacy_windows=False)

    @property
    def visible(self) -> bool:
        """It is open, and the terminal is ours now."""
        return not self.closed and self.terminal.in_foreground

    def open(self) -> None:
        self.closed = False
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self.refresh)
        if self.terminal.is_ours:
            loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self.refresh()

    def refresh(self) -> None:
        """Draw what is new, if there is somebody to see it."""
        if not self.visible:
            # The shell has the terminal: what is on it is no longer ours to change.
            self._drawn = False
            self.terminal.restore()
            return
        self.terminal.read_keys(self._key)
        if self.terminal.behind:
            return
        self._lines = self._pictured()
        self._begin()
        self.terminal.write(self._painter.paint(self._with_unfinished(), self.terminal.size()))

    def text(self, lines: Sequence[bytes], *, unfinished: str = "", style: bytes = b"") -> None:
        """Whole lines above the board, and the beginning of one that is not finished yet."""
        self._unfinished = unfinished
        if not self.visible:
            self.terminal.write(b"".join(line + b"\n" for line in lines))
            return
        self._begin()
        size = self.terminal.size()
        shown = self._with_unfinished()
        if lines:
            self.terminal.write(self._painter.text(lines, shown, size, style=style))
        elif not self.terminal.behind:
            self.terminal.write(self._painter.paint(shown, size))

    def close(self) -> None:
        """Take it away and put the terminal's modes back; text can still be written."""
        if self.closed:
            return
        self._take_away()
        self.closed = True
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGWINCH)
        with contextlib.suppress(ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGTSTP)

    def _begin(self) -> None:
        if not self._drawn:
            self._drawn = True
            self._painter = Painter()
            self.terminal.write(HIDE_CURSOR)

    def _take_away(self) -> None:
        if self._drawn and self.terminal.in_foreground:
            self.terminal.write(self._painter.erase() + SHOW_CURSOR)
        self._drawn = False
        self.terminal.restore()

    def _stop(self) -> None:
        """Ctrl-Z: the shell gets its terminal as it was."""
        self._take_away()
        self.terminal.stop_ourselves()
        self.refresh()

    def _key(self, key: str) -> None:
        if key in ("q", "Q"):
            self._on_quit()
        elif key in ("d", "D"):
            self._detailed = not self._detailed
            self.refresh()

    def _pictured(self) -> list[bytes]:
        """The board's lines as this terminal gets them."""
        columns, rows = self.terminal.size()
        picture = board(
            self._state(),
            columns,
            rows,
            detailed=self._detailed,
            keys=self._keys if self.terminal.reads_keys else None,
            signs=self._signs,
        )
        self._console.width = max(1, columns)
        shown: list[bytes] = []
        for line in picture.renderables:
            assert isinstance(line, Text)
            with self._console.capture() as captured:
                self._console.print(line, end="", soft_wrap=True)
            shown.append(captured.get().encode("utf-8", "replace"))
        return shown

    def _with_unfinished(self) -> list[bytes]:
        if not self._unfinished:
            return self._lines
        width = max(1, self.terminal.size()[0] - 1)
        tail = fit_left(self._signs.words(self._unfinished), width, self._signs.more)
        return [tail.encode("utf-8", "replace"), *self._lines]
