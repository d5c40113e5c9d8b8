"""From limits to a budget, and from a budget to a window."""

from __future__ import annotations

import pytest

from builddoctor.core.limits import LevelKind, MemoryLevel, MemoryReading, ProcessRoom, Surroundings
from builddoctor.scheduler.budget import allowance, budget_mib, few_units, most_open, window


def level(kind: str, limit_mib: float, headroom_mib: float | None = None) -> MemoryLevel:
    """A level with nothing held, unless said otherwise."""
    free = limit_mib if headroom_mib is None else headroom_mib
    return MemoryLevel(source=kind, kind=LevelKind(kind), limit_mib=limit_mib, headroom_mib=free)


def kept(kind: str, limit_mib: float, surroundings: Surroundings | None = None) -> float:
    """The reserve of one level that is alone."""
    reading = MemoryReading(levels=(level(kind, limit_mib),), surroundings=surroundings or Surroundings())
    return allowance(reading, 0.0).reserve_mib


@pytest.mark.parametrize(
    ("limit_mib", "kept_mib"),
    [(0, 0), (2048, 204.8), (10240, 1024), (16384, 1024), (20480, 1024), (102400, 5120), (1024 * 1024, 52428.8)],
)
def test_the_reserve_is_a_gib_or_five_percent_but_never_above_a_tenth(limit_mib: float, kept_mib: float) -> None:
    """Small containers keep a tenth, middling machines 1 GiB, big ones a twentieth."""
    assert kept("cgroup-v2", limit_mib) == pytest.approx(kept_mib)


@pytest.mark.parametrize(
    ("kind", "limit_mib", "surroundings", "kept_mib"),
    [
        pytest.param("host", 122880, Surroundings(unified_memory=True), 8601.6, marks=pytest.mark.trap(42)),
        pytest.param("numa", 65536, Surroundings(unified_memory=True), 8192, marks=pytest.mark.trap(42)),
        pytest.param("host", 7600, Surroundings(unified_memory=True), 3800, marks=pytest.mark.trap(42)),
        ("cgroup-v2", 65536, Surroundings(unified_memory=True), 3276.8),
        ("host", 16384, Surroundings(ci_runner=True), 2048),
        ("host", 1024, Surroundings(ci_runner=True), 512),
        ("host", 16384, Surroundings(whole_vm=True), 2048),
        ("host", 65536, Surroundings(whole_vm=True), 6553.6),
        ("host", 4096, Surroundings(whole_vm=True), 819.2),
        ("host", 16384, Surroundings(whole_vm=True, ci_runner=True), 3072),
        ("cgroup-v2", 16384, Surroundings(whole_vm=True), 1024),
        ("host", 122880, Surroundings(whole_vm=True, unified_memory=True), 8601.6),
        pytest.param("cgroup-v2", 16384, Surroundings(group_kill=True), 2048, marks=pytest.mark.trap(35)),
        pytest.param("cgroup-v2", 2048, Surroundings(group_kill=True), 409.6, marks=pytest.mark.trap(35)),
        ("host", 16384, Surroundings(group_kill=True), 1024),
        pytest.param("cgroup-v2", 16384, Surroundings(unit_stops="a.scope"), 2048, marks=pytest.mark.trap(35)),
        ("cgroup-v2", 16384, Surroundings(unit_stops="a.scope", group_kill=True), 2048),
        ("cgroup-v2", 16384, Surroundings(ci_runner=True, group_kill=True), 4096),
        ("flag", 8192, Surroundings(ci_runner=True, group_kill=True, unified_memory=True), 819.2),
        ("eviction", 16384, Surroundings(group_kill=True), 1024),
    ],
)
def test_more_is_kept_where_running_out_is_worse(
    kind: str, limit_mib: float, surroundings: Surroundings, kept_mib: float
) -> None:
    """8 GiB of unified memory, 1 GiB for a CI agent, double in a group or a virtual machine that dies whole; never more
    than half."""
    assert kept(kind, limit_mib, surroundings) == pytest.approx(kept_mib)


