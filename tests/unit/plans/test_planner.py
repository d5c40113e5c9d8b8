"""Plans: what they promise on machines of any size, and TransformerEngine on a GB200 node."""

from __future__ import annotations

import math

import msgspec
import pytest

from builddoctor.core.phase import PhaseKind
from builddoctor.core.plan import Plan
from builddoctor.core.recipe import Fingerprint, Hazard, Origin, PhaseFigures, Recipe, RecipeProject
from builddoctor.machines.named import NominalMachine, load_machine
from builddoctor.plans.gated import gated
from builddoctor.plans.inputs import (
    PlanHost,
    figures_only,
    host_of_machine,
    host_of_profile,
    limited,
    scaled,
)
from builddoctor.plans.planner import make_plan
from builddoctor.plans.staged import GAP_S, UngatedWork, listed_s
from builddoctor.projects.catalogue import BESIDE_TORCH_MIB
from builddoctor.scheduler.budget import window
from builddoctor.simulate.baselines import fixed
from builddoctor.simulate.of_recipe import workload
from builddoctor.simulate.result import Host, Rules
from unit.made_machines import machine
from unit.recipes_made import engine, few_of_engine, host, phase, recipe, unit


def plan(made: Recipe, on: PlanHost, **more: object) -> Plan:
    return make_plan(made, name="r", host=on, **more)  # type: ignore[arg-type]


def named(name: str) -> PlanHost:
    found = load_machine(name)
    assert isinstance(found, NominalMachine)
    return host_of_profile(found)


@pytest.fixture(scope="module")
def tight() -> Plan:
    """TransformerEngine in a container of 4 cores and 6 GiB."""
    return plan(engine(), host(4, 6144.0))


@pytest.fixture(scope="module")
def gb200() -> Plan:
    """TransformerEngine, measured on x86-64, on a GB200 node."""
    return plan(engine(), named("gb200-node"), differs=("for x86_64, this machine is aarch64",), distance=0.24)


def test_a_gb200_plan_names_what_matters_there(gb200: Plan) -> None:
    """Its window, its stages, the runaway cudafe++, memory of GPUs that is not counted, the allowance for pages."""
    assert gb200.window == window(144, gb200.budget_mib)
    assert [stage.weight for stage in gb200.stages] == ["light", "rest"]
    assert [(each.kind, each.tool) for each in gb200.hazards] == [("runaway", "cudafe")]
    assert gb200.page_allowance_mib > 0
    notes = " ".join(gb200.notes)
    assert "744 GiB of HBM" in notes
    assert "not counted as host memory" in notes
    assert "two NUMA nodes of 480 GB" in notes
    assert "allowance, not a measurement" in notes
    assert gb200.budget_mib < 960 * 1024


def test_hazards_of_another_processor_are_left_out() -> None:
    """A hazard of aarch64 is none on x86-64; one without a processor is one everywhere."""
    everywhere = Hazard(kind="build", text="x")
    both = msgspec.structs.replace(few_of_engine(), hazards=(*engine().hazards, everywhere))
    assert plan(both, named("dgx-h100")).hazards == (everywhere,)
    assert len(plan(both, named("gb200-node")).hazards) == 2


def test_every_unit_is_in_one_stage(gb200: Plan) -> None:
    """Targets of all stages are the recipe's; what has none is in the last one."""
    targets = [target for stage in gb200.stages for target in stage.targets]
    assert sorted(targets) == sorted(each.target for each in engine().units if each.target)
    assert gb200.stages[-1].targets == ()
    assert sum(stage.units for stage in gb200.stages) == 66


def test_stages_stay_within_the_budget_in_the_worst_case(tight: Plan) -> None:
    """The largest units of each stage fit together; stages take longer than gates, and less than one -j for all."""
    made = tight
    assert [stage.weight for stage in made.stages] == ["light", "heavy", "solo", "rest"]
    assert all(stage.peak_mib <= 6144.0 for stage in made.stages)
    assert made.static is not None
    assert made.staged_s is not None
    assert (made.static.jobs, made.static.threads) == (1, 1)
    assert made.makespan_s < made.staged_s < made.static.makespan_s


def test_a_plan_agrees_with_the_simulation_by_phases() -> None:
    """8 cores and 8 GiB: TransformerEngine 2.8, simulated by phases, takes 316 s where all memory is taken at once.

    Its bound of 279 s is one of such phases only; no build is shorter than its longest unit and what comes before and
    after all. Its -j2 survived since the two largest units never met at their peaks; a plan takes what is safe
    whichever units meet.
    """
    made = plan(engine(), host(8, 8192.0 + BESIDE_TORCH_MIB))
    assert 172.0 <= made.makespan_s <= 320.0
    assert made.static is not None
    assert made.static.jobs == sum(largest <= 8192.0 for largest in (4124.0, 4124.0 + 3635.0))


