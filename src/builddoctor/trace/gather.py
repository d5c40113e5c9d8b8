"""Put a trace together, record by record: the state behind ``trace.analysis``.

Does *not* cover: reading files. Whatever lines are lost, what is left makes a report: a phase whose announcement was
torn is passed over, one whose end was torn has none.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from builddoctor.model.evidence import KillCause
from builddoctor.model.summary import Summary
from builddoctor.policy.kill_cause import describe
from builddoctor.trace import records
from builddoctor.trace.report import (
    Attempt,
    EventKind,
    Happened,
    PhaseRow,
    Point,
    TraceReport,
    UnitRow,
    believable,
)
from builddoctor.units import format_mib

MOST_EVENTS = 500
"""kept of each kind"""

MOST_SEEN = 64
MOST_SAID = 80
MOST_TAILS = 2

LAST_POINTS = 12
FIRST_SPAN_S = 0.5


class Gathering:
    """What has been read so far. ``take`` every record in file order, then ask for the ``report``."""

    def __init__(self, *, points: int) -> None:
        self.live: dict[int, Attempt] = {}
        """runs that have not ended"""
        self.admitted_at_byte: dict[int, int] = {}
        """a place in the file before the line that admitted each of them"""
        self._header: records.Header | None = None
        self._summary: Summary | None = None
        self._last_at_s = 0.0
        self._phases: dict[int, PhaseRow] = {}
        self._units: dict[str, UnitRow] = {}
        self._uncounted: set[str] = set()
        self._others: list[PhaseRow] = []
        self._open_threads: dict[str, int] = {}
        self._threads: Counter[int] = Counter()
        self._running: Counter[str] = Counter()
        self._most: Counter[str] = Counter()
        self._events: list[Happened] = []
        self._seen: Counter[str] = Counter()
        self._given_up: deque[records.GaveUp] = deque(maxlen=MOST_SEEN)
        self._looks: deque[records.Seen] = deque(maxlen=MOST_SEEN)
        self._said: list[records.Said] = []
        self._tails: deque[records.Tail] = deque(maxlen=MOST_TAILS)
        self._line = _Timeline(points)
        self._names: dict[str, str] = {}
        self._commands: dict[str, records.UnitCommand] = {}
        self._kept: dict[int, records.Kept] = {}
        self._byte = 0
        self._takers: dict[type, Callable[[Any], None]] = {
            records.Header: self._take_header,
            records.UnitBegan: self._take_unit,
            records.UnitCommand: self._take_command,
            records.UnitOpened: self._take_opening,
            records.UnitDone: self._take_unit_end,
            records.PhaseQueued: self._take_ask,
            records.PhaseAdmitted: self._take_admit,
            records.PhaseStarted: self._take_start,
            records.PhaseCurve: self._take_curve,
            records.PhaseFinished: self._take_end,
            records.Requeued: self._take_requeue,
            records.Killed: self._take_kill,
            records.GaveUp: self._take_give_up,
            records.Kept: self._take_kept,
            records.TickRecord: self._take_tick,
            records.Note: self._take_note,
            records.Seen: self._looks.append,
            records.Said: self._take_said,
            records.Tail: self._tails.append,
            records.End: self._take_summary,
        }

    def take(self, record: records.AnyRecord, byte: int = 0) -> None:
        """The next record; ``byte``: the beginning of a line before it, or of its own."""
        if record.at_s > self._last_at_s:
            self._last_at_s = record.at_s
        self._byte = byte
        taker = self._takers.get(type(record))
        if taker is not None:
            taker(record)

    def report(self) -> TraceReport:
        """All of it so far. The header must have been taken."""
        assert self._header is not None, "a trace begins with its header"
        for unit in self._units.values():
            _sum_up(unit)
        return TraceReport(
            header=self._header,
            units=sorted(self._units.values(), key=lambda unit: -unit.peak_mib),
            other_phases=self._others,
            most_at_once=dict(self._most),
            timeline=self._line.points(),
            events=self._events,
            left_out=sum(max(0, count - MOST_EVENTS) for count in self._seen.values()),
            last_points=list(self._line.last),
            last_at_s=self._last_at_s,
            whole=self._summary is not None,
            summary=self._summary,
            commands=self._commands,
            kept=self._kept,
            given_up=list(self._given_up),
            seen=list(self._looks),
            said=self._said,
            tails=list(self._tails),
        )

    def _take_said(self, record: records.Said) -> None:
        if len(self._said) < MOST_SAID:
            self._said.append(record)

    def _take_header(self, record: records.Header) -> None:
        if self._header is None:
            self._header = record

    def _take_summary(self, record: records.End) -> None:
        if believable(record.summary):
            self._summary = record.summary

    # -- units and phases ----------------------------------------------------------------------------------

    def _take_unit(self, record: records.UnitBegan) -> None:
        if record.unit_id not in self._open_threads:
            self._open_threads[record.unit_id] = record.threads
            self._threads[record.threads] += 1
        if record.counted:
            self._units[record.unit_id] = UnitRow(
                unit=record.source or record.output,
                unit_id=record.unit_id,
                output=record.output,
                archs=record.archs,
                threads=record.threads,
                argv_digest=record.argv_digest,
                began_at_s=record.at_s,
            )

    def _take_command(self, record: records.UnitCommand) -> None:
        self._commands[record.unit_id] = record

    def _take_kept(self, record: records.Kept) -> None:
        self._kept[record.phase_id] = record

    def _take_opening(self, record: records.UnitOpened) -> None:
        """The governor chose its ``--threads``; 0: as the build gave them."""
        if record.threads and record.unit_id in self._open_threads:
            self._threads[self._open_threads[record.unit_id]] -= 1
            self._open_threads[record.unit_id] = record.threads
            self._threads[record.threads] += 1
        if record.threads and record.unit_id in self._units:
            self._units[record.unit_id].threads = record.threads

    def _take_unit_end(self, record: records.UnitDone) -> None:
        threads = self._open_threads.pop(record.unit_id, None)
        if threads is not None:
            self._threads[threads] -= 1
        if record.unit_id in self._units:
            self._units[record.unit_id].ended_at_s = record.at_s

    def _take_ask(self, record: records.PhaseQueued) -> None:
        same = self._same
        row = PhaseRow(
            phase_id=record.phase_id,
            unit_id=same(record.unit_id),
            kind=same(record.kind),
            tool=same(record.tool),
            arch=same(record.arch),
            source=same(record.source),
            input_mib=record.input_mib,
            asked_at_s=record.at_s,
            estimate_mib=record.estimate_mib,
            estimate_source=same(record.estimate_source),
            reserve_mib=record.reserve_mib,
        )
        self._phases[record.phase_id] = row
        unit = self._units.get(record.unit_id)
        (unit.phases if unit is not None else self._others).append(row)

    def _take_admit(self, record: records.PhaseAdmitted) -> None:
        row = self._phases.get(record.phase_id)
        if row is None:
            return
        row.waited_s += record.waited_s
        if record.phase_id not in self.live:
            self._running[row.kind] += 1
            self._most[row.kind] = max(self._most[row.kind], self._running[row.kind])
        attempt = Attempt(admitted_at_s=record.at_s, reserve_mib=record.reserve_mib, running=record.running)
        self.live[record.phase_id] = attempt
        self.admitted_at_byte[record.phase_id] = self._byte
        row.attempts.append(attempt)
        row.outcome = ""

    def _take_start(self, record: records.PhaseStarted) -> None:
        if record.phase_id in self.live:
            self.live[record.phase_id].started_at_s = record.at_s

    def _take_curve(self, record: records.PhaseCurve) -> None:
        row = self._phases.get(record.phase_id)
        if row is None:
            return
        if record.rss_mib > row.peak_mib:
            row.peak_mib = record.rss_mib
        attempt = self.live.get(record.phase_id)
        if attempt is not None and record.at_s >= attempt.admitted_at_s:
            attempt.peak_mib = max(attempt.peak_mib, record.rss_mib)
            attempt.wall_s = record.at_s - attempt.admitted_at_s

    def _take_end(self, record: records.PhaseFinished) -> None:
        row = self._phases.get(record.phase_id)
        if row is None:
            return
        attempt = self.live.pop(record.phase_id, None)
        self.admitted_at_byte.pop(record.phase_id, None)
        if attempt is not None:
            self._running[row.kind] -= 1
            attempt.ended_at_s = record.at_s
            attempt.outcome, attempt.cause = self._same(record.outcome), self._same(record.cause)
            attempt.exit_code, attempt.signal = record.exit_code, record.signal
            attempt.peak_mib, attempt.wall_s, attempt.cpu_s = record.peak_mib, record.wall_s, record.cpu_s
        row.outcome = self._same(record.outcome)
        row.peak_mib = max(row.peak_mib, record.peak_mib)
        row.wall_s += record.wall_s
        row.cpu_s += record.cpu_s
        if record.outcome in ("killed-by-kernel", "killed-outside"):
            who = _said(record.cause)
            self._tell(record.at_s, "killed", f"{name_of(row)} killed by {who} at {format_mib(record.peak_mib)}", row)

    def _take_requeue(self, record: records.Requeued) -> None:
        row = self._phases.get(record.phase_id)
        if row is None:
            return
        row.requeues += 1
        row.lost_s += record.lost_s
        row.outcome = ""
        how = "alone, " if record.solo else ""
        text = f"{name_of(row)} is run again, {how}with {format_mib(record.reserve_mib)}; {record.lost_s:.0f} s lost"
        self._tell(record.at_s, "requeue", text, row)

    def _take_kill(self, record: records.Killed) -> None:
        row = self._phases.get(record.phase_id)
        if row is None:
            return
        if record.phase_id in self.live:
            self.live[record.phase_id].killed_for = record.reason
        self._tell(record.at_s, "kill", f"builddoctor ends {name_of(row)}: {record.reason}", row)

    def _take_give_up(self, record: records.GaveUp) -> None:
        self._given_up.append(record)
        row = self._phases.get(record.phase_id)
        name = name_of(row) if row is not None else f"phase {record.phase_id}"
        self._tell(record.at_s, "give-up", f"{name} cannot be saved ({record.verdict}): {record.reason}", row)

    # -- the whole picture ---------------------------------------------------------------------------------

    def _take_tick(self, record: records.TickRecord) -> None:
        used_mib = max(record.ours_mib, record.limit_mib - record.headroom_mib, 0.0)
        self._line.take(
            Point(
                at_s=record.at_s,
                budget_mib=record.budget_mib,
                limit_mib=record.limit_mib,
                used_mib=used_mib,
                ours_mib=record.ours_mib,
                others_mib=used_mib - record.ours_mib,
                running=record.running,
                waiting=record.waiting,
                open_units=record.open_units,
                threads=max((number for number, units in self._threads.items() if units > 0), default=0),
                kernel_kills=record.oom_kills,
            )
        )

    def _take_note(self, record: records.Note) -> None:
        kind: EventKind = "hold" if record.level == "hold" else "warning" if record.level == "warning" else "note"
        if kind == "warning" and record.text.startswith(("redoes ", "gives up on ")):
            # Said by records of their own already.
            return
        self._tell(record.at_s, kind, record.text, None)

    def _tell(self, at_s: float, kind: EventKind, text: str, row: PhaseRow | None) -> None:
        self._seen[kind] += 1
        if self._seen[kind] <= MOST_EVENTS:
            phase_id = row.phase_id if row is not None else None
            self._events.append(Happened(at_s=at_s, kind=kind, text=text, phase_id=phase_id))

    def _same(self, text: str) -> str:
        """One object for equal texts: there are few of them, in many phases."""
        return self._names.setdefault(text, text)


class _Timeline:
    """At most twice as many points as asked for: spans of time, each with its fullest moment."""

    def __init__(self, most: int) -> None:
        self.last: deque[Point] = deque(maxlen=LAST_POINTS)
        self._most = max(2, most)
        self._span_s = FIRST_SPAN_S
        self._fullest: dict[int, Point] = {}

    def take(self, point: Point) -> None:
        self.last.append(point)
        self._put(point)
        while len(self._fullest) > self._most:
            kept, self._fullest = self._fullest, {}
            self._span_s *= 2
            for each in kept.values():
                self._put(each)

    def points(self) -> list[Point]:
        return sorted(self._fullest.values(), key=lambda point: point.at_s)

    def _put(self, point: Point) -> None:
        span = int(point.at_s / self._span_s)
        known = self._fullest.get(span)
        if known is None or point.ours_mib > known.ours_mib:
            self._fullest[span] = point


def name_of(phase: PhaseRow) -> str:
    """``cicc sm_90 of src/gelu.cu``."""
    what = f"{phase.kind} {phase.arch}".strip()
    return f"{what} of {phase.source}" if phase.source else what


def _sum_up(unit: UnitRow) -> None:
    worst = unit.worst
    if worst is not None:
        unit.peak_mib, unit.estimate_mib = worst.peak_mib, worst.estimate_mib
    unit.wall_s = sum(phase.wall_s for phase in unit.phases)
    unit.waited_s = sum(phase.waited_s for phase in unit.phases)
    unit.requeues = sum(phase.requeues for phase in unit.phases)


def _said(cause: str) -> str:
    try:
        return describe(KillCause(cause))
    except ValueError:
        return "somebody"
