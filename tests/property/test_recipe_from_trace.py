"""Whatever is in a trace, what is made of it is a recipe, or a refusal."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.errors import BuildDoctorError
from builddoctor.recipes.from_trace import recipe_from_traces
from builddoctor.recipes.merge import merge, renew
from builddoctor.recipes.recipe_file import parse_recipe
from builddoctor.recipes.recipe_text import dump
from support.examples import examples
from support.measured_rows import parse_rows, rows_text
from unit.recipe_builds import Traced


def _written(folder: str, name: str, lines: list[bytes] | None = None) -> Path:
    path = Path(folder, name)
    if lines is not None:
        path.write_bytes(b"\n".join(lines) + b"\n")
        return path
    build = Traced(trace_id="aaa").unit("src/a.cu").unit("b.cpp", (("host", 90.0),))
    return build.unit("link x", (("link", 50.0),)).write(path)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**60),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["../..", "/etc", "a\nb", "$(id)", "x" * 2000, "sm_90", "killed-by-kernel", "link"]),
    st.lists(st.text(max_size=3), max_size=2),
)


@examples(150)
@given(changes=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), ODD), max_size=6), cut=st.integers(0, 60))
def test_a_trace_with_anything_in_it_gives_a_recipe_or_is_refused(
    changes: list[tuple[int, int, object]], cut: int
) -> None:
    """The recipe is written and read as it is, merged and renewed, and what is said fits on a line."""
    with tempfile.TemporaryDirectory() as folder:
        whole = _written(folder, "whole.jsonl")
        lines = [json.loads(line) for line in whole.read_bytes().splitlines()]
        for line, key, value in changes:
            record = lines[line % len(lines)]
            record[list(record)[1 + key % (len(record) - 1)]] = value
        odd = _written(folder, "odd.jsonl", [json.dumps(line).encode() for line in lines[: max(1, cut)]])
        known = recipe_from_traces([whole]).recipe
        try:
            made = recipe_from_traces([odd])
        except BuildDoctorError:
            return
        assert all(words.isprintable() for words in (*made.left_out, *made.differs))
        assert parse_recipe(dump(made.recipe), "x") == made.recipe
        assert len(parse_rows(rows_text(made.phases), "x").phases) == len(made.phases)
        for put_together in (lambda: merge([known, made.recipe]), lambda: renew(known, made.recipe).recipe):
            try:
                recipe = put_together()
            except BuildDoctorError:
                continue
            assert parse_recipe(dump(recipe), "x") == recipe
