"""A trace as Chrome trace events (JSON): for ui.perfetto.dev, chrome://tracing and whatever else reads them.

Covers: a slice for every run of a phase, in lanes that never overlap; flows from a unit's front end to its back ends
and its host compile; what waits; counters of memory, budget, limit, jobs, and memory of each lane; notes as instants.
Does *not* cover: the file (the caller writes the pieces). Times are whole microseconds since the build began.

JSON and not Perfetto's own protobuf: it is read by more tools, by people too, and streams as well.
What the build was at each moment is ``trace.state``'s: kept here is only what the format needs.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from builddoctor.core.events import (
    Admit,
    BuildEnded,
    BuildEvent,
    CompilerFound,
    GiveUp,
    Header,
    Hold,
    Kill,
    MemorySampled,
    Note,
    NoteLevel,
    PhaseEnded,
    Queue,
    Requeue,
    Status,
    UnitEnded,
)
from builddoctor.core.phase import Outcome
from builddoctor.core.units import escaped, printable
from builddoctor.trace import words
from builddoctor.trace.report import PhaseRow
from builddoctor.trace.state import BuildState, Happening, RunState

RUNS_PID, WAITS_PID = 1, 2
FIRST_TID = 101
"""Lanes; 0 and the pid itself mean something to readers."""

Number = float | int | None
Args = dict[str, str | Number]


class Event(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One trace event; see the Trace Event Format of Chromium for the letters."""

    ph: str
    ts: int
    pid: int
    name: str
    tid: int | None = None
    cat: str | None = None
    dur: int | None = None
    id: int | None = None
    bp: str | None = None
    s: str | None = None
    args: Args | None = None


class _Slice:
    """A run as it is drawn: no lane has two at once, whatever clocks say."""

    __slots__ = ("end", "lane", "row", "run", "start")

    def __init__(self, run: RunState, start: int) -> None:
        self.run = run
        self.row: PhaseRow = run.phase.row
        self.lane = run.lane
        self.start = self.end = start


