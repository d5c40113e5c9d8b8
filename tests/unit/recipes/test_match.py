"""How far a recipe is from a build, in words too; the nearest of several; and its units as a past for the estimator."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from builddoctor.core.past import PastUnit, UnitKey
from builddoctor.core.phase import Estimate, PhaseKind
from builddoctor.core.recipe import Fingerprint, Origin, Recipe, RecipeProject
from builddoctor.estimation.estimator import EXTRA_MIB, LearningEstimator
from builddoctor.estimation.past import OTHER_ARCH, OTHER_HOST_ARCH, OTHER_MAJOR, OTHER_MINOR, recall
from builddoctor.recipes.match import (
    OTHER_MAJOR_VERSION,
    OTHER_MINOR_VERSION,
    OTHER_PATCH_VERSION,
    RecipePast,
    Wanted,
    distance,
    nearest,
    page_allowance_mib,
    version_distance,
)
from builddoctor.recipes.shelf import Shelved
from unit.builders import phase
from unit.demo_recipes import HERE, MADE, figures, recipe, recipe_unit


def here(**fields: Any) -> Wanted:
    """This build, but for something."""
    return msgspec.structs.replace(HERE, **fields)


def shelf(*recipes: Recipe) -> list[Shelved]:
    return [Shelved(name=f"r{n}", origin="yours", recipe=each) for n, each in enumerate(recipes)]


def test_a_recipe_of_the_very_same_build_is_at_no_distance() -> None:
    """And has no words to say; 2.8 is 2.8.0."""
    assert distance(recipe(), here(version="2.8.0")) == distance(recipe(), HERE)
    far = distance(recipe(), HERE)
    assert (far.value, far.words, far.trust) == (0.0, (), "")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (here(nvcc="13.1.80"), "made with nvcc 13.0.88, this build has 13.1.80"),
        (here(host_compiler="13.3.0"), "with gcc 12.2.0, this build has 13.3.0"),
        (here(archs=("sm_100",)), "for sm_90, this build is for sm_100"),
        (here(archs=("sm_100", "sm_90")), "for sm_90, this build is for sm_100, sm_90"),
        (here(version="2.9"), "demo 2.8, this is 2.9"),
        (here(version=""), "demo 2.8, this build does not say its version"),
        (here(page_kib=64), "pages of 4 KiB, here 64"),
        (here(host_arch="aarch64"), "for x86_64, this machine is aarch64"),
        (here(project="other"), "of demo, this is other"),
    ],
)
def test_each_difference_is_said_and_lowers_trust(wanted: Wanted, words: str) -> None:
    """One at a time: its words alone, and a distance of its own."""
    far = distance(recipe(), wanted)
    assert far.words == (words,)
    assert far.value > 0
    assert far.trust.startswith(("trusted", "a rough guide"))


def test_what_is_not_known_of_the_build_is_no_difference() -> None:
    """No nvcc, no architectures given: the recipe is not held against them."""
    assert distance(recipe(), here(nvcc="", archs=(), host_compiler="")).words == ()


@pytest.mark.parametrize(("provenance", "said"), [("emulated", "emulated aarch64 figures"), ("derived", "derived")])
def test_figures_that_were_not_measured_say_so(provenance: Any, said: str) -> None:
    """Emulated ones with the processor that was emulated."""
    made = msgspec.structs.replace(MADE, host_arch="aarch64")
    far = distance(recipe(made=made, origin=Origin(provenance=provenance)), here(host_arch="aarch64"))
    assert said in far.words[0]
    assert far.value >= OTHER_HOST_ARCH


def test_the_weightiest_difference_is_said_first_and_all_add_up() -> None:
    """Another architecture before another nvcc, and that before a patch release."""
    far = distance(recipe(), here(nvcc="13.1.80", archs=("sm_100",), version="2.8.1"))
    assert OTHER_ARCH > OTHER_MINOR > OTHER_PATCH_VERSION
    assert [words.split(",")[0] for words in far.words] == [
        "for sm_90",
        "made with nvcc 13.0.88",
        "demo 2.8",
    ]
    alone = [distance(recipe(), here(**each)).value for each in ({"nvcc": "13.1.80"}, {"archs": ("sm_100",)})]
    assert far.value == pytest.approx(sum(alone) + OTHER_PATCH_VERSION)
    assert far.trust == "trusted less"


@pytest.mark.parametrize("version", ["12", "12.2", "12.2.0"])
def test_a_version_that_says_less_is_no_other_version(version: str) -> None:
    """Debian's gcc calls itself 12; that is no difference from 12.2.0, and 13 is."""
    assert distance(recipe(), here(host_compiler=version)).words == ()
    assert distance(recipe(), here(host_compiler=f"1{version}")).words != ()


