"""How far a recipe is from a build, in words too; and the nearest of several."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builddoctor.model.recipe import Fingerprint, Origin, Recipe, RecipeProject
from builddoctor.policy.past import OTHER_HOST_ARCH, OTHER_MAJOR, OTHER_MINOR
from builddoctor.recipes.matching import (
    OTHER_MAJOR_VERSION,
    OTHER_MINOR_VERSION,
    OTHER_PATCH_VERSION,
    Wanted,
    distance,
    nearest,
    page_allowance_mib,
    version_distance,
)
from builddoctor.recipes.shelf import Shelved
from unit.recipes import HERE, MADE, recipe


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
    assert [words.split(",")[0] for words in far.words] == [
        "for sm_90",
        "made with nvcc 13.0.88",
        "demo 2.8",
    ]
    alone = [distance(recipe(), here(**each)).value for each in ({"nvcc": "13.1.80"}, {"archs": ("sm_100",)})]
    assert far.value == pytest.approx(sum(alone) + OTHER_PATCH_VERSION)
    assert far.trust == "a rough guide"


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
