"""What the events of a build add up to: the one fold, for the live board, ``watch``, reports, pages and exports.

Covers: units and phases with their runs, what waits and why, what runs and what it holds, counts, the timeline, what
happened, and, where that is asked for, lanes and the fullest moments (pictures) and memory over time of each run
(workloads). Does *not* cover: files (``trace.reader``), words (``trace.words``), layout (``ui``).

Memory grows with the number of phases and not of samples, but for ``curves``; while a build goes on, with the number
of open ones (``rows=False``). A live build hands every event in, up to
20 samples a second of hundreds of phases: a sample costs a few operations for each phase in it. Whatever events are
lost, what is left adds up: events of a phase whose announcement was torn are passed over.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from builddoctor.core.events import (
    Admit,
    BuildEnded,
    CompilerFound,
    Continue,
    Event,
    GiveUp,
    Header,
    Hold,
    InputsKept,
    Kill,
    MemorySampled,
    NodeSeen,
    Note,
    OutputFinding,
    OutputTail,
    Pause,
    PhaseAsked,
    PhaseEnded,
    PhaseStarted,
    Queue,
    ReleaseUnit,
    Requeue,
    Resume,
    SceneSeen,
    Status,
    Summary,
    Suspend,
    ToolkitChosen,
    UnitBegan,
    UnitCommand,
    UnitEnded,
    Warn,
)
from builddoctor.core.phase import STORE, Estimate, Outcome, Phase, Unit
from builddoctor.core.verdict import Verdict
from builddoctor.trace import words
from builddoctor.trace.picture import GROUPS, Mark, Moment, Picture, Run, Spans, group_of
from builddoctor.trace.report import (
    Attempt,
    Happened,
    Journey,
    PhaseRow,
    Point,
    TraceReport,
    UnitRow,
    believable,
    sum_up,
)

MOST_EVENTS = 500
"""kept of each kind of happening"""

MOST_MARKS = 2000
"""of each kind in a picture: waits can be as many as phases"""

MOST_SEEN, MOST_SAID, MOST_TAILS = 64, 80, 2
POINTS = 400
"""of the timeline: more than a terminal has columns"""

LAST_POINTS = 12
RECENT = 6
"""happenings that the screen shows"""

FIRST_SPAN_S = 0.5
MOST_MOMENTS = 1500
MOST_HOLDERS = 6

_BY_ITSELF = (Outcome.OK, Outcome.FAILED)
_KILLED = (
    *(Outcome.KILLED_BY_US, Outcome.KILLED_BY_KERNEL, Outcome.KILLED_OUTSIDE),
    *(Outcome.KILLED_THERE, Outcome.NODE_LOST),
)

Told = Kill | PhaseEnded | Requeue | GiveUp | Hold | Suspend | Resume | Pause | Continue | Warn | Note | ToolkitChosen
"""Events that a person wants to know of; of ends those by a kill."""


E = TypeVar("E", bound=Event)


def _on(kind: type[E], rule: Callable[[E], Happening | None]) -> tuple[type, Callable[[Any], Happening | None]]:
    """A rule for this event alone, as mypy sees it."""
    return kind, rule


class UnitState:
    """One unit as far as it has come."""

    __slots__ = ("ended", "held", "key", "phases", "row", "source_digest", "target", "unit")

    def __init__(self, event: UnitBegan) -> None:
        unit = event.unit
        self.unit: Unit = unit
        self.key = event.key
        """its name across builds; None for what has none"""
        self.target, self.source_digest = event.target, event.source_digest
        self.held = event.held
        """it waits at its gate until it is released"""
        self.ended = False
        self.phases: list[PhaseState] = []
        self.row = UnitRow(
            unit=unit.source or unit.output,
            unit_id=unit.unit_id,
            output=unit.output,
            archs=list(unit.archs),
            threads=unit.threads,
            argv_digest=event.argv_digest,
            began_at_s=event.at_s,
        )


class RunState:
    """One run of a phase, from its admission on."""

    __slots__ = (
        "admitted_at_s",
        "attempt",
        "curve",
        "estimate",
        "expected_s",
        "hold",
        "lane",
        "number",
        "peak_at_s",
        "peak_mib",
        "phase",
        "place",
        "rss_mib",
        "seen_s",
        "suspended_at_s",
        "waited_s",
    )

    def __init__(self, phase: PhaseState, event: Admit, attempt: Attempt, *, place: int, lane: int) -> None:
        self.phase = phase
        self.attempt = attempt
        self.place = place
        """in order of admission"""
        self.lane = lane
        self.number = len(phase.row.attempts)
        self.estimate: Estimate = event.estimate
        self.expected_s = event.expected_s
        self.admitted_at_s = event.at_s
        self.waited_s = event.waited_s
        self.hold = phase.hold
        """what it waited for last"""
        self.rss_mib = self.peak_mib = 0.0
        self.seen_s = self.peak_at_s = event.at_s
        self.suspended_at_s: float | None = None
        """since when it stands still"""
        self.curve: list[tuple[float, float]] | None = None
        """(at_s, MiB) since its tool started; None where curves are not kept"""

    def ran_s(self, now_s: float) -> float:
        """How long it has worked."""
        stands_s = 0.0 if self.suspended_at_s is None else now_s - self.suspended_at_s
        return now_s - self.admitted_at_s - self.attempt.stood_s - stands_s

    def goes_on(self, at_s: float) -> None:
        """It does not stand still any more."""
        if self.suspended_at_s is not None:
            self.attempt.stood_s = round(self.attempt.stood_s + at_s - self.suspended_at_s, 3)
            self.suspended_at_s = None


class PhaseState:
    """One phase as far as it has come."""

    __slots__ = ("again", "end", "estimate", "hold", "kind", "last_run", "phase", "row", "run", "unit", "waits_since_s")

    def __init__(self, event: PhaseAsked, row: PhaseRow, unit: UnitState | None) -> None:
        self.phase: Phase | None = event.phase
        """as it asked; None once it ended by itself: a long build has many"""
        self.kind = event.phase.kind
        self.row = row
        self.unit = unit
        self.estimate: Estimate | None = None
        """as decided last; None once it ended by itself, too"""
        self.hold: Hold | None = None
        """what it waits for, as decided last"""
        self.again = False
        """it waits to be run again"""
        self.waits_since_s = event.at_s
        self.run: RunState | None = None
        """its run that has not ended"""
        self.last_run: RunState | None = None
        """that or the one that ended last; None once one ended well, where curves are not kept"""
        self.end: PhaseEnded | None = None
        """its last"""


class Happening:
    """Something that a person wants to know of; ``trace.words`` says it."""

    __slots__ = ("event", "held_mib", "phase", "remark", "run")

    def __init__(self, event: Told, phase: PhaseState | None, held_mib: float, remark: str = "") -> None:
        self.event = event
        self.phase = phase
        self.run = phase.last_run if phase is not None else None
        """the run that it is about: the last one then"""
        self.held_mib = held_mib
        """by all phases then"""
        self.remark = remark

    @property
    def phase_name(self) -> str:
        """``cicc sm_90 of src/gelu.cu``."""
        if self.phase is not None:
            return self.phase.row.name
        return f"phase {getattr(self.event, 'phase_id', None)}"


class Jobs:
    """How many phases run at once, over time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._first_s: float | None = None
        self._since_s = self._busy_s = self._job_s = 0.0

    def change(self, jobs: int, at_s: float) -> None:
        """So many from now on."""
        passed_s = max(0.0, at_s - self._since_s)
        if self.now:
            self._busy_s += passed_s
            self._job_s += passed_s * self.now
        if jobs and self._first_s is None:
            self._first_s = at_s
        self.now, self._since_s = jobs, max(at_s, self._since_s)
        self.most = max(self.most, jobs)

    def mean(self, at_s: float) -> float:
        """Over the time that any ran."""
        self.change(self.now, at_s)
        return self._job_s / self._busy_s if self._busy_s > 0 else 0.0

    def rate(self, at_s: float) -> float:
        """Seconds of phases done a second, since the first began; 0 before."""
        self.change(self.now, at_s)
        passed_s = at_s - self._first_s if self._first_s is not None else 0.0
        return self._job_s / passed_s if passed_s > 0 else 0.0


