"""How tasks are sized in the literature, as schedulers on the same virtual clock.

Covers, written anew from the papers and from what their code does:

- Tovar et al., A Job Sizing Strategy for High-Throughput Scientific Workflows (TPDS 29, 2018): one first allocation
  for all tasks of a category, from the peaks and times seen, by either of its aims; then the largest seen, then all.
- Sizey (arXiv 2407.16353): several models of the peak by input size, weighed by accuracy and thrift, and an offset;
  then the largest seen, then twice as much. Of its four models there are the line and the neighbours, and a tree in
  place of the forest; not the neural network.
- KS+ (arXiv 2408.12290): rising segments, the end and peak of each by a line over input size, moved by fixed factors;
  what outgrows a segment gets the next one at that moment, or a fifth more where it was the last.

The papers size tasks. What runs when is a reading of ours (``Reserving``), the kindest that was found: in the order of
asking, or of units, nearly all builds tried took longer. A category is a kind of phase with its program; of one that is
not known yet a phase gets the whole limit. Each phase is in a cgroup of its own, of its allocation, as it were.
Does *not* cover: several machines, transfers, sizes in steps.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Literal, Protocol

import msgspec

from builddoctor.core.events import (
    Admit,
    Decision,
    Fact,
    Kill,
    KillReason,
    MemorySampled,
    PhaseAsked,
    PhaseEnded,
    Requeue,
)
from builddoctor.core.phase import Outcome, Phase
from builddoctor.simulate.baselines import NO_ESTIMATE
from builddoctor.simulate.engine import _Simulation
from builddoctor.simulate.result import USUAL, Host, Result, Rules
from builddoctor.simulate.workload import Growth, PhaseWork, Workload, course_of, held_share

LOOK_S = 0.25
"""as in the simulated builds"""

SLACK_MIB = 1e-6


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A task that ended well."""

    input_mib: float
    peak_mib: float
    wall_s: float
    looks: tuple[tuple[float, float], ...] = ()
    """what it held, after so many seconds"""


class Allocation(msgspec.Struct, frozen=True):
    """What a task may hold until each of these times; what it may at last, it may until its end."""

    steps: tuple[tuple[float, float], ...]
    end_s: float = math.inf
    """when it is expected to have ended"""

    def at(self, passed_s: float) -> float:
        index = bisect_right(self.steps, passed_s, key=_first)
        return self.steps[min(index, len(self.steps) - 1)][1]

    def before(self, passed_s: float) -> float:
        """Until then."""
        return self.steps[min(bisect_left(self.steps, passed_s, key=_first), len(self.steps) - 1)][1]

    def within(self, limit_mib: float) -> Allocation:
        if all(mib <= limit_mib for _, mib in self.steps):
            return self
        return Allocation(tuple((until_s, min(mib, limit_mib)) for until_s, mib in self.steps), self.end_s)


def _first(pair: tuple[float, float]) -> float:
    return pair[0]


def _flat(mib: float) -> Allocation:
    return Allocation(((math.inf, mib),))


WHOLE = _flat(math.inf)


class Sizer(Protocol):
    """What is known of one category."""

    def learn(self, ran: Ran) -> None: ...

    def first(self, input_mib: float) -> Allocation: ...

    def again(self, failed: Allocation, at_s: float) -> Allocation:
        """After a task was seen to hold more than it might, at that time of its run."""
        ...


class Tovar:
    """Least waste (equation 1 of the paper) or most throughput (3), of the peaks and times seen."""

    def __init__(self, aim: Literal["waste", "throughput"]) -> None:
        self._aim = aim
        self._seen: list[tuple[float, float]] = []
        self._first: Allocation | None = None

    def learn(self, ran: Ran) -> None:
        self._seen.append((ran.peak_mib, ran.wall_s))
        self._first = None

    def first(self, input_mib: float) -> Allocation:
        if not self._seen:
            return WHOLE
        if self._first is None:
            candidates = sorted({peak for peak, _ in self._seen}, reverse=True)
            self._first = _flat(min(candidates, key=self._cost))
        return self._first

    def _cost(self, mib: float) -> float:
        """In tasks and seconds, not in their means: both are over the same number."""
        most = max(peak for peak, _ in self._seen)
        all_s = sum(wall_s for _, wall_s in self._seen)
        twice = [wall_s for peak, wall_s in self._seen if peak > mib]
        if self._aim == "waste":
            return mib * all_s + most * sum(twice)
        at_once = most / mib * (len(self._seen) - len(twice)) + len(twice)
        return (all_s + sum(twice)) / at_once

    def again(self, failed: Allocation, at_s: float) -> Allocation:
        most = max((peak for peak, _ in self._seen), default=0.0)
        return _flat(most) if most > failed.at(at_s) else WHOLE


