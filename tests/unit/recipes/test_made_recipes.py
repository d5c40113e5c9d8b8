"""How shipped recipes are made of what was measured: one architecture of several, units that nobody built, the page."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from builddoctor.core.phase import PhaseKind
from builddoctor.core.recipe import Fingerprint, Origin, RecipeProject, RecipeUnit
from builddoctor.recipes.recipe_file import read_recipe
from unit.recipes_made import phase, recipe, unit

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

from memory_page import memory_page  # noqa: E402
from shipped_recipes import as_kin, cut_to, with_kin  # noqa: E402

CICC, PTXAS = PhaseKind.CICC, PhaseKind.PTXAS
BOTH = recipe(
    unit(
        "a.cu",
        phase(50, 1),
        phase(900, 9, CICC, "sm_90", course="1000:1000"),
        phase(800, 8, CICC, "sm_100"),
        archs=("sm_100", "sm_90"),
    ),
    unit("link a.o", phase(30, 1, PhaseKind.NVLINK), archs=("sm_100", "sm_90"), after_all=True),
    unit("b.cpp", phase(70, 1)),
    fingerprint=Fingerprint(archs=("sm_100", "sm_90")),
    origin=Origin(provenance="measured", how="the trace of one build"),
)


def test_one_architecture_of_a_build_for_two() -> None:
    """Its phases are the measured ones; the other's are left out, and that is said. A device link stays."""
    cut = cut_to(BOTH, ("sm_90",))
    assert [each.arch for each in cut.units[0].phases] == ["", "sm_90"]
    assert cut.units[0].phases[1] == BOTH.units[0].phases[1]
    assert [each.archs for each in cut.units] == [("sm_90",), ("sm_90",), ()]
    assert cut.fingerprint.archs == ("sm_90",)
    assert cut.origin.provenance == "measured"
    assert cut.origin.how == "the trace of one build; built for sm_100 as well, whose phases are left out"


SAMPLE = recipe(
    unit("src/fattn-mma-ncols1_8.cu", phase(700, 5, course="1000:1000")),
    unit("src/fattn-mma-ncols1_16.cu", phase(900, 9)),
    unit("src/fattn-tile-64.cu", phase(1500, 5)),
    unit("src/ops.cpp", phase(4000, 5)),
)


@pytest.mark.parametrize(
    ("place", "kin"),
    [
        # Of the nearest by name the largest; a number is a word.
        ("src/fattn-mma-ncols1_1.cu", "src/fattn-mma-ncols1_16.cu"),
        ("src/fattn-tile-128.cu", "src/fattn-tile-64.cu"),
        # No nearer one: the largest of its kind of source.
        ("src/scale.cu", "src/fattn-tile-64.cu"),
        ("common/log.cpp", "src/ops.cpp"),
    ],
)
def test_a_unit_that_was_not_built_is_taken_for_its_nearest_kin(place: str, kin: str) -> None:
    """Each of its phases is marked; nobody packs by a course that was carried over."""
    made = as_kin(SAMPLE.units, place, f"obj/{place.rpartition('/')[2]}.o")
    like = next(each for each in SAMPLE.units if each.place == kin)
    assert [each.peak_mib for each in made.phases] == [each.peak_mib for each in like.phases]
    assert {(each.provenance, each.course) for each in made.phases} == {("derived", "")}
    # Of two, the shorter; the other is how long it may be.
    assert [(each.cpu_s, each.high_s) for each in made.phases] == [(5, 9) if "mma" in place else (5, 0)]
    assert (made.place, made.target) == (place, f"obj/{made.output}")


def test_a_recipe_of_a_sample_has_all_units() -> None:
    """Those that were built first, as they were."""
    made = with_kin(SAMPLE, ["src/fattn-mma-ncols1_2.cu -> obj/x.o", "src/scale.cu -> "])
    assert made.units[:4] == SAMPLE.units
    assert [each.place for each in made.units[4:]] == ["src/fattn-mma-ncols1_2.cu", "src/scale.cu"]
    assert with_kin(SAMPLE, []) == SAMPLE


def test_the_page_says_what_plans_say() -> None:
    """The largest process, the memory at which all jobs are safe, the best number of jobs without us, and times."""
    made = msgspec.structs.replace(
        SAMPLE,
        project=RecipeProject(name="llama_x", version="3.1"),
        fingerprint=Fingerprint(archs=("sm_90",), host_arch="x86_64"),
        origin=Origin(provenance="derived", how="a sample"),
    )
    page = memory_page([("llama_x-3.1-sm_90", made), ("bits-1.0", BOTH)])
    assert page.splitlines()[2] == "# How much memory does it take to build small or llama-x?"
    # 4000 + 1500 + 900 + 700 MiB, and 1 GiB that stays free.
    row = next(line for line in page.splitlines() if line.startswith("| llama-x 3.1 |"))
    assert row.startswith("| llama-x 3.1 | `sm_90` | ≈ 3.9 GiB | 8 GiB | 8 GiB | 0:1")
    assert row.count("`MAX_JOBS=16`") == 2
    assert "- `llama_x-3.1-sm_90`: 4 units; the worst is gcc's `cc1plus` of `src/ops.cpp`." in page


def test_kin_are_near() -> None:
    """Of the CUDA units of measured recipes, each left out in turn: 57 of 66 are taken for at least nine tenths of
    what they take, one for 18 %. The others are heavier than all that is alike."""
    shares = []
    for name in ("transformer_engine-2.8-sm_100", "xformers-0.0.35-sm_90", "bitsandbytes-0.50.1-sm_90"):
        units = read_recipe(ROOT / "recipes" / f"{name}-x86_64.toml").units
        cuda = [each for each in units if each.place.endswith(".cu")]
        for left_out in cuda:
            kin = as_kin([each for each in cuda if each is not left_out], left_out.place, left_out.target)
            shares.append(_peak(kin) / _peak(left_out))
    assert len(shares) == 66
    assert sum(share >= 0.9 for share in shares) == 57
    assert min(shares) == pytest.approx(0.18, abs=0.005)


def _peak(of: RecipeUnit) -> float:
    return max(each.peak_mib for each in of.phases)


def test_each_recipe_is_on_the_page() -> None:
    """But for the example's, which is nobody's project."""
    page = (ROOT / "docs" / "how-much-memory.md").read_text(encoding="utf-8")
    for path in (ROOT / "recipes").glob("*.toml"):
        assert (f"- `{path.stem}`:" in page) == bool(read_recipe(path).project.version), path.name


def test_what_was_measured_of_a_unit_before_it_was_ended_is_its_own() -> None:
    """Another architecture is taken for as demanding as the worst that it was compiled for; the rest is its kin's, by
    the size of both front ends."""
    forward = unit(
        "c/fwd.cu",
        phase(500, 2, PhaseKind.CUDAFE),
        phase(400, 8, CICC, "sm_80"),
        phase(450, 8, CICC, "sm_90"),
        phase(870, 6),
        archs=("sm_80", "sm_90"),
    )
    begun = unit(
        "c/bwd.cu", phase(1000, 3, PhaseKind.CUDAFE), phase(1257, 190, CICC, "sm_80"), archs=("sm_80", "sm_90")
    )
    made = with_kin(recipe(forward, begun), ["c/bwd.cu -> c/bwd.o"]).units[1]
    assert [(each.peak_mib, each.arch, each.provenance) for each in made.phases] == [
        (1000, "", None),
        (1257, "sm_80", None),
        (1257, "sm_90", "derived"),
        (1740, "", "derived"),
    ]
    assert made.phases[-1].cpu_s == 12
