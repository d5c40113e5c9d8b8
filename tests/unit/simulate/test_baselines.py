"""The table of docs/reference/host-memory.md, 9, from its phases; and other schedulers on small builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.phase import PhaseKind
from builddoctor.simulate.baselines import fixed
from builddoctor.simulate.result import Host, Rules
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload, lower_bound_s
from support.baselines import best_fixed, flash_attention_jobs, jobserver, memfree, memory_per_job
from support.measured_builds import from_digest
from support.workloads import without_links

DIGEST = Path(__file__).resolve().parents[2] / "data" / "te-2.8-sm100.csv"


@pytest.fixture(scope="module")
def engine() -> Workload:
    """TransformerEngine without its link, as in that table."""
    return without_links(from_digest(DIGEST))


@pytest.mark.parametrize(
    ("cores", "gib", "bound_s", "jobs", "best_s", "flash_s"),
    [
        (2, 4.5, 775, 1, 1551, 1551),
        (4, 6, 388, 1, 1551, 1551),
        (8, 8, 279, 2, 777, 1551),
        (16, 8, 279, 2, 777, 1551),
        (16, 16, 172, 6, 269, 525),
        (32, 32, 172, 11, 172, 269),
    ],
)
def test_the_table_of_the_design_comes_out_again(
    engine: Workload, cores: int, gib: float, bound_s: int, jobs: int, best_s: int, flash_s: int
) -> None:
    """Lower bound, best fixed -j that survives, flash-attention's formula of the table's rows."""
    host = Host(cores=cores, limit_mib=1024 * gib)
    assert round(lower_bound_s(engine, cores=cores, limit_mib=host.limit_mib)) == bound_s
    best = best_fixed(engine, host)
    assert best is not None
    assert (best[0], round(best[1].makespan_s)) == (jobs, best_s)
    assert round(fixed(engine, host, flash_attention_jobs(host)).makespan_s) == flash_s


def test_no_fixed_number_survives_where_one_phase_does_not_fit(engine: Workload) -> None:
    """4 GiB for a phase of 4.03 GiB."""
    assert best_fixed(engine, Host(cores=4, limit_mib=4096.0)) is None


def small(*peaks_mib: float, seconds: float = 10.0) -> Workload:
    """Units of a light phase and then one of this peak."""
    light = PhaseWork(kind=PhaseKind.PREPROCESS, peak_mib=20.0, wall_s=1.0)
    units = [
        UnitWork(name=f"{n}", phases=(light, PhaseWork(kind=PhaseKind.CICC, peak_mib=peak, wall_s=seconds)))
        for n, peak in enumerate(peaks_mib)
    ]
    return Workload(name="small", units=tuple(units))


def test_jobs_by_memory_are_whole_and_at_least_one() -> None:
    """16 GiB at 5 GiB a job are 3, and half of the cores is the most that flash-attention takes."""
    assert flash_attention_jobs(Host(cores=16, limit_mib=16 * 1024)) == 3
    assert flash_attention_jobs(Host(cores=4, limit_mib=64 * 1024)) == 2
    assert flash_attention_jobs(Host(cores=1, limit_mib=1024)) == 1
    assert memory_per_job(Host(cores=16, limit_mib=16 * 1024), 4096) == 4


def test_memfree_kills_the_youngest_and_begins_it_anew() -> None:
    """Three of 400 MiB in 1000: below half of the floor of 600 the youngest goes, and its light phase runs twice."""
    result = memfree(small(400, 400, 340, seconds=20.0), Host(cores=3, limit_mib=1200.0), 600.0, Rules())
    assert result.completed
    assert result.kernel_kills == 0
    assert result.kills == result.requeued > 0
    assert [run.unit for run in result.phases].count("2") > 2
    assert result.makespan_s > 40


def test_memfree_never_kills_the_only_job() -> None:
    """One job that takes more than all of the floor runs on."""
    result = memfree(small(950), Host(cores=3, limit_mib=1000.0), 600.0)
    assert (result.completed, result.kills) == (True, 0)


def test_a_jobserver_with_a_floor_cannot_take_tokens_back() -> None:
    """All three start while they are light; grown, the kernel kills one, and the build has failed."""
    result = jobserver(small(400, 400, 400), Host(cores=3, limit_mib=1000.0), 500.0)
    assert (result.completed, result.kernel_kills) == (False, 1)


def test_a_jobserver_with_a_high_floor_runs_one_job_at_a_time() -> None:
    """Nothing begins while any job holds more than what the floor leaves."""
    result = jobserver(small(400, 400), Host(cores=3, limit_mib=1000.0), 990.0)
    assert result.completed
    assert result.makespan_s == pytest.approx(22.0)
    assert result.peak_mib == 400
