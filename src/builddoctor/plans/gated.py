"""What a build under gates would take: the production policy on a virtual clock.

Covers: a recipe's units as builddoctor would run them on a machine: with which threads, how fast at best, their time,
peak and order when simulated, and how many jobs with a time limit they take. Peaks depend on which phases happen to run
side by side: so the build is simulated a few times with slightly other times, and the middle peak is taken. A build of
very many units is simulated in part.
Does *not* cover: the search for a better order than longest first: it would take seconds, and shortens a build by some
percent where memory is tight. Other users of the machine; configure steps.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import msgspec

from builddoctor.core.plan import PlanNode, Range
from builddoctor.core.recipe import Recipe
from builddoctor.estimation.past import median
from builddoctor.gates.knobs import settle
from builddoctor.plans.inputs import PlanHost
from builddoctor.scheduler.budget import slots, window
from builddoctor.simulate.of_recipe import AROUND_S, capped, workload
from builddoctor.simulate.result import Host, Result, Rules
from builddoctor.simulate.shipped import ExactEstimator, as_shipped
from builddoctor.simulate.what_if import BETWEEN_PHASES_S, steady
from builddoctor.simulate.with_nodes import all_seen, with_ways
from builddoctor.simulate.workload import Workload, lower_bound_s

VARIANTS = ((150, 5), (3_000, 3))
"""(phases, simulations) of a build; of a larger one a single simulation."""

VARIED_SHARE = 0.05
"""by which times differ from one to the next"""

MOST_PHASES = 5_000
UNITS_PER_CORE = 4
MOST_AT_ALL = 20_000
"""Phases of a simulation; more where a part of the build would not fill the cores."""

MOST_LOOKS = 30_000
"""Samples of memory in a simulation: as ``simulate.what_if``."""


FEW_LOOKS = 400
"""Samples where only the time is asked for."""


HELD_SHARE = 0.6
"""What a phase holds on average, as a share of its peak, and what is kept for it before it holds that."""


class Gated(msgspec.Struct, frozen=True, kw_only=True):
    """One build under gates."""

    makespan_s: float
    times_s: Range
    """of the simulations"""
    peak_mib: float
    peaks_mib: Range
    order: tuple[int, ...] = ()
    """units by their place in the workload, as they begin; empty where only a part was simulated"""
    completed: bool


def gated(work: Workload, host: PlanHost, *, margin: float, nodes: Sequence[PlanNode] = ()) -> Gated:
    """``margin``: how far above a phase's peak its reservation lies. Phases must fit alone in what is free, or on a
    node."""
    if not work.phases:
        nothing = Range(low=0.0, high=0.0)
        return Gated(makespan_s=0.0, times_s=nothing, peak_mib=0.0, peaks_mib=nothing, completed=True)
    enough = UNITS_PER_CORE * host.cores * work.phases // len(work.units)
    part, times = capped(_numbered(work), most_phases=min(MOST_AT_ALL, max(MOST_PHASES, enough)))
    part = _steady(part, host)
    count = next((number for phases, number in VARIANTS if part.phases <= phases), 1)
    results = [_simulated(_varied(part, seed), host, margin, nodes=nodes) for seed in range(count)]
    spans = [_whole_s(result, times) for result in results]
    peaks = [result.peak_mib for result in results]
    least_s = _bound_s(work, host) if times > 1 and not nodes else 0.0
    makespan_s = max(median(spans), least_s)
    return Gated(
        makespan_s=makespan_s,
        times_s=Range(low=min(spans), high=max(spans)),
        peak_mib=median(peaks),
        peaks_mib=Range(low=min(peaks), high=max(peaks)),
        order=_order(results[0]) if times == 1 else (),
        completed=all(result.completed for result in results),
    )


def quickly(work: Workload, host: PlanHost, *, margin: float) -> float | None:
    """Time alone, of one simulation; None where it would not complete. For builds that are not large."""
    if not work.phases:
        return 0.0
    result = _simulated(_steady(work, host), host, margin, looks=FEW_LOOKS)
    return result.makespan_s if result.completed else None


def attempts(work: Workload, host: PlanHost, *, margin: float, usable_s: float) -> int | None:
    """Runs of ``--until usable_s`` that it takes, each in the folder of the one before; None: some unit never ends."""
    if work.phases > MOST_PHASES:
        # Simulated in part; a run begins nothing that cannot end, so it may rest as long as the longest unit takes.
        longest_s = max(unit.wall_s for unit in work.units)
        return math.ceil(_bound_s(work, host) / (usable_s - longest_s)) if longest_s < usable_s else None
    runs, left = 0, work
    while left.units:
        part = _steady(_numbered(left), host)
        result = _simulated(part, host, margin, until_s=usable_s)
        ended = Counter(phase.unit for phase in result.phases)
        rest = [unit for unit, made in zip(left.units, part.units, strict=True) if ended[made.name] < len(made.phases)]
        if len(rest) == len(left.units):
            return None
        runs, left = runs + 1, msgspec.structs.replace(left, units=tuple(rest))
    return runs


def free_mib(host: PlanHost) -> float:
    """What is left to compilers: where the kernel begins to kill."""
    return max(host.budget_mib, host.free_share * host.memory_mib - host.beside_mib)


def _bound_s(work: Workload, host: PlanHost) -> float:
    return lower_bound_s(work, cores=host.cores, limit_mib=max(host.budget_mib, 1.0), held_share=HELD_SHARE)


def _simulated(
    work: Workload,
    host: PlanHost,
    margin: float,
    *,
    looks: int = MOST_LOOKS,
    nodes: Sequence[PlanNode] = (),
    until_s: float | None = None,
) -> Result:
    machine = Host(cores=host.cores, limit_mib=free_mib(host), own_budget_mib=host.budget_mib)
    sample_s = max(Rules().sample_s or 0.0, work.work_s / MOST_LOOKS, _bound_s(work, host) / looks)
    rules = Rules(
        growth="ramp",
        jobs=window(host.cores + sum(node.cores for node in nodes), host.budget_mib),
        held=True,
        gap_s=BETWEEN_PHASES_S,
        sample_s=sample_s,
        quiet_s=max(Rules().quiet_s, sample_s),
    )
    estimator = ExactEstimator(work, margin=margin, growth=rules.growth)
    rules = with_ways(rules) if nodes else rules
    return as_shipped(work, machine, estimator=estimator, rules=rules, first=all_seen(nodes), until_s=until_s)


def _numbered(work: Workload) -> Workload:
    """Units named by their place in the workload: two may have one name."""
    units = (msgspec.structs.replace(unit, name=str(at)) for at, unit in enumerate(work.units))
    return msgspec.structs.replace(work, units=tuple(units))


def _steady(work: Workload, host: PlanHost) -> Workload:
    return steady(work, running=slots(host.cores), last_s=min(work.work_s, _bound_s(work, host)))


def _varied(work: Workload, seed: int) -> Workload:
    """The same build with slightly other times; as it is for seed 0."""
    if not seed:
        return work
    chance = random.Random(seed)  # noqa: S311 - a seed for repeatable figures, no secret
    units = []
    for unit in work.units:
        phases = (
            msgspec.structs.replace(phase, wall_s=phase.wall_s * chance.uniform(1.0 - VARIED_SHARE, 1.0 + VARIED_SHARE))
            for phase in unit.phases
        )
        units.append(msgspec.structs.replace(unit, phases=tuple(phases)))
    return msgspec.structs.replace(work, units=tuple(units))


def _starts(result: Result) -> dict[str, float]:
    """By unit: when its first phase started."""
    starts: dict[str, float] = {}
    for run in result.phases:
        started_s = run.asked_s + run.waited_s
        starts[run.unit] = min(started_s, starts.get(run.unit, started_s))
    return starts


def _order(result: Result) -> tuple[int, ...]:
    starts = _starts(result)
    return tuple(int(unit) for unit in sorted(starts, key=lambda each: (starts[each], int(each))))


def _whole_s(result: Result, times: float) -> float:
    """Time of the whole build, of which a part was simulated: as long as units begin, so many times; its end once."""
    if times == 1:
        return result.makespan_s
    last_start_s = max(_starts(result).values(), default=0.0)
    return times * last_start_s + result.makespan_s - last_start_s


class GatedWork:
    """One recipe, for any machine with pages of one size."""

    def __init__(self, recipe: Recipe, *, allowance_mib: float) -> None:
        self._recipe = recipe
        self._allowance_mib = allowance_mib
        archs = ({phase.arch for phase in unit.phases if phase.arch} for unit in recipe.units)
        self._archs = max(1, max(map(len, archs), default=1))
        self.one_thread = workload(recipe, allowance_mib=allowance_mib, around_s=AROUND_S)
        self._area = sum(phase.peak_mib * phase.wall_s for unit in self.one_thread.units for phase in unit.phases)
        self._work_s = self.one_thread.work_s
        self._longest_s = max((unit.wall_s for unit in self.one_thread.units), default=0.0)

    def threads(self, host: PlanHost) -> int:
        """nvcc's in command lines; one where no unit is for several architectures."""
        jobs = window(host.cores, host.budget_mib)
        return min(self._archs, settle({}, window=jobs, cores=host.cores, ignore_caps=False).threads)

    def work(self, host: PlanHost) -> Workload:
        """A unit at its gate gets a thread for each of its architectures, where its share of the cores allows that, and
        one where memory, and not cores, is what is short (``scheduler.unit_release``). So few units that all are opened
        before it is short get theirs all the same."""
        many = len(self._recipe.units) > slots(host.cores)
        tight = many and HELD_SHARE * self._area / max(host.budget_mib, 1.0) > self._work_s / host.cores
        if self._archs == 1 or tight:
            return self.one_thread
        # Each architecture asks for itself: of one whose architectures do not fit together, as many run as fit.
        counts = [self._archs]
        while counts[-1] > 2:
            counts.append(-(-counts[-1] // 2))
        shared = [
            workload(
                self._recipe, threads=each, cores=host.cores, allowance_mib=self._allowance_mib, around_s=AROUND_S
            ).units
            for each in counts
        ]
        units = (
            next((unit for unit in choices if unit.peak_mib <= host.budget_mib), choices[-1])
            for choices in zip(*shared, self.one_thread.units, strict=True)
        )
        return msgspec.structs.replace(self.one_thread, units=tuple(units))

    def bound_s(self, host: PlanHost) -> float:
        """No order is much faster, with one thread."""
        by_memory_s = HELD_SHARE * self._area / max(host.budget_mib, 1.0)
        return max(self._work_s / host.cores, by_memory_s, self._longest_s)
