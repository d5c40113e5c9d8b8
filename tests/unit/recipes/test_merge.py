"""Recipes put together: merged, brought up to date by new builds, and compared."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builddoctor.core.errors import RecipeError
from builddoctor.core.phase import PhaseKind
from builddoctor.core.recipe import Fingerprint, Hazard, Origin, Recipe, RecipeProject, Setting
from builddoctor.recipes.merge import merge, renew
from builddoctor.recipes.recipe_diff import differences, fingerprint_words
from unit.demo_recipes import MADE, figures, recipe, recipe_unit

HAZARD = Hazard(kind="runaway", text="cudafe++ grows without end")


def of(
    *peaks_mib: float, runs: int = 1, traces: tuple[str, ...] = (), provenance: str = "measured", **fields: Any
) -> Recipe:
    """Units ``0.cu``, ``1.cu`` … of one phase each."""
    units = [
        recipe_unit(f"{number}.cu", figures(peak_mib=peak, cpu_s=peak / 100), output=f"{number}.o")
        for number, peak in enumerate(peaks_mib)
    ]
    how = fields.pop("how", "the trace of one build")
    origin = Origin(provenance=provenance, runs=runs, how=how, date="2025-01-01", traces=traces)
    return recipe(*units, origin=origin, **fields)


def phase_of(whole: Recipe, unit: int = 0, phase: int = 0) -> Any:
    return whole.units[unit].phases[phase]


def test_figures_are_weighted_by_runs() -> None:
    """Three runs of 100 MiB and one of 140: 110, and a high of 140."""
    merged = merge([of(100, runs=3), of(140)])
    assert (phase_of(merged).peak_mib, phase_of(merged).high_mib) == (110, 140)
    assert (phase_of(merged).cpu_s, phase_of(merged).high_s) == (1.1, 1.4)
    assert phase_of(merged).runs == 0
    assert merged.origin.runs == 4


@pytest.mark.parametrize(("older", "newer"), [("0.9.0", "0.10.0"), ("0.1.dev9", "0.1.dev10+gabc"), ("unknown", "0.1")])
def test_the_newest_builddoctor_of_them_is_named(older: str, newer: str) -> None:
    """By the order of versions, in whatever order they come."""
    both = [
        msgspec.structs.replace(of(100), origin=msgspec.structs.replace(of(100).origin, builddoctor=version))
        for version in (older, newer)
    ]
    assert merge(both).origin.builddoctor == merge(both[::-1]).origin.builddoctor == newer


def test_of_courses_the_most_that_any_build_held_is_kept() -> None:
    """At each moment, in shares of its own peak; a recipe without them takes nothing away."""
    courses = ("500:200 1000:1000", "250:1000 1000:100", "")
    both = merge([recipe(recipe_unit("0.cu", figures(course=course), output="0.o")) for course in courses])
    assert phase_of(both).course == "250:1000 500:200 1000:1000"


def test_a_high_of_earlier_runs_is_kept() -> None:
    """Also where the other recipe has never seen so much."""
    high = recipe(recipe_unit("0.cu", figures(peak_mib=100, high_mib=900), output="0.o"))
    assert phase_of(merge([high, of(100)])).high_mib == 900


def test_units_of_either_are_in_the_merged_one() -> None:
    """With how often each was measured, the first's order first."""
    merged = merge([of(100, 200), of(100, 200, 300)])
    assert [unit.place for unit in merged.units] == ["0.cu", "1.cu", "2.cu"]
    assert [phase_of(merged, unit).runs for unit in range(3)] == [0, 0, 1]


def test_measured_and_emulated_figures_are_never_one_figure() -> None:
    """The better one is taken; what has no better one says what it is."""
    merged = merge([of(100, 200, provenance="emulated"), of(150)])
    assert merged.origin.provenance == "measured"
    assert (phase_of(merged).peak_mib, phase_of(merged).provenance) == (150, None)
    assert (phase_of(merged, 1).peak_mib, phase_of(merged, 1).provenance) == (200, "emulated")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"project": RecipeProject(name="other")}, "different projects cannot be merged: demo and other"),
        ({"made": Fingerprint(archs=("sm_100",))}, "different architectures"),
        ({"made": Fingerprint(host_arch="aarch64")}, "different processors"),
    ],
)
def test_recipes_of_different_builds_are_refused(other: dict[str, Any], said: str) -> None:
    """Their figures have no mean."""
    with pytest.raises(RecipeError, match=said):
        merge([of(100), of(100, **other)])


def test_nothing_to_merge_is_an_error_and_one_recipe_is_itself() -> None:
    """As one would expect."""
    with pytest.raises(RecipeError, match="no recipe"):
        merge([])
    assert merge([of(1)]) == of(1)


def test_hazards_and_settings_of_both_are_kept() -> None:
    """Each once; of two values the first's."""
    one = of(1, hazards=(HAZARD,), environment=(Setting(name="MAX_JOBS", value="2"),))
    two = of(
        1, hazards=(HAZARD,), environment=(Setting(name="MAX_JOBS", value="8"), Setting(name="NVCC_THREADS", value="1"))
    )
    merged = merge([one, two])
    assert merged.hazards == (HAZARD,)
    assert [(each.name, each.value) for each in merged.environment] == [("MAX_JOBS", "2"), ("NVCC_THREADS", "1")]


