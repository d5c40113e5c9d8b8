"""Questions to one trace file: what the build did, how it was run, how it ended.

Covers: a whole trace folded in one pass (``read_build``); its two ends without what lies between, for lists of long
traces (``peek``); how a trace without a summary ended (``how_it_ended``).
Does *not* cover: the fold (``trace.state``), verdicts (``diagnose``).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from builddoctor.core.errors import TraceError
from builddoctor.core.events import (
    Admit,
    BuildEnded,
    BuildEvent,
    BuildResult,
    CompilerFound,
    Header,
    MemorySampled,
    Status,
)
from builddoctor.core.units import format_clock, format_mib
from builddoctor.trace.picture import Picture
from builddoctor.trace.reader import LIST_HINT, LineDecoder, TraceReader, is_locked
from builddoctor.trace.report import TraceReport, believable
from builddoctor.trace.state import MOST_MOMENTS, POINTS, BuildState

TAIL_BYTES = 64 * 1024
STILL_WRITTEN_S = 8.0
"""A running build writes once a second."""

SHORT_SHARE = 0.08
"""of the limit left: memory was short"""

FAST_FILL_S = 5.0
"""at the last pace full within this: likewise"""


def read_state(path: Path, *, points: int = POINTS) -> tuple[BuildState, int]:
    """What a trace adds up to, and how many of its lines could not be read. Raises TraceError when it is no trace.

    Memory samples are passed over; where the trace stops short, those of the phases that ran then are read, from the
    line on that admitted the first of them.
    """
    state = BuildState(points=points)
    admitted_at_byte: dict[int, int] = {}
    reader = TraceReader(path, curves=False)
    for event in reader:
        state.apply(event)
        if isinstance(event, Admit | CompilerFound):
            admitted_at_byte[event.phase_id] = reader.bytes_read
    if state.live:
        last_at_s = state.last_at_s
        for event in TraceReader(path, start=min(admitted_at_byte[phase_id] for phase_id in state.live)):
            if type(event) is MemorySampled:
                state.apply(event)
        state.last_at_s = last_at_s
    return state, reader.skipped


def read_build(path: Path, *, points: int = POINTS) -> TraceReport:
    """What a trace says. Raises TraceError when it is no trace."""
    state, skipped = read_state(path, points=points)
    report = state.report()
    report.skipped = skipped
    return report


def fold(events: Iterable[BuildEvent], state: BuildState | None = None) -> BuildState:
    """All events in order, added up. The first must be the header, as TraceReader guarantees."""
    state = BuildState() if state is None else state
    for event in events:
        state.apply(event)
    return state


def take_picture(events: Iterable[BuildEvent], *, most_moments: int = MOST_MOMENTS) -> Picture:
    """Events in order as a picture."""
    return fold(events, BuildState(pictures=True, most_moments=most_moments)).picture()


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of it."""

    still_running: bool = False
    memory_was_short: bool = False
    why: str = ""
    evidence: list[str] = []
    look_at: list[tuple[str, str]] = []
    """where more can be learned: what, and a command"""


def how_it_ended(report: TraceReport, *, boot_id: str, idle_s: float | None) -> Ending:
    """``boot_id``: this machine's now, empty when not known. ``idle_s``: since the trace was last written to."""
    same_boot = bool(boot_id) and boot_id == report.header.boot_id
    if same_boot and idle_s is not None and idle_s < STILL_WRITTEN_S:
        return Ending(still_running=True)
    short = _short(report)
    evidence = _last_words(report)
    if same_boot:
        why = "builddoctor was killed, or the container that it ran in: the machine has not been started anew since"
        look_at = [("look at what the kernel killed", "journalctl -k -b | grep -iE 'kill|oom'")]
    elif boot_id and report.header.boot_id:
        why = "the machine was started anew since, or the trace is of another one: what ended it was sudden"
        look_at = [("look at how the machine was last doing before it was started anew", "journalctl -b -1 -n 50")]
    else:
        why = "builddoctor, its container or the machine ended all at once"
        look_at = []
    if short:
        why += f". Memory was short: {short}"
    return Ending(memory_was_short=bool(short), why=why, evidence=evidence, look_at=look_at)


class Peek(msgspec.Struct, frozen=True, kw_only=True):
    """What the first and the last lines of a trace say."""

    path: str
    header: Header
    last_at_s: float
    exit_code: int | None
    """None when the trace was cut off"""
    result: BuildResult | None = None
    """None when the trace was cut off"""
    peak_mib: float | None = None
    """most memory that phases held at once; of the last lines alone when the trace was cut off"""
    limit_mib: float = 0.0
    still_written: bool = False
    """there is no summary yet, and the file was written to just now"""


def peek(path: Path) -> Peek:
    """Read the header and the last 64 KiB. Raises TraceError when it is no trace."""
    header = next(iter(TraceReader(path)))
    assert isinstance(header, Header)
    tail, idle_s = _tail(path)
    decoder = LineDecoder(header)
    last_at_s, limit_mib = 0.0, header.limit_mib
    peak_mib: float | None = None
    for event in (each for line in reversed(tail.split(b"\n")) for each in decoder.events(line) or ()):
        last_at_s = max(last_at_s, event.at_s)
        if isinstance(event, BuildEnded) and believable(event.summary):
            return Peek(
                path=str(path),
                header=header,
                last_at_s=last_at_s,
                exit_code=event.summary.exit_code,
                result=event.summary.result,
                peak_mib=event.summary.peak_mib,
                limit_mib=event.summary.limit_mib,
            )
        if isinstance(event, Status):
            peak_mib = max(peak_mib or 0.0, event.ours_mib)
    return Peek(
        path=str(path),
        header=header,
        last_at_s=last_at_s,
        exit_code=None,
        peak_mib=peak_mib,
        limit_mib=limit_mib,
        still_written=idle_s < STILL_WRITTEN_S,
    )


def idle_s(path: Path) -> float:
    """Seconds since a trace was last written to; endless when no builddoctor has it open any more, when it cannot be
    told, or lies in the future."""
    try:
        if not is_locked(path):
            return float("inf")
        idle = time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")
    return idle if idle > -1 else float("inf")


def _short(report: TraceReport) -> str:
    """How short memory was at the end, in words; empty when it was not."""
    if not report.last_points:
        return ""
    last = report.last_points[-1]
    left_mib = last.limit_mib - last.used_mib
    if last.limit_mib > 0 and left_mib < SHORT_SHARE * last.limit_mib:
        return f"{format_mib(left_mib)} of {format_mib(last.limit_mib)} left"
    before = report.last_points[max(0, len(report.last_points) - 4)]
    if last.at_s > before.at_s:
        pace = (last.used_mib - before.used_mib) / (last.at_s - before.at_s)
        if pace > 0 and left_mib / pace < FAST_FILL_S:
            return f"{format_mib(left_mib)} left, and {pace:.0f} MiB/s growing"
    return ""


def _last_words(report: TraceReport) -> list[str]:
    lines = [f"the last line that could be read is of {format_clock(report.last_at_s)}"]
    if report.last_points:
        last = report.last_points[-1]
        lines.append(
            f"at {format_clock(last.at_s)}: {format_mib(last.used_mib)} of {format_mib(last.limit_mib)} in use, "
            f"{format_mib(last.ours_mib)} of it by {last.running} running phases, {last.waiting} waiting"
        )
    return lines


def _tail(path: Path) -> tuple[bytes, float]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read(TAIL_BYTES), idle_s(path)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}", hint=LIST_HINT) from error
