"""A recipe and a machine made into a plan.

Covers: the window and threads that a build would get there, its time, peak and order under gates, stages and the best
fixed number of jobs without them, what other memory and cores would do, units that do not fit, hazards and notes; a
recipe of more architectures than are wanted, cut to those.
Does *not* cover: finding the recipe (``plans.inputs``), or showing the plan (``ui.plan_page``).

**Ranges.** Around the predicted time and peak lies what predictions were off where they could be measured
(``TIME_SHARE``, ``PEAK_SHARE``), and what several simulations with slightly other times gave. They grow with the spread
of the recipe's runs, with figures that are not measured on the real tools, with each difference between the recipe and
what is planned, and for a machine that was not measured: its cores may be faster or slower than the recipe's. The
upper end of the peak is never above the budget that builddoctor admits within, unless the simulation is.

**Larger pages.** No compiler was measured on a kernel with 64 KiB pages. What ``recipes.match`` allows for them is
added to every phase, and said to be an allowance.

**Architectures.** What a recipe has for architectures that are not wanted is left out. One that it lacks is taken to
cost what the most demanding one of the unit does, as in a build, and the difference is said: a wheel for seven takes
longer than one for a single one. What a unit is compiled for beyond the architectures that its build was for
(TransformerEngine's grouped GEMM: sm_90a, always) stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from builddoctor.core.phase import PhaseKind
from builddoctor.core.plan import AROUND_S, Alternative, Plan, PlanNode, Range, Stage, WithNodes
from builddoctor.core.recipe import Hazard, PhaseFigures, Recipe, RecipeUnit
from builddoctor.core.units import format_mib
from builddoctor.plans.gated import Gated, GatedWork, attempts, free_mib, gated, quickly
from builddoctor.plans.inputs import ChosenRecipe, PlanHost, scaled, shared_with
from builddoctor.plans.staged import UngatedWork
from builddoctor.projects.catalogue import beside_mib
from builddoctor.recipes.match import page_allowance_mib
from builddoctor.scheduler.budget import window
from builddoctor.simulate.with_nodes import PORTABLE
from builddoctor.simulate.workload import UnitWork, Workload

TIME_SHARE = 0.15
PEAK_SHARE = 0.10
"""What predictions are allowed to be off (docs/results/plan.md)."""

NOT_MEASURED = {"measured": (0.0, 0.0), "derived": (0.15, 0.3), "emulated": (0.12, 0.5)}
"""(of the peak, of the time). Emulated: large phases under aarch64's tools lie between 3 % below and 12 % above those
of x86-64 (of TransformerEngine 2.8, sm_100); the time under an emulator says little."""

OTHER_MACHINE = 0.15
EACH_DIFFERENCE = 0.05
LEAST_MARGIN = 0.01
MOST_SHARE = 0.75

MEMORY_SHARES = (0.5, 0.75, 1.0, 1.5, 2.0)
CORE_SHARES = (0.5, 1.0, 2.0)
MOST_SIMULATED = 800
"""Phases of a build whose alternatives are simulated, each of them; of a larger one they are worked out."""

AROUND_SHARE = 0.25
"""Of each job with a time limit ``AROUND_S`` are for what no recipe knows; of a short one no more than this share."""

DEVICE = (PhaseKind.CICC, PhaseKind.PTXAS)


def plan_chosen(
    chosen: ChosenRecipe,
    host: PlanHost,
    *,
    by_arch: bool = False,
    alternatives: bool = True,
    nodes: Sequence[PlanNode] = (),
    time_limit_s: float = 0.0,
) -> Plan:
    """Of the recipe that is nearest to what is wanted; the rest as for ``make_plan``."""
    return make_plan(
        chosen.recipe,
        name=chosen.name,
        host=host,
        archs=chosen.archs,
        by_arch=by_arch,
        differs=chosen.distance.words,
        distance=chosen.distance.value,
        alternatives=alternatives,
        nodes=nodes,
        time_limit_s=time_limit_s,
    )


def make_plan(
    recipe: Recipe,
    *,
    name: str,
    host: PlanHost,
    archs: Sequence[str] = (),
    by_arch: bool = False,
    differs: Sequence[str] = (),
    distance: float = 0.0,
    alternatives: bool = True,
    nodes: Sequence[PlanNode] = (),
    time_limit_s: float = 0.0,
) -> Plan:
    """``name``: the recipe's, or its file's. ``archs``: those wanted, where they are not the recipe's own. ``differs``:
    how else the recipe is not for this, in words, and ``distance`` how far (as ``estimation.past``); both widen
    ranges. ``alternatives``: other memory and cores as well, which takes most of the time. ``nodes``: other machines
    that may run phases. ``time_limit_s``: of jobs in which it is built, one after the other; 0 for none."""
    host = shared_with(host, beside_mib(recipe.project.name))
    recipe, arch_words, notes = for_archs(recipe, archs)
    # The comparison of the recipe with what is wanted may have said so already.
    differs = (
        *differs,
        *(words for words in arch_words if not any("arch" in each or "sm_" in each for each in differs)),
    )
    allowance_mib = round(page_allowance_mib(recipe.fingerprint.page_kib, host.page_kib), 1)
    free = free_mib(host)
    gated_work = GatedWork(recipe, allowance_mib=allowance_mib)
    work = gated_work.work(host)
    too_big = [unit for unit in recipe.units if _peak_mib(unit, allowance_mib) > free]
    fitting = msgspec.structs.replace(work, units=tuple(unit for unit in work.units if unit.peak_mib <= free))
    longest = max(fitting.units, key=lambda unit: unit.wall_s, default=None)
    peak_off, time_off = _off(recipe, host, len(differs), distance)
    margin = max(LEAST_MARGIN, peak_off - PEAK_SHARE)
    found = gated(fitting, host, margin=margin)
    plain = UngatedWork(recipe, allowance_mib=allowance_mib)
    stages = plain.staged(host, free_mib=free, by_arch=by_arch)
    most_s = max(found.makespan_s, found.times_s.high) * (1 + time_off)
    return Plan(
        recipe=name,
        project=recipe.project.name,
        version=recipe.project.version,
        archs=tuple(archs) or recipe.fingerprint.archs,
        provenance=recipe.origin.provenance,
        runs=recipe.origin.runs,
        differs=tuple(differs),
        machine=host.name,
        host_arch=host.host_arch,
        cores=host.cores,
        memory_mib=round(host.memory_mib, 1),
        reserve_mib=round(host.reserve_mib, 1),
        beside_mib=host.beside_mib,
        budget_mib=round(host.budget_mib, 1),
        page_kib=host.page_kib,
        page_allowance_mib=allowance_mib,
        window=window(host.cores, host.budget_mib),
        threads=gated_work.threads(host),
        order=_order(work, fitting, found),
        stages=tuple(_rounded(stage) for stage in stages.stages),
        peak_mib=round(found.peak_mib, 1),
        peak_range_mib=_peak_range(found, host, peak_off),
        makespan_s=round(found.makespan_s, 1),
        makespan_range_s=Range(
            low=round(found.times_s.low * (1 - min(MOST_SHARE, time_off)), 1),
            high=round(most_s, 1),
        ),
        time_limit_s=time_limit_s or None,
        attempts=(_attempts(fitting, host, margin, found.makespan_s, most_s, time_limit_s) if time_limit_s else None),
        longest_unit=longest.name if longest is not None else "",
        longest_unit_s=round(longest.wall_s, 1) if longest is not None else 0.0,
        staged_s=None if too_big else round(stages.makespan_s, 1),
        static=plain.best_static(host, free_mib=free),
        alternatives=_alternatives(gated_work, plain, host, found, margin) if alternatives else (),
        cluster=_with_nodes(work, host, nodes, free, margin),
        too_big=tuple(f"{unit.place}: {format_mib(_peak_mib(unit, allowance_mib))}" for unit in too_big),
        hazards=hazards_on(recipe, host.host_arch),
        notes=(*notes, *_notes(recipe, host, allowance_mib, free), *host.notes),
    )


def _attempts(
    work: Workload, host: PlanHost, margin: float, likely_s: float, most_s: float, time_limit_s: float
) -> int | None:
    """At the upper end of what is expected: where all takes so much longer, a job has so much less time."""
    usable_s = time_limit_s - around_s(time_limit_s)
    return attempts(work, host, margin=margin, usable_s=usable_s * likely_s / most_s) if most_s > 0 else 1


def around_s(time_limit_s: float) -> float:
    """Of a job's time, what is for all but compilers."""
    return min(AROUND_S, AROUND_SHARE * time_limit_s)