def test_merging_in_any_order_gives_the_same_figures() -> None:
    """For what both have."""
    a, b = of(100, 300, runs=2), of(130, 310)
    assert merge([a, b]).units == merge([b, a]).units


def test_a_recipe_grows_by_a_new_build() -> None:
    """Runs, figures and traces; what a person added to it stays."""
    project = RecipeProject(name="demo", version="2.8", title="Demo")
    old = of(100, runs=1, traces=("aaa",), hazards=(HAZARD,), project=project)
    done = renew(old, of(140, 50, traces=("bbb",)))
    now = done.recipe
    assert done.words == ()
    assert (now.origin.runs, now.origin.traces, now.origin.how) == (2, ("aaa", "bbb"), "the traces of 2 builds")
    assert (phase_of(now).peak_mib, phase_of(now).high_mib) == (120, 140)
    assert (phase_of(now, 1).peak_mib, phase_of(now, 1).runs) == (50, 1)
    assert now.hazards == (HAZARD,)
    assert now.project.title == "Demo"


def test_a_unit_whose_source_has_changed_forgets_what_it_took() -> None:
    """The others keep their runs."""

    def built(digest: str, peak_mib: float) -> Recipe:
        whole = of(peak_mib, 50)
        changed = msgspec.structs.replace(whole.units[0], source_digest=digest)
        return msgspec.structs.replace(whole, units=(changed, whole.units[1]))

    done = renew(built("11111111", 900), built("22222222", 100))
    assert done.words == ("1 of its units have another source or other options now: their figures are the new ones",)
    assert (phase_of(done.recipe).peak_mib, phase_of(done.recipe).high_mib, phase_of(done.recipe).runs) == (100, 0, 1)
    assert done.recipe.units[0].source_digest == "22222222"
    assert phase_of(done.recipe, 1).runs == 0


def test_figures_of_other_tools_are_replaced() -> None:
    """Said, with what they were of."""
    old = of(900, 900, runs=9, hazards=(HAZARD,))
    done = renew(old, of(100, made=msgspec.structs.replace(MADE, nvcc="13.1.0")))
    assert done.words == ("its figures were of other tools, and are replaced: nvcc 13.0.88, then 13.1.0",)
    assert (len(done.recipe.units), phase_of(done.recipe).peak_mib, done.recipe.origin.runs) == (1, 100, 1)
    assert done.recipe.hazards == (HAZARD,)


def test_a_recipe_of_another_project_is_not_overwritten() -> None:
    """Somebody meant another file."""
    with pytest.raises(RecipeError, match="different projects"):
        renew(of(1), of(1, project=RecipeProject(name="other")))


def test_differences_name_units_beyond_their_spread() -> None:
    """A twentieth, or what runs themselves differed by, is no difference."""
    before = of(1000, 1000, 1000, 10)
    after = of(1040, 1300, 700, 14)
    told = differences(before, after)
    assert [(each.place, each.memory, each.before_mib, each.after_mib) for each in told.changed] == [
        ("1.cu", "grew", 1000, 1300),
        ("2.cu", "shrank", 1000, 700),
    ]
    assert [each.time for each in told.changed] == ["slowed", "sped up"]
    assert told.same == 2
    spread = recipe(recipe_unit("0.cu", figures(peak_mib=1000, high_mib=1400), output="0.o"))
    other = recipe(recipe_unit("0.cu", figures(peak_mib=1300), output="0.o"))
    assert differences(spread, other).changed == ()


def test_differences_name_what_is_new_and_gone() -> None:
    """Units, hazards, variables, tools."""
    before = of(100, 200, environment=(Setting(name="MAX_JOBS", value="2"),))
    after = of(100, hazards=(HAZARD,), made=msgspec.structs.replace(MADE, nvcc="13.1.0"))
    told = differences(before, after)
    assert [each.place for each in told.removed] == ["1.cu"]
    assert told.added == ()
    assert [each.place for each in differences(after, before).added] == ["1.cu"]
    assert told.hazards_added == (HAZARD,)
    assert differences(after, before).hazards_removed == (HAZARD,)
    assert told.environment == ("MAX_JOBS=2 is gone",)
    assert differences(after, before).environment == ("MAX_JOBS=2 is new",)
    assert told.toolchain == ("nvcc 13.0.88, then 13.1.0",)


def test_what_a_recipe_does_not_say_does_not_differ() -> None:
    """An older one knows no gcc."""
    assert fingerprint_words(MADE, Fingerprint()) == ()
    a, b = Fingerprint(options="00000000", source="00000000"), Fingerprint(options="11111111", source="11111111")
    assert fingerprint_words(a, b) == ("options of some units", "some sources")


def test_phases_of_recipes_are_found_by_kind_arch_and_input() -> None:
    """As those of traces are."""
    small, large = (
        figures(PhaseKind.PREPROCESS, input_mib=0.01, peak_mib=19),
        figures(PhaseKind.PREPROCESS, input_mib=0.5, peak_mib=70),
    )
    one, two = recipe(recipe_unit("a.cu", small, large)), recipe(recipe_unit("a.cu", large, small))
    assert [phase.peak_mib for phase in merge([one, two]).units[0].phases] == [19, 70]
