"""The simulated build: a virtual clock, cores that are shared, memory, a kernel that kills, and a policy.

Covers: the build tool's open units, their phases one after the other, processor sharing, kills by the kernel and by the
policy, second tries, samples. The policy hears the events that ``runtime.decision_loop`` would hand it, in its order.
Does *not* cover: other users of the machine, swap, page cache, threads within a phase.

Nothing here looks at a real clock or draws a random number: the same arguments give the same result. Running phases of
one priority advance alike, so that one number, the work that each has done since the start, orders their ends
(``Pace``).
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from builddoctor.core.events import (
    Admit,
    Decision,
    Fact,
    GiveUp,
    Kill,
    MemorySampled,
    OutOfTime,
    PhaseAsked,
    PhaseEnded,
    ReleaseUnit,
    Requeue,
    Resume,
    Suspend,
    TimePassed,
    UnitBegan,
    UnitEnded,
    Warn,
)
from builddoctor.core.past import PastUnit, UnitKey
from builddoctor.core.phase import Estimate, Outcome, Phase, PhaseKind, Unit
from builddoctor.scheduler.look_period import LookPeriod
from builddoctor.simulate.result import USUAL, Failure, Host, PhaseRun, Result, Rules
from builddoctor.simulate.workload import (
    Course,
    PhaseWork,
    UnitWork,
    Workload,
    course_of,
    held_share,
    highest_share,
    slope,
    unit_id,
)

SLACK_MIB = 1e-6
LEAST_WORK_S = 1e-3
GIVEN_WAY = 335 / 1024
"""What the kernel gives a process at nice 5 for each second of one at 0 (``gates.gate_program.NICE``)."""
IDLE_LOOKS = 3
"""A policy that starts nothing, while nothing runs, for this many looks has given up without saying so."""


Known = Mapping[str, tuple[UnitKey | None, PastUnit | None]]
"""By unit: its name across builds, and what earlier builds took for it."""


class Policy(Protocol):
    """What decides: ``scheduler.scheduler.Scheduler``, or another scheduler (``simulate.baselines``)."""

    def handle(self, event: Fact) -> Sequence[Decision]: ...

    @property
    def suspects(self) -> frozenset[int]: ...


def simulate(
    workload: Workload,
    policy: Policy,
    host: Host,
    rules: Rules = USUAL,
    *,
    first: Sequence[Fact] = (),
    known: Known | None = None,
) -> Result:
    """One build of ``workload`` under ``scheduler``, from its first look at memory to its end.

    ``first``: events that the policy gets before any unit begins. ``known``: what it is told of each unit then. A build
    ends at the first phase that is given up, and where the policy says that its time is over.
    """
    return _Simulation(workload, policy, host, rules, known or {}).run(first)


class _Simulation:
    def __init__(self, workload: Workload, policy: Policy, host: Host, rules: Rules, known: Known) -> None:
        self._known = known
        self._policy = policy
        self._host = host
        self._rules = rules
        self._budget_mib, self._reserve_mib = host.budget_mib, host.reserve_mib
        self._most_mib = host.limit_mib + SLACK_MIB
        self._jobs = math.inf if rules.jobs is None else max(1, rules.jobs)
        self._to_open = deque(Opened(index, work) for index, work in enumerate(workload.units) if work.phases)
        self._left = len(self._to_open)
        self._open = 0
        self._held: dict[str, Opened] = {}
        self._last_id = 0
        self._waiting: dict[int, Live] = {}
        self._running: dict[int, Live] = {}
        self._now_s = 0.0
        self._paces = (Pace(), Pace())
        """of those that give way to none, and of those that do"""
        self._used_mib = 0.0
        self._grows = rules.growth != "flat" or any(each.curve for unit in workload.units for each in unit.phases)
        self._before = workload.preprocessed_by if rules.portable else ()
        self._away: list[tuple[float, int, Live]] = []
        """on other machines, by when they are back"""
        self._kills_due: list[tuple[float, int, int]] = []
        self._asks_due: deque[tuple[float, Opened]] = deque()
        self._look_s = math.inf
        self._period = LookPeriod()
        self._due_look_s = 0.0
        """when production would look next"""
        self._idle_looks = 0
        self._came: list[int] = []
        self._all_seen_s = -math.inf
        self._ended_by_kernel: deque[Live] = deque()
        self._ending: dict[int, Live] = {}
        self._failure: Failure | None = None
        self._halted = False
        self._kernel_kills = self._kills = self._requeued = self._suspended = 0
        self._stood_s = self._lost_s = self._peak_mib = self._over_s = self._running_s = 0.0
        self._warnings: list[str] = []
        self._finished: list[PhaseRun] = []

    def run(self, first: Sequence[Fact]) -> Result:
        self._look()
        for event in first:
            self._feed(event)
        self._open_units()
        while self._left and self._failure is None and not self._halted:
            if self._ended_by_kernel:
                self._over(self._ended_by_kernel.popleft(), Outcome.KILLED_BY_KERNEL)
            else:
                self._advance()
        return Result(
            makespan_s=self._now_s,
            failure=self._failure,
            unfinished=self._left,
            kernel_kills=self._kernel_kills,
            kills=self._kills,
            requeued=self._requeued,
            suspended=self._suspended,
            stood_s=self._stood_s,
            lost_s=self._lost_s,
            peak_mib=self._peak_mib,
            over_limit_s=self._over_s,
            mean_running=self._running_s / self._now_s if self._now_s > 0 else 0.0,
            warnings=tuple(self._warnings),
            phases=tuple(self._finished),
        )

    # -- time ----------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """To the next thing that happens, and let it happen."""
        running = self._running
        share_cores(*self._paces, self._host.cores)
        first, second = self._paces
        first.look_ahead(running, self._now_s)
        second.look_ahead(running, self._now_s)
        ends = second if second.end_s < first.end_s else first
        bends = second if second.bend_s < first.bend_s else first
        end_s, bend_s = ends.end_s, bends.bend_s
        kill_s = self._kills_due[0][0] if self._kills_due else math.inf
        ask_s = self._asks_due[0][0] if self._asks_due else math.inf
        over_s = self._overrun_s()
        back_s = self._away[0][0] if self._away else math.inf
        to_s = max(self._now_s, min(end_s, bend_s, kill_s, ask_s, over_s, back_s, self._look_s))
        if to_s == math.inf:
            self._halted = True
            return
        self._pass_time(to_s)
        if to_s == end_s:
            ends.done_s, phase_id, _ = heapq.heappop(ends.ends)
            self._over(self._stop(phase_id), Outcome.OK)
        elif to_s == bend_s:
            self._bend(*heapq.heappop(bends.bends)[:2])
        elif to_s == over_s:
            # Where growth is steep and the clock has come far, "now" is too coarse to be beyond the limit.
            self._kernel(min(self._host.limit_mib, self._used_mib) - SLACK_MIB)
        elif to_s == kill_s:
            _, phase_id, tries = heapq.heappop(self._kills_due)
            if phase_id in running and running[phase_id].tries == tries:
                self._over(self._stop(phase_id), Outcome.KILLED_BY_US)
        elif to_s == back_s:
            self._back(heapq.heappop(self._away)[2])
        elif to_s == ask_s:
            self._ask(self._asks_due.popleft()[1])
        else:
            self._look()

    def _pass_time(self, to_s: float) -> None:
        passed_s = to_s - self._now_s
        if passed_s > 0:
            self._running_s += passed_s * len(self._running)
            if self._used_mib > self._most_mib:
                self._over_s += passed_s
            for pace in self._paces:
                pace.done_s += passed_s * pace.rate
                self._used_mib += passed_s * pace.rate * pace.slope_mib_s
            self._peak_mib = max(self._peak_mib, self._used_mib)
        self._now_s = to_s

    def _overrun_s(self) -> float:
        """When growing phases reach the limit."""
        first, second = self._paces
        slope_mib_s = first.slope_mib_s * first.rate + second.slope_mib_s * second.rate
        if not self._rules.enforced or slope_mib_s <= 0 or not self._running:
            return math.inf
        return self._now_s + max(0.0, self._host.limit_mib - self._used_mib) / slope_mib_s

    # -- memory --------------------------------------------------------------------------------------------

    def _bend(self, at: float, phase_id: int) -> None:
        """A phase has come to the next point of its course."""
        live = self._running[phase_id]
        live.pace.done_s = max(live.pace.done_s, at)
        live.bend += 1
        self._next_bend(live)
        self._count_memory(0.0)
        self._kernel(self._most_mib)

    def _next_bend(self, live: Live) -> None:
        at = live.next_bend_s
        if at is not None:
            heapq.heappush(live.pace.bends, (at, live.phase.phase_id, live.turn))

    def _count_memory(self, change_mib: float) -> None:
        """A phase came or went. Sums are made anew where they change with time, so that errors do not add up."""
        if not self._grows:
            self._used_mib = self._used_mib + change_mib if self._running else 0.0
        else:
            self._used_mib = sum(live.held_mib for live in self._running.values())
            for pace in self._paces:
                pace.slope_mib_s = 0.0
            for live in self._running.values():
                if not live.stopped:
                    live.pace.slope_mib_s += live.slope_mib_s
        # What holds its peak from its start on is seen at its start: it is not taken for growth.
        at_once = change_mib > 0 and not self._grows and self._rules.sample_s is not None
        self._look_s = min(self._look_s, self._now_s if at_once else self._next_look_s())

    def _kernel(self, most_mib: float) -> None:
        """End the largest phase while there are more bytes than memory."""
        while self._rules.enforced and self._used_mib > most_mib and self._running:
            worst = max(self._running.values(), key=lambda live: (live.held_mib, live.phase.phase_id))
            self._peak_mib = max(self._peak_mib, self._host.limit_mib)
            self._kernel_kills += 1
            self._ended_by_kernel.append(self._stop(worst.phase.phase_id))
        self._peak_mib = max(self._peak_mib, self._used_mib)

    def _next_look_s(self) -> float:
        if self._rules.sample_s is None:
            return math.inf
        if self._rules.looks == "production's":
            return max(self._now_s, self._due_look_s)
        return (math.floor(self._now_s / self._rules.sample_s + 1e-9) + 1) * self._rules.sample_s

    def _look(self) -> None:
        rss = self._sizes()
        self._period.saw(self._used_mib, self._now_s, busy=bool(self._running))
        self._due_look_s = self._now_s + self._period.next_s(
            self._host.limit_mib - self._used_mib, longest_s=self._rules.sample_s or 0.0
        )
        suspects = sorted(self._running.keys() & self._policy.suspects)
        cpu_s = tuple((phase_id, self._running[phase_id].done_s) for phase_id in suspects)
        self._look_s = math.inf
        if self._rules.sample_s is None and self._now_s > 0:
            self._feed(TimePassed(at_s=self._now_s))
        else:
            self._feed(
                MemorySampled(
                    at_s=self._now_s,
                    rss_mib=rss,
                    held_mib=self._used_mib,
                    headroom_mib=self._host.limit_mib - self._used_mib,
                    budget_mib=self._budget_mib,
                    reserve_mib=self._reserve_mib,
                    cpu_s=cpu_s,
                )
            )
        idle = not self._running and not self._away and not self._asks_due and self._waiting
        self._idle_looks = self._idle_looks + 1 if idle else 0
        self._halted = self._halted or self._idle_looks > IDLE_LOOKS
        grows = self._grows and self._running
        self._look_s = min(self._look_s, self._next_look_s() if grows else self._now_s + self._rules.quiet_s)

    def _sizes(self) -> tuple[tuple[int, float], ...]:
        """Of those that grow or just came, and of all others at times."""
        rests = not self._grows and self._now_s < self._all_seen_s + self._rules.rest_s
        if not rests:
            self._all_seen_s = self._now_s
        seen = self._came if rests else self._running
        sizes = tuple((each, self._running[each].held_mib) for each in seen if each in self._running)
        self._came.clear()
        return sizes

    # -- units and phases ----------------------------------------------------------------------------------

    def _open_units(self) -> None:
        while self._to_open and self._open < self._jobs:
            if self._to_open[0].work.after_all and self._open:
                return
            unit = self._to_open.popleft()
            self._open += 1
            work = unit.work
            registered = Unit(unit_id=unit_id(unit.index), source=work.source, output=work.name, archs=work.archs)
            if self._rules.held:
                self._held[registered.unit_id] = unit
            key, past = self._known.get(registered.unit_id, (None, None))
            self._feed(UnitBegan(at_s=self._now_s, unit=registered, held=self._rules.held, key=key, past=past))
            if not self._rules.held:
                self._ask(unit)

    def _ask(self, unit: Opened) -> None:
        live = self._asked(unit.work.phases[unit.at], unit)
        if live.phase.kind in self._rules.portable:
            live.phase = msgspec.structs.replace(live.phase, portable=True, tool=live.phase.kind.value)
        self._feed(PhaseAsked(at_s=self._now_s, phase=live.phase))

    def _asked(self, work: PhaseWork, unit: Opened) -> Live:
        self._last_id += 1
        live = Live(
            phase=work.asks(self._last_id, unit_id(unit.index), unit.work.name),
            unit=unit,
            work_s=max(work.wall_s, LEAST_WORK_S),
            peak_mib=work.peak_mib,
            course=course_of(work, self._rules.growth),
            asked_s=self._now_s,
            queued_s=self._now_s,
            pace=self._paces[0],
        )
        self._waiting[self._last_id] = live
        return live

    def _start(self, action: Admit) -> None:
        live = self._waiting.pop(action.phase_id)
        live.waited_s += self._now_s - live.queued_s
        live.estimate = action.estimate
        live.node = action.node
        if live.node:
            live.started_s = self._now_s
            live.tries += 1
            if not self._is_preprocessed_first(live):
                self._send(live)
            return
        live.pace = self._paces[action.gives_way]
        live.pace.at_work += 1
        live.started_s, live.from_s, live.killed = self._now_s, live.pace.done_s, False
        live.stood_s = 0.0
        live.tries += 1
        live.turn += 1
        live.bend = 0
        self._running[action.phase_id] = live
        self._came.append(action.phase_id)
        heapq.heappush(live.pace.ends, (live.from_s + live.work_s, action.phase_id, live.turn))
        self._next_bend(live)
        self._count_memory(live.peak_mib)

    def _stand(self, live: Live, action: Suspend | Resume) -> None:
        """It stands still, or works again: what was foretold of it comes later."""
        if isinstance(action, Suspend):
            live.stopped_at, live.stopped_s = live.pace.done_s, self._now_s
            live.pace.at_work -= 1
            live.turn += 1
            self._suspended += 1
        else:
            self._goes_on(live)
            heapq.heappush(live.pace.ends, (live.from_s + live.work_s, live.phase.phase_id, live.turn))
            self._next_bend(live)
        self._count_memory(0.0)

    def _goes_on(self, live: Live) -> None:
        if live.stopped_at is not None:
            live.from_s += live.pace.done_s - live.stopped_at
            live.stood_s += self._now_s - live.stopped_s
            self._stood_s += self._now_s - live.stopped_s
            live.pace.at_work += 1
            live.stopped_at = None

    def _kill(self, live: Live) -> None:
        if not live.killed:
            live.killed = True
            self._kills += 1
            after_s = self._rules.kill_s + self._rules.kill_s_per_gib * live.held_mib / 1024
            heapq.heappush(self._kills_due, (self._now_s + after_s, live.phase.phase_id, live.tries))

    def _is_preprocessed_first(self, live: Live) -> bool:
        """Host code is, by this machine: its node waits meanwhile."""
        before = self._before[live.unit.index]
        if live.phase.kind is not PhaseKind.HOST or before is None:
            return False
        asked = self._asked(before, live.unit)
        asked.phase = msgspec.structs.replace(asked.phase, urgent=True)
        asked.before = live
        self._feed(PhaseAsked(at_s=self._now_s, phase=asked.phase))
        return True

    def _send(self, live: Live) -> None:
        """It has a core there, and its memory: which of them it gets is the policy's to count."""
        way_s = self._rules.way_s + self._rules.way_s_per_mib * live.phase.input_mib
        heapq.heappush(self._away, (self._now_s + way_s + live.work_s, live.phase.phase_id, live))

    def _stop(self, phase_id: int) -> Live:
        live = self._running.pop(phase_id)
        self._goes_on(live)
        live.pace.at_work -= 1
        self._count_memory(-live.peak_mib)
        return live

    def _over(self, live: Live, outcome: Outcome) -> None:
        """A phase has ended: the policy's turn, and then that of the phase's unit."""
        unit, phase_id = live.unit, live.phase.phase_id
        held_mib = live.peak_mib if outcome is Outcome.OK else live.highest_mib
        if self._rules.enforced:
            held_mib = min(held_mib, self._host.limit_mib)
        if outcome is Outcome.OK:
            self._note(live)
            if live.before is None:
                unit.at += 1
        else:
            self._lost_s += live.done_s
            unit.tries += 1
        wall_s = live.work_s if live.node else self._now_s - live.started_s - live.stood_s
        live.queued_s = self._now_s
        self._ending = {phase_id: live}
        ended = PhaseEnded(
            at_s=self._now_s, phase_id=phase_id, outcome=outcome, peak_mib=held_mib, wall_s=wall_s, node=live.node
        )
        self._feed(ended)
        if outcome is not Outcome.OK:
            again = self._ending.pop(phase_id, None) is None
            self._halted = self._halted or not again or unit.tries > self._rules.most_tries * len(unit.work.phases)
            if again and self._failure is None and self._rules.redo == "unit":
                unit.at = 0
                self._ask(unit)
        elif live.before is not None:
            self._send(live.before)
        elif unit.at < len(unit.work.phases):
            if self._rules.gap_s > 0:
                self._asks_due.append((self._now_s + self._rules.gap_s, unit))
            else:
                self._ask(unit)
        else:
            self._feed(UnitEnded(at_s=self._now_s, unit_id=live.phase.unit_id))
            self._open -= 1
            self._left -= 1
            self._open_units()

    def _back(self, live: Live) -> None:
        """It has run on another machine."""
        live.from_s = live.pace.done_s
        self._over(live, Outcome.OK)

    def _note(self, live: Live) -> None:
        self._finished.append(
            PhaseRun(
                phase_id=live.phase.phase_id,
                unit=live.unit.work.name,
                kind=live.phase.kind,
                asked_s=live.asked_s,
                waited_s=live.waited_s,
                ended_s=self._now_s,
                tries=live.tries,
                expected_mib=live.estimate.peak_mib,
                reserve_mib=live.estimate.reserve_mib,
                peak_mib=live.peak_mib,
            )
        )

    # -- the policy's wishes -------------------------------------------------------------------------------

    def _feed(self, event: Fact) -> None:
        started = False
        for action in self._policy.handle(event):
            if isinstance(action, Admit):
                self._start(action)
                started = True
            elif isinstance(action, ReleaseUnit):
                self._asks_due.append((self._now_s + self._rules.gap_s, self._held.pop(action.unit_id)))
            elif isinstance(action, Kill):
                self._kill(self._running[action.phase_id])
            elif isinstance(action, Suspend | Resume):
                self._stand(self._running[action.phase_id], action)
            elif isinstance(action, Requeue):
                self._requeued += 1
                live = self._ending.pop(action.phase_id)
                if self._rules.redo == "phase":
                    self._waiting[action.phase_id] = live
            elif isinstance(action, GiveUp):
                live = self._ending.pop(action.phase_id)
                self._failure = Failure(unit=live.unit.work.name, kind=live.phase.kind, verdict=action.verdict.value)
            elif isinstance(action, OutOfTime):
                # What runs is lost with it.
                self._halted = True
            elif isinstance(action, Warn):
                self._warnings.append(action.kind.value)
        if started:
            self._kernel(self._most_mib)