def test_another_release_of_nvcc_is_further_than_another_minor_version() -> None:
    """As in the history."""
    values = [distance(recipe(), here(nvcc=version)).value for version in ("13.1.80", "12.9.41")]
    assert values == [OTHER_MINOR, OTHER_MAJOR]


@pytest.mark.parametrize(
    ("then", "now", "value"),
    [
        ("2.8", "2.8.0", 0.0),
        ("2.8.0", "2.8.0+cu13", 0.0),
        ("v2.8", "2.8", 0.0),
        ("2.8.0", "2.8.1", OTHER_PATCH_VERSION),
        ("2.8", "2.9", OTHER_MINOR_VERSION),
        ("2.8", "3.0", OTHER_MAJOR_VERSION),
        ("main", "2.8", OTHER_MINOR_VERSION),
        ("", "2.8", OTHER_MINOR_VERSION),
        ("9" * 5000, "2.8", OTHER_MAJOR_VERSION),
    ],
)
def test_versions_are_compared_by_their_numbers(then: str, now: str, value: float) -> None:
    """What has no number, or one that nobody gives, is as far as another minor version."""
    assert version_distance(then, now) == value


def test_the_nearest_is_of_the_same_project_with_the_smallest_distance() -> None:
    """One of another project is never taken, however near its toolchain; nor one that cannot be read."""
    other = recipe(project=RecipeProject(name="other", version="2.8"))
    far = recipe(made=Fingerprint(nvcc="12.8.93"))
    near = recipe(made=msgspec.structs.replace(MADE, nvcc="13.1.80"))
    broken = Shelved(name="broken", origin="yours", problem="line 3")
    found = nearest([broken, *shelf(other, far, near)], HERE)
    assert found is not None
    assert found[0].recipe is near
    assert found[1] == distance(near, HERE)
    assert nearest([broken, *shelf(other)], HERE) is None
    assert nearest([], HERE) is None


def test_of_recipes_as_near_the_first_is_taken() -> None:
    """The shelf has the user's own before those that come with builddoctor."""
    first, second = recipe(), recipe()
    found = nearest(shelf(first, second), HERE)
    assert found is not None
    assert found[0].name == "r0"


@pytest.mark.parametrize("project", ["Demo", "d-e_m.o", "DEMO"])
def test_dashes_underscores_and_case_make_no_difference(project: str) -> None:
    """A name in any spelling."""
    assert nearest(shelf(recipe()), here(project=project)) is not None


def test_a_project_goes_by_all_of_its_names() -> None:
    """TransformerEngine calls itself transformer-engine, and is typed as te."""
    shelved = shelf(recipe(project=RecipeProject(name="transformer_engine", version="2.8")))
    for name in ("transformer-engine", "TransformerEngine", "te"):
        assert nearest(shelved, here(project=name)) is not None
    assert nearest(shelved, here(project="")) is None


def test_larger_pages_cost_something_and_smaller_ones_nothing() -> None:
    """60 MiB from 4 to 64 KiB; less for 16."""
    assert page_allowance_mib(4, 64) == 60
    assert 0 < page_allowance_mib(4, 16) < 60
    assert page_allowance_mib(64, 4) == page_allowance_mib(4, 4) == 0


KEY = UnitKey(
    project="demo",
    place="src/a.cu",
    output="a.o",
    options="0123456789abcdef",
    nvcc="13.0.88",
    host_compiler="12.2.0",
    host_arch="x86_64",
    archs=("sm_90",),
)
CICC = phase(arch="sm_90", input_mib=4.0, tool="cicc")


def key(**fields: Any) -> UnitKey:
    return msgspec.structs.replace(KEY, **fields)


def find(made: Recipe, wanted: Wanted = HERE, unit: UnitKey = KEY) -> PastUnit:
    found = RecipePast(made, wanted).find(unit)
    assert found is not None
    return found


def guess(made: Recipe, wanted: Wanted = HERE, unit: UnitKey = KEY) -> Estimate:
    """What cicc of the unit is expected to take in its first build."""
    estimator = LearningEstimator()
    estimator.know("u1", key=unit, past=RecipePast(made, wanted).find(unit), archs=unit.archs)
    return estimator.estimate(CICC)


