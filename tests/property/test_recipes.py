"""Recipes of any content, and files with any damage."""

from __future__ import annotations

import itertools
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.errors import RecipeError
from builddoctor.model import recipe as model
from builddoctor.model.phase import PhaseKind
from builddoctor.model.recipe import (
    Fingerprint,
    Hazard,
    Origin,
    PhaseFigures,
    Recipe,
    RecipeProject,
    RecipeUnit,
    Setting,
)
from builddoctor.recipes.allowed import allowed_names
from builddoctor.recipes.places import line_of, spots
from builddoctor.recipes.reading import checked, parse_recipe, read_recipe
from builddoctor.recipes.shape import complaints
from builddoctor.recipes.spelling import rounded
from builddoctor.recipes.tokens import tokens
from builddoctor.recipes.toml import loads
from builddoctor.recipes.writing import dump, updated

SEGMENTS = st.text("aZ09_.+,@=~%: -", max_size=4).map("s{}".format) | st.sampled_from([".", "...", "a..", "..a"])
PLACES = st.lists(SEGMENTS, min_size=1, max_size=3).map("/".join)
WORDS = st.text("aZ09_.+-", max_size=6).map("w{}".format) | st.just("")
TURNING = "".join(map(chr, [*range(0x2028, 0x202F), *range(0x2066, 0x206A)]))
LINES = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters=TURNING), max_size=12)
VALUES = st.text("aZ9_.;,+:= -", max_size=8)
ARCHS = st.sampled_from(["sm_80", "sm_90", "sm_100a", "sm_120f", "compute_90"])
ARCH_LISTS = st.lists(ARCHS, unique=True, max_size=3).map(tuple)
DIGESTS = st.sampled_from(["", "0123abcd", "f" * 64])
SIZES = st.floats(0, 1e8) | st.floats(0, 1) | st.integers(0, 100).map(float)
SECONDS = st.floats(0, 1e6) | st.floats(0, 0.01)
RUNS = st.integers(0, 1_000_000)
PROVENANCES = st.sampled_from(typing.get_args(model.Provenance))


@st.composite
def phases(draw: st.DrawFn) -> PhaseFigures:
    peak, high = sorted([draw(SIZES), draw(SIZES)])
    usual, longest = sorted([draw(SECONDS), draw(SECONDS)])
    return PhaseFigures(
        kind=draw(st.sampled_from(PhaseKind)),
        tool=draw(WORDS),
        arch=draw(ARCHS | st.just("")),
        input_mib=draw(SIZES),
        peak_mib=peak,
        high_mib=draw(st.sampled_from([0.0, high])),
        cpu_s=usual,
        high_s=draw(st.sampled_from([0.0, longest])),
        runs=draw(RUNS),
        provenance=draw(st.none() | PROVENANCES),
    )


UNITS = st.builds(
    RecipeUnit,
    place=PLACES,
    output=PLACES | st.just(""),
    target=PLACES | st.just(""),
    options=DIGESTS,
    source_digest=DIGESTS,
    archs=ARCH_LISTS,
    after_all=st.booleans(),
    phases=st.lists(phases(), max_size=3).map(tuple),
)

RECIPES = st.builds(
    Recipe,
    schema=st.just(1),
    project=st.builds(RecipeProject, name=WORDS.map(lambda word: word or "x"), version=WORDS, title=LINES),
    fingerprint=st.builds(
        Fingerprint, archs=ARCH_LISTS, nvcc=WORDS, host_compiler=WORDS, host_arch=WORDS, page_kib=st.integers(1, 65536)
    ),
    origin=st.builds(
        Origin,
        provenance=PROVENANCES,
        runs=RUNS,
        how=LINES,
        machine=LINES,
        date=st.dates().map(str),
        data=PLACES | st.just(""),
        data_digest=DIGESTS,
        traces=st.lists(WORDS, max_size=2).map(tuple),
    ),
    environment=st.lists(
        st.builds(Setting, name=st.sampled_from(allowed_names()), value=VALUES, why=LINES),
        unique_by=lambda each: each.name,
        max_size=2,
    ).map(tuple),
    hazards=st.lists(
        st.builds(
            Hazard,
            kind=st.sampled_from(typing.get_args(model.HazardKind)),
            text=LINES.map("A{}".format),
            source=LINES,
        ),
        max_size=2,
    ).map(tuple),
    units=st.lists(UNITS, unique_by=lambda each: (each.place, each.output, each.target, each.options), max_size=4).map(
        tuple
    ),
)


@given(RECIPES)
def test_what_is_written_is_read_as_it_was(recipe: Recipe) -> None:
    """All but what rounding takes; the same recipe gives the same text, and its text gives itself."""
    assert checked(recipe, "made") == recipe
    text = dump(recipe)
    assert parse_recipe(text, "made.toml") == rounded(recipe)
    assert dump(parse_recipe(text, "made.toml")) == text
    assert updated(text, recipe) == text


@given(RECIPES, RECIPES, st.booleans())
def test_a_renewed_file_says_what_the_new_recipe_says(old: Recipe, new: Recipe, mixed: bool) -> None:
    """Whatever was in it before; with some of the old units, too, in another order."""
    if mixed:
        known = {
            (each.place, each.output, each.target, each.options): each for each in (*new.units[::-1], *old.units[::-1])
        }
        new = msgspec.structs.replace(new, units=tuple(known.values()))
    assert parse_recipe(updated(dump(old), new), "new.toml") == rounded(new)


