"""The live board at the foot of a terminal: its picture, drawing it, keys, Ctrl-Z, another size of the terminal.

Rules for the picture: one glance answers *is it all right, how long, what holds the memory*; every wait has its reason
in words; nothing blinks; colour adds, never carries meaning alone. What does not fit is left out whole, the least
important first.
rich makes the lines; the escapes that place them are our own, since ``rich.live`` redraws all and loses its place when
the terminal becomes narrower (docs/adr/0001-dependencies.md).

Does *not* cover: where the state comes from, the terminal (``ui.terminal``), what the build prints (``ui.screen``).
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from builddoctor.core.board import BoardState, RunningRow, WaitingRow
from builddoctor.core.phase import STORE, kind_words
from builddoctor.core.units import format_clock, format_gib, format_mib, one_line
from builddoctor.ui.layout import UNICODE, Signs, keep_end, keep_start, signs_for
from builddoctor.ui.progress import left_words, progress_line, wait_words
from builddoctor.ui.terminal import Terminal

MOST_RUNNING_ROWS = 6
MOST_EVENT_ROWS = 3
MOST_WAIT_ROWS = 8
LABEL_CELLS = 10
KIND_CELLS = 11
NARROW = 80
WIDE = 120
SHORT = 20
"""Rows of a terminal below which the empty line goes, and fewer events are shown."""
LEAST_NAME_CELLS, MOST_NAME_CELLS = 28, 100
LEAST_ROWS = 5
"""Below, the board is one line."""
SILENT_S = 15.0
"""More than the time between two events of a build that compiles nothing (``runtime.sampler``)."""
SORT_STEP_MIB = 64.0
"""Rows that differ by less keep their places."""

KEYS = "d details   q closes the board, the build goes on"


HIDE_CURSOR = b"\x1b[?25l"
SHOW_CURSOR = b"\x1b[?25h"
BEGIN, END = b"\x1b[?2026h", b"\x1b[?2026l"
"""Terminals that know them show what lies between at once; others pass over them."""
CUT, WRAP = b"\x1b[?7l", b"\x1b[?7h"
"""What becomes of a line that is too long. A terminal that just became narrower, and has not told us yet (ssh, tmux),
would put a line of the board into two rows, and we would lose our place."""
_CLEAR_LINE = b"\x1b[K"
_CLEAR_BELOW = b"\x1b[J"
_RESET = b"\x1b[0m"
REFRESH_S = 0.25


def board(
    state: BoardState,
    width: int,
    height: int = 40,
    *,
    detailed: bool = False,
    keys: str | None = None,
    signs: Signs = UNICODE,
) -> list[Text]:
    """The board for a terminal of ``width`` columns and ``height`` rows: one row a line, whatever the names hold.

    It takes half of the rows, detailed all but four. ``keys``: the line that tells which keys there are.
    """
    lines = _Board(state, width, height, detailed, signs).lines(keys)
    for line in lines:
        if not signs.unicode:
            line.plain = signs.words(line.plain) if not line.plain.isascii() else line.plain
        _cut(line, max(1, width - 1), signs)
    return lines


class _Board:
    def __init__(self, state: BoardState, width: int, height: int, detailed: bool, signs: Signs) -> None:
        self.state = state
        self.width = width
        self.rows = max(1, height - 4 if detailed else height // 2)
        self.roomy = height >= SHORT
        self.detailed = detailed
        self.signs = signs
        self.narrow = width < NARROW
        self.bar = max(8, min(60, width - 62)) if not self.narrow else max(6, min(18, width - 49))

    def lines(self, keys: str | None) -> list[Text]:
        if self.rows < LEAST_ROWS:
            return [Text(progress_line(self.state))][: self.rows]
        above = [self._head(), self._units(), self._memory(), self._jobs(), *self._outlook()]
        waits, events = self._waiting(), self._events()
        below = [*waits, *events] if len(above) + len(waits) + len(events) < self.rows else waits
        if keys and self.roomy:
            below.append(Text(keys.replace("d details", "d fewer details") if self.detailed else keys, style="dim"))
        free = self.rows - len(above) - len(below)
        running = self._running(free - self.roomy if free > 2 else free) if free > 0 else []
        gap = [Text("")] if self.roomy and free > len(running) else []
        return [*above, *gap, *running, *below][: self.rows]

    def _head(self) -> Text:
        state = self.state
        left = left_words(state.left)
        clock = format_clock(state.elapsed_s)
        clock += f", {left}" if left else " elapsed"
        if left and not self.narrow:
            clock = f"{format_clock(state.elapsed_s)} elapsed, {left}"
        if state.silent_s >= SILENT_S:
            clock = f"no word for {format_clock(state.silent_s)}"
        title = one_line(state.title) if self.narrow else f"builddoctor  {one_line(state.title)}"
        text = Text(self.signs.words(title), style="bold")
        _cut(text, max(1, self.width - len(clock) - 3), self.signs, pad=True)
        return text.append(f" {clock}", style="yellow" if state.silent_s >= SILENT_S else "not bold")

    def _units(self) -> Text:
        state, signs = self.state, self.signs
        text = Text("units".ljust(LABEL_CELLS))
        if state.units_total:
            filled = round(self.bar * min(1.0, state.units_done / state.units_total))
            text.append(signs.full * filled, style="green")
            text.append(signs.empty * (self.bar - filled) + "  ")
            text.append(f"{state.units_done} of {state.units_total}")
        else:
            text.append(f"{state.units_done} done, {state.units_open} open")
        told = [] if self.narrow else [f"phases {state.phases_done}"]
        told += [f"redone {state.requeued}"] if state.requeued or not self.narrow else []
        told += [f"kernel kills {state.kernel_kills}"] if state.kernel_kills or not self.narrow else []
        return text.append("   " + signs.words(" · ").join(told))

    def _memory(self) -> Text:
        """Used memory, the budget's end and the reserve behind it, on the scale of the limit."""
        state, signs = self.state, self.signs
        text = Text("memory".ljust(LABEL_CELLS))
        scale = max(state.limit_mib, state.budget_mib, 1.0)
        cells = self.bar - 2
        used = min(cells, round(cells * state.used_mib / scale))
        budget = min(cells - 1, max(used, round(cells * state.budget_mib / scale)))
        text.append(signs.left)
        text.append(signs.full * min(used, budget), style="cyan")
        text.append(signs.free * (budget - min(used, budget)))
        text.append(signs.edge, style="yellow")
        text.append(signs.reserve * (cells - 1 - budget) + signs.right + "  ", style="dim")
        text.append(f"{format_gib(state.used_mib)} of {format_gib(state.budget_mib)} GiB budget")
        return text.append(f"   limit {format_gib(state.limit_mib)} ({one_line(state.limited_by)})", style="dim")

    def _jobs(self) -> Text:
        state = self.state
        text = f"{'jobs':<{LABEL_CELLS}}now {state.jobs}   so far {state.jobs_mean:.1f}, most {state.jobs_max}"
        if not self.narrow and state.window:
            threads = f", threads {state.threads}" if state.threads else ""
            text += f"   (window MAX_JOBS={state.window}{threads})"
        return Text(text)

    def _outlook(self) -> list[Text]:
        state = self.state
        lines = [Text(f"{'verdict':<{LABEL_CELLS}}{one_line(state.verdict)}", style="bold")] if state.verdict else []
        if state.threat:
            lines.append(Text(f"{'beware':<{LABEL_CELLS}}{one_line(state.threat)}", style="yellow"))
        return lines

    def _running(self, most: int) -> list[Text]:
        rows = sorted(self.state.running, key=lambda row: -(row.rss_mib // SORT_STEP_MIB))
        if not self.detailed:
            most = min(most, MOST_RUNNING_ROWS + (len(rows) > MOST_RUNNING_ROWS))
        shown = rows if len(rows) <= most else rows[: max(0, most - 1)]
        lines = [self._running_row(row) for row in shown]
        if rest := rows[len(shown) :]:
            held = format_mib(sum(row.rss_mib for row in rest))
            lines.append(Text(f"  {self.signs.more}{len(rest)} more, {held}", style="dim"))
        return lines

    def _running_row(self, row: RunningRow) -> Text:
        # Beyond its estimate "of" would read as if it could not be.
        of = "of ~" if row.rss_mib <= row.estimate_mib else "over "
        of = f"{format_mib(row.rss_mib):>8} {of}{format_mib(row.estimate_mib)}"
        if row.node:
            of = keep_start("from the store" if row.node == STORE else f"on {one_line(row.node)}", 20)
        if row.suspended:
            of = f"{format_mib(row.rss_mib):>8} stands still"
        tail = f"  {of:<20}{format_clock(row.running_s):>6}"
        if self.detailed and not self.narrow:
            left = f"~{format_clock(row.left_s)} left" if row.left_s else ""
            tail += f"  {left:<11}"
            if self.width >= WIDE:
                tail += f"  reserve {format_mib(row.reserve_mib):<8}  {one_line(row.evidence)[:28]:<28}"
        cells = min(MOST_NAME_CELLS, self.width - len(tail) - 1)
        return self._name(row.kind, row.source, row.arch, max(10, cells)).append(tail)

    def _name(self, kind: str, source: str, arch: str, cells: int) -> Text:
        """Kind, source and architecture in so many cells; of a long path its end, which tells it from others."""
        head = f"  {kind_words(kind):<{KIND_CELLS}}"
        end = f" {arch}" if arch else ""
        room = cells - cell_len(head) - cell_len(end)
        if room < 8:
            end, room = "", cells - cell_len(head)
        name = keep_end(self.signs.words(one_line(source)), room, self.signs.more)
        text = Text(head + name + end)
        _cut(text, cells, self.signs, pad=True)
        return text

    def _waiting(self) -> list[Text]:
        state = self.state
        label = "waits".ljust(LABEL_CELLS)
        if self.detailed and state.waits:
            most = min(MOST_WAIT_ROWS, max(1, self.rows // 3))
            shown = state.waits if len(state.waits) <= most else state.waits[: most - 1]
            lines = [self._wait_row(row, label if not index else " " * LABEL_CELLS) for index, row in enumerate(shown)]
            if rest := len(state.waits) - len(shown):
                lines.append(Text(f"{'':<{LABEL_CELLS}}{self.signs.more}{rest} more", style="dim"))
            return lines
        if state.held is None:
            return [Text(f"{label}{state.waiting} for a core", style="dim")] if state.waiting else []
        others = f"; {state.waiting - 1} more wait" if state.waiting > 1 else ""
        return [Text(f"{label}{self._wait(state.held, others)}")]

    def _wait_row(self, row: WaitingRow, label: str) -> Text:
        clock = f"{format_clock(row.waited_s):>7}"
        text = Text(label + self._wait(row, "", taken=len(clock) + 2))
        _cut(text, max(1, self.width - len(clock) - 2), self.signs, pad=True)
        return text.append(clock)

    def _wait(self, row: WaitingRow, more: str, taken: int = 1) -> str:
        """Who waits and why, in one line: the path gives way to the reason."""
        room = 0
        before = after = ""
        for brief in (False, True):
            before, after = wait_words(row, brief=brief)
            room = self.width - LABEL_CELLS - taken - cell_len(before + after + more) - len(kind_words(row.kind)) - 3
            if room >= min(len(row.source), LEAST_NAME_CELLS):
                break
        name = keep_end(self.signs.words(one_line(row.source)), max(12, room), self.signs.more)
        return f"{before}: {name} {kind_words(row.kind)}{after}{more}"

    def _events(self) -> list[Text]:
        most = MOST_EVENT_ROWS if self.roomy else 1
        return [
            Text(
                f"{format_clock(event.at_s):<{LABEL_CELLS}}{one_line(event.text)}",
                style="yellow" if event.warning else "",
            )
            for event in self.state.events[-most:]
        ]


def _cut(line: Text, cells: int, signs: Signs, *, pad: bool = False) -> None:
    line.no_wrap = True
    if cell_len(line.plain) > cells:
        line.truncate(max(0, cells - cell_len(signs.more)), overflow="crop")
        line.append(set_cell_size(signs.more, min(cell_len(signs.more), cells)))
    if pad:
        line.pad_right(max(0, cells - cell_len(line.plain)))


class Painter:
    """What is on the screen. Lines are as the terminal gets them, none as wide as the terminal."""

    def __init__(self) -> None:
        self._shown: list[bytes] = []
        self._size = (0, 0)

    def paint(self, lines: Sequence[bytes], size: tuple[int, int]) -> bytes:
        """Draw the board; empty when nothing changed. ``size``: columns and rows of the terminal."""
        anew = size != self._size
        self._size = size
        if anew:
            self._shown = []
            return self._framed(_CLEAR_BELOW, lines)
        if self._shown == list(lines):
            return b""
        return self._framed(b"", lines)

    def text(
        self, lines: Sequence[bytes], board: Sequence[bytes], size: tuple[int, int], *, style: bytes = b""
    ) -> bytes:
        """Put whole lines above the board, and draw it anew. ``style``: the colours that the text begins with."""
        columns = size[0]
        anew = size != self._size
        self._size = size
        pieces = [_CLEAR_BELOW if anew else b""]
        for line in lines:
            # What may go on in another row, or jump over cells, needs them empty; the rest just writes over.
            odd = len(line) >= columns or b"\t" in line or b"\r" in line
            pieces += [_CLEAR_BELOW if odd else _CLEAR_LINE, style, line, b"\r\n"]
            style = b""
        pieces.append(_RESET)
        self._shown = []
        return self._framed(b"".join(pieces), board)

    def erase(self) -> bytes:
        """Take the board away."""
        self._shown = []
        self._size = (0, 0)
        return _CLEAR_BELOW

    def _framed(self, before: bytes, lines: Sequence[bytes]) -> bytes:
        old, self._shown = self._shown, list(lines)
        if not lines:
            return before + _CLEAR_BELOW
        pieces = [BEGIN, before, CUT]
        at = 0
        for row, line in enumerate(lines):
            last = row == len(lines) - 1
            if row < len(old) and old[row] == line and not last:
                continue
            # Line feeds, and no jumps down: at the foot of the terminal they make room.
            pieces.append(b"\n" * (row - at) + (b"\r" if row > at else b""))
            at = row
            pieces += [line, _CLEAR_BELOW if last else _CLEAR_LINE, b"\r"]
        pieces += [f"\x1b[{at}A".encode() if at else b"", WRAP, END]
        return b"".join(pieces)


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
        """Draw what changed, while the terminal is ours."""
        if not self.visible:
            # The shell has the terminal: its contents are no longer ours to change.
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
        with self._console.capture() as captured:
            self._console.print(*picture, sep="\n", soft_wrap=True)
        return captured.get().removesuffix("\n").encode("utf-8", "replace").split(b"\n")

    def _with_unfinished(self) -> list[bytes]:
        if not self._unfinished:
            return self._lines
        width = max(1, self.terminal.size()[0] - 1)
        tail = keep_end(self._signs.words(self._unfinished), width, self._signs.more)
        return [tail.encode("utf-8", "replace"), *self._lines]