def test_what_starts_the_compilers_is_not_for_them() -> None:
    """pip and a Python with torch stay there while compilers run; of a project that nobody knows nothing is said."""
    units = recipe(unit("a.cu", phase(1900.0, 9.0)))
    unknown = plan(units, host(2, 2200.0))
    known = plan(msgspec.structs.replace(units, project=RecipeProject(name="mamba-ssm")), host(2, 2200.0))
    assert (unknown.beside_mib, unknown.too_big) == (0.0, ())
    assert (known.beside_mib, known.budget_mib) == (BESIDE_TORCH_MIB, unknown.budget_mib - BESIDE_TORCH_MIB)
    assert known.too_big
    larger = [each for each in known.alternatives if each.memory_mib > 2.5 * 1024]
    assert larger
    assert all(each.makespan_s is not None for each in larger)


def test_a_list_is_what_fixed_jobs_do() -> None:
    """Stages are timed as a list of units; ninja with so many jobs, simulated, takes as long."""
    work = workload(engine())
    rules = Rules(sample_s=None, gap_s=GAP_S, enforced=False)
    units = [each for each in work.units if not each.after_all]
    alone = msgspec.structs.replace(work, units=tuple(units))
    for jobs in (1, 3, 8):
        simulated = fixed(alone, Host(cores=8, limit_mib=1e6), jobs, rules).makespan_s
        times = [each.wall_s + GAP_S * (len(each.phases) - 1) for each in units]
        assert listed_s(times, jobs) == pytest.approx(simulated, rel=0.005)


def test_what_does_not_fit_is_named_with_what_it_needs() -> None:
    """And everything else is planned; no static pair is safe."""
    made = plan(recipe(unit("big.cu", phase(5000.0, 9.0)), unit("small.cu", phase(500.0, 9.0))), host(2, 2048.0))
    assert made.too_big == ("big.cu: 4.9 GiB",)
    assert (made.static, made.staged_s) == (None, None)
    assert made.makespan_s > 0
    assert [stage.targets for stage in made.stages] == [("small.cu.o",), ()]
    assert made.order == ("small.cu", "big.cu")


def test_what_needs_more_than_the_budget_and_fits_runs_alone() -> None:
    """Between the budget and what is free: not too big, in a stage of its own, and said."""
    on = host(4, 2048.0, budget_mib=1800.0, reserve_mib=248.0)
    made = plan(
        recipe(unit("big.cu", phase(1900.0, 9.0)), *(unit(f"{at}.cu", phase(300.0, 9.0)) for at in range(12))), on
    )
    assert made.too_big == ()
    assert ("solo", ("big.cu.o",)) in [(stage.weight, stage.targets) for stage in made.stages]
    assert any("big.cu needs 1.9 GiB, more than the budget" in note for note in made.notes)


def test_more_differences_widen_the_ranges() -> None:
    """Figures of another build, emulated ones, and a machine that nobody measured are worth less."""
    units = [unit(f"{at}.cu", phase(300.0, 9.0)) for at in range(6)]
    exact = plan(recipe(*units), host(2, 8192.0))
    other = plan(recipe(*units), host(2, 8192.0), differs=("another nvcc",), distance=0.2)
    emulated = plan(recipe(*units, origin=Origin(provenance="emulated")), host(2, 8192.0))
    nominal = plan(recipe(*units), host(2, 8192.0, measured=False))
    assert exact.makespan_range_s.low < exact.makespan_s < exact.makespan_range_s.high
    for each in (other, emulated, nominal):
        assert each.makespan_range_s.high > exact.makespan_range_s.high
        assert each.makespan_range_s.low < exact.makespan_range_s.low
    assert other.peak_range_mib.high > exact.peak_range_mib.high
    assert other.differs == ("another nvcc",)


def test_spread_of_runs_widens_the_ranges() -> None:
    """A phase that once took twice its median is not known to 10 %."""
    once = recipe(unit("a.cu", phase(300.0, 9.0)), unit("b.cu", phase(300.0, 9.0)))
    spread = recipe(*(unit(f"{name}.cu", phase(300.0, 9.0, high_mib=600.0, high_s=18.0)) for name in "ab"))
    narrow, wide = (plan(each, host(2, 8192.0)) for each in (once, spread))
    assert wide.peak_range_mib.high > narrow.peak_range_mib.high
    assert wide.makespan_range_s.high > narrow.makespan_range_s.high


