"""The simulated world: cores, memory, kills, the build tool's window; small builds whose course one can work out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

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
    UnitBegan,
    UnitEnded,
)
from builddoctor.core.phase import Outcome, PhaseKind
from builddoctor.core.plan import PlanNode
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.gates.gate_program import NICE
from builddoctor.simulate.baselines import NO_ESTIMATE, FixedJobs, fixed
from builddoctor.simulate.engine import GIVEN_WAY, simulate
from builddoctor.simulate.result import Host, Result, Rules
from builddoctor.simulate.shipped import ExactEstimator, scheduler
from builddoctor.simulate.with_nodes import WAY_S, all_seen, with_ways
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload
from support.schedulers import scheduler_of
from support.workloads import held_of, mean_share

UNSEEN = Rules(sample_s=None)


def build(*units: list[tuple[float, float]], links: int = 0) -> Workload:
    """Each unit a list of (MiB, seconds); the last ``links`` of them are links."""
    made = [
        UnitWork(
            name=f"{number}.cu",
            phases=tuple(PhaseWork(kind=PhaseKind.CICC, peak_mib=mib, wall_s=seconds) for mib, seconds in unit),
            after_all=number >= len(units) - links,
        )
        for number, unit in enumerate(units)
    ]
    return Workload(name="small", units=tuple(made))


def host(cores: int = 2, limit_mib: float = 1000.0, budget_mib: float | None = None) -> Host:
    return Host(cores=cores, limit_mib=limit_mib, own_budget_mib=limit_mib if budget_mib is None else budget_mib)


def governed(workload: Workload, on: Host, rules: Rules = UNSEEN, *, told: Workload | None = None) -> Result:
    """Under the production scheduler, which knows the phases of ``told`` (or of the workload itself)."""
    estimator = ExactEstimator(told or workload)
    policy = scheduler_of(estimator, slots=on.cores, cores=on.cores, budget_mib=on.budget_mib)
    return simulate(workload, policy, on, rules)


class Recorder(FixedJobs):
    """Lets everything start, and keeps what it heard."""

    def __init__(self) -> None:
        self.heard: list[tuple[Fact, float]] = []

    def handle(self, event: Fact):
        self.heard.append((event, event.at_s))
        return super().handle(event)


def test_units_run_beside_each_other_and_phases_one_after_the_other() -> None:
    """Two units of two phases on two cores: as long as the longer one."""
    result = fixed(build([(10, 1), (10, 2)], [(10, 3), (10, 4)]), host(), 2)
    assert (result.makespan_s, result.completed, result.peak_mib) == (7.0, True, 20)
    assert [(run.unit, run.ended_s) for run in result.phases] == [
        ("0.cu", 1.0),
        ("1.cu", 3.0),
        ("0.cu", 3.0),
        ("1.cu", 7.0),
    ]


def test_more_phases_than_cores_share_them_evenly() -> None:
    """Three phases of 2 s on two cores run at two thirds of the speed each, and end together after 3 s."""
    result = fixed(build([(10, 2)], [(10, 2)], [(10, 2)]), host(cores=2), 3)
    assert result.makespan_s == pytest.approx(3.0)
    assert result.mean_running == pytest.approx(3.0)


class Giving(FixedJobs):
    """All but the first phase give way."""

    def handle(self, event: Fact) -> Sequence[Decision]:
        return [
            msgspec.structs.replace(each, gives_way=each.phase_id > 1) if isinstance(each, Admit) else each
            for each in super().handle(event)
        ]


@pytest.mark.parametrize(
    ("cores", "first_s", "last_s"), [(3, 10.0, 10.0), (2, 10.0, 15.0), (1, 10.0 + 2 * 10.0 * GIVEN_WAY, 30.0)]
)
def test_phases_that_give_way_get_what_is_left_of_the_cores(cores: int, first_s: float, last_s: float) -> None:
    """Nobody gets more than one, and on one core they go on, slower."""
    done = simulate(build([(100, 10)], [(100, 10)], [(100, 10)]), Giving(), host(cores), UNSEEN)
    assert [each.ended_s for each in done.phases] == pytest.approx([first_s, last_s, last_s])


def test_what_the_kernel_gives_at_that_priority_is_what_is_simulated() -> None:
    """``sched_prio_to_weight`` (kernel/sched/core.c): 1024 at 0 and 335 at 5."""
    assert (NICE, GIVEN_WAY) == (5, 335 / 1024)


def test_the_build_tool_opens_units_in_order_up_to_its_jobs() -> None:
    """With -j1 one unit after the other."""
    result = fixed(build([(10, 2)], [(10, 3)]), host(), 1)
    assert [(run.asked_s, run.ended_s) for run in result.phases] == [(0.0, 2.0), (2.0, 5.0)]


def test_a_link_waits_for_every_unit_before_it() -> None:
    """However many jobs there are."""
    result = fixed(build([(10, 2)], [(10, 5)], [(10, 1)], links=1), host(cores=4), 4)
    assert [(run.unit, run.asked_s) for run in result.phases][-1] == ("2.cu", 5.0)
    assert result.makespan_s == 6.0


def test_the_kernel_ends_the_largest_phase_beyond_the_limit() -> None:
    """And a build without us ends with it."""
    result = fixed(build([(300, 5)], [(500, 5)], [(250, 5)]), host(cores=4), 4)
    assert (result.kernel_kills, result.completed, result.unfinished) == (1, False, 3)
    assert result.failure is not None
    assert (result.failure.unit, result.failure.verdict) == ("1.cu", "external-kill")
    assert result.peak_mib == 1000


def test_growing_phases_reach_the_limit_when_their_sum_does() -> None:
    """800 and 600 MiB over 10 s each: 1000 MiB after 1000 / 140 s."""
    result = fixed(build([(800, 10)], [(600, 10)]), host(), 2, Rules(growth="ramp"))
    assert result.kernel_kills == 1
    assert result.makespan_s == pytest.approx(1000 / 140)
    assert result.lost_s == pytest.approx(1000 / 140)


def curved(*units: tuple[float, float, tuple[tuple[float, float], ...]]) -> Workload:
    """Units of one phase each: (MiB, seconds, curve)."""
    plain = build(*[[(mib, seconds)] for mib, seconds, _ in units])
    made = [
        msgspec.structs.replace(unit, phases=(msgspec.structs.replace(unit.phases[0], curve=curve),))
        for unit, (_, _, curve) in zip(plain.units, units, strict=True)
    ]
    return Workload(name="curved", units=tuple(made))


def test_a_phase_follows_its_recorded_curve() -> None:
    """Half of its peak until it is half done, then up to the peak within a fifth, and down to a quarter: the other
    phase, 450 MiB throughout, fits beside it until 5 + 2 * (550 - 400) / 400 s have passed."""
    course = ((0.1, 0.5), (0.5, 0.5), (0.7, 1.0), (0.8, 0.25))
    crowded = fixed(curved((800, 10, course), (450, 10, ((0.0, 1.0),))), host(), 2)
    assert (crowded.kernel_kills, crowded.makespan_s) == (1, pytest.approx(5.75))
    fits = fixed(curved((800, 10, course), (199, 10, ((0.0, 1.0),))), host(), 2)
    assert (fits.kernel_kills, fits.makespan_s, fits.peak_mib) == (0, pytest.approx(10.0), pytest.approx(999))


@pytest.mark.parametrize(("limit_mib", "every_s"), [(1000.0, 0.05), (100_000.0, 0.25)])
def test_near_the_limit_it_looks_as_often_as_production(limit_mib: float, every_s: float) -> None:
    """With 50 MiB left 20 times a second; with plenty each ``sample_s``."""
    recorder = Recorder()
    rules = Rules(growth="ramp", sample_s=0.25, looks="production's")
    simulate(curved((950, 4, ((0.1, 0.95), (1.0, 1.0)))), recorder, host(limit_mib=limit_mib), rules)
    looks_s = [now_s for event, now_s in recorder.heard if isinstance(event, MemorySampled)]
    assert looks_s[-2] - looks_s[-3] == pytest.approx(every_s)


def test_what_is_looked_at_is_what_the_curve_says() -> None:
    """Up, and down again: looks at whole seconds see the line between two points."""
    recorder = Recorder()
    simulate(curved((100, 4, ((0.5, 1.0), (1.0, 0.5)))), recorder, host(), Rules(sample_s=1.0))
    seen = [event.rss_mib[0][1] for event, _ in recorder.heard if isinstance(event, MemorySampled) and event.rss_mib]
    assert seen == pytest.approx([50, 100, 75])


def test_the_highest_point_of_a_curve_is_the_peak() -> None:
    """Looks at memory come too seldom to see the peak itself; who was never seen follows ``growth``."""
    missed = fixed(curved((800, 10, ((0.5, 0.6), (0.6, 0.3)))), host(), 2)
    unseen = fixed(curved((800, 10, ((0.5, 0.0),))), host(), 2)
    assert (missed.peak_mib, unseen.peak_mib) == (pytest.approx(800), pytest.approx(800))


def test_what_phases_hold_on_average() -> None:
    """Up to the peak in the first half, then at it, down to a half in no time: 0.25 + 0.25 + 0.125; large and long
    phases count more. Without a curve: all of it, or half."""
    course = ((0.5, 1.0), (0.75, 1.0), (0.75, 0.5))
    assert mean_share(((0.0, 0.0), *course)) == pytest.approx(0.625)
    assert held_of(curved((300, 4, course), (100, 12, ((0.0, 1.0),))), "flat") == pytest.approx((0.625 + 1) / 2)
    plain = build([(100, 1)], [(10, 5)])
    assert (held_of(plain, "flat"), held_of(plain, "ramp"), held_of(build(), "ramp")) == (1.0, 0.5, 1.0)


def test_a_phase_that_was_ended_on_its_way_down_showed_its_peak() -> None:
    """What is heard of it is the most that it held, and not what it held last."""
    workload = curved((900, 10, ((0.2, 1.0), (0.3, 0.8))), (800, 10, ((0.3, 0.0), (1.0, 1.0))))
    recorder = Recorder()
    simulate(workload, recorder, host(), Rules())
    (killed,) = [event for event, _ in recorder.heard if isinstance(event, PhaseEnded)]
    assert (killed.outcome, killed.peak_mib) == (Outcome.KILLED_BY_KERNEL, pytest.approx(900))


def test_a_point_of_a_course_and_an_end_may_fall_together() -> None:
    """A phase comes to its point as another one ends; the work done, rounded, may be past both."""
    for share in (0.35, 0.7):
        workload = curved(*[(10.0, 0.7, ((share, 1.0),))] * 3, (10.0, 0.7 * share, ()))
        result = simulate(workload, scheduler(host(), ExactEstimator(workload)), host(), UNSEEN)
        assert result.completed


def test_without_a_kernel_time_beyond_the_limit_is_counted() -> None:
    """A limit of the user's own holds nobody back."""
    rules = Rules(enforced=False)
    result = fixed(build([(800, 4)], [(600, 3)]), host(), 2, rules)
    assert (result.completed, result.kernel_kills) == (True, 0)
    assert (result.over_limit_s, result.peak_mib) == (3.0, 1400)


