"""Recipes of any content, and files with any damage."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core import recipe as model
from builddoctor.core.errors import RecipeError
from builddoctor.core.phase import PhaseKind
from builddoctor.core.recipe import (
    Fingerprint,
    Hazard,
    Origin,
    PhaseFigures,
    Recipe,
    RecipeProject,
    RecipeUnit,
    Setting,
)
from builddoctor.recipes.allowed_variables import allowed_names
from builddoctor.recipes.recipe_file import checked, explained, line_of, parse_recipe, read_recipe
from builddoctor.recipes.recipe_text import dump, rounded, updated

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
def courses(draw: st.DrawFn) -> str:
    times = sorted(draw(st.sets(st.integers(1, 999), max_size=7)))
    held = [draw(st.integers(0, 1000)) for _ in times]
    steps = [*zip(times, held, strict=True), (1000, draw(st.integers(0, 1000)))]
    highest = draw(st.integers(0, len(steps) - 1))
    return " ".join(f"{until}:{1000 if at == highest else mib}" for at, (until, mib) in enumerate(steps))


COURSES = st.just("") | courses()


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
        course=draw(COURSES),
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
    schema=st.just(2),
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
    read_or_refused(f"schema = 2\n{text}")
    line_of(text, ("units", 0, "place"))


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
def test_what_msgspec_refuses_is_explained(recipe: Recipe, odd: Any, data: st.DataObject) -> None:
    """One value is replaced, added or taken out: it is found, and what belongs there is said in words of ours."""
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
        msgspec.convert(raw, Recipe)
    except msgspec.ValidationError as error:
        problem = explained(error, raw)
        assert all(one == other for one, other in zip(problem.path, path[:-1], strict=False))
        assert problem.what.isprintable()
        assert problem.hint
        assert "Expected" not in problem.what


@given(damaged() | RECIPES.map(dump))
def test_every_key_and_element_has_its_line(text: str) -> None:
    """Where a text is TOML, each of its keys stands on the line that is told, where one is told."""
    try:
        raw = msgspec.toml.decode(text)
    except ValueError:
        return
    for path in list(places_in(raw))[:40]:
        line = line_of(text, path)
        if isinstance(path[-1], str) and re.fullmatch(r"\w+", path[-1]) and line is not None:
            assert path[-1] in text.split("\n")[line - 1]


@given(RECIPES)
def test_a_figure_is_found_on_its_line(recipe: Recipe) -> None:
    """Phase by phase."""
    text = dump(recipe)

    def line_at(*path: str | int) -> str:
        number = line_of(text, path)
        assert number is not None
        return text.split("\n")[number - 1]

    for number, unit in enumerate(rounded(recipe).units):
        assert line_at("units", number) == "[[units]]"
        for position, phase in enumerate(unit.phases):
            line = line_at("units", number, "phases", position, "peak_mib")
            assert f"peak_mib = {phase.peak_mib!r}," in line
            assert f'kind = "{phase.kind.value}"' in line