class Pace(msgspec.Struct, eq=False):
    """How fast phases of one priority work: a clock of their work, and what is foretold on it."""

    done_s: float = 0.0
    """the work that one has done which ran from the start"""
    rate: float = 1.0
    """work done in a second, at most 1"""
    at_work: int = 0
    """those that run and do not stand still"""
    slope_mib_s: float = 0.0
    """their growth for each second of work"""
    ends: list[tuple[float, int, int]] = msgspec.field(default_factory=list)
    bends: list[tuple[float, int, int]] = msgspec.field(default_factory=list)
    """(when on this clock, which phase, in which of its turns)"""

    end_s: float = math.inf
    bend_s: float = math.inf
    """when the first of them comes"""

    def look_ahead(self, running: Mapping[int, Live], now_s: float) -> None:
        """Never before now: of two that are due at once, the first may have taken the work done past the second."""
        ends, bends = self.ends, self.bends
        for due in (ends, bends):
            while due and (due[0][1] not in running or running[due[0][1]].turn != due[0][2]):
                heapq.heappop(due)
        self.end_s = now_s + max(0.0, ends[0][0] - self.done_s) / self.rate if ends else math.inf
        self.bend_s = now_s + max(0.0, bends[0][0] - self.done_s) / self.rate if bends else math.inf