def test_a_recipe_of_the_same_build_is_believed() -> None:
    """The first build expects what the recipe says, within a few percent, and says where that comes from."""
    first = guess(recipe())
    assert first.source == "recipe"
    assert first.peak_mib == pytest.approx(1000, rel=0.02)
    assert first.spread_mib < 50


def test_without_the_recipe_the_same_phase_is_a_guess() -> None:
    """So that the test above shows something."""
    first = guess(recipe(), unit=key(place="src/unknown.cu", output="unknown.o"))
    assert "recipe" not in first.source
    assert abs(first.peak_mib - 1000) > 200


@pytest.mark.parametrize(
    "wanted",
    [
        {"version": "2.9"},
        {"page_kib": 64},
        {"nvcc": "13.1.80"},
    ],
)
def test_a_mismatch_widens_the_estimate(wanted: dict[str, Any]) -> None:
    """And the source says that it is not quite the same."""
    toolchain = {name: value for name, value in wanted.items() if name == "nvcc"}
    other = guess(recipe(), msgspec.structs.replace(HERE, **wanted), key(**toolchain))
    assert other.source == "recipe, not quite the same"
    assert other.spread_mib > 1.5 * guess(recipe()).spread_mib


@pytest.mark.parametrize("provenance", ["emulated", "derived"])
def test_figures_that_were_not_measured_widen_the_estimate(provenance: Any) -> None:
    """Of all phases, or of one alone."""
    alone = recipe_unit("src/a.cu", figures(provenance=provenance))
    for made in (recipe(origin=Origin(provenance=provenance, runs=2)), recipe(alone)):
        assert guess(made).spread_mib > 1.5 * guess(recipe()).spread_mib
        assert guess(made).source == "recipe, not quite the same"


def test_one_run_is_less_than_two() -> None:
    """A single figure is at the distance of one build, as in the history; of several it is a median."""
    once, twice = (recall(CICC, KEY, find(recipe(origin=Origin(provenance="measured", runs=runs)))) for runs in (1, 2))
    assert once is not None
    assert twice is not None
    assert once.distance > twice.distance == 0.0
    assert once.peak_mib == twice.peak_mib == 1000


def test_the_largest_of_all_runs_moves_the_bound() -> None:
    """Median 1000, once 1300: about so much is set aside, and the estimate is no less the recipe's own."""
    first = guess(recipe(recipe_unit("src/a.cu", figures(high_mib=1300.0))))
    assert first.source == "recipe"
    assert first.reserve_mib == pytest.approx(1300, rel=0.03)
    assert first.peak_mib == pytest.approx(1000, rel=0.05)


def test_larger_pages_make_every_phase_larger() -> None:
    """By the allowance: 60 MiB, which a small phase feels and a large one does not."""
    made = recipe(recipe_unit("src/a.cu", figures(PhaseKind.PREPROCESS, peak_mib=75.0, tool="cc1plus"), figures()))
    large = find(made, msgspec.structs.replace(HERE, page_kib=64))
    assert [each.seen[0].peak_mib for each in large.phases] == [135, 1060]


def test_the_key_is_the_recipes_own() -> None:
    """So that another toolchain is at its distance by ``unit_distance``; what the recipe does not say is as now."""
    now = key(nvcc="13.1.80", host_compiler="13.3.0", options="f" * 16)
    found = find(recipe(recipe_unit(options="", output="")), unit=now)
    assert found.key == key(options="f" * 16)


def test_a_compiler_that_says_less_of_its_version_is_the_same() -> None:
    """Debian's gcc calls itself 12: a recipe that was made with 12.2.0 is of the same toolchain."""
    now = key(host_compiler="12")
    assert find(recipe(), unit=now).key == now
    assert guess(recipe(), unit=now).source == "recipe"


def test_unknown_options_are_trusted_a_little_less() -> None:
    """But more than other options."""
    known, unknown, other = (
        recall(CICC, now, find(recipe(recipe_unit(options=options)), unit=now))
        for options, now in ((KEY.options, KEY), ("", KEY), (KEY.options, key(options="f" * 16)))
    )
    assert known is not None
    assert unknown is not None
    assert other is not None
    assert known.distance < unknown.distance < other.distance