def test_a_phase_that_the_kernel_killed_runs_again() -> None:
    """The scheduler expected half of what it takes: it loses its work, and the build completes all the same."""
    workload, told = build([(800, 4)], [(700, 6)]), build([(400, 4)], [(350, 6)])
    result = governed(workload, host(), told=told)
    assert result.completed
    assert (result.kernel_kills, result.requeued) == (1, 1)
    assert max(run.tries for run in result.phases) == 2
    assert result.makespan_s == pytest.approx(10.0)


def test_a_phase_larger_than_the_limit_is_given_up() -> None:
    """Alone and killed: too big, and the build ends with it."""
    result = governed(build([(1500, 4)], [(100, 1)]), host())
    assert not result.completed
    assert result.failure is not None
    assert result.failure.verdict == "too-big"


def test_what_waits_is_counted() -> None:
    """Two phases that do not fit beside each other: the longer goes first, as both asked at the start."""
    result = governed(build([(600, 4), (600, 4)], [(600, 9)]), host())
    waited = {(run.unit, run.asked_s): run.waited_s for run in result.phases}
    assert result.makespan_s == 17.0
    assert sum(waited.values()) == result.waited_s > 0


class Killer(Recorder):
    """Ends phase 1 at the second look."""

    def handle(self, event: Fact):
        actions = [*super().handle(event)]
        if (
            isinstance(event, MemorySampled)
            and event.at_s > 0
            and not any(isinstance(e, PhaseEnded) for e, _ in self.heard)
        ):
            actions.append(Kill(phase_id=1, reason=KillReason.HEADROOM))
        return actions


