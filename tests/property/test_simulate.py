"""Random builds on random machines, under the production scheduler: its promises hold up to the end of each build."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.events import Decision, Fact
from builddoctor.core.phase import PhaseKind
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.simulate.engine import simulate
from builddoctor.simulate.result import Host, Rules
from builddoctor.simulate.shipped import ExactEstimator, scheduler
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload, lower_bound_s
from support.examples import examples
from support.workloads import at_peaks, disturbed

SHARES = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda point: (point[0] / 20, point[1] / 20))
PHASES = st.builds(
    PhaseWork,
    kind=st.sampled_from([PhaseKind.PREPROCESS, PhaseKind.CUDAFE, PhaseKind.CICC, PhaseKind.PTXAS, PhaseKind.HOST]),
    arch=st.sampled_from(["", "sm_90"]),
    input_mib=st.sampled_from([0.0, 0.5, 4.0, 20.0]),
    peak_mib=st.one_of(st.floats(1, 400), st.floats(400, 2000)),
    wall_s=st.one_of(st.just(0.0), st.floats(0.01, 3), st.floats(3, 90)),
    tool=st.just("tool"),
    curve=st.one_of(st.just(()), st.lists(SHARES, min_size=1, max_size=6).map(lambda points: tuple(sorted(points)))),
)


@st.composite
def workloads(draw: st.DrawFn, most_units: int = 12) -> Workload:
    made = draw(st.lists(st.lists(PHASES, min_size=1, max_size=6), min_size=1, max_size=most_units))
    links = draw(st.integers(0, 1))
    units = tuple(
        UnitWork(name=f"{n}.cu", phases=tuple(phases), after_all=links > 0 and n == len(made) - 1)
        for n, phases in enumerate(made)
    )
    return Workload(name="drawn", units=units)


HOSTS = st.builds(Host, cores=st.integers(1, 8), limit_mib=st.floats(2300, 9000))
WORLDS = st.builds(
    Rules,
    jobs=st.one_of(st.none(), st.integers(1, 12)),
    growth=st.sampled_from(["flat", "ramp"]),
    sample_s=st.sampled_from([None, 0.25, 1.0]),
    gap_s=st.sampled_from([0.0, 0.02]),
    enforced=st.just(True),
)


class Watched:
    """The scheduler, its invariants checked after each event."""

    def __init__(self, real: Scheduler) -> None:
        self.real = real
        self.journal: list[tuple[Fact, Sequence[Decision]]] = []

    @property
    def suspects(self) -> frozenset[int]:
        return self.real.suspects

    def handle(self, event: Fact) -> Sequence[Decision]:
        decisions = self.real.handle(event)
        self.real.check()
        self.journal.append((event, decisions))
        return decisions


@examples(2000)
@given(workload=workloads(), host=HOSTS, jobs=st.one_of(st.none(), st.integers(1, 12)))
def test_memory_is_conserved_and_no_work_is_lost_when_sizes_are_known(
    workload: Workload, host: Host, jobs: int | None
) -> None:
    """Exact estimates of phases that hold their peaks from their starts on: never beyond the budget, no kill, every
    phase once, never faster than is possible. What falls is told by time, and more phases than cores make that longer.
    """
    workload = at_peaks(workload)
    watched = Watched(scheduler(host, ExactEstimator(workload)))
    result = simulate(workload, watched, host, Rules(jobs=jobs, sample_s=None))
    assert result.completed
    assert (result.kernel_kills, result.kills, result.requeued, result.lost_s) == (0, 0, 0, 0.0)
    assert result.peak_mib <= max(host.budget_mib, workload.peak_mib) + 1e-3
    assert len(result.phases) == workload.phases
    assert all(run.tries == 1 for run in result.phases)
    bound_s = lower_bound_s(workload, cores=host.cores, limit_mib=host.limit_mib)
    assert result.makespan_s >= bound_s * (1 - 1e-9)
    assert result.makespan_s <= workload.work_s + 1e-3 * workload.phases + 1e-6


@examples(2000)
@given(workload=workloads(), host=HOSTS, rules=WORLDS, known=st.sampled_from(["nothing", "all", "wrongly"]))
def test_every_build_completes_whose_phases_fit_alone(workload: Workload, host: Host, rules: Rules, known: str) -> None:
    """Whatever was expected, however memory grows: kills cost time, not the build; every phase ends well once."""
    estimator = None
    if known != "nothing":
        estimator = ExactEstimator(workload if known == "all" else disturbed(workload, share=0.6, seed=1))
    result = simulate(workload, Watched(scheduler(host, estimator)), host, rules)
    assert result.completed, result
    assert len(result.phases) == workload.phases
    assert result.peak_mib <= host.limit_mib + 1e-3
    assert result.over_limit_s == 0.0
    assert result.requeued == sum(run.tries - 1 for run in result.phases)
    # A kill that was decided too late finds its phase ended well.
    assert result.kernel_kills <= result.requeued <= result.kernel_kills + result.kills


@examples(2000)
@given(workload=workloads(most_units=5), host=HOSTS, rules=WORLDS)
def test_a_simulation_repeats_itself(workload: Workload, host: Host, rules: Rules) -> None:
    """The same arguments, the same events, the same actions, the same result."""
    first, second = Watched(scheduler(host)), Watched(scheduler(host))
    assert simulate(workload, first, host, rules) == simulate(workload, second, host, rules)
    assert first.journal == second.journal


@examples(100)
@given(workload=workloads(), cores=st.integers(1, 4), rules=WORLDS)
def test_a_phase_larger_than_the_limit_ends_the_build_and_nothing_else_does(
    workload: Workload, cores: int, rules: Rules
) -> None:
    """It is named, as too big (a phase that grew for half a minute may also be called a runaway)."""
    host = Host(cores=cores, limit_mib=workload.peak_mib * 0.9)
    result = simulate(workload, Watched(scheduler(host)), host, rules)
    assert not result.completed
    assert result.failure is not None
    assert result.failure.verdict in ("too-big", "runaway")
    sizes = {unit.name: unit.peak_mib for unit in workload.units}
    assert sizes[result.failure.unit] > host.limit_mib