def _with_nodes(
    work: Workload, host: PlanHost, nodes: Sequence[PlanNode], free: float, margin: float
) -> WithNodes | None:
    """The whole build, with what does not fit here run where it does."""
    if not nodes:
        return None
    largest_mib = max(free, *(node.budget_mib for node in nodes))
    peaks = [_peaks_mib(unit) for unit in work.units]
    if any(stays > free or goes > largest_mib for stays, goes in peaks):
        return WithNodes(nodes=tuple(nodes), makespan_s=None)
    found = gated(work, host, margin=margin, nodes=nodes)
    only_there = (unit.name for unit, (_, goes) in zip(work.units, peaks, strict=True) if goes > free)
    makespan_s = round(found.makespan_s, 1) if found.completed else None
    return WithNodes(nodes=tuple(nodes), makespan_s=makespan_s, only_there=tuple(only_there))


def _peaks_mib(unit: UnitWork) -> tuple[float, float]:
    """Of the phases that stay here, and of those that may go."""
    stays = (phase.peak_mib for phase in unit.phases if phase.kind not in PORTABLE)
    return max(stays, default=0.0), max(
        (phase.peak_mib for phase in unit.phases if phase.kind in PORTABLE), default=0.0
    )


def hazards_on(recipe: Recipe, host_arch: str) -> tuple[Hazard, ...]:
    """Those that are known for every machine, or for this kind of processor; all where that is not known."""
    return tuple(each for each in recipe.hazards if not each.host_arch or not host_arch or each.host_arch == host_arch)