def test_a_kill_takes_its_time() -> None:
    """Decided at the second look of the run, 5 s; the end comes 0.1 s and 80 ms a GiB later."""
    killer = Killer()
    result = simulate(build([(512, 10)]), killer, host(), Rules(kill_s=0.1))
    ((event, now_s),) = [(event, now_s) for event, now_s in killer.heard if isinstance(event, PhaseEnded)]
    assert (event.outcome, result.kills) == (Outcome.KILLED_BY_US, 1)
    assert now_s == pytest.approx(5 + 0.1 + 0.04)


def test_a_phase_that_ends_before_its_kill_arrives_has_ended_well() -> None:
    """As in production: the exit status counts."""
    result = simulate(build([(512, 5.05)]), Killer(), host(), Rules(kill_s=0.1))
    assert result.completed
    assert result.kills == 1


class Stubborn(Killer):
    """And lets everything that was killed start again at once."""

    def handle(self, event: Fact):
        if isinstance(event, PhaseEnded) and event.outcome is not Outcome.OK:
            self.heard.append((event, event.at_s))
            again = Requeue(phase_id=event.phase_id, estimate=NO_ESTIMATE, solo=False)
            return [again, Admit(phase_id=event.phase_id, estimate=NO_ESTIMATE, alone=False)]
        return super().handle(event)