Points = Sequence[tuple[float, float]]
"""(input, what came of it), by input"""
Predict = Callable[[float], float]
Fit = Callable[[Points], Predict]


def line(points: Points) -> Predict:
    """Least squares; level where all inputs are the same."""
    mean_x = statistics.fmean(x for x, _ in points)
    mean_y = statistics.fmean(y for _, y in points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread > 0 else 0.0
    return lambda x: mean_y + slope * (x - mean_x)


def neighbours(count: int) -> Fit:
    """The mean of the nearest."""

    def fit(points: Points) -> Predict:
        def predict(x: float) -> float:
            place = bisect_left(points, x, key=_first)
            near = sorted(points[max(0, place - count) : place + count], key=lambda point: abs(point[0] - x))
            return statistics.fmean(y for _, y in near[:count])

        return predict

    return fit


def tree(depth: int) -> Fit:
    """Means between cuts, each where it leaves the least squares."""

    def fit(points: Points) -> Predict:
        cut = _cut(points) if depth and len(points) > 1 else 0
        if not cut:
            mean = statistics.fmean(y for _, y in points)
            return lambda _: mean
        middle = (points[cut - 1][0] + points[cut][0]) / 2
        below, above = tree(depth - 1)(points[:cut]), tree(depth - 1)(points[cut:])
        return lambda x: below(x) if x <= middle else above(x)

    return fit


def _cut(points: Points) -> int:
    """How many points are on its left; 0 where no inputs differ."""
    whole, left, best, found = sum(y for _, y in points), 0.0, -math.inf, 0
    for count, ((x, y), (after, _)) in enumerate(pairwise(points), start=1):
        left += y
        gain = left**2 / count + (whole - left) ** 2 / (len(points) - count)
        if x < after and gain > best:
            best, found = gain, count
    return found


FAMILIES: tuple[tuple[Fit, ...], ...] = (
    (line,),
    tuple(neighbours(count) for count in (2, 3, 5, 7, 9)),
    tuple(tree(depth) for depth in (3, 5)),
)
FOLDS = 5
Offset = Literal["deviation", "deviation below", "median", "median below", "dynamic"]
OFFSETS: tuple[Offset, ...] = ("deviation", "deviation below", "median", "median below")
GROWN = 1.1
"""models are fitted anew when so many times as much has been seen; the paper's after every task, or a few"""

FIRST_OFFSET = 0.05
"""before any prediction was wrong"""


def accuracy(fit: Fit, points: Points) -> float:
    """One less the mean error, no error being more than all; each point predicted from the folds it is not in."""
    folds = min(FOLDS, len(points))
    if folds < 2:
        return 0.0
    errors = []
    for fold in range(folds):
        predict = fit([point for at, point in enumerate(points) if at % folds != fold])
        errors += [min(1.0, abs(y - predict(x)) / y) for x, y in points[fold::folds]]
    return 1.0 - statistics.fmean(errors)


class Sizey:
    """``alpha``: what thrift counts beside accuracy. ``mixes``: models are weighed, not chosen."""

    def __init__(self, *, alpha: float, mixes: bool, offset: Offset) -> None:
        self._alpha, self._mixes, self._offset = alpha, mixes, offset
        self._points: list[tuple[float, float]] = []
        self._models: list[tuple[float, Predict, float]] = []
        """accuracy, model, offset"""
        self._fitted_on = 0
        self._first: dict[float, Allocation] = {}
        self._errors: tuple[list[float], ...] = tuple([] for _ in FAMILIES)
        """what was missing, as a share of what was needed"""

    def learn(self, ran: Ran) -> None:
        if self._points:
            for errors, (_, predict, _) in zip(self._errors, self._fitted(), strict=True):
                errors.append(1.0 - predict(ran.input_mib) / ran.peak_mib)
        self._points.append((ran.input_mib, ran.peak_mib))
        self._points.sort()

    def first(self, input_mib: float) -> Allocation:
        if not self._points:
            return WHOLE
        models = self._fitted()
        if input_mib not in self._first:
            self._first[input_mib] = self._sized(input_mib, models)
        return self._first[input_mib]

    def _sized(self, input_mib: float, fitted: Sequence[tuple[float, Predict, float]]) -> Allocation:
        least = min(peak for _, peak in self._points)
        guesses = [max(predict(input_mib), least) for _, predict, _ in fitted]
        scores = [
            (1 - self._alpha) * accurate - self._alpha * mib / max(guesses)
            for mib, (accurate, _, _) in zip(guesses, fitted, strict=True)
        ]
        best = scores.index(max(scores))
        weights = [math.exp(score) if self._mixes else float(at == best) for at, score in enumerate(scores)]
        mib = sum(weight * mib for weight, mib in zip(weights, guesses, strict=True)) / sum(weights)
        offset = sum(weight * more for weight, (_, _, more) in zip(weights, fitted, strict=True)) / sum(weights)
        return _flat(mib * (1.0 + offset))

    def _fitted(self) -> list[tuple[float, Predict, float]]:
        if not self._models or len(self._points) >= max(GROWN * self._fitted_on, self._fitted_on + 1):
            self._models, self._fitted_on, self._first = [], len(self._points), {}
            for family, errors in zip(FAMILIES, self._errors, strict=True):
                accurate, fit = max(((accuracy(fit, self._points), fit) for fit in family), key=lambda pair: pair[0])
                predict = fit(self._points)
                self._models.append((accurate, predict, self._added(predict, errors)))
        return self._models

    def _added(self, predict: Predict, errors: list[float]) -> float:
        if self._offset != "dynamic":
            return _offset(self._offset, errors)
        guesses = [(predict(x), y) for x, y in self._points]
        return min((_offset(name, errors) for name in OFFSETS), key=lambda more: _wasted(guesses, 1.0 + more))

    def again(self, failed: Allocation, at_s: float) -> Allocation:
        had, most = failed.at(at_s), max((peak for _, peak in self._points), default=0.0)
        return _flat(most if most > 1.05 * had else 2 * had)


def _offset(name: Offset, errors: list[float]) -> float:
    short = [error for error in errors if error > 0] if name.endswith("below") else [abs(error) for error in errors]
    if not short:
        return FIRST_OFFSET
    return statistics.median(short) if name.startswith("median") else statistics.pstdev(short)


def _wasted(guesses: Iterable[tuple[float, float]], factor: float) -> float:
    """What is over, or all where it was not enough."""
    return sum(factor * guess - (peak if factor * guess >= peak else 0.0) for guess, peak in guesses)


class KsPlus:
    """``early`` and ``high``: factors of the predicted ends of segments and of their peaks, 0.85 and 1.1 in the paper.

    The end that is expected is that of the last segment; the paper places no tasks, and does not say.
    """

    def __init__(self, *, segments: int, early: float, high: float) -> None:
        self._segments, self._early, self._high = segments, early, high
        self._seen: list[tuple[float, list[tuple[float, float]]]] = []
        self._lines: list[tuple[Predict, Predict]] = []
        self._first: dict[float, Allocation] = {}

    def learn(self, ran: Ran) -> None:
        self._seen.append((ran.input_mib, rising(ran, self._segments)))
        self._lines, self._first = [], {}

    def first(self, input_mib: float) -> Allocation:
        if not self._seen:
            return WHOLE
        if input_mib not in self._first:
            self._first[input_mib] = self._sized(input_mib)
        return self._first[input_mib]

    def _sized(self, input_mib: float) -> Allocation:
        if not self._lines:
            for at in range(self._segments):
                ends = [(x, found[at][0]) for x, found in self._seen]
                peaks = [(x, found[at][1]) for x, found in self._seen]
                self._lines.append((line(ends), line(peaks)))
        end_s = max(0.0, self._lines[-1][0](input_mib))
        mib = min(found[0][1] for _, found in self._seen)
        steps: list[tuple[float, float]] = []
        for end, peak in self._lines:
            mib = max(mib, self._high * peak(input_mib))
            steps.append((self._early * min(max(0.0, end(input_mib)), end_s), mib))
        return Allocation(tuple((until_s, mib) for until_s, mib in _ends_in_order(steps)), end_s)

    def again(self, failed: Allocation, at_s: float) -> Allocation:
        place = bisect_right(failed.steps, at_s, key=_first)
        if place >= len(failed.steps) - 1:
            until_s, mib = failed.steps[-1]
            return Allocation((*failed.steps[:-1], (until_s, 1.2 * mib)), failed.end_s)
        # It was so since the last look at most.
        since_s = max(at_s - LOOK_S, failed.steps[place - 1][0] if place else 0.0)
        sooner = since_s / failed.steps[place][0]
        rest = ((sooner * until_s, mib) for until_s, mib in failed.steps[place:])
        return Allocation((*failed.steps[:place], *rest), failed.end_s)


def _ends_in_order(steps: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """No segment ends after a later one does."""
    ordered: list[tuple[float, float]] = []
    for until_s, mib in reversed(steps):
        ordered.append((min(until_s, ordered[-1][0]) if ordered else until_s, mib))
    return ordered[::-1]


def rising(ran: Ran, count: int) -> list[tuple[float, float]]:
    """(end, peak) of ``count`` segments: neighbours that add the least are merged; where fewer rise, the last again."""
    found: list[tuple[float, float]] = []
    for until_s, mib in (*ran.looks, (ran.wall_s, ran.peak_mib)):
        if found and mib <= found[-1][1]:
            found[-1] = (until_s, found[-1][1])
        else:
            found.append((until_s, mib))
    while len(found) > count:
        begins = [0.0, *(until_s for until_s, _ in found)]
        added = [(found[at + 1][1] - found[at][1]) * (found[at][0] - begins[at]) for at in range(len(found) - 1)]
        found.pop(added.index(min(added)))
    return found + found[-1:] * (count - len(found))


class _Runs(msgspec.Struct):
    phase: Phase
    allocation: Allocation
    from_s: float
    looks: list[tuple[float, float]]
    outgrew_s: float | None = None
    """when it was seen to hold more than it might"""


class Reserving:
    """The largest that fits begins: at no moment to come may all allocations together be more than the limit.

    A task that was ended since it held more than its allocation is sized again; one that was ended within it comes back
    as it was. One that has not ended when it was expected to is taken to run on.
    ``by_unit``: what an earlier build took for the same phase of the same unit is a category of its own. With Tovar's
    sizing and Sizey's such second builds took 1.2 to 2.2 times as long at (4, 6) and (16, 8): no slack is left.
    """

    suspects: frozenset[int] = frozenset()

    def __init__(self, sizer: Callable[[], Sizer], host: Host, *, by_unit: bool = False) -> None:
        self._make, self._host, self._by_unit = sizer, host, by_unit
        self._sizers: dict[str, Sizer] = {}
        self._waiting: dict[int, Phase] = {}
        self._again: dict[int, tuple[Allocation, float | None]] = {}
        self._running: dict[int, _Runs] = {}
        self._moves = False

    def train(self, earlier: Workload, growth: Growth) -> None:
        """On a build that has been: looked at as often as this one."""
        for unit in earlier.units:
            for work in unit.phases:
                self._learn(work.asks(0, "", unit.name), _ran(work, growth))

    def handle(self, event: Fact) -> Sequence[Decision]:
        if isinstance(event, PhaseAsked):
            self._waiting[event.phase.phase_id] = event.phase
        elif isinstance(event, PhaseEnded):
            ended = self._ended(event)
            return [*ended, *self._start(event.at_s)]
        elif isinstance(event, MemorySampled):
            kills = self._enforce(event)
            # A course that rises later may have come to fit.
            return [*kills, *self._start(event.at_s)] if self._moves else kills
        else:
            return []
        return self._start(event.at_s)

    def allowed_mib(self, phase_id: int, now_s: float) -> float:
        """What this running phase may hold."""
        ran = self._running[phase_id]
        return ran.allocation.at(now_s - ran.from_s)

    def _categories(self, phase: Phase) -> tuple[str, ...]:
        """The narrowest first."""
        kind = f"{phase.kind.value} {phase.tool}"
        return (f"{kind} {phase.arch} {phase.source}", kind) if self._by_unit else (kind,)

    def _learn(self, phase: Phase, ran: Ran) -> None:
        for category in self._categories(phase):
            self._sizers.setdefault(category, self._make()).learn(ran)

    def _sizer(self, phase: Phase) -> Sizer:
        found = (self._sizers.get(category) for category in self._categories(phase))
        return next((sizer for sizer in found if sizer is not None), self._make())

    def _ended(self, event: PhaseEnded) -> list[Decision]:
        ran = self._running.pop(event.phase_id)
        if event.outcome is Outcome.OK:
            looks = tuple(ran.looks)
            figures = Ran(input_mib=ran.phase.input_mib, peak_mib=event.peak_mib, wall_s=event.wall_s, looks=looks)
            self._learn(ran.phase, figures)
            return []
        if ran.outgrew_s is None and event.peak_mib > ran.allocation.at(event.wall_s):
            ran.outgrew_s = event.wall_s
        self._again[event.phase_id] = (ran.allocation, ran.outgrew_s)
        self._waiting[event.phase_id] = ran.phase
        return [Requeue(phase_id=event.phase_id, estimate=NO_ESTIMATE, solo=False)]

    def _enforce(self, event: MemorySampled) -> list[Decision]:
        kills: list[Decision] = []
        for phase_id, mib in event.rss_mib:
            ran = self._running[phase_id]
            passed_s = event.at_s - ran.from_s
            if mib > ran.allocation.at(passed_s) + SLACK_MIB and ran.outgrew_s is None:
                ran.outgrew_s = passed_s
                kills.append(Kill(phase_id=phase_id, reason=KillReason.HEADROOM))
            elif passed_s > 0:
                ran.looks.append((passed_s, mib))
        return kills

    def _start(self, now_s: float) -> list[Decision]:
        admitted: list[Decision] = []
        if len(self._running) >= self._host.cores:
            return admitted
        sums = self._sums(now_s)
        wanted = ((phase_id, self._wants(phase)) for phase_id, phase in self._waiting.items())
        for phase_id, wants in sorted(wanted, key=lambda pair: (-pair[1].steps[-1][1], pair[0])):
            if len(self._running) >= self._host.cores:
                break
            if self._running and not self._fits(wants, sums):
                continue
            self._again.pop(phase_id, None)
            self._moves = self._moves or len(wants.steps) > 1
            self._running[phase_id] = _Runs(self._waiting.pop(phase_id), wants, now_s, [])
            admitted.append(Admit(phase_id=phase_id, estimate=NO_ESTIMATE, alone=False))
            sums = self._sums(now_s)
        return admitted

    def _wants(self, phase: Phase) -> Allocation:
        """By what is known now, also where it outgrew something before."""
        sizer, (failed, at_s) = self._sizer(phase), self._again.get(phase.phase_id, (None, None))
        if failed is None:
            wants = sizer.first(phase.input_mib)
        else:
            wants = failed if at_s is None else sizer.again(failed, at_s)
        return wants.within(self._host.limit_mib)

    def _sums(self, now_s: float) -> list[tuple[float, float]]:
        """What all that run may hold, from each moment on at which that changes."""
        moments = {now_s}
        for ran in self._running.values():
            moments |= {ran.from_s + until_s for until_s, _ in (*ran.allocation.steps, (ran.allocation.end_s, 0.0))}
        return [
            (moment_s, sum(_holds(ran, moment_s, now_s) for ran in self._running.values()))
            for moment_s in sorted(moments)
            if now_s <= moment_s < math.inf
        ]

    def _fits(self, wants: Allocation, sums: list[tuple[float, float]]) -> bool:
        """Between two moments what it may hold only rises."""
        now_s = sums[0][0]
        for at, (moment_s, held_mib) in enumerate(sums):
            if at and moment_s >= now_s + wants.end_s:
                break
            before_s = sums[at + 1][0] if at + 1 < len(sums) else math.inf
            if held_mib + wants.before(min(before_s - now_s, wants.end_s)) > self._host.limit_mib + SLACK_MIB:
                return False
        return True


class _Kept(_Simulation):
    """A phase is ended, and no other one, when it holds more than it might: by the kernel, or at the next look."""

    def __init__(self, workload: Workload, policy: Reserving, host: Host, rules: Rules) -> None:
        super().__init__(workload, policy, host, rules, {})
        self._reserving = policy

    def _kernel(self, most_mib: float) -> None:
        for phase_id, live in list(self._running.items()):
            if live.held_mib > self._reserving.allowed_mib(phase_id, self._now_s) + SLACK_MIB:
                self._ended_by_kernel.append(self._stop(phase_id))
        super()._kernel(most_mib)


def _holds(ran: _Runs, moment_s: float, now_s: float) -> float:
    end_s = ran.from_s + ran.allocation.end_s
    return 0.0 if now_s < end_s <= moment_s else ran.allocation.at(moment_s - ran.from_s)


def _ran(work: PhaseWork, growth: Growth) -> Ran:
    course, bend, looks = course_of(work, growth), 0, []
    for look in range(1, math.ceil(work.wall_s / LOOK_S)):
        done = look * LOOK_S / work.wall_s
        while bend + 1 < len(course) and course[bend + 1][0] <= done:
            bend += 1
        looks.append((look * LOOK_S, work.peak_mib * held_share(course, bend, done)))
    return Ran(input_mib=work.input_mib, peak_mib=work.peak_mib, wall_s=work.wall_s, looks=tuple(looks))


def reserving(
    workload: Workload,
    sizer: Callable[[], Sizer],
    host: Host,
    rules: Rules = USUAL,
    *,
    earlier: Workload | None = None,
    by_unit: bool = False,
) -> Result:
    """A build whose phases are sized so; ``earlier``: one to learn from before."""
    policy = Reserving(sizer, host, by_unit=by_unit)
    if earlier is not None:
        policy.train(earlier, rules.growth)
    return _Kept(workload, policy, host, rules).run(())
