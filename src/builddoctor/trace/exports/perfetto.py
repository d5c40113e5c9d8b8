"""A trace as Chrome trace events (JSON): for ui.perfetto.dev, chrome://tracing and whatever else reads them.

Covers: a slice for every run of a phase, in lanes that never overlap; flows from a unit's front end to its back ends
and its host compile; what waits; counters of memory, budget, limit, jobs, and memory of each lane; notes as instants.
Does *not* cover: the file (the caller writes the pieces). Times are whole microseconds since the build began.

JSON and not Perfetto's own protobuf: it is read by more tools, by people too, and streams as well.
Memory grows with what runs at once, not with the trace.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Iterable, Iterator

import msgspec

from builddoctor.trace.records import (
    AnyRecord,
    End,
    GaveUp,
    Header,
    Killed,
    Note,
    PhaseAdmitted,
    PhaseCurve,
    PhaseFinished,
    PhaseQueued,
    Requeued,
    TickRecord,
    UnitDone,
)
from builddoctor.units import escaped, printable

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


class _Run(msgspec.Struct):
    """A run that has not ended, and after its end what a flow begins at."""

    asked: PhaseQueued
    lane: int
    start: int
    waited_s: float
    reserve_mib: float
    attempt: int
    end: int = 0


class _Exporter:
    def __init__(self) -> None:
        self._asked: dict[int, PhaseQueued] = {}
        self._attempts: dict[int, int] = {}
        self._waits: set[int] = set()
        self._live: dict[int, _Run] = {}
        self._done: dict[str, list[_Run]] = {}
        """by unit: the last run of each kind and architecture"""
        self._killed_for: dict[int, str] = {}
        self._free: list[int] = []
        self._lane_from: list[int] = []
        """by lane: the time from which it is free"""
        self._flow_ids = itertools.count(1)
        self._counters: dict[str, Number] = {}
        self._last = 0

    def events(self, records: Iterable[AnyRecord]) -> Iterator[Event]:
        for record in records:
            self._last = max(self._last, _us(record.at_s))
            yield from self._of(record)
        # Where the trace stops short, so do the slices.
        for phase_id, run in list(self._live.items()):
            yield from self._finish(phase_id, run, self._last, {"outcome": "the trace ends here"})
        for phase_id in sorted(self._waits):
            yield self._wait("e", phase_id, self._last)

    def _of(self, record: AnyRecord) -> Iterator[Event]:
        if isinstance(record, PhaseCurve):
            if (run := self._live.get(record.phase_id)) is not None:
                yield self._lane_memory(run.lane, max(_us(record.at_s), run.start), record.rss_mib)
        elif isinstance(record, TickRecord):
            yield from self._tick(record)
        elif isinstance(record, PhaseQueued):
            if record.phase_id not in self._asked:
                self._asked[record.phase_id] = record
                yield from self._begin_wait(record.phase_id, record.at_s)
        elif isinstance(record, PhaseAdmitted):
            yield from self._admit(record)
        elif isinstance(record, PhaseFinished):
            yield from self._finished(record)
        else:
            yield from self._of_rest(record)

    def _of_rest(self, record: AnyRecord) -> Iterator[Event]:
        if isinstance(record, Header):
            yield from _names(record)
        elif isinstance(record, Requeued):
            if record.phase_id in self._asked and record.phase_id not in self._live:
                yield from self._begin_wait(record.phase_id, record.at_s)
                yield self._instant(record.at_s, f"redone: {self._words(record.phase_id)}", {"lost_s": record.lost_s})
        elif isinstance(record, Killed):
            self._killed_for[record.phase_id] = record.reason
            yield self._instant(record.at_s, f"ended: {self._words(record.phase_id)}", {"reason": _text(record.reason)})
        elif isinstance(record, GaveUp):
            args: Args = {"verdict": _text(record.verdict), "reason": _text(record.reason)}
            yield self._instant(record.at_s, f"given up: {self._words(record.phase_id)}", args)
        elif isinstance(record, UnitDone):
            self._done.pop(record.unit_id, None)
        elif isinstance(record, Note):
            if record.level != "hold":
                yield self._instant(record.at_s, _text(record.text), {"level": _text(record.level)})
        elif isinstance(record, End):
            yield self._instant(record.at_s, f"the build ends: {_text(record.summary.result)}", None)

    # -- phases ------------------------------------------------------------------------------------------

    def _begin_wait(self, phase_id: int, at_s: float) -> Iterator[Event]:
        if phase_id not in self._waits:
            self._waits.add(phase_id)
            yield self._wait("b", phase_id, _us(at_s))

    def _wait(self, letter: str, phase_id: int, at: int) -> Event:
        asked = self._asked[phase_id]
        args: Args | None = None
        if letter == "b":
            args = {"needs_mib": asked.reserve_mib, "estimate_mib": asked.estimate_mib, "source": _text(asked.source)}
        return Event(ph=letter, ts=at, pid=WAITS_PID, cat="wait", id=phase_id, name=_name(asked), args=args)

    def _admit(self, record: PhaseAdmitted) -> Iterator[Event]:
        asked = self._asked.get(record.phase_id)
        if asked is None or record.phase_id in self._live:
            return
        at = _us(record.at_s)
        if record.phase_id in self._waits:
            self._waits.remove(record.phase_id)
            yield self._wait("e", record.phase_id, at)
        if self._free:
            lane = heapq.heappop(self._free)
        else:
            lane = len(self._lane_from)
            self._lane_from.append(0)
            yield from _lane_names(lane)
        attempt = self._attempts[record.phase_id] = self._attempts.get(record.phase_id, 0) + 1
        start = max(at, self._lane_from[lane])
        self._live[record.phase_id] = _Run(asked, lane, start, record.waited_s, record.reserve_mib, attempt)

    def _finished(self, record: PhaseFinished) -> Iterator[Event]:
        run = self._live.get(record.phase_id)
        if run is not None:
            yield from self._finish(
                record.phase_id,
                run,
                _us(record.at_s),
                {
                    "outcome": _text(record.outcome),
                    "peak_mib": record.peak_mib,
                    "cpu_s": record.cpu_s,
                    "exit_code": record.exit_code,
                    "signal": record.signal,
                    "killed_by": _text(record.cause) or None,
                    "killed_for": _text(self._killed_for.pop(record.phase_id, "")) or None,
                },
            )
        if record.outcome in ("ok", "failed", "withdrawn"):
            self._attempts.pop(record.phase_id, None)
            if record.phase_id in self._waits:
                self._waits.remove(record.phase_id)
                yield self._wait("e", record.phase_id, _us(record.at_s))
            self._asked.pop(record.phase_id, None)

    def _finish(self, phase_id: int, run: _Run, end: int, told: Args) -> Iterator[Event]:
        """The slice, its flow, and the end of its memory."""
        del self._live[phase_id]
        run.end = max(end, run.start)
        asked = run.asked
        args: Args = {
            "source": _text(asked.source),
            "arch": _text(asked.arch) or None,
            "tool": _text(asked.tool),
            "unit": _text(asked.unit_id),
            "phase": phase_id,
            "attempt": run.attempt,
            "waited_s": run.waited_s,
            "estimate_mib": asked.estimate_mib,
            "estimate_source": _text(asked.estimate_source),
            "reserve_mib": run.reserve_mib,
            "input_mib": asked.input_mib,
            **told,
        }
        yield Event(
            ph="X",
            ts=run.start,
            dur=run.end - run.start,
            pid=RUNS_PID,
            tid=FIRST_TID + run.lane,
            cat=_text(asked.kind),
            name=_name(asked),
            args={name: value for name, value in args.items() if value is not None},
        )
        yield from self._flow(run)
        yield self._lane_memory(run.lane, run.end, 0.0)
        heapq.heappush(self._free, run.lane)
        self._lane_from[run.lane] = run.end

    def _flow(self, run: _Run) -> Iterator[Event]:
        """From what it was made of: both slices have been written by now."""
        if not run.asked.unit_id:
            return
        done = self._done.setdefault(run.asked.unit_id, [])
        for source in _sources(run, done):
            flow = next(self._flow_ids)
            # Inside the slice, whose end is no longer in it.
            begin = max(source.start, min(source.end - 1, run.start))
            ends = ((source, "s", begin, None), (run, "f", run.start, "e"))
            for at, letter, ts, bind in ends:
                yield Event(
                    ph=letter, ts=ts, pid=RUNS_PID, tid=FIRST_TID + at.lane, cat="unit", name="unit", id=flow, bp=bind
                )
        same = (run.asked.kind, run.asked.arch)
        self._done[run.asked.unit_id] = [*(each for each in done if (each.asked.kind, each.asked.arch) != same), run]

    # -- the rest ----------------------------------------------------------------------------------------

    def _tick(self, record: TickRecord) -> Iterator[Event]:
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

    def _lane_memory(self, lane: int, at: int, size_mib: float) -> Event:
        return Event(ph="C", ts=at, pid=RUNS_PID, name=f"memory in lane {lane + 1:02}", args={"MiB": size_mib})

    def _instant(self, at_s: float, name: str, args: Args | None) -> Event:
        return Event(ph="i", s="p", ts=_us(at_s), pid=RUNS_PID, tid=RUNS_PID, name=name, args=args)

    def _words(self, phase_id: int) -> str:
        asked = self._asked.get(phase_id)
        return _name(asked) if asked is not None else f"phase {phase_id}"


def perfetto_json(records: Iterable[AnyRecord]) -> Iterator[bytes]:
    """The whole document, in pieces. The first record must be the header, as TraceReader guarantees."""
    encode = msgspec.json.Encoder().encode
    before = b'{"displayTimeUnit":"ms","traceEvents":[\n'
    for event in _Exporter().events(records):
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


def _sources(run: _Run, done: list[_Run]) -> list[_Run]:
    """The runs that a phase follows from: of its architecture the last, else the front end; for a host compile all."""
    kind, arch = run.asked.kind, run.asked.arch
    before = [each for each in done if each.end <= run.start and (each.asked.kind, each.asked.arch) != (kind, arch)]
    if arch:
        of_arch = [each for each in before if each.asked.arch == arch]
        return of_arch[-1:] or [each for each in before if not each.asked.arch][-1:]
    ends = [each for each in before if each.asked.kind == "ptxas"] if kind == "host" else []
    return ends or before[-1:]


def _name(asked: PhaseQueued) -> str:
    arch = f" {asked.arch}" if asked.arch else ""
    return _text(f"{asked.kind}{arch} {os.path.basename(asked.source)}".rstrip())


def _us(at_s: float) -> int:
    return max(0, round(at_s * 1e6))


def _text(text: str) -> str:
    """Fit for any page: names of files may hold anything."""
    return escaped(printable(text))