class Counts:
    """Figures of the build so far, as its summary has them."""

    def __init__(self) -> None:
        self.units = self.units_done = 0
        """those of the build itself, not of configure steps"""
        self.phases = self.phases_done = 0
        self.requeued = self.runaways = self.paused = self.suspended = 0
        self.killed = 0
        """ended by builddoctor"""
        self.superseded = 0
        """runs that did not end well, and had another after them"""
        self.stored, self.stored_s = 0, 0.0
        """taken from the store, and what they took when they ran"""
        self.cpu_s = 0.0
        self.peak_mib = 0.0
        """most that phases held at once, or one of them"""


class _View(msgspec.Struct, frozen=True, kw_only=True):
    """A moment before it is known which are kept."""

    rss_mib: list[tuple[int, float]]
    limits_mib: tuple[float, float, float]
    """budget, limit and room as last seen"""
    running: int
    waiting: int
    threads: float


class BuildState:
    """All that is known of a build so far. ``apply`` every event in order; the rest only looks."""

    def __init__(
        self,
        *,
        points: int = POINTS,
        rows: bool = True,
        pictures: bool = False,
        most_moments: int = MOST_MOMENTS,
        curves: bool = False,
    ) -> None:
        """``rows=False``: for a build that goes on. Phases and units are forgotten when they have ended well, and there
        is no report."""
        self.header: Header | None = None
        """with the toolkit that the build has chosen since, where it did"""
        self.summary: Summary | None = None
        self.status: Status | None = None
        self.planned: int | None = None
        self.last_at_s = 0.0
        self.counts = Counts()
        self.jobs = Jobs()
        self.remedied: set[int] = set()
        """phases that were tried with less memory"""
        self.held_mib = 0.0
        """what running phases hold, as last said"""
        self.units: list[UnitState] = []
        self.nodes: dict[str, NodeSeen] = {}
        """other machines that ran phases, or could have"""
        self.open_units: dict[str, UnitState] = {}
        """units that have begun and not ended"""
        self.phases: dict[int, PhaseState] = {}
        self.open: dict[int, PhaseState] = {}
        """phases that have asked and wait or run"""
        self.live: dict[int, RunState] = {}
        """running phases"""
        self.lanes = 0
        """most runs at once"""
        self.happenings: list[Happening] = []
        self.recent: deque[Happening] = deque(maxlen=RECENT)
        self.kill_decisions = 0
        """phases that builddoctor decided to end"""
        self.last_give_up: GiveUp | None = None
        self.given_up: PhaseState | None = None
        """the phase that could not be saved; the last, where there are several"""
        self._rows = rows
        self._pictures = pictures
        self._curves = curves
        self._most_of_a_kind = MOST_MARKS if pictures else MOST_EVENTS
        self._unit_of: dict[str, UnitState] = {}
        self._others: list[PhaseState] = []
        self._runs: list[RunState] = []
        """of a picture, in order of admission"""
        self._same: dict[str, str] = {}
        self._seen: Counter[str] = Counter()
        self._give_ups: deque[GiveUp] = deque(maxlen=MOST_SEEN)
        self._scenes: deque[SceneSeen] = deque(maxlen=MOST_SEEN)
        self._findings: list[OutputFinding] = []
        self._tails: deque[OutputTail] = deque(maxlen=MOST_TAILS)
        self._commands: dict[str, UnitCommand] = {}
        self._kept: dict[int, InputsKept] = {}
        self._timeline = _Timeline(points)
        self._free_lanes: list[int] = []
        self._spans: Spans[_View] = Spans(most_moments)
        self._sum_mib = 0.0
        self._threads = [0, 0]
        """``--threads`` of all open units that count, added up, and how many they are"""
        self._limits_mib = (0.0, 0.0, 0.0)
        self._rules: dict[type, Callable[[Any], Happening | None]] = dict(
            (
                _on(Header, self._header),
                _on(UnitBegan, self._unit_began),
                _on(UnitCommand, self._command),
                _on(ReleaseUnit, self._released),
                _on(UnitEnded, self._unit_ended),
                _on(PhaseAsked, self._asked),
                _on(Queue, self._queued),
                _on(Hold, self._held),
                _on(Admit, self._admitted),
                _on(PhaseStarted, self._started),
                _on(CompilerFound, self._found),
                _on(MemorySampled, self._sampled),
                _on(PhaseEnded, self._ended),
                _on(Requeue, self._requeued),
                _on(Kill, self._killed),
                _on(GiveUp, self._gave_up),
                _on(Suspend, self._suspended),
                _on(Resume, self._resumed),
                _on(Pause, self._paused),
                _on(Continue, self._of_no_phase),
                _on(Warn, self._warned),
                _on(Note, self._of_no_phase),
                _on(ToolkitChosen, self._toolkit_chosen),
                _on(Status, self._told_status),
                _on(NodeSeen, self._node_seen),
                _on(InputsKept, self._inputs_kept),
                _on(SceneSeen, self._scene),
                _on(OutputFinding, self._finding),
                _on(OutputTail, self._tail),
                _on(BuildEnded, self._build_ended),
            )
        )

    def apply(self, event: Event) -> Happening | None:
        """The next event. What a person may want to hear of at once is given back."""
        if event.at_s > self.last_at_s:
            self.last_at_s = event.at_s
        if self._pictures:
            self._spans.advance(event.at_s, self._sum_mib, self._view)
        rule = self._rules.get(type(event))
        return rule(event) if rule is not None else None

    @property
    def has_ended(self) -> bool:
        """The summary was seen."""
        return self.summary is not None

    def unit(self, unit_id: str) -> UnitState | None:
        """The last that had this id: the kernel gives processes' numbers anew. Without rows, an open one."""
        return self._unit_of.get(unit_id)

    @property
    def units_held(self) -> int:
        """Counted units that wait at their gates."""
        return sum(unit.held and unit.unit.counted for unit in self.open_units.values())

    # -- units ----------------------------------------------------------------------------------------------

    def _header(self, event: Header) -> None:
        if self.header is None:
            self.header = event
            self._limits_mib = (event.budget_mib, event.limit_mib, event.limit_mib)

    def _toolkit_chosen(self, event: ToolkitChosen) -> Happening | None:
        if self.header is not None:
            self.header = msgspec.structs.replace(self.header, toolkit=event.toolkit, nvcc=event.nvcc)
        return self._tell("note", event, None)

    def _node_seen(self, event: NodeSeen) -> None:
        self.nodes[event.node] = event

    def _unit_began(self, event: UnitBegan) -> None:
        unit = UnitState(event)
        before = self.open_units.get(event.unit.unit_id)
        if before is not None:
            self._count_threads(before, -1)
        if self._rows:
            self.units.append(unit)
        self._unit_of[event.unit.unit_id] = self.open_units[event.unit.unit_id] = unit
        self.counts.units += event.unit.counted
        self._count_threads(unit, 1)

    def _command(self, event: UnitCommand) -> None:
        if self._rows:
            self._commands[event.unit_id] = event

    def _released(self, event: ReleaseUnit) -> None:
        """Its ``--threads`` were chosen; 0: as the build gave them."""
        unit = self.open_units.get(event.unit_id)
        if unit is not None:
            unit.held = False
            self._count_threads(unit, -1)
            unit.row.threads = event.threads or unit.row.threads
            self._count_threads(unit, 1)

    @property
    def has_failed_unit(self) -> bool:
        """A compiler of the build itself, not of a configure step, ended badly and was not run again."""
        return any(end.outcome is not Outcome.OK for end, _ in self._unit_ends())

    @property
    def in_error(self) -> list[str]:
        """Units of the build itself whose compiler found an error, in the order in which they came."""
        failed = (unit.row.unit for end, unit in self._unit_ends() if end.outcome is Outcome.FAILED and not end.signal)
        return list(dict.fromkeys(failed))

    def _unit_ends(self) -> Iterator[tuple[PhaseEnded, UnitState]]:
        for phase in self.phases.values():
            if phase.end is not None and phase.unit is not None and phase.unit.unit.counted:
                yield phase.end, phase.unit

    def _unit_ended(self, event: UnitEnded) -> None:
        unit = self.open_units.pop(event.unit_id, None)
        if unit is not None:
            unit.ended, unit.held = True, False
            if not self._rows:
                self._unit_of.pop(event.unit_id, None)
            unit.row.ended_at_s = event.at_s
            self.counts.units_done += unit.unit.counted
            self._count_threads(unit, -1)

    def _count_threads(self, unit: UnitState, sign: int) -> None:
        if unit.unit.counted:
            self._threads[0] += sign * max(1, unit.row.threads)
            self._threads[1] += sign

    # -- phases ---------------------------------------------------------------------------------------------

    def _asked(self, event: PhaseAsked) -> None:
        phase = event.phase
        if phase.phase_id in self.open:
            # It asks once more after it was redone with other arguments.
            return
        unit = self._unit_of.get(phase.unit_id)
        # Every event brings strings of its own, and a long build has millions: equal ones are kept once.
        same, source = self._same, phase.source
        row = PhaseRow(
            phase_id=phase.phase_id,
            unit_id=unit.row.unit_id if unit is not None else phase.unit_id,
            # Not ``value``: a descriptor in Python, half a microsecond for each of a million events.
            kind=phase.kind._value_,
            tool=same.setdefault(phase.tool, phase.tool),
            arch=same.setdefault(phase.arch, phase.arch),
            source=unit.unit.source if unit is not None and unit.unit.source == source else source,
            input_mib=phase.input_mib,
            asked_at_s=event.at_s,
            reserve_mib=0.0,
        )
        state = PhaseState(event, row, unit)
        self.phases[phase.phase_id] = self.open[phase.phase_id] = state
        if self._rows:
            (unit.phases if unit is not None else self._others).append(state)
        self.counts.phases += 1

    def _queued(self, event: Queue) -> None:
        state = self.phases.get(event.phase_id)
        if state is not None:
            self._estimate(state, event.estimate)

    def _estimate(self, state: PhaseState, estimate: Estimate) -> None:
        if state.estimate is None:
            row = state.row
            row.estimate_mib = estimate.peak_mib
            row.estimate_source = self._same.setdefault(estimate.source, estimate.source)
            row.reserve_mib = _reserve_mib(estimate)
        state.estimate = estimate

    def _held(self, event: Hold) -> Happening | None:
        state = self.open.get(event.phase_id)
        if state is not None:
            state.hold = event
        return self._tell("hold", event, state)

    def _admitted(self, event: Admit) -> None:
        state = self.phases.get(event.phase_id)
        if state is None or state.run is not None:
            return
        self._estimate(state, event.estimate)
        if self._free_lanes:
            lane = heapq.heappop(self._free_lanes)
        else:
            lane, self.lanes = self.lanes, self.lanes + 1
        reserve_mib = _reserve_mib(event.estimate)
        attempt = Attempt(admitted_at_s=event.at_s, reserve_mib=reserve_mib, running=event.running)
        if event.node:
            attempt.elsewhere = Journey(node=event.node)
        row = state.row
        row.attempts.append(attempt)
        run = RunState(state, event, attempt, place=len(self._runs), lane=lane)
        row.waited_s += event.waited_s
        row.outcome = ""
        state.run = state.last_run = run
        state.hold, state.again = None, False
        self.live[event.phase_id] = run
        self.open[event.phase_id] = state
        self.jobs.change(len(self.live), event.at_s)
        if event.thrift:
            self.remedied.add(event.phase_id)
        if self._pictures:
            self._runs.append(run)
            self._spans.offer(self._sum_mib, self._view)

    def _started(self, event: PhaseStarted) -> None:
        run = self.live.get(event.phase_id)
        if run is not None:
            run.attempt.started_at_s = event.at_s
            if self._curves:
                run.curve = []

    def _found(self, event: CompilerFound) -> None:
        """It asked nobody, and is let run all the same."""
        at_s, phase_id = event.at_s, event.phase_id
        self._asked(PhaseAsked(at_s=at_s, phase=event.phase))
        self._admitted(
            Admit(
                at_s=at_s,
                phase_id=phase_id,
                estimate=event.estimate,
                expected_s=event.expected_s,
                running=len(self.live) + 1,
            )
        )
        self._started(PhaseStarted(at_s=at_s, phase_id=phase_id, pid=event.pid))

    def _sampled(self, event: MemorySampled) -> None:
        at_s, live, curves = event.at_s, self.live, self._curves
        total_mib = self._sum_mib
        for phase_id, rss_mib in event.rss_mib:
            run = live.get(phase_id)
            if run is None or at_s < run.admitted_at_s:
                continue
            total_mib += rss_mib - run.rss_mib
            run.rss_mib, run.seen_s = rss_mib, at_s
            if rss_mib > run.peak_mib:
                run.peak_mib, run.peak_at_s = rss_mib, at_s
            if curves and run.curve is not None:
                run.curve.append((at_s, rss_mib))
        self._sum_mib = total_mib
        self._hold(event.held_mib)
        if self._pictures:
            self._spans.offer(total_mib, self._view)

    def _hold(self, held_mib: float) -> None:
        self.held_mib = held_mib
        if held_mib > self.counts.peak_mib:
            self.counts.peak_mib = held_mib

    def _ended(self, event: PhaseEnded) -> Happening | None:
        state = self.phases.get(event.phase_id)
        if state is None:
            return None
        run = self.live.pop(event.phase_id, None)
        if run is None and event.outcome is Outcome.WITHDRAWN:
            # It only waited.
            self.open.pop(event.phase_id, None)
            if not self._rows:
                del self.phases[event.phase_id]
            return None
        held_mib = self._sum_mib if run is None else self._run_ended(run, event)
        row, counts = state.row, self.counts
        counts.superseded += state.end is not None and state.end.outcome is not Outcome.OK
        state.end, state.run = event, None
        row.outcome = event.outcome._value_
        row.peak_mib = max(row.peak_mib, event.peak_mib)
        if event.node == STORE:
            counts.stored += event.outcome is Outcome.OK
            counts.stored_s += event.wall_s
        else:
            row.wall_s += event.wall_s
        row.cpu_s += event.cpu_s
        counts.cpu_s += event.cpu_s
        if not event.node:
            counts.peak_mib = max(counts.peak_mib, event.peak_mib)
        counts.phases_done += event.outcome in _BY_ITSELF
        counts.killed += event.outcome is Outcome.KILLED_BY_US
        self.jobs.change(len(self.live), event.at_s)
        if event.outcome not in _KILLED:
            self.open.pop(event.phase_id, None)
            state.phase = state.estimate = None
            if event.outcome is Outcome.OK and not self._curves:
                state.last_run = None
                if not self._rows:
                    del self.phases[event.phase_id]
            return None
        return self._tell("ended" if event.outcome is Outcome.KILLED_BY_US else "killed", event, state, held_mib)

    def _run_ended(self, run: RunState, event: PhaseEnded) -> float:
        """Close a run; what all phases held before it gave its memory back."""
        row, attempt = run.phase.row, run.attempt
        heapq.heappush(self._free_lanes, run.lane)
        if run.rss_mib == 0.0 and not event.node:
            # Too short for a sample: its peak is known all the same, and belongs into the picture.
            run.rss_mib = event.peak_mib
            self._sum_mib += event.peak_mib
            if self._pictures:
                self.live[event.phase_id] = run
                self._spans.offer(self._sum_mib, self._view)
                del self.live[event.phase_id]
        held_mib = self._sum_mib
        if self._pictures:
            # Added up anew: what was added and subtracted in between leaves no trace of rounding.
            self._sum_mib = sum([each.rss_mib for each in self.live.values()])
        else:
            self._sum_mib = held_mib - run.rss_mib if self.live else 0.0
        if run.peak_mib == 0.0:
            run.peak_at_s = max(event.at_s, run.admitted_at_s)
        row.peak_mib = max(row.peak_mib, run.peak_mib)
        run.peak_mib = max(run.peak_mib, event.peak_mib)
        run.goes_on(event.at_s)
        attempt.ended_at_s = event.at_s
        attempt.outcome = event.outcome._value_
        attempt.cause = event.cause._value_ if event.cause is not None else ""
        attempt.exit_code, attempt.signal = event.exit_code, event.signal
        attempt.peak_mib, attempt.wall_s, attempt.cpu_s = event.peak_mib, event.wall_s, event.cpu_s
        if (way := attempt.elsewhere) is not None:
            way.sent_mib, way.back_mib, way.transfer_s = event.sent_mib, event.back_mib, event.transfer_s
        return held_mib

    def _requeued(self, event: Requeue) -> Happening | None:
        state = self.phases.get(event.phase_id)
        if state is None:
            return None
        self._estimate(state, event.estimate)
        state.row.requeues += 1
        state.row.lost_s += event.lost_s
        state.row.outcome = ""
        state.hold, state.again, state.waits_since_s = None, True, event.at_s
        self.open[event.phase_id] = state
        self.counts.requeued += 1
        if event.thrift:
            self.remedied.add(event.phase_id)
        return self._tell("requeue", event, state)

    def _killed(self, event: Kill) -> Happening | None:
        self.kill_decisions += 1
        state = self.phases.get(event.phase_id)
        if state is None:
            return None
        if state.run is not None:
            state.run.attempt.killed_for = words.kill_reason(event)
        return self._tell("kill", event, state)

    def _suspended(self, event: Suspend) -> Happening | None:
        self.counts.suspended += 1
        state = self.phases.get(event.phase_id)
        if state is None or state.run is None:
            return None
        state.run.suspended_at_s = event.at_s
        return self._tell("note", event, state)

    def _resumed(self, event: Resume) -> Happening | None:
        state = self.phases.get(event.phase_id)
        if state is None or state.run is None:
            return None
        state.run.goes_on(event.at_s)
        return self._tell("note", event, state)

    def _gave_up(self, event: GiveUp) -> Happening | None:
        self._give_ups.append(event)
        self.last_give_up = event
        state = self.phases.get(event.phase_id)
        if state is not None:
            self.given_up = state
        self.open.pop(event.phase_id, None)
        self.counts.runaways += event.verdict is Verdict.RUNAWAY
        return self._tell("give-up", event, state)

    # -- everything else --------------------------------------------------------------------------------------

    def _paused(self, event: Pause) -> Happening | None:
        self.counts.paused += 1
        remark = ""
        if self.counts.paused == 1:
            remark = words.STAGED if self.header is not None and self.header.staged else words.NO_GATE
        return self._tell("warning", event, None, remark=remark)

    def _of_no_phase(self, event: Note | Continue) -> Happening | None:
        level = "note" if isinstance(event, Continue) else event.level.value
        return self._tell(level, event, None)

    def _warned(self, event: Warn) -> Happening | None:
        return self._tell("warning", event, self.phases.get(event.phase_id) if event.phase_id is not None else None)

    def _tell(
        self, kind: str, event: Told, phase: PhaseState | None, held_mib: float | None = None, *, remark: str = ""
    ) -> Happening:
        happening = Happening(event, phase, self._sum_mib if held_mib is None else held_mib, remark)
        self._seen[kind] += 1
        if self._seen[kind] <= self._most_of_a_kind:
            self.happenings.append(happening)
        if words.is_shown(event):
            self.recent.append(happening)
        return happening

    def _told_status(self, event: Status) -> None:
        self.status = event
        self.planned = event.planned or self.planned
        self._hold(event.ours_mib)
        room_mib = min(event.limit_mib, event.headroom_mib + event.ours_mib)
        self._limits_mib = (event.budget_mib, event.limit_mib, room_mib)
        used_mib = max(event.ours_mib, event.limit_mib - event.headroom_mib, 0.0)
        self._timeline.take(
            Point(
                at_s=event.at_s,
                budget_mib=event.budget_mib,
                limit_mib=event.limit_mib,
                used_mib=used_mib,
                ours_mib=event.ours_mib,
                others_mib=used_mib - event.ours_mib,
                running=event.running,
                waiting=event.waiting,
                open_units=event.open_units,
                threads=max((unit.row.threads for unit in self.open_units.values()), default=0),
                kernel_kills=event.oom_kills,
            )
        )

    def _inputs_kept(self, event: InputsKept) -> None:
        self._kept[event.phase_id] = event

    def _scene(self, event: SceneSeen) -> None:
        self._scenes.append(event)

    def _finding(self, event: OutputFinding) -> None:
        if len(self._findings) < MOST_SAID:
            self._findings.append(event)

    def _tail(self, event: OutputTail) -> None:
        self._tails.append(event)

    def _build_ended(self, event: BuildEnded) -> None:
        if believable(event.summary):
            self.summary = event.summary

    # -- views ----------------------------------------------------------------------------------------------

    def report(self) -> TraceReport:
        """All of it so far, as rows, where they are kept. The header must have been seen."""
        assert self._rows, "rows are kept where a report is asked for"
        assert self.header is not None, "a trace begins with its header"
        for run in self.live.values():
            # As far as it was seen.
            run.attempt.peak_mib = run.peak_mib
            run.attempt.wall_s = run.ran_s(run.seen_s)
            run.phase.row.peak_mib = max(run.phase.row.peak_mib, run.peak_mib)
        rows, others = [], [state.row for state in self._others]
        for unit in self.units:
            if unit.unit.counted:
                unit.row.phases = [state.row for state in unit.phases]
                sum_up(unit.row)
                rows.append(unit.row)
            else:
                others += [state.row for state in unit.phases]
        return TraceReport(
            header=self.header,
            units=sorted(rows, key=lambda row: -row.peak_mib),
            other_phases=sorted(others, key=lambda row: row.phase_id),
            timeline=self._timeline.points(),
            events=self._told(),
            left_out=sum(max(0, count - MOST_EVENTS) for kind, count in self._seen.items() if kind != "ended"),
            last_points=list(self._timeline.last),
            last_at_s=self.last_at_s,
            whole=self.summary is not None,
            summary=self.summary,
            commands=self._commands,
            kept=self._kept,
            given_up=list(self._give_ups),
            seen=list(self._scenes),
            said=self._findings,
            tails=list(self._tails),
        )

    def _told(self) -> list[Happened]:
        shown: Counter[str] = Counter()
        events = []
        for seen in self.happenings:
            said = words.told(seen)
            if said is None or shown[said[0]] >= MOST_EVENTS:
                continue
            shown[said[0]] += 1
            phase_id = seen.phase.row.phase_id if seen.phase is not None else None
            events.append(Happened(at_s=seen.event.at_s, kind=said[0], text=said[1], phase_id=phase_id))
        return events

    def picture(self) -> Picture:
        """Runs in lanes, the fullest moments, marks. Asked for at construction; the header must have been seen."""
        assert self.header is not None, "a trace begins with its header"
        runs = tuple(self._picture_run(run) for run in self._runs)
        marks = []
        for seen in self.happenings:
            said = words.mark(seen)
            if said is not None:
                marks.append(Mark(at_s=seen.event.at_s, kind=said[0], text=said[1], total_mib=seen.held_mib))
        return Picture(
            header=self.header,
            runs=runs,
            moments=tuple(_moment(runs, *seen) for seen in self._spans.kept(self._sum_mib, self._view)),
            marks=tuple(marks),
            lanes=self.lanes,
            finished=frozenset(unit.unit.unit_id for unit in self.units if unit.ended),
            nodes=tuple(self.nodes.values()),
            last_at_s=self.last_at_s,
            summary=self.summary,
        )

    def _picture_run(self, run: RunState) -> Run:
        row, attempt, unit = run.phase.row, run.attempt, run.phase.unit
        ended_at_s = self.last_at_s if attempt.ended_at_s is None else attempt.ended_at_s
        return Run(
            phase_id=row.phase_id,
            unit_id=row.unit_id,
            kind=row.kind,
            tool=row.tool,
            group=group_of(row.tool, row.kind),
            arch=row.arch,
            source=row.source,
            lane=run.lane,
            start_s=run.admitted_at_s,
            end_s=max(ended_at_s, run.admitted_at_s),
            peak_mib=run.peak_mib,
            peak_at_s=run.peak_at_s,
            estimate_mib=row.estimate_mib,
            reserve_mib=attempt.reserve_mib,
            waited_s=run.waited_s,
            waited_for=words.hold_words(run.hold) if run.hold is not None else "",
            outcome=attempt.outcome,
            node=attempt.elsewhere.node if attempt.elsewhere is not None else "",
            attempt=run.number,
            input_mib=row.input_mib,
            cpu_s=attempt.cpu_s,
            counted=unit is None or unit.unit.counted,
        )

    def _view(self) -> _View:
        threads, units = self._threads
        return _View(
            rss_mib=[(run.place, run.rss_mib) for run in self.live.values()],
            limits_mib=self._limits_mib,
            running=len(self.live),
            waiting=len(self.open) - len(self.live),
            threads=threads / units if units else 0.0,
        )


def _reserve_mib(estimate: Estimate) -> float:
    """Median and spread are rounded to a tenth, and so is their sum."""
    return round(estimate.reserve_mib, 1)


def _moment(runs: tuple[Run, ...], at_s: float, view: _View) -> Moment:
    held = dict.fromkeys(GROUPS, 0.0)
    for place, size_mib in view.rss_mib:
        held[runs[place].group] += size_mib
    budget_mib, limit_mib, room_mib = view.limits_mib
    return Moment(
        at_s=at_s,
        held_mib=tuple(held.values()),
        holders=tuple(heapq.nlargest(MOST_HOLDERS, view.rss_mib, key=lambda pair: pair[1])),
        budget_mib=budget_mib,
        limit_mib=limit_mib,
        room_mib=room_mib,
        running=view.running,
        waiting=view.waiting,
        threads=view.threads,
    )


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