class _Exporter:
    def __init__(self) -> None:
        self._state = BuildState()
        self._waits: set[int] = set()
        self._live: dict[int, _Slice] = {}
        self._done: dict[str, list[_Slice]] = {}
        """by unit: the last run of each kind and architecture"""
        self._lane_from: dict[int, int] = {}
        """by lane: the time from which it is free"""
        self._flow_ids = itertools.count(1)
        self._counters: dict[str, Number] = {}
        self._rules: dict[type, Callable[[Any], Iterator[Event]]] = {
            Header: _names,
            Queue: self._queued,
            Admit: self._admitted,
            CompilerFound: self._admitted,
            MemorySampled: self._sampled,
            PhaseEnded: self._ended,
            Requeue: self._requeued,
            Kill: self._killed,
            GiveUp: self._gave_up,
            UnitEnded: self._unit_ended,
            Status: self._tick,
            BuildEnded: self._build_ended,
        }

    def events(self, events: Iterable[BuildEvent]) -> Iterator[Event]:
        for event in events:
            seen = self._state.apply(event)
            rule = self._rules.get(type(event))
            if rule is not None:
                yield from rule(event)
            elif seen is not None:
                yield from self._happened(seen)
        # Where the trace stops short, so do the slices.
        last = _us(self._state.last_at_s)
        for phase_id in list(self._live):
            yield from self._finish(phase_id, last, {"outcome": "the trace ends here"})
        for phase_id in sorted(self._waits):
            yield self._wait("e", phase_id, last)

    def _happened(self, seen: Happening) -> Iterator[Event]:
        """Notes, warnings and pauses; waits are slices of their own."""
        event = seen.event
        if isinstance(event, Hold) or (isinstance(event, Note) and event.level is NoteLevel.HOLD):
            return
        row = words.event_row(seen)
        if row is not None:
            level = event.level.value if isinstance(event, Note) else "warning" if row.warning else "info"
            yield self._instant(event.at_s, _text(row.text), {"level": level})

    # -- phases ------------------------------------------------------------------------------------------

    def _queued(self, event: Queue) -> Iterator[Event]:
        phase = self._state.open.get(event.phase_id)
        if phase is not None and phase.run is None:
            yield from self._begin_wait(event.phase_id, event.at_s)

    def _begin_wait(self, phase_id: int, at_s: float) -> Iterator[Event]:
        if phase_id not in self._waits:
            self._waits.add(phase_id)
            yield self._wait("b", phase_id, _us(at_s))

    def _wait(self, letter: str, phase_id: int, at: int) -> Event:
        row = self._state.phases[phase_id].row
        args: Args | None = None
        if letter == "b":
            args = {"needs_mib": row.reserve_mib, "estimate_mib": row.estimate_mib, "source": _text(row.source)}
        return Event(ph=letter, ts=at, pid=WAITS_PID, cat="wait", id=phase_id, name=_name(row), args=args)

    def _end_wait(self, phase_id: int, at: int) -> Iterator[Event]:
        if phase_id in self._waits:
            self._waits.remove(phase_id)
            yield self._wait("e", phase_id, at)

    def _admitted(self, event: Admit | CompilerFound) -> Iterator[Event]:
        run = self._state.live.get(event.phase_id)
        if run is None or event.phase_id in self._live:
            return
        at = _us(event.at_s)
        yield from self._end_wait(event.phase_id, at)
        if run.lane not in self._lane_from:
            yield from _lane_names(run.lane)
        self._live[event.phase_id] = _Slice(run, max(at, self._lane_from.get(run.lane, 0)))

    def _sampled(self, event: MemorySampled) -> Iterator[Event]:
        at = _us(event.at_s)
        for phase_id, rss_mib in event.rss_mib:
            drawn = self._live.get(phase_id)
            if drawn is not None:
                yield from self._lane_memory(drawn.lane, max(at, drawn.start), rss_mib)

    def _ended(self, event: PhaseEnded) -> Iterator[Event]:
        at = _us(event.at_s)
        if event.phase_id in self._live:
            attempt = self._live[event.phase_id].run.attempt
            told: Args = {
                "outcome": event.outcome.value,
                "peak_mib": event.peak_mib,
                "cpu_s": event.cpu_s,
                "exit_code": event.exit_code,
                "signal": event.signal,
                "killed_by": attempt.cause or None,
                "killed_for": _text(attempt.killed_for) or None,
            }
            yield from self._finish(event.phase_id, at, told)
        if event.outcome in (Outcome.OK, Outcome.FAILED, Outcome.WITHDRAWN):
            yield from self._end_wait(event.phase_id, at)

    def _finish(self, phase_id: int, end: int, told: Args) -> Iterator[Event]:
        """The slice, its flow, and the end of its memory."""
        drawn = self._live.pop(phase_id)
        run = drawn.run
        drawn.end = max(end, drawn.start)
        row = drawn.row
        args: Args = {
            "source": _text(row.source),
            "arch": _text(row.arch) or None,
            "tool": _text(row.tool),
            "unit": _text(row.unit_id),
            "phase": phase_id,
            "attempt": run.number,
            "waited_s": run.waited_s,
            "estimate_mib": row.estimate_mib,
            "estimate_source": _text(row.estimate_source),
            "reserve_mib": run.attempt.reserve_mib,
            "input_mib": row.input_mib,
            **told,
        }
        yield Event(
            ph="X",
            ts=drawn.start,
            dur=drawn.end - drawn.start,
            pid=RUNS_PID,
            tid=FIRST_TID + drawn.lane,
            cat=_text(row.kind),
            name=_name(row),
            args={name: value for name, value in args.items() if value is not None},
        )
        yield from self._flow(drawn)
        yield from self._lane_memory(drawn.lane, drawn.end, 0.0)
        self._lane_from[drawn.lane] = drawn.end

    def _flow(self, run: _Slice) -> Iterator[Event]:
        """From what it was made of: both slices have been written by now."""
        if not run.row.unit_id:
            return
        done = self._done.setdefault(run.row.unit_id, [])
        for source in _sources(run, done):
            flow = next(self._flow_ids)
            # Inside the slice, whose end is no longer in it.
            begin = max(source.start, min(source.end - 1, run.start))
            ends = ((source, "s", begin, None), (run, "f", run.start, "e"))
            for at, letter, ts, bind in ends:
                yield Event(
                    ph=letter, ts=ts, pid=RUNS_PID, tid=FIRST_TID + at.lane, cat="unit", name="unit", id=flow, bp=bind
                )
        same = (run.row.kind, run.row.arch)
        self._done[run.row.unit_id] = [*(each for each in done if (each.row.kind, each.row.arch) != same), run]

    def _unit_ended(self, event: UnitEnded) -> Iterator[Event]:
        self._done.pop(event.unit_id, None)
        yield from ()

    # -- decisions ---------------------------------------------------------------------------------------

    def _requeued(self, event: Requeue) -> Iterator[Event]:
        if event.phase_id in self._state.phases and event.phase_id not in self._live:
            yield from self._begin_wait(event.phase_id, event.at_s)
            yield self._instant(event.at_s, f"redone: {self._words(event.phase_id)}", {"lost_s": event.lost_s})

    def _killed(self, event: Kill) -> Iterator[Event]:
        args: Args = {"reason": _text(words.kill_reason(event))}
        yield self._instant(event.at_s, f"ended: {self._words(event.phase_id)}", args)

    def _gave_up(self, event: GiveUp) -> Iterator[Event]:
        args: Args = {"verdict": event.verdict.value, "reason": _text(words.give_up_reason(event))}
        yield self._instant(event.at_s, f"given up: {self._words(event.phase_id)}", args)

    def _build_ended(self, event: BuildEnded) -> Iterator[Event]:
        yield self._instant(event.at_s, f"the build ends: {_text(event.summary.result)}", None)

    # -- the rest ----------------------------------------------------------------------------------------

    def _tick(self, record: Status) -> Iterator[Event]:
        at = _us(record.at_s)
        for name, unit, value in (
            ("memory of the build", "MiB", record.ours_mib),
            ("budget", "MiB", record.budget_mib),
            ("limit", "MiB", record.limit_mib),
            ("headroom", "MiB", record.headroom_mib),
            ("jobs", "running", record.running),
            ("phases that wait", "waiting", record.waiting),
            ("units", "open", record.open_units),
            ("kills by the kernel", "so far", record.oom_kills),
        ):
            if value is not None and self._counters.get(name) != value:
                self._counters[name] = value
                yield Event(ph="C", ts=at, pid=RUNS_PID, name=name, args={unit: value})

    def _lane_memory(self, lane: int, at: int, size_mib: float) -> Iterator[Event]:
        yield Event(ph="C", ts=at, pid=RUNS_PID, name=f"memory in lane {lane + 1:02}", args={"MiB": size_mib})

    def _instant(self, at_s: float, name: str, args: Args | None) -> Event:
        return Event(ph="i", s="p", ts=_us(at_s), pid=RUNS_PID, tid=RUNS_PID, name=name, args=args)

    def _words(self, phase_id: int) -> str:
        phase = self._state.phases.get(phase_id)
        return _name(phase.row) if phase is not None else f"phase {phase_id}"


