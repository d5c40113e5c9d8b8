"""The state of a build as its trace tells it: the same picture, from another terminal.

Covers: records, one by one, into a ``BoardState``. Does *not* cover: reading them (``trace.tail``), showing it.
"""

from __future__ import annotations

import math
from collections import deque

import msgspec

from builddoctor.model.board import BoardState, EventRow, RunningRow, TimeLeft, WaitingRow
from builddoctor.model.phase import Outcome
from builddoctor.model.summary import Summary
from builddoctor.supervise.accounts import Accounts
from builddoctor.supervise.gathering import reason_now, short_name
from builddoctor.trace.records import (
    AnyRecord,
    End,
    GaveUp,
    Header,
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

EVENTS_SHOWN = 6
ENDED = frozenset((Outcome.OK.value, Outcome.FAILED.value))


class _Live(msgspec.Struct):
    """A phase that has asked and not ended."""

    asked: PhaseQueued
    reserve_mib: float
    since_s: float
    """when it asked, or was admitted"""
    runs: bool = False
    rss_mib: float = 0.0
    reason: str = "cores"

    @property
    def spread_mib(self) -> float:
        return max(0.0, self.reserve_mib - max(self.asked.estimate_mib, self.rss_mib))


class Following:
    """What has been read so far. The header comes first, as TraceTail guarantees."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.summary: Summary | None = None
        self.last_at_s = 0.0
        self.blame = ""
        self.blame_mib = 0.0
        """the phase that could not be saved, and the most that it held"""
        self.fresh: list[EventRow] = []
        """events since somebody took them from here"""
        self._accounts = Accounts(0.0)
        self._units: dict[str, bool] = {}
        """open units; True: counted"""
        self._live: dict[int, _Live] = {}
        self._by_words: dict[str, int] = {}
        self._peak_mib: dict[int, float] = {}
        self._tick: TickRecord | None = None
        self._planned: int | None = None
        self._events: deque[EventRow] = deque(maxlen=EVENTS_SHOWN)

    def has_ended(self) -> bool:
        return self.summary is not None

    def take(self, record: AnyRecord) -> None:
        """The next record."""
        self.last_at_s = max(self.last_at_s, record.at_s)
        if isinstance(record, PhaseCurve):
            if (live := self._live.get(record.phase_id)) is not None:
                live.rss_mib = record.rss_mib
        elif isinstance(record, TickRecord):
            self._tick = record
            self._planned = record.planned or self._planned
        elif isinstance(record, Header):
            self.header = self.header or record
        elif isinstance(record, End):
            self.summary = record.summary
        elif isinstance(record, UnitBegan):
            self._units[record.unit_id] = record.counted
            self._accounts.units += record.counted
        elif isinstance(record, UnitDone):
            counted = self._units.pop(record.unit_id, False)
            self._accounts.units_done += counted
        elif isinstance(record, Note):
            self._note(record)
        elif isinstance(record, PhaseQueued | PhaseAdmitted | PhaseFinished | Requeued | GaveUp):
            self._take_of_phase(record)

    def _take_of_phase(self, record: PhaseQueued | PhaseAdmitted | PhaseFinished | Requeued | GaveUp) -> None:
        if isinstance(record, PhaseQueued):
            self._live[record.phase_id] = _Live(record, record.reserve_mib, record.at_s)
            self._by_words[_words(record)] = record.phase_id
            return
        live = self._live.get(record.phase_id)
        if live is None:
            return
        if isinstance(record, PhaseAdmitted):
            live.runs, live.reserve_mib, live.since_s, live.rss_mib = True, record.reserve_mib, record.at_s, 0.0
        elif isinstance(record, Requeued):
            self._accounts.requeued += 1
            live.reserve_mib, live.since_s, live.reason = record.reserve_mib, record.at_s, "memory"
        elif isinstance(record, PhaseFinished):
            live.runs = False
            self._peak_mib[record.phase_id] = record.peak_mib
            if record.outcome in ENDED or record.outcome == Outcome.WITHDRAWN.value:
                self._accounts.phases_done += record.outcome in ENDED
                self._forget(record.phase_id)
        else:
            self.blame, self.blame_mib = _words(live.asked), self._peak_mib.get(record.phase_id, 0.0)
            self._forget(record.phase_id)
        self._accounts.jobs_changed(sum(each.runs for each in self._live.values()), record.at_s)

    def _forget(self, phase_id: int) -> None:
        words = _words(self._live.pop(phase_id).asked)
        self._peak_mib.pop(phase_id, None)
        if self._by_words.get(words) == phase_id:
            del self._by_words[words]

    def _note(self, record: Note) -> None:
        if record.level != "hold":
            event = EventRow(at_s=record.at_s, text=record.text, warning=record.level == "warning")
            self._events.append(event)
            self.fresh.append(event)
            return
        words, _, rest = record.text.removeprefix("waits: ").rpartition(" needs ")
        live = self._live.get(self._by_words.get(words, -1))
        if live is not None:
            live.reason = rest.partition("(")[2].rstrip(")") or live.reason

    def state(self, *, later_s: float = 0.0, silent_s: float = 0.0) -> BoardState:
        """The picture ``later_s`` after the last record. ``silent_s``: how long none has come."""
        assert self.header is not None, "a trace begins with its header"
        header, tick, accounts = self.header, self._tick, self._accounts
        now_s = self.last_at_s + later_s
        running = [live for live in self._live.values() if live.runs]
        budget_mib = tick.budget_mib if tick is not None else header.budget_mib
        waits = self._waits(now_s, budget_mib, running)
        return BoardState(
            title=" · ".join(
                part for part in (header.title, *header.archs, f"nvcc {header.nvcc}" if header.nvcc else "") if part
            ),
            elapsed_s=now_s,
            units_done=accounts.units_done,
            units_open=accounts.units - accounts.units_done,
            units_total=max(self._planned, accounts.units) if self._planned else None,
            phases_done=accounts.phases_done,
            requeued=accounts.requeued,
            kernel_kills=(tick.oom_kills or 0) if tick is not None else 0,
            used_mib=tick.ours_mib if tick is not None else 0.0,
            budget_mib=budget_mib,
            limit_mib=tick.limit_mib if tick is not None else header.limit_mib,
            limited_by=header.limited_by,
            jobs=len(running),
            jobs_mean=accounts.jobs_mean(now_s),
            jobs_max=accounts.jobs_max,
            window=header.window,
            threads=header.threads,
            running=tuple(
                RunningRow(
                    kind=live.asked.kind,
                    source=short_name(live.asked.source, header.cwd),
                    arch=live.asked.arch,
                    rss_mib=live.rss_mib,
                    estimate_mib=live.asked.estimate_mib,
                    running_s=now_s - live.since_s,
                    reserve_mib=live.reserve_mib,
                    evidence=live.asked.estimate_source,
                )
                for live in running
            ),
            waiting=len(self._live) - len(running),
            held=next((row for row in waits if row.reason != "cores"), None),
            events=tuple(self._events),
            left=_left(tick, now_s),
            waits=waits,
            silent_s=silent_s,
        )

    def _waits(self, now_s: float, budget_mib: float, running: list[_Live]) -> tuple[WaitingRow, ...]:
        expected_mib = sum(max(live.asked.estimate_mib, live.rss_mib) for live in running)
        spread_mib = math.sqrt(sum(live.spread_mib**2 for live in running))
        free_mib = max(0.0, budget_mib - expected_mib - spread_mib)
        cores_free = self.header is None or len(running) < self.header.cores
        rows = [
            WaitingRow(
                kind=live.asked.kind,
                source=short_name(live.asked.source, self.header.cwd if self.header is not None else ""),
                needs_mib=live.reserve_mib,
                free_mib=free_mib,
                reason=reason_now(live.reason, needs_mib=live.reserve_mib, free_mib=free_mib, cores_free=cores_free),
                waited_s=now_s - live.since_s,
            )
            for live in self._live.values()
            if not live.runs
        ]
        return tuple(sorted(rows, key=lambda row: -row.waited_s))


def _left(tick: TickRecord | None, now_s: float) -> TimeLeft | None:
    """As the supervisor said it last, less what has passed since."""
    if tick is None or tick.left_s is None:
        return None
    low_s, high_s = (max(0.0, each - max(0.0, now_s - tick.at_s)) for each in tick.left_s)
    return TimeLeft(low_s=min(low_s, high_s), high_s=high_s)


def _words(asked: PhaseQueued) -> str:
    """A phase as notes name it."""
    arch = f" {asked.arch}" if asked.arch else ""
    return f"{asked.kind}{arch} of {asked.source}" if asked.source else f"{asked.kind}{arch}"