@pytest.mark.parametrize(
    ("levels", "surroundings", "by", "budget"),
    [
        ((level("host", 122880, 9216), level("flag", 4096)), Surroundings(unified_memory=True), "host", 614.4),
        ((level("host", 122880, 112640), level("flag", 8192)), Surroundings(unified_memory=True), "flag", 7372.8),
        ((level("host", 1048576, 40960), level("cgroup-v2", 28672)), Surroundings(), "cgroup-v2", 27238.4),
        ((level("host", 1048576, 20480), level("cgroup-v2", 28672)), Surroundings(), "host", 19046.4),
        ((level("host", 65536, 60000), level("cgroup-v2", 16384)), Surroundings(group_kill=True), "cgroup-v2", 14336),
    ],
)
def test_each_level_keeps_its_own_reserve(
    levels: tuple[MemoryLevel, ...], surroundings: Surroundings, by: str, budget: float
) -> None:
    """The one that leaves least says the budget: a small --memory takes nothing of what unified memory must keep."""
    allowed = allowance(MemoryReading(levels=levels, surroundings=surroundings), 0.0)
    assert (allowed.level.kind, allowed.budget_mib) == (by, pytest.approx(budget))


def test_a_process_that_ends_between_two_looks_makes_no_budget_beyond_the_limit() -> None:
    """355 MiB were held when the phases were looked at, and free when the limit was: seen on a busy machine."""
    reading = MemoryReading(levels=(level("cgroup-v1", 400, 308.6), level("host", 24000, 20000)))
    assert allowance(reading, 355.1).budget_mib == pytest.approx(360.0)


def test_kubelets_figure_holds_back_and_ends_nothing() -> None:
    """It bounds what starts; what is left before a kill is the kernel's own."""
    reading = MemoryReading(levels=(level("host", 262144, 180000), level("eviction", 262144, 2100)))
    allowed = allowance(reading, 0.0)
    assert (allowed.level.kind, allowed.kill_headroom_mib) == ("eviction", 180000)


@pytest.mark.parametrize(
    ("headroom_mib", "own_use_mib", "reserve", "expected_mib"),
    [(8000, 0, 1000, 7000), (2000, 6000, 1000, 7000), (500, 0, 1000, 0), (0, 0, 0, 0)],
)
def test_the_budget_is_what_is_free_and_what_we_hold_less_the_reserve(
    headroom_mib: float, own_use_mib: float, reserve: float, expected_mib: float
) -> None:
    """The build's own use does not shrink its budget, and a budget is never negative."""
    assert budget_mib(headroom_mib, own_use_mib, reserve) == expected_mib


@pytest.mark.parametrize(
    ("cores", "budget", "units"),
    [
        (1, 0, 2),
        (2, 1000, 8),
        (2, 3000, 25),
        (2, 30000, 64),
        (4, 5530, 46),
        (16, 8192, 68),
        (16, 16384, 136),
        (64, 1_000_000, 512),
        (256, 2_000_000, 768),
    ],
)
def test_the_window_gives_a_choice_without_eating_the_budget(cores: int, budget: float, units: int) -> None:
    """5 % of the budget in waiting processes, 32 units a core and 512 at most, and always one above the cores."""
    assert window(cores, budget) == units


@pytest.mark.parametrize(
    ("processes", "own_files", "build_files", "units"),
    [
        (None, None, None, 512),
        (2000, 1_048_576, 1024, 250),
        (1000, 1_048_576, 1024, 125),
        (100, 1_048_576, 1024, 48),
        (0, 0, 0, 48),
        (100_000, 1024, 1024, 224),
        (100_000, 4096, 256, 128),
    ],
)
def test_the_window_leaves_room_for_processes_and_files(
    processes: int | None, own_files: int | None, build_files: int | None, units: int
) -> None:
    """Eight processes and four files of ours for each unit, one of the build tool's; three units a core in any case."""
    room = ProcessRoom(processes=processes, own_files=own_files, build_files=build_files)
    assert window(16, 1_000_000, room) == units


@pytest.mark.parametrize(
    ("cores", "budget", "units"),
    [(1, 0, 2), (2, 3000, 5), (2, 30000, 6), (16, 8192, 17), (16, 16384, 27), (64, 1_000_000, 192)],
)
def test_few_units_are_three_a_core_where_memory_allows(cores: int, budget: float, units: int) -> None:
    """One for each 600 MiB, three a core at most, one above the cores at least."""
    assert few_units(cores, budget) == units


@pytest.mark.parametrize(("temporary_mib", "units"), [(None, 100), (1e6, 100), (4500.0, 50), (900.0, 12), (0.0, 12)])
def test_open_units_have_room_for_their_temporary_files(temporary_mib: float | None, units: int) -> None:
    """Half of what is free there, 45 MiB each; few where they lie in memory, all where nothing is known."""
    assert most_open(4, 30000, 100, temporary_mib=temporary_mib, unit_files_mib=45.0) == units