# -- finding the unit --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("places", "place", "found"),
    [
        (("src/a.cu", "lib/a.cu"), "src/a.cu", "src/a.cu"),
        (("src/a.cu",), "common/src/a.cu", "src/a.cu"),
        (("common/src/a.cu",), "src/a.cu", "common/src/a.cu"),
        (("old/a.cu",), "new/a.cu", "old/a.cu"),
        (("x/old/a.cu", "y/src/a.cu"), "src/a.cu", "y/src/a.cu"),
        (("one/a.cu", "two/a.cu"), "new/a.cu", None),
        (("src/ba.cu",), "src/a.cu", None),
        (("link a.o",), "src/a.cu", None),
        (("src/a.o",), "link a.o", None),
    ],
)
def test_a_unit_is_found_by_place_else_by_a_name_of_its_own(
    places: tuple[str, ...], place: str, found: str | None
) -> None:
    """A folder more or less is the same place; a file name that two units have tells nothing; a link is no source."""
    units = [recipe_unit(each, figures(peak_mib=100.0 + n), output="") for n, each in enumerate(places)]
    past = RecipePast(recipe(*units), HERE).find(key(place=place))
    got = None if past is None else places[round(past.phases[0].seen[0].peak_mib - 100)]
    assert got == found


def test_a_source_in_another_folder_is_trusted_less_than_in_its_own() -> None:
    """Moved, it may be another."""
    moved, own = (recall(CICC, KEY, find(recipe(recipe_unit(place)))) for place in ("old/a.cu", "src/a.cu"))
    assert moved is not None
    assert own is not None
    assert moved.distance > own.distance


def test_another_output_of_the_same_name_is_another_unit() -> None:
    """By name alone only what makes a file of the same name counts; at its own place also what makes another."""
    past = RecipePast(recipe(recipe_unit("old/a.cu", output="other.o")), HERE)
    assert past.find(KEY) is None
    assert RecipePast(recipe(recipe_unit("src/a.cu", output="other.o")), HERE).find(KEY) is not None


def test_of_units_from_one_source_the_nearest_is_taken() -> None:
    """One file compiled twice, into two objects with other options."""
    units = (
        recipe_unit("src/a.cu", figures(peak_mib=1.0), output="b.o"),
        recipe_unit("src/a.cu", figures(peak_mib=2.0), options="f" * 16),
        recipe_unit("src/a.cu", figures(peak_mib=3.0)),
    )
    assert find(recipe(*units)).phases[0].seen[0].peak_mib == 3.0


def test_a_link_is_found_by_its_name() -> None:
    """``link NAME`` is its place."""
    link = recipe_unit("link lib.so", figures(PhaseKind.LINK, peak_mib=50.0), output="lib.so", after_all=True, archs=())
    found = find(recipe(link), unit=key(place="link lib.so", output="lib.so", archs=(), nvcc=""))
    assert (found.phases[0].tool, found.phases[0].seen[0].peak_mib) == ("collect2", 50.0)


def test_units_of_another_project_in_the_same_build_are_unknown() -> None:
    """What pip fetches and compiles beside it may have a file of the same name."""
    assert RecipePast(recipe(), HERE).find(key(project="pybind11")) is None


def test_a_recipe_that_was_named_serves_a_project_of_another_name() -> None:
    """A fork calls itself something else; it is trusted less."""
    fork = msgspec.structs.replace(HERE, project="my-fork")
    found = RecipePast(recipe(), fork).find(key(project="my-fork"))
    assert found is not None
    assert found.phases[0].distance > find(recipe()).phases[0].distance
    engine = recipe(project=RecipeProject(name="transformer_engine", version="2.8"))
    assert RecipePast(engine, fork).find(key(project="TransformerEngine")) is not None


def test_what_counts_is_the_units_project_and_not_that_of_the_folder() -> None:
    """A `ninja -C` that was called in another project's folder builds the recipe's own units."""
    elsewhere = msgspec.structs.replace(HERE, project="another", version="9.1")
    made = recipe(project=RecipeProject(name="demo"))
    here = msgspec.structs.replace(HERE, version="")
    assert find(made, elsewhere).phases[0].distance == find(made, here).phases[0].distance
    assert RecipePast(made, elsewhere).find(key(project="pybind11")) is None


# -- phases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [HERE, here(version="2.9")])
def test_a_build_is_packed_by_a_recipes_courses(wanted: Wanted) -> None:
    """Those of another version too."""
    made = recipe(recipe_unit("src/a.cu", figures(course="500:250 1000:1000")))
    estimator = LearningEstimator()
    estimator.know("u1", key=KEY, past=RecipePast(made, wanted).find(KEY), archs=KEY.archs)
    assert estimator.course(CICC) == ((0.5, 0.25), (1.0, 1.0))