def test_a_kill_that_was_meant_for_an_earlier_try_hits_nobody() -> None:
    """The kernel ends phase 1 at 1000 / 130 s, before our kill of it arrives at 10 s; its second try ends well."""
    stubborn = Stubborn()
    rules = Rules(growth="ramp", kill_s=9.75, kill_s_per_gib=0.0)
    result = simulate(build([(800, 10)], [(400, 8)]), stubborn, host(), rules)
    ends = [(event.phase_id, event.outcome) for event, _ in stubborn.heard if isinstance(event, PhaseEnded)]
    assert ends == [(1, Outcome.KILLED_BY_KERNEL), (2, Outcome.OK), (1, Outcome.OK)]
    assert (result.kills, result.kernel_kills) == (1, 1)
    assert result.makespan_s == pytest.approx(1000 / 130 + 10)


def test_the_policy_hears_what_a_session_would_tell() -> None:
    """Unit, question, end; the next question after the gap; the unit's end before the next unit opens."""
    recorder = Recorder()
    simulate(build([(10, 1), (10, 1)], [(10, 1)]), recorder, host(), msgspec.structs.replace(UNSEEN, jobs=1, gap_s=0.5))
    heard = [(type(event), now_s) for event, now_s in recorder.heard if not isinstance(event, MemorySampled)]
    assert heard == [
        (UnitBegan, 0.0),
        (PhaseAsked, 0.0),
        (PhaseEnded, 1.0),
        (PhaseAsked, 1.5),
        (PhaseEnded, 2.5),
        (UnitEnded, 2.5),
        (UnitBegan, 2.5),
        (PhaseAsked, 2.5),
        (PhaseEnded, 3.5),
        (UnitEnded, 3.5),
    ]