def share_cores(first: Pace, second: Pace, cores: int) -> None:
    """As Linux does among processes of two nice values: by weight, and to none more than one core."""
    if first.at_work + second.at_work <= cores:
        first.rate = second.rate = 1.0
        return
    share = cores / (first.at_work + GIVEN_WAY * second.at_work)
    first.rate = min(1.0, share)
    second.rate = min(1.0, GIVEN_WAY * share)
    if share > 1.0 and second.at_work:
        second.rate = min(1.0, (cores - first.at_work) / second.at_work)


class Opened(msgspec.Struct, eq=False):
    """A unit that the build tool has begun."""

    index: int
    work: UnitWork
    at: int = 0
    """which phase is next, or runs"""
    tries: int = 0


class Live(msgspec.Struct, eq=False):
    """A phase that waits or runs: what it holds at a given amount of work."""

    phase: Phase
    unit: Opened
    work_s: float
    peak_mib: float
    course: Course
    asked_s: float
    queued_s: float
    pace: Pace
    waited_s: float = 0.0
    tries: int = 0
    from_s: float = 0.0
    """on its clock, when it started"""
    bend: int = 0
    """the last point of its course that is behind it"""
    started_s: float = 0.0
    estimate: Estimate = Estimate(peak_mib=0.0, spread_mib=0.0, source="")
    killed: bool = False
    turn: int = 0
    """ends and bends that were foretold in another turn do not come"""
    stopped_at: float | None = None
    """on its clock, when it was stopped for a while; None while it works"""
    stopped_s: float = 0.0
    """when"""
    stood_s: float = 0.0
    """how long it stood still, in all"""
    node: str = ""
    """the other machine that it runs on"""
    before: Live | None = None
    """what is sent once this has ended"""

    @property
    def next_bend_s(self) -> float | None:
        """When the next point of its course comes, on its clock; None when none comes before the end."""
        if self.bend + 1 == len(self.course) or self.course[self.bend + 1][0] >= 1.0:
            return None
        return self.from_s + self.work_s * self.course[self.bend + 1][0]

    @property
    def slope_mib_s(self) -> float:
        """Growth for each second of work."""
        return self.peak_mib * slope(self.course, self.bend) / self.work_s

    @property
    def held_mib(self) -> float:
        """What it holds now."""
        return self.peak_mib * held_share(self.course, self.bend, self._share)

    @property
    def highest_mib(self) -> float:
        """The most that it has held."""
        return self.peak_mib * highest_share(self.course, self.bend, self._share)

    @property
    def stopped(self) -> bool:
        return self.stopped_at is not None

    @property
    def done_s(self) -> float:
        """Work done."""
        return (self.pace.done_s if self.stopped_at is None else self.stopped_at) - self.from_s

    @property
    def _share(self) -> float:
        return min(1.0, self.done_s / self.work_s)
