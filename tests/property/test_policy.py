"""Arithmetic of the policy for any figures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.limits import LevelKind, MemoryLevel, MemoryReading, ProcessRoom, Surroundings
from builddoctor.core.phase import PhaseKind
from builddoctor.core.units import format_mib, parse_size_mib
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.scheduler.budget import allowance, budget_mib, few_units, window
from builddoctor.scheduler.oom_guard import Candidate, choose_victim
from unit.builders import phase

SIZES = st.floats(0, 1e7)


KINDS: st.SearchStrategy[LevelKind] = st.sampled_from(LevelKind)
AROUND = st.builds(
    Surroundings,
    unified_memory=st.booleans(),
    ci_runner=st.booleans(),
    group_kill=st.booleans(),
    whole_vm=st.booleans(),
)


@st.composite
def levels(draw: st.DrawFn) -> MemoryLevel:
    """Any level; its headroom is no more than its limit."""
    limit = draw(SIZES)
    free = limit * draw(st.floats(-1, 1))
    return MemoryLevel(source="x", kind=draw(KINDS), limit_mib=limit, headroom_mib=free)


@given(found=st.lists(levels(), min_size=1, max_size=5), around=AROUND)
def test_a_budget_leaves_every_level_its_reserve(found: list[MemoryLevel], around: Surroundings) -> None:
    """At each level at least a tenth of the smallest limit at most, and never more than half of its own, is kept."""
    reading = MemoryReading(levels=tuple(found), surroundings=around)
    allowed = allowance(reading, 0.0)
    smallest = min(level.limit_mib for level in found)
    for level in found:
        assert allowed.budget_mib <= max(0.0, level.headroom_mib)
    assert 0 <= allowed.reserve_mib <= max(0.1 * smallest, 0.5 * allowed.level.limit_mib)
    if around == Surroundings():
        assert allowed.reserve_mib <= 0.1 * max(smallest, allowed.level.limit_mib)


@given(headroom_mib=st.floats(-1e6, 1e7), own_use_mib=SIZES, reserve=SIZES)
def test_the_budget_is_never_negative_and_never_above_what_there_is(
    headroom_mib: float, own_use_mib: float, reserve: float
) -> None:
    """No figures hand out memory that is neither free nor ours."""
    assert 0 <= budget_mib(headroom_mib, own_use_mib, reserve) <= max(0, headroom_mib + own_use_mib)


ROOM = st.none() | st.integers(0, 100_000)


@given(cores=st.integers(1, 1024), budget=SIZES, processes=ROOM, own_files=ROOM, build_files=ROOM)
def test_the_window_keeps_every_core_supplied(
    cores: int, budget: float, processes: int | None, own_files: int | None, build_files: int | None
) -> None:
    """At least one unit more than cores; no more than memory allows, nor 32 a core; little room makes it no larger."""
    room = ProcessRoom(processes=processes, own_files=own_files, build_files=build_files)
    units = window(cores, budget, room)
    assert cores + 1 <= few_units(cores, budget) <= units <= window(cores, budget) <= max(cores + 1, 32 * cores)
    assert window(cores, budget) * 6 <= max(0.05 * budget, 6 * few_units(cores, budget))


@given(st.lists(st.tuples(SIZES, st.floats(0, 1e6)), max_size=8))
def test_the_victim_is_one_of_those_that_run_and_not_the_oldest(running: list[tuple[float, float]]) -> None:
    """There is a victim exactly when two or more run, and the oldest is spared."""
    candidates = [Candidate(phase_id=index, rss_mib=1 + rss, age_s=age) for index, (rss, age) in enumerate(running)]
    victim = choose_victim(candidates)
    assert (victim is None) == (len(candidates) < 2)
    if victim is not None:
        assert victim in candidates
        assert victim != max(candidates, key=lambda each: (each.age_s, -each.phase_id))


@given(st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=6))
def test_estimates_never_fall_from_kill_to_kill(kills: list[tuple[float, float]]) -> None:
    """Each kill raises the estimate, or leaves it; what the phase held fits in it with room to spare."""
    estimator = LearningEstimator()
    last_mib = estimator.estimate(phase(kind=PhaseKind.HOST)).reserve_mib
    for peak_mib, reserved_mib in kills:
        raised = estimator.raise_after_kill(
            phase(kind=PhaseKind.HOST), peak_mib=peak_mib, reserved_mib=reserved_mib
        ).reserve_mib
        assert raised >= last_mib
        assert raised >= 1.5 * peak_mib
        last_mib = raised


@given(st.integers(64, 1_000_000), st.sampled_from(["M", "MiB", "m", " MiB"]))
def test_sizes_written_and_read_are_the_same(size_mib: int, unit: str) -> None:
    """A whole number of MiB survives being typed, and every size can be shown."""
    assert parse_size_mib(f"{size_mib}{unit}") == size_mib
    assert format_mib(size_mib).endswith("iB")
