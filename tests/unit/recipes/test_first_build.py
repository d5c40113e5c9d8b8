"""TransformerEngine's first build with a recipe, on the simulator: true figures, too low ones, far too high ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builddoctor.core.past import UnitKey
from builddoctor.core.recipe import Fingerprint, Origin, PhaseFigures, Recipe, RecipeProject, RecipeUnit
from builddoctor.estimation.course import course_text, together
from builddoctor.recipes.match import RecipePast, Wanted
from builddoctor.simulate.result import Host, Result
from builddoctor.simulate.shipped import as_shipped
from builddoctor.simulate.workload import UnitWork, Workload, unit_id
from support.measured_builds import from_digest
from support.workloads import cold, warm, watched

DIGEST = Path(__file__).resolve().parents[2] / "data" / "te-2.8-sm100-curves.csv"
HOST = Host(cores=4, limit_mib=6144.0)
WANTED = Wanted(project="transformer_engine", version="2.8", archs=("sm_100",), nvcc="13.0.88", host_arch="x86_64")


@pytest.fixture(scope="module")
def engine() -> Workload:
    return from_digest(DIGEST)


def recipe_of(workload: Workload, factor: float = 1.0) -> Recipe:
    """All of its phases, each this many times as large as it is."""
    return Recipe(
        schema=2,
        project=RecipeProject(name="transformer_engine", version="2.8"),
        fingerprint=Fingerprint(archs=("sm_100",), nvcc="13.0.88", host_arch="x86_64"),
        origin=Origin(provenance="measured", runs=2),
        units=tuple(
            RecipeUnit(
                place=unit.name,
                output=f"{unit.name}.o",
                options="0" * 16,
                archs=unit.archs,
                after_all=unit.after_all,
                phases=tuple(
                    PhaseFigures(
                        kind=each.kind,
                        arch=each.arch,
                        input_mib=round(each.input_mib, 3),
                        peak_mib=factor * each.peak_mib,
                        cpu_s=each.wall_s,
                        course=course_text(together([course])) if (course := watched(each)) else "",
                    )
                    for each in unit.phases
                ),
            )
            for unit in workload.units
        ),
    )


def key_of(unit: UnitWork) -> UnitKey:
    return UnitKey(
        project="transformer-engine",
        place=unit.name,
        output=f"{unit.name}.o",
        options="0" * 16,
        nvcc="13.0.88" if unit.archs else "",
        host_arch="x86_64",
        archs=unit.archs,
    )


def first_build(workload: Workload, recipe: Recipe) -> Result:
    """With nothing but the recipe."""
    past = RecipePast(recipe, WANTED)
    keys = {unit_id(index): key_of(unit) for index, unit in enumerate(workload.units)}
    known = {name: (key, past.find(key)) for name, key in keys.items()}
    return as_shipped(workload, HOST, known=known)


def test_a_recipe_that_is_right_makes_the_first_build_a_warm_one(engine: Workload) -> None:
    """As fast as with a history, with no kernel kill and nothing redone; a cold build is slower."""
    first = first_build(engine, recipe_of(engine))
    known = as_shipped(engine, HOST, known=warm(engine))
    unknown = as_shipped(engine, HOST, known=cold(engine))
    assert first.completed
    assert (first.kernel_kills, first.requeued) == (0, 0)
    assert first.makespan_s == pytest.approx(known.makespan_s, rel=0.02)
    assert first.makespan_s < unknown.makespan_s


@pytest.mark.parametrize(("factor", "slower"), [(0.7, 1.1), (0.1, 1.25), (10.0, 1.7), (1000.0, 2.7)])
def test_a_recipe_that_is_wrong_costs_time_and_never_the_build(engine: Workload, factor: float, slower: float) -> None:
    """Thirty percent too low, ten times too low or too high, nonsense: every phase is built; what was learned in the
    first units corrects the rest."""
    wrong = first_build(engine, recipe_of(engine, factor))
    right = first_build(engine, recipe_of(engine))
    assert wrong.completed
    assert wrong.unfinished == 0
    assert wrong.makespan_s < slower * right.makespan_s


def test_a_recipe_that_is_thirty_percent_too_low_costs_next_to_nothing(engine: Workload) -> None:
    """The first phases show by how much it is off, before many run at once: the kernel ends none, we at most one."""
    low = first_build(engine, recipe_of(engine, 0.7))
    assert low.kernel_kills == 0
    assert low.kills <= 1


def test_a_recipe_of_half_of_the_units_helps_for_those(engine: Workload) -> None:
    """The other half is guessed as ever; the build completes."""
    whole = recipe_of(engine)
    half = msgspec.structs.replace(whole, units=whole.units[::2])
    assert first_build(engine, half).completed
