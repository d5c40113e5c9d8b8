"""From records to a picture, in one pass.

Memory grows with the number of runs and not of samples: of each span of time the fullest moment is kept, and spans are
joined when there are too many (``trace.spans``).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

import msgspec

from builddoctor.trace.picture import GROUPS, Mark, Moment, Picture, Run, group_of
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
    UnitBegan,
    UnitDone,
)
from builddoctor.trace.spans import Spans
from builddoctor.units import format_mib

MOST_HOLDERS = 6
MOST_MARKS = 2000
"""of each kind: waits can be as many as phases"""


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """A moment before it is known which are kept."""

    rss_mib: list[tuple[int, float]]
    tick: tuple[float, float, float]
    """budget, limit and room as last seen"""
    running: int
    waiting: int
    threads: float


class PictureTaker:
    """Takes records in file order; ``picture`` gives what was seen."""

    def __init__(self, *, most_moments: int = 1500) -> None:
        self._spans: Spans[_State] = Spans(most_moments)
        self._header: Header | None = None
        self._end: End | None = None
        self._last_at_s = 0.0
        self._asked: dict[int, PhaseQueued] = {}
        self._waits: dict[int, str] = {}
        self._by_words: dict[str, int] = {}
        self._runs: list[Run] = []
        self._live: dict[int, int] = {}
        """running phases, and the place of each run"""
        self._rss: dict[int, float] = {}
        self._total_mib = 0.0
        self._attempts: Counter[int] = Counter()
        self._why: dict[int, str] = {}
        self._free_lanes: list[int] = []
        self._lanes = 0
        self._threads: dict[str, int] = {}
        self._uncounted: set[str] = set()
        self._finished: set[str] = set()
        self._marks: list[Mark] = []
        self._marked: Counter[str] = Counter()
        self._tick = (0.0, 0.0, 0.0)

    def take(self, record: AnyRecord) -> None:
        """The next record."""
        self._last_at_s = max(self._last_at_s, record.at_s)
        self._spans.advance(record.at_s, self._total_mib, self._state)
        if isinstance(record, PhaseCurve):
            if record.phase_id in self._live:
                self._set(record.phase_id, record.rss_mib)
                run = self._runs[self._live[record.phase_id]]
                if record.rss_mib > run.peak_mib:
                    run.peak_mib, run.peak_at_s = record.rss_mib, record.at_s
        elif isinstance(record, TickRecord):
            room_mib = min(record.limit_mib, record.headroom_mib + record.ours_mib)
            self._tick = (record.budget_mib, record.limit_mib, room_mib)
        elif isinstance(record, PhaseQueued):
            self._asked[record.phase_id] = record
            self._by_words[_words(record)] = record.phase_id
        elif isinstance(record, PhaseAdmitted):
            self._admit(record)
        elif isinstance(record, PhaseFinished):
            self._finish(record)
        else:
            self._take_rest(record)

    def _take_rest(self, record: AnyRecord) -> None:
        if isinstance(record, UnitBegan):
            if record.counted:
                self._threads[record.unit_id] = max(1, record.threads)
            else:
                self._uncounted.add(record.unit_id)
        elif isinstance(record, UnitDone):
            self._threads.pop(record.unit_id, None)
            self._finished.add(record.unit_id)
        elif isinstance(record, Requeued):
            if record.phase_id in self._asked:
                asked = self._asked[record.phase_id]
                self._asked[record.phase_id] = msgspec.structs.replace(asked, reserve_mib=record.reserve_mib)
        elif isinstance(record, Killed):
            self._why[record.phase_id] = record.reason
        elif isinstance(record, GaveUp):
            asked_words = _words(self._asked[record.phase_id]) if record.phase_id in self._asked else "a phase"
            self._mark(record.at_s, "give-up", f"gives up on {asked_words}: {record.reason}")
        elif isinstance(record, Note):
            self._note(record)
        elif isinstance(record, Header):
            self._header = record
            self._tick = (record.budget_mib, record.limit_mib, record.limit_mib)
        elif isinstance(record, End):
            self._end = record

    def picture(self) -> Picture:
        """What was seen. The first record must have been the header, as TraceReader guarantees."""
        assert self._header is not None, "a trace begins with its header"
        for place in self._live.values():
            self._runs[place].end_s = self._last_at_s
        return Picture(
            header=self._header,
            runs=tuple(self._runs),
            moments=tuple(self._moment(*seen) for seen in self._spans.kept(self._total_mib, self._state)),
            marks=tuple(self._marks),
            lanes=self._lanes,
            finished=frozenset(self._finished),
            last_at_s=self._last_at_s,
            summary=self._end,
        )

    def _set(self, phase_id: int, rss_mib: float) -> None:
        self._total_mib += rss_mib - self._rss.get(phase_id, 0.0)
        self._rss[phase_id] = rss_mib
        self._spans.offer(self._total_mib, self._state)

    def _state(self) -> _State:
        threads = self._threads.values()
        return _State(
            rss_mib=[(self._live[phase_id], size) for phase_id, size in self._rss.items()],
            tick=self._tick,
            running=len(self._live),
            waiting=max(0, len(self._asked) - len(self._live)),
            threads=sum(threads) / len(threads) if threads else 0.0,
        )

    def _moment(self, at_s: float, state: _State) -> Moment:
        held = dict.fromkeys(GROUPS, 0.0)
        for place, size in state.rss_mib:
            held[self._runs[place].group] += size
        budget, limit, room = state.tick
        return Moment(
            at_s=at_s,
            held_mib=tuple(held.values()),
            holders=tuple(heapq.nlargest(MOST_HOLDERS, state.rss_mib, key=lambda pair: pair[1])),
            budget_mib=budget,
            limit_mib=limit,
            room_mib=room,
            running=state.running,
            waiting=state.waiting,
            threads=state.threads,
        )

    def _admit(self, record: PhaseAdmitted) -> None:
        asked = self._asked.get(record.phase_id)
        if asked is None or record.phase_id in self._live:
            return
        if self._free_lanes:
            lane = heapq.heappop(self._free_lanes)
        else:
            lane, self._lanes = self._lanes, self._lanes + 1
        self._attempts[record.phase_id] += 1
        self._live[record.phase_id] = len(self._runs)
        self._runs.append(
            Run(
                phase_id=record.phase_id,
                unit_id=asked.unit_id,
                kind=asked.kind,
                tool=asked.tool,
                group=group_of(asked.tool, asked.kind),
                arch=asked.arch,
                source=asked.source,
                lane=lane,
                start_s=record.at_s,
                peak_at_s=record.at_s,
                estimate_mib=asked.estimate_mib,
                reserve_mib=record.reserve_mib,
                waited_s=record.waited_s,
                waited_for=self._waits.pop(record.phase_id, ""),
                attempt=self._attempts[record.phase_id],
                input_mib=asked.input_mib,
                counted=asked.unit_id not in self._uncounted,
            )
        )
        self._set(record.phase_id, 0.0)

    def _finish(self, record: PhaseFinished) -> None:
        place = self._live.get(record.phase_id)
        if place is None:
            self._forget(record.phase_id)
            return
        run = self._runs[place]
        if self._rss[record.phase_id] == 0.0:
            # Too short for a sample: its peak is known all the same, and belongs into the picture.
            self._set(record.phase_id, record.peak_mib)
        total_mib = self._total_mib
        self._rss.pop(record.phase_id)
        self._total_mib = sum(self._rss.values())
        del self._live[record.phase_id]
        heapq.heappush(self._free_lanes, run.lane)
        run.end_s, run.outcome, run.cpu_s = max(record.at_s, run.start_s), record.outcome, record.cpu_s
        if run.peak_mib == 0.0:
            run.peak_at_s = run.end_s
        run.peak_mib = max(run.peak_mib, record.peak_mib)
        if record.outcome.startswith("killed"):
            self._mark_kill(record, run, total_mib)
        else:
            self._forget(record.phase_id)

    def _forget(self, phase_id: int) -> None:
        asked = self._asked.pop(phase_id, None)
        if asked is not None and self._by_words.get(_words(asked)) == phase_id:
            del self._by_words[_words(asked)]

    def _mark_kill(self, record: PhaseFinished, run: Run, total_mib: float) -> None:
        by_us = record.outcome == "killed-by-us"
        who = {"killed-by-us": "builddoctor ended", "killed-by-kernel": "the kernel killed"}.get(
            record.outcome, "somebody killed"
        )
        why = f": {self._why[record.phase_id]}" if by_us and self._why.get(record.phase_id) else ""
        text = (
            f"{who} {run.kind}{' ' + run.arch if run.arch else ''} of {run.source} at {format_mib(run.peak_mib)}{why}"
        )
        self._mark(record.at_s, "ended" if by_us else "kill", text, total_mib)

    def _note(self, record: Note) -> None:
        if record.level != "hold":
            self._mark(record.at_s, "warning" if record.level == "warning" else "note", record.text)
            return
        words, needs, rest = record.text.removeprefix("waits: ").rpartition(" needs ")
        phase_id = self._by_words.get(words)
        if phase_id is not None:
            self._waits[phase_id] = f"{needs.strip()} {rest}"
        self._mark(record.at_s, "wait", record.text)

    def _mark(self, at_s: float, kind: str, text: str, total_mib: float | None = None) -> None:
        self._marked[kind] += 1
        if self._marked[kind] <= MOST_MARKS:
            held = self._total_mib if total_mib is None else total_mib
            self._marks.append(Mark(at_s=at_s, kind=kind, text=text, total_mib=held))


def take_picture(records: Iterable[AnyRecord], *, most_moments: int = 1500) -> Picture:
    """Read a trace once."""
    taker = PictureTaker(most_moments=most_moments)
    for record in records:
        taker.take(record)
    return taker.picture()


def _words(asked: PhaseQueued) -> str:
    """A phase as notes name it."""
    arch = f" {asked.arch}" if asked.arch else ""
    return f"{asked.kind}{arch} of {asked.source}" if asked.source else f"{asked.kind}{arch}"