@given(RECIPES, st.data())
def test_comments_survive_new_figures(recipe: Recipe, data: st.DataObject) -> None:
    """On a line of their own or behind a value: every one is there after the figures have changed."""
    lines = dump(recipe).split("\n")
    for number in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(lines) - 1))
        comment = f"# note {number} 'of mine'"
        if data.draw(st.booleans()):
            lines[at] += comment
        else:
            lines.insert(at, comment)
    text = "\n".join(lines)
    units = tuple(
        msgspec.structs.replace(
            unit, phases=tuple(msgspec.structs.replace(each, input_mib=each.input_mib / 2) for each in unit.phases)
        )
        for unit in recipe.units
    )
    new = msgspec.structs.replace(recipe, origin=msgspec.structs.replace(recipe.origin, runs=7), units=units)
    result = updated(text, new)
    assert parse_recipe(result, "new.toml") == rounded(new)
    assert sorted(re.findall(r"# note.*", result)) == sorted(re.findall(r"# note.*", text))


def read_or_refused(text: str) -> Recipe | None:
    try:
        return parse_recipe(text, "any.toml")
    except RecipeError as error:
        refused = error
    assert str(refused).startswith("any.toml")
    assert f"{refused}{refused.hint}".isprintable()
    assert refused.hint
    assert len(str(refused)) < 1500
    return None


PIECES = st.text(max_size=8) | st.sampled_from(
    [
        '"',
        "'",
        '"""',
        "'''",
        "[",
        "]",
        "{",
        "}",
        "[[units]]",
        "=",
        ",",
        "\n",
        "#",
        ".",
        "\\",
        "nan",
        "-1",
        "\x00",
        "\r",
        "1e999",
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    text = dump(draw(RECIPES))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = start + draw(st.sampled_from([0, 1, 1, 5, 60]))
        text = text[:start] + draw(PIECES | st.just(text[start:end] * 2)) + text[end:]
    return text


@given(damaged())
def test_a_damaged_recipe_is_read_or_refused(text: str) -> None:
    """Never another exception; what is read is a recipe like any other."""
    recipe = read_or_refused(text)
    if recipe is not None:
        assert parse_recipe(dump(recipe), "again.toml") == rounded(recipe)
        new = msgspec.structs.replace(recipe, origin=Origin(provenance="derived"), units=recipe.units[::-1])
        assert parse_recipe(updated(text, new), "new.toml") == rounded(new)


@given(st.text() | st.lists(PIECES).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Also one that has nothing of a recipe."""
    read_or_refused(text)
    read_or_refused(f"schema = 1\n{text}")
    pieces = list(tokens(text))
    assert all(first.end <= second.start for first, second in itertools.pairwise(pieces))
    list(spots(text))


@given(content=st.binary(max_size=200))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Bytes of any kind."""
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=r"any\.toml"):
        read_recipe(path)


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.dates()
    | st.sampled_from(["cicc", "measured", "sm_90", "a.cu", 1, 4, 1e9, "../a", "x" * 2000, float("nan")]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["kind", "peak_mib", "peek", "a b"]), inner)
    ),
    max_leaves=4,
)


def places_in(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of everything in a parsed TOML."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for step, each in items:
        yield (*path, step)
        yield from places_in(each, (*path, step))


@given(RECIPES, ODD, st.data())
def test_what_msgspec_refuses_has_a_complaint_and_nothing_else_has(
    recipe: Recipe, odd: Any, data: st.DataObject
) -> None:
    """One value is replaced, added or taken out: there are words of ours for exactly what the model does not allow."""
    raw = msgspec.json.decode(msgspec.json.encode(recipe))
    path = data.draw(st.sampled_from(list(places_in(raw))))
    around = raw
    for step in path[:-1]:
        around = around[step]
    change = data.draw(st.sampled_from(["replace", "add", "drop"]))
    if change == "replace" or isinstance(around, list):
        around[path[-1]] = odd
    elif change == "add":
        around["peek_mib"] = odd
    else:
        del around[path[-1]]
    try:
        msgspec.convert(raw, Recipe, strict=True)
    except msgspec.ValidationError:
        assert list(complaints(raw))
    else:
        assert not list(complaints(raw))


@given(damaged() | RECIPES.map(dump))
def test_every_key_and_element_is_found_in_the_text(text: str) -> None:
    """Where a text is TOML, the paths that are found in it are those that it has, and each has its line."""
    try:
        raw = loads(text)
    except ValueError:
        return
    found = {spot.path[:end] for spot in spots(text) for end in range(1, len(spot.path) + 1)}
    assert found == set(places_in(raw))


@given(RECIPES)
def test_a_figure_is_found_on_its_line(recipe: Recipe) -> None:
    """Phase by phase."""
    text = dump(recipe)
    lines = text.split("\n")
    for number, unit in enumerate(rounded(recipe).units):
        assert lines[line_of(text, ("units", number)) - 1] == "[[units]]"
        for position, phase in enumerate(unit.phases):
            line = lines[line_of(text, ("units", number, "phases", position, "peak_mib")) - 1]
            assert f"peak_mib = {phase.peak_mib!r}," in line
            assert f'kind = "{phase.kind.value}"' in line