def test_the_peak_stays_below_the_budget() -> None:
    """builddoctor admits within it; a phase of which no course is known may hold more than is usual."""
    made = plan(engine(), host(4, 8192.0, budget_mib=7400.0, reserve_mib=792.0))
    assert made.peak_mib <= 7400.0
    assert made.peak_mib <= made.peak_range_mib.high <= 7400.0 + 0.2 * 792.0


def test_alternatives_are_this_machine_and_others(tight: Plan) -> None:
    """Five memories and three numbers of cores; twice of both is faster, and half the memory does not do."""
    made = tight
    assert len(made.alternatives) == 15
    by_place = {(each.memory_mib, each.cores): each for each in made.alternatives}
    assert by_place[6144.0, 4].makespan_s == made.makespan_s
    assert by_place[3072.0, 4].makespan_s is None
    assert by_place[3072.0, 4].static_jobs is None
    roomy = by_place[12288.0, 8].makespan_s
    assert roomy is not None
    assert roomy < made.makespan_s


def test_units_without_a_target_wait_for_the_last_stage() -> None:
    """Ninja cannot be told to build what nobody has a name for; the last stage is careful, and the plan says so."""
    made = plan(recipe(*(unit(f"{at}.cu", phase(900.0, 9.0), target="") for at in range(5))), host(4, 2048.0))
    assert [(stage.weight, stage.jobs, stage.units) for stage in made.stages] == [("rest", 2, 5)]
    assert any("what Ninja calls them" in note for note in made.notes)


def test_fewer_architectures_are_cut_out_of_a_recipe_of_more() -> None:
    """Only what is wanted is compiled; a missing one is a difference."""
    many = recipe(
        unit(
            "a.cu",
            phase(200.0, 1.0, PhaseKind.CUDAFE),
            phase(1000.0, 10.0, PhaseKind.CICC, "sm_90"),
            phase(3000.0, 30.0, PhaseKind.CICC, "sm_100"),
            archs=("sm_100", "sm_90"),
        ),
        fingerprint=Fingerprint(archs=("sm_100", "sm_90")),
    )
    cut = plan(many, host(1, 16384.0), archs=("sm_90",))
    assert (cut.peak_mib, cut.archs) == (1000.0, ("sm_90",))
    assert cut.makespan_s == pytest.approx(11.0, abs=0.3)
    assert any("sm_100 is left out" in note for note in cut.notes)
    other = plan(many, host(1, 16384.0), archs=("sm_120",))
    assert other.peak_mib == 3000.0
    assert any("sm_120" in words for words in other.differs)


def test_what_a_unit_is_compiled_for_in_any_case_stays() -> None:
    """TransformerEngine's grouped GEMM is compiled for sm_90a, whatever was asked for: its largest phase."""
    always = recipe(
        unit(
            "gemm.cu",
            phase(1000.0, 10.0, PhaseKind.CICC, "sm_100"),
            phase(1500.0, 10.0, PhaseKind.CICC, "sm_90"),
            phase(3000.0, 30.0, PhaseKind.CICC, "sm_90a"),
            archs=("sm_100", "sm_90", "sm_90a"),
        ),
        fingerprint=Fingerprint(archs=("sm_100", "sm_90")),
    )
    cut = plan(always, host(1, 16384.0), archs=("sm_100",))
    assert cut.stages[0].largest_mib == 3000.0
    assert cut.makespan_s == pytest.approx(40.0, abs=0.3)
    whole = msgspec.structs.replace(always, fingerprint=Fingerprint(archs=("sm_100",)))
    assert plan(whole, host(1, 16384.0), archs=("sm_100",)).notes == ()


def test_stages_by_architecture_are_named_after_them() -> None:
    """``light sm_90``; host code is ``host``."""
    made = recipe(unit("a.cu", phase(10.0, 9.0), archs=("sm_90",)), unit("b.cpp", phase(10.0, 9.0)))
    assert [stage.name for stage in plan(made, host(2, 4096.0), by_arch=True).stages] == [
        "light host",
        "light sm_90",
        "rest",
    ]


@pytest.mark.parametrize(
    ("units", "cores", "memory_mib"),
    [
        ([], 4, 8192.0),
        ([()], 4, 8192.0),
        ([(phase(0.0, 0.0),)], 4, 8192.0),
        ([(phase(1e8, 1e6),)] * 3, 1, 8192.0),
        ([(phase(100.0, 0.0),)] * 9, 1, 8192.0),
        ([(phase(100.0, 1e6),)] * 9, 4096, 1e9),
        ([(phase(100.0, 1.0),)] * 9, 2, 1.0),
    ],
)
def test_sizes_that_cannot_be_still_give_a_plan(
    units: list[tuple[PhaseFigures, ...]], cores: int, memory_mib: float
) -> None:
    """No units, no phases, no time, too much of each, one core, 1 MiB: finite figures, and JSON that says them."""
    made = plan(recipe(*(unit(f"{at}.cu", *phases) for at, phases in enumerate(units))), host(cores, memory_mib))
    assert math.isfinite(made.makespan_s)
    assert math.isfinite(made.peak_mib)
    assert sum(stage.units for stage in made.stages) + len(made.too_big) == sum(bool(each) for each in units)
    told = msgspec.json.decode(msgspec.json.encode(made))
    assert {"window", "threads", "stages", "peak_mib", "makespan_s"} <= told.keys()


