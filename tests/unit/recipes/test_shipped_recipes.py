"""The recipes that come with builddoctor: every number in them is made again from the measured phases beside them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from builddoctor.core.phase import PhaseKind
from builddoctor.recipes.recipe_file import read_recipe
from builddoctor.recipes.recipe_text import dump
from support.measured_rows import read_rows

ROOT = Path(__file__).resolve().parents[3]
RECIPES = ROOT / "recipes"
sys.path.insert(0, str(ROOT / "scripts"))

from shipped_recipes import DEVICE, NOT_BUILT, SHIPPED, Made, make  # noqa: E402

NAMES = [made.name for made in SHIPPED]


def test_no_file_is_there_that_is_made_of_nothing() -> None:
    """And none is missing; of the data neither."""
    assert sorted(path.stem for path in RECIPES.glob("*.toml")) == sorted(NAMES)
    assert sorted(path.stem for path in (RECIPES / "data").glob("*.csv")) == sorted({made.data for made in SHIPPED})


@pytest.mark.parametrize("made", SHIPPED, ids=NAMES)
def test_a_recipe_is_what_its_data_say(made: Made) -> None:
    """Byte for byte; and it reads back as it was made."""
    path = RECIPES / f"{made.name}.toml"
    assert path.read_text(encoding="utf-8") == dump(make(made, RECIPES / "data"))
    assert read_recipe(path).project.name == read_rows(RECIPES / "data" / f"{made.data}.csv").remark("project")


@pytest.mark.parametrize("made", SHIPPED, ids=NAMES)
def test_no_number_is_invented(made: Made) -> None:
    """Each peak and time of each phase is one that was measured, or the middle of two; of a derived one, another unit's
    by the size of both front ends."""
    file = read_rows(RECIPES / "data" / f"{made.data}.csv")
    rows, sampled = file.phases, bool(file.remarks_of(NOT_BUILT))
    front_ends = {row.place: row.peak_mib for row in rows if row.kind is PhaseKind.CUDAFE}
    peaks, times = (
        {round(figure, places) for figure in figures}
        for figures, places in (([row.peak_mib for row in rows], 1), ([row.cpu_s for row in rows], 3))
    )
    runs = len({row.run for row in rows})
    units = read_recipe(RECIPES / f"{made.name}.toml").units
    told = [(row.kind, front_ends[row.place], row.peak_mib, row.cpu_s) for row in rows if row.place in front_ends]
    told += [
        (phase.kind, front_ends[unit.place], phase.peak_mib, phase.cpu_s)
        for unit in units
        for phase in unit.phases
        if phase.provenance != "derived" and unit.place in front_ends
    ]
    for unit in units:
        for phase in unit.phases:
            if sampled and phase.provenance == "derived" and phase.kind in (*DEVICE, PhaseKind.HOST):
                own_mib = front_ends[unit.place]
                like = {
                    mib
                    for kind, mib, peak, _ in told
                    if kind is phase.kind and _is(phase.peak_mib, peak, own_mib / mib)
                }
                assert like
                assert any(
                    kind is phase.kind and _is(phase.cpu_s, s, own_mib / each)
                    for each in like
                    for kind, _, _, s in told
                )
                continue
            if runs == 1:
                assert phase.peak_mib in peaks
                assert phase.cpu_s in times
            assert (phase.high_mib or phase.peak_mib) in peaks
            assert (phase.high_s or phase.cpu_s) in times


def _is(figure: float, measured: float, times: float) -> bool:
    """So many times what was measured; all of them were rounded."""
    return abs(figure - measured * times) < 0.06 * max(1.0, times) + 0.0002 * figure


@pytest.mark.parametrize("made", SHIPPED, ids=NAMES)
def test_what_was_derived_or_emulated_says_so(made: Made) -> None:
    """A recipe with one derived phase is derived; one of emulated tools is for their processor."""
    recipe = read_recipe(RECIPES / f"{made.name}.toml")
    derived = any(phase.provenance == "derived" for unit in recipe.units for phase in unit.phases)
    assert derived == (recipe.origin.provenance == "derived") == bool(made.how)
    assert (recipe.origin.provenance == "emulated") == (recipe.fingerprint.host_arch == "aarch64")
    assert recipe.origin.how


@pytest.mark.parametrize("made", SHIPPED, ids=NAMES)
def test_every_architecture_of_a_recipe_is_compiled_for(made: Made) -> None:
    """By every unit of CUDA code; a unit may be compiled for one more, or for one's own variant (sm_100a) in its place,
    as its project wants it. A device link compiles nothing."""
    recipe = read_recipe(RECIPES / f"{made.name}.toml")
    assert recipe.fingerprint.archs
    for unit in recipe.units:
        if unit.archs and not unit.after_all:
            compiled = {phase.arch for phase in unit.phases if phase.kind is PhaseKind.CICC}
            assert compiled == set(unit.archs), unit.place
            families = {arch.rstrip("af") for arch in compiled}
            assert compiled | families >= set(recipe.fingerprint.archs), unit.place