def test_tools_that_a_recipe_does_not_name_are_the_usual_ones() -> None:
    """As gates announce them."""
    unit = recipe_unit("src/a.cu", *(figures(kind) for kind in PhaseKind))
    tools = {each.kind.value: each.tool for each in find(recipe(unit)).phases}
    assert tools == {
        "preprocess": "cc1plus",
        "cudafe++": "cudafe++",
        "cicc": "cicc",
        "ptxas": "ptxas",
        "host": "cc1plus",
        "nvlink": "nvlink",
        "link": "collect2",
    }


def test_runs_of_one_tool_with_other_inputs_are_kept_apart_by_size() -> None:
    """The preprocessor is asked for its macros with nothing, and then for the source."""
    nothing, source = (
        figures(PhaseKind.PREPROCESS, input_mib=size, peak_mib=peak) for size, peak in ((0.0, 19.0), (0.4, 75.0))
    )
    found = find(recipe(recipe_unit("src/a.cu", nothing, source, source)))
    small, large = (
        recall(phase(kind=PhaseKind.PREPROCESS, input_mib=size, tool="cc1plus"), KEY, found) for size in (0.0, 0.4)
    )
    assert small is not None
    assert large is not None
    assert (small.peak_mib, large.peak_mib) == (19, 75)


def test_an_architecture_that_is_missing_is_taken_from_the_largest_there_is() -> None:
    """At the distance of another architecture; what the build is not for is left out, as it would be waited for."""
    unit = recipe_unit(
        "src/a.cu",
        figures(PhaseKind.CUDAFE),
        figures(arch="sm_80", peak_mib=700.0),
        figures(PhaseKind.PTXAS, arch="sm_80", peak_mib=70.0),
        figures(arch="compute_90", peak_mib=900.0),
        figures(PhaseKind.PTXAS, arch="sm_90", peak_mib=90.0),
        archs=("sm_80", "sm_90"),
    )
    found = find(recipe(unit), unit=key(archs=("sm_80", "sm_100")))
    assert [(each.kind.value, each.arch, each.seen[0].peak_mib) for each in found.phases] == [
        ("cudafe++", "", 1000),
        ("cicc", "sm_80", 700),
        ("ptxas", "sm_80", 70),
        ("cicc", "sm_100", 900),
        ("ptxas", "sm_100", 90),
    ]
    assert [each.distance >= OTHER_ARCH for each in found.phases] == [False, False, False, True, True]


def test_a_recipe_without_input_sizes_carries_nothing_over() -> None:
    """cudafe++ is scaled by its input where that is known; where not, the figure stands, a little less trusted."""
    found = find(recipe(recipe_unit("src/a.cu", figures(PhaseKind.CUDAFE, input_mib=0.0))))
    estimator = LearningEstimator()
    estimator.know("u1", key=KEY, past=found, archs=("sm_90",))
    front_end = estimator.estimate(phase(kind=PhaseKind.CUDAFE, input_mib=9.0, tool="cudafe++"))
    assert front_end.source == "recipe, not quite the same"
    assert front_end.peak_mib == pytest.approx(1000, rel=0.1)


def test_an_input_below_a_recipes_rounding_is_the_same_input() -> None:
    """A source of 300 bytes is 0.0 in a recipe."""
    found = find(recipe(recipe_unit("src/a.cu", figures(PhaseKind.HOST, input_mib=0.0, tool="cc1plus"))))
    known = recall(phase(kind=PhaseKind.HOST, input_mib=0.0003, tool="cc1plus"), KEY, found)
    assert known is not None
    assert known.distance == 0.0


def test_figures_of_emulated_tools_are_taken_as_they_are_and_trusted_less() -> None:
    """Their times are those without emulation already."""
    measured, emulated = (find(recipe(origin=Origin(provenance=each, runs=2))) for each in ("measured", "emulated"))
    assert emulated.phases[0].seen == measured.phases[0].seen
    assert emulated.phases[0].distance > measured.phases[0].distance


@pytest.mark.parametrize("odd", [{"peak_mib": 0.0}, {"peak_mib": 1e8, "high_mib": 1e8}, {"high_mib": 1.0, "cpu_s": 0}])
def test_odd_figures_do_no_harm(odd: dict[str, float]) -> None:
    """Zeros, a high below the median, a hundred TiB: an estimate comes out, whatever it is worth."""
    first = guess(recipe(recipe_unit("src/a.cu", figures(**odd))))
    assert math.isfinite(first.reserve_mib)
    assert first.peak_mib > 0
    assert first.spread_mib >= EXTRA_MIB