def _peak_mib(unit: RecipeUnit, allowance_mib: float) -> float:
    return max((phase.peak_mib for phase in unit.phases), default=-allowance_mib) + allowance_mib


def _off(recipe: Recipe, host: PlanHost, differences: int, distance: float) -> tuple[float, float]:
    """How far peak and time may be off, as shares: see above."""
    peak, time = NOT_MEASURED[recipe.origin.provenance]
    # The distance contains the share for figures that are not measured.
    apart = max(EACH_DIFFERENCE * differences, distance - peak)
    other = 0.0 if host.measured else OTHER_MACHINE
    peaks = [(phase.cpu_s, phase.high_mib / phase.peak_mib - 1) for phase in _phases(recipe) if phase.peak_mib > 0]
    times = [(phase.cpu_s, phase.high_s / phase.cpu_s - 1) for phase in _phases(recipe) if phase.cpu_s > 0]
    return PEAK_SHARE + peak + apart + _spread(peaks), TIME_SHARE + time + apart + other + _spread(times)


def _phases(recipe: Recipe) -> Iterator[PhaseFigures]:
    return (phase for unit in recipe.units for phase in unit.phases)


def _spread(pairs: Sequence[tuple[float, float]]) -> float:
    """The mean share above the median, a phase counting by its time; at most 1."""
    whole_s = sum(time_s for time_s, _ in pairs)
    return min(1.0, sum(time_s * max(0.0, share) for time_s, share in pairs) / whole_s) if whole_s > 0 else 0.0


def _peak_range(found: Gated, host: PlanHost, off: float) -> Range:
    most_mib = max(found.peaks_mib.high, min(host.budget_mib, found.peaks_mib.high * (1 + off)))
    return Range(low=round(found.peaks_mib.low * (1 - min(MOST_SHARE, off)), 1), high=round(most_mib, 1))


def _order(work: Workload, fitting: Workload, found: Gated) -> tuple[str, ...]:
    """Units in the order in which they begin; those that do not fit at the end."""
    names = [unit.name for unit in fitting.units]
    if found.order:
        order = [names[at] for at in found.order]
        begun = set(found.order)
        order += [name for at, name in enumerate(names) if at not in begun]
    else:
        longest = sorted(fitting.units, key=lambda unit: (unit.after_all, -unit.wall_s))
        order = [unit.name for unit in longest]
    kept = {id(unit) for unit in fitting.units}
    return (*order, *(unit.name for unit in work.units if id(unit) not in kept))


def _alternatives(
    gated_work: GatedWork, plain: UngatedWork, host: PlanHost, known: Gated, margin: float
) -> tuple[Alternative, ...]:
    """Other memory and cores, on the same kind of machine."""
    found = []
    work = gated_work.one_thread
    over_bound = known.makespan_s / max(gated_work.bound_s(host), 1e-3)
    counts = sorted({max(1, round(host.cores * share)) for share in CORE_SHARES})
    for share in MEMORY_SHARES:
        for cores in counts:
            memory_mib = host.memory_mib * share
            same = share == 1.0 and cores == host.cores
            other = host if same else scaled(host, cores=cores, memory_mib=memory_mib)
            free = free_mib(other)
            fits = work.peak_mib <= free
            if not fits:
                time_s = None
            elif same:
                time_s = known.makespan_s
            elif work.phases <= MOST_SIMULATED:
                time_s = quickly(gated_work.work(other), other, margin=margin)
            else:
                # As far above the bound as the one that was simulated.
                time_s = over_bound * gated_work.bound_s(other)
            static = plain.best_static(other, free_mib=free) if fits else None
            found.append(
                Alternative(
                    cores=cores,
                    memory_mib=round(memory_mib, 1),
                    budget_mib=round(other.budget_mib, 1),
                    makespan_s=None if time_s is None else round(time_s, 1),
                    static_jobs=None if static is None else static.jobs,
                    static_s=None if static is None else round(static.makespan_s, 1),
                )
            )
    return tuple(found)