def test_memory_is_looked_at_where_something_changed() -> None:
    """At each start of a phase that holds its peak from then on, and each 5 s; while it grows, each quarter of one."""
    recorder = Recorder()
    simulate(build([(100, 1.1), (200, 12)]), recorder, host(), Rules())
    looks = [
        (now_s, event.rss_mib, event.headroom_mib)
        for event, now_s in recorder.heard
        if isinstance(event, MemorySampled)
    ]
    assert looks == [
        (0.0, (), 1000),
        (0.0, ((1, 100),), 900),
        (1.1, ((2, 200),), 800),
        (6.1, ((2, 200),), 800),
        (11.1, ((2, 200),), 800),
    ]
    recorder = Recorder()
    simulate(build([(100, 1.0)]), recorder, host(), Rules(growth="ramp"))
    looks = [(now_s, event.headroom_mib) for event, now_s in recorder.heard if isinstance(event, MemorySampled)]
    assert looks == [(0.0, 1000), (0.25, 975), (0.5, 950), (0.75, 925)]


class Refuser(FixedJobs):
    """Starts nothing at all."""

    def handle(self, event: Fact):
        return []


def test_a_policy_that_starts_nothing_does_not_go_on_for_ever() -> None:
    """The simulation ends, unfinished."""
    for rules in (Rules(), UNSEEN):
        result = simulate(build([(10, 1)]), Refuser(), host(), rules)
        assert (result.completed, result.unfinished, result.failure) == (False, 1, None)


def test_productions_budget_is_taken_where_none_is_given() -> None:
    """A tenth of a small limit is kept; see policy.budget."""
    small = Host(cores=4, limit_mib=6144.0)
    assert small.budget_mib == pytest.approx(0.9 * 6144)
    assert small.reserve_mib == pytest.approx(0.1 * 6144)


def test_what_holds_still_is_looked_at_again_after_its_rest() -> None:
    """With all others at each look, or each phase when it comes and all of them each second."""
    workload = build([(10, 4)], *[[(20, 0.3)] * 10])

    def sizes(rest_s: float) -> list[int]:
        recorder = Recorder()
        simulate(workload, recorder, host(), Rules(sample_s=0.1, quiet_s=0.1, rest_s=rest_s))
        return [len(event.rss_mib) for event, _ in recorder.heard if isinstance(event, MemorySampled)]

    assert sum(sizes(1.0)) < 0.5 * sum(sizes(0.0))
    assert max(sizes(1.0)) == 2


@pytest.mark.parametrize("knows", [False, True])
def test_host_code_that_is_sent_is_preprocessed_here_while_its_node_waits(*, knows: bool) -> None:
    """On one core of this machine: one unit, and twice the preprocessing of the other, whose compile is sent."""
    units = (
        UnitWork(name="a.cu", phases=(work_of(PhaseKind.PREPROCESS, 30.0),)),
        UnitWork(name="b.cpp", phases=(work_of(PhaseKind.PREPROCESS, 1.0), work_of(PhaseKind.HOST, 10.0))),
    )
    workload, on = Workload(name="two", units=units), host(cores=1)
    estimator = ExactEstimator(workload) if knows else LearningEstimator()
    policy = scheduler_of(estimator, slots=1, cores=1, budget_mib=on.budget_mib)
    nodes = all_seen((PlanNode(cores=1, budget_mib=1000.0),))
    result = simulate(workload, policy, on, with_ways(UNSEEN), first=nodes)
    assert result.makespan_s == pytest.approx(32.0)
    assert [each.kind for each in result.phases if each.unit == "b.cpp"] == [
        *(PhaseKind.PREPROCESS, PhaseKind.PREPROCESS, PhaseKind.HOST)
    ]
    assert [each.ended_s for each in result.phases if each.unit == "b.cpp"] == pytest.approx([2.0, 4.0, 14.0 + WAY_S])


def test_a_unit_of_host_code_alone_is_preprocessed_as_long_as_the_middle_one() -> None:
    short, long = (work_of(PhaseKind.PREPROCESS, wall_s) for wall_s in (0.1, 0.4))
    made = (
        UnitWork(name="a.cu", phases=(short, long)),
        UnitWork(name="b.cpp", phases=(work_of(PhaseKind.HOST, 10.0),)),
    )
    assert Workload(name="two", units=made).preprocessed_by == (long, long)
    assert Workload(name="one", units=made[1:]).preprocessed_by == (None,)


def work_of(kind: PhaseKind, wall_s: float) -> PhaseWork:
    return PhaseWork(kind=kind, peak_mib=10.0, wall_s=wall_s)