def test_ten_thousand_units_are_simulated_in_part() -> None:
    """A part stands for the whole: time as its work over the cores, within some percent."""
    made = recipe(*(unit(f"{at}.cu", phase(50.0, 1.0), phase(100.0 + at % 300, 6.0)) for at in range(10_000)))
    found = plan(made, host(16, 65536.0))
    assert found.makespan_s == pytest.approx(10_000 * 7.05 / 16, rel=0.05)
    assert len(found.order) == 10_000


def test_the_same_recipe_and_machine_give_the_same_plan(tight: Plan) -> None:
    """Nothing is drawn at random."""
    assert plan(engine(), host(4, 6144.0)) == tight


def test_a_build_of_several_variants_tells_their_range() -> None:
    """Peaks depend on what meets: the middle one is taken, and lies between the others."""
    found = gated(workload(engine()), host(3, 24576.0), margin=0.01)
    assert found.peaks_mib.low <= found.peak_mib <= found.peaks_mib.high
    assert found.times_s.low <= found.makespan_s <= found.times_s.high


def test_a_probed_machine_is_planned_as_full_as_it_is() -> None:
    """Its limit, its budget now, its page size; GPU memory among its nodes is said not to count."""
    made = host_of_machine(machine())
    assert (made.cores, made.page_kib, made.host_arch, made.measured) == (16, 64, "aarch64", True)
    assert (made.memory_mib, made.budget_mib) == (28672.0, 26624.0 - 1434)


def test_cores_and_memory_are_a_container() -> None:
    """It begins empty; its reserve is that of a container of its size; other figures stay the machine's."""
    here = host_of_machine(machine())
    made = figures_only(cores=4, memory_mib=8192.0, like=here)
    assert made.name == "a container of 4 cores and 8.0 GiB"
    assert (made.cores, made.memory_mib, made.host_arch, made.page_kib) == (4, 8192.0, "aarch64", 64)
    assert made.budget_mib == pytest.approx(8192.0 - 819.2)
    half = limited(named("gb200-node"), cores=72, memory_mib=480 * 1024.0)
    assert half.name == "gb200-node, --cores 72 --memory 480.0GiB"
    assert half.budget_mib == pytest.approx(0.95 * 480 * 1024)
    assert limited(here) == here


def test_scaling_keeps_how_full_a_machine_is() -> None:
    """Twice the memory, twice the headroom; the reserve is made anew."""
    here = named("gb200-node")
    twice = scaled(here, cores=288, memory_mib=2 * here.memory_mib)
    assert twice.cores == 288
    assert twice.budget_mib + twice.reserve_mib == pytest.approx(2 * (here.budget_mib + here.reserve_mib))


def test_threads_are_only_taken_where_units_fit_with_them() -> None:
    """Two architectures of 3 GiB each in 4 GiB: one thread, though two would be faster."""
    phases = (phase(3000.0, 10.0, PhaseKind.CICC, "sm_90"), phase(3000.0, 10.0, PhaseKind.CICC, "sm_100"))
    made = recipe(unit("a.cu", *phases, archs=("sm_100", "sm_90")))
    plain = UngatedWork(made, allowance_mib=0.0)
    small, large = (plain.best_static(host(4, size), free_mib=size) for size in (4096.0, 16384.0))
    assert small is not None
    assert large is not None
    assert (small.threads, large.threads) == (1, 2)
    assert small.peak_mib == 3000.0
    assert large.makespan_s < small.makespan_s


def test_of_architectures_that_do_not_fit_together_as_many_run_as_fit() -> None:
    """One unit for nine, of 3 GiB and 100 s each, in 15 GiB: with all it would not fit, and one by one it is 15 minutes
    long, though its gates let five run."""
    archs = [f"sm_{number}" for number in range(70, 79)]
    phases = [phase(3000, 100, PhaseKind.CICC, arch) for arch in archs]
    made = recipe(unit("a.cu", *phases), unit("b.cu", phase(100, 1)))
    for memory_gib, makespan_s in ((64, 100), (16, 200), (4, 900)):
        assert plan(made, host(16, memory_gib * 1024.0)).makespan_s == pytest.approx(makespan_s, rel=0.05)