def _notes(recipe: Recipe, host: PlanHost, allowance_mib: float, free: float) -> list[str]:
    """What a person should know of this plan; of the machine: ``plans.inputs``."""
    notes = []
    if allowance_mib:
        notes.append(
            f"pages of {host.page_kib} KiB, the recipe's were {recipe.fingerprint.page_kib}: {allowance_mib:.0f} MiB "
            "are added to every phase: an allowance, not a measurement; no compiler was measured with such pages"
        )
    alone = [unit for unit in recipe.units if host.budget_mib < _peak_mib(unit, allowance_mib) <= free]
    if alone:
        largest = max(alone, key=lambda unit: _peak_mib(unit, allowance_mib))
        notes.append(
            f"{largest.place} needs {format_mib(_peak_mib(largest, allowance_mib))}, more than the budget: it runs "
            "alone, and takes of what should stay free"
        )
    nameless = sum(not unit.target and not unit.after_all for unit in recipe.units)
    if nameless:
        notes.append(
            f"of {nameless} unit{'s' * (nameless != 1)} the recipe does not say what Ninja calls them: they are built "
            "in the last stage"
        )
    other_arch = recipe.fingerprint.host_arch
    if other_arch and host.host_arch and other_arch != host.host_arch:
        notes.append(
            f"figures of {other_arch} compilers on {host.host_arch}: phases above 1.5 GiB differ by -3 to +12 %, small "
            "ones take 25 to 90 MiB more"
        )
    return notes


def _rounded(stage: Stage) -> Stage:
    return msgspec.structs.replace(
        stage,
        largest_mib=round(stage.largest_mib, 1),
        peak_mib=round(stage.peak_mib, 1),
        makespan_s=round(stage.makespan_s, 1),
    )


def for_archs(recipe: Recipe, wanted: Sequence[str]) -> tuple[Recipe, tuple[str, ...], tuple[str, ...]]:
    """The recipe for these, how it differs, and notes. None wanted: the recipe as it is."""
    known = _known(recipe)
    if not wanted or set(wanted) == known:
        return recipe, (), ()
    missing = [arch for arch in wanted if arch not in known]
    others = ", ".join(sorted(known)) or "no architecture"
    differs = (f"it was made for {others}, not for {', '.join(missing)}",) if missing else ()
    always = _compiled(recipe) - known
    units = tuple(_for(unit, wanted, known, always) for unit in recipe.units)
    left_out = [] if missing else sorted(known - set(wanted))
    notes = (f"what the recipe has of {', '.join(left_out)} is left out",) if left_out else ()
    return msgspec.structs.replace(recipe, units=units), differs, notes


def _known(recipe: Recipe) -> set[str]:
    """What its build was for; where it does not say so, all that something is compiled for."""
    return {arch for arch in recipe.fingerprint.archs if arch} or _compiled(recipe)


def _compiled(recipe: Recipe) -> set[str]:
    return {phase.arch for unit in recipe.units for phase in unit.phases if phase.kind in DEVICE and phase.arch}


def _for(unit: RecipeUnit, wanted: Sequence[str], known: Collection[str], always: Collection[str]) -> RecipeUnit:
    """With the device phases of those that are wanted, and the preprocessing that comes before each of them."""
    chains: dict[str, list[PhaseFigures]] = {}
    kept: list[PhaseFigures] = []
    end = 0
    for at, phase in enumerate(unit.phases):
        after = unit.phases[at + 1] if at + 1 < len(unit.phases) else None
        of = phase
        if phase.kind is PhaseKind.PREPROCESS and after is not None and after.kind is PhaseKind.CICC:
            of = after
        if of.kind not in DEVICE or not of.arch or of.arch in always:
            kept.append(phase)
            continue
        chains.setdefault(of.arch, []).append(phase)
        if of.arch in wanted:
            kept.append(phase)
        end = len(kept)
    missing = [arch for arch in wanted if arch not in known and arch not in chains] if chains else []
    if not missing and not chains.keys() & set(wanted):
        # No kernels; or for one architecture alone, which is not wanted: the rest of such a unit was not measured.
        return unit
    worst = max(chains.values(), key=lambda chain: max(phase.peak_mib for phase in chain))
    copies = [
        # Nobody packs by a course that was carried over.
        msgspec.structs.replace(phase, arch=arch if phase.arch else "", course="", provenance="derived")
        for arch in missing
        for phase in worst
    ]
    archs = [arch for arch in unit.archs if arch in wanted or arch in always]
    return msgspec.structs.replace(
        unit,
        phases=(*kept[:end], *copies, *kept[end:]),
        archs=(*archs, *missing) if unit.archs else (),
    )