def perfetto_json(events: Iterable[BuildEvent]) -> Iterator[bytes]:
    """The whole document, in pieces. The first event must be the header, as TraceReader guarantees."""
    encode = msgspec.json.Encoder().encode
    before = b'{"displayTimeUnit":"ms","traceEvents":[\n'
    for event in _Exporter().events(events):
        yield before + encode(event)
        before = b",\n"
    yield b"\n]}\n"


def _names(header: Header) -> Iterator[Event]:
    told: Args = {
        "command": _text(" ".join(header.command)),
        "started_at": _text(header.started_at),
        "cores": header.cores,
        "limit_mib": header.limit_mib,
        "limited_by": _text(header.limited_by),
        "nvcc": _text(header.nvcc),
    }
    title = _text(header.title) or "build"
    for index, (pid, name) in enumerate(((RUNS_PID, title), (WAITS_PID, "waiting phases"))):
        yield Event(ph="M", ts=0, pid=pid, name="process_name", args={"name": name})
        yield Event(ph="M", ts=0, pid=pid, name="process_sort_index", args={"sort_index": index})
    yield Event(ph="i", s="p", ts=0, pid=RUNS_PID, tid=RUNS_PID, name="the build begins", args=told)


def _lane_names(lane: int) -> Iterator[Event]:
    tid = FIRST_TID + lane
    yield Event(ph="M", ts=0, pid=RUNS_PID, tid=tid, name="thread_name", args={"name": f"lane {lane + 1:02}"})
    yield Event(ph="M", ts=0, pid=RUNS_PID, tid=tid, name="thread_sort_index", args={"sort_index": lane})


def _sources(run: _Slice, done: list[_Slice]) -> list[_Slice]:
    """The runs that a phase follows from: of its architecture the last, else the front end; for a host compile all."""
    kind, arch = run.row.kind, run.row.arch
    before = [each for each in done if each.end <= run.start and (each.row.kind, each.row.arch) != (kind, arch)]
    if arch:
        of_arch = [each for each in before if each.row.arch == arch]
        return of_arch[-1:] or [each for each in before if not each.row.arch][-1:]
    ends = [each for each in before if each.row.kind == "ptxas"] if kind == "host" else []
    return ends or before[-1:]


def _name(row: PhaseRow) -> str:
    arch = f" {row.arch}" if row.arch else ""
    return _text(f"{row.kind}{arch} {os.path.basename(row.source)}".rstrip())


def _us(at_s: float) -> int:
    return max(0, round(at_s * 1e6))


def _text(text: str) -> str:
    """Fit for any page: names of files may hold anything."""
    return escaped(printable(text))
