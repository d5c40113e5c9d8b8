"""Bounds on a recipe's text, before anything parses it: what it may cost at most.

Covers: size, depth, dotted keys (whose parsing takes the square of their length), numbers of units and of values.
"""

from __future__ import annotations

from builddoctor.errors import RecipeError
from builddoctor.model.recipe import MOST_UNITS
from builddoctor.recipes.complaints import RecipeText
from builddoctor.recipes.tokens import Token, line_at, tokens

LARGEST_FILE = 16 * 1024 * 1024
"""Twenty thousand units with six phases each are 12 MB."""

MOST_VALUES = 2_500_000
"""So many keys and commas. Twenty thousand units with six phases each have 2 million."""

HEADER_COUNTS = 6
"""so much as a value, for that is how much longer it takes"""

LONGEST_WORD = 400
"""outside of quotes; a number of 16 million digits takes hours to read"""

DEEPEST = 8
"""``units = [{phases = [{…}]}]`` is 4 deep."""

MOST_DOTS = 8
"""in one key"""


def check_bounds(source: RecipeText) -> None:
    """Raises RecipeError for a text that is too big, too deep, or has too much in it."""
    text = source.text
    if len(text) > LARGEST_FILE:
        raise too_big(source)
    depth = dots = values = units = 0
    words: list[Token] = []
    for token in tokens(text):
        kind = token.kind
        if kind == "word":
            if len(words) < 2:
                words.append(token)
            if token.end - token.start <= LONGEST_WORD or text[token.start] in "\"'":
                continue
            raise source.refused(
                f"a word of more than {LONGEST_WORD} characters",
                "text stands in quotes",
                line=line_at(text, token.start),
            )
        dots = dots + 1 if kind == "." else 0
        if kind in "[{":
            depth += 1
        elif kind in "]}":
            values += HEADER_COUNTS if depth == 1 else 0
            units += depth == 2 and [text[each.start : each.end] for each in words] == ["units"]
            depth = max(0, depth - 1)
        elif kind in "=,":
            values += 1
        words = []
        if depth > DEEPEST or dots > MOST_DOTS or values > MOST_VALUES or units > MOST_UNITS:
            break
    else:
        return
    line = line_at(text, token.start)
    if depth > DEEPEST:
        raise source.refused(f"brackets are nested more than {DEEPEST} deep", _FORM, line=line)
    if dots > MOST_DOTS:
        raise source.refused(f"a name with more than {MOST_DOTS} dots", _FORM, line=line)
    what = f"{MOST_UNITS:,} units" if units > MOST_UNITS else f"{MOST_VALUES:,} values"
    raise source.refused(f"more than {what}", "one recipe is for one project; split it", line=line)


def too_big(source: RecipeText) -> RecipeError:
    """The refusal of a file that is not even read."""
    return source.refused(
        f"more than {LARGEST_FILE // 1024**2} MiB, which no recipe has",
        "a trace becomes a recipe by `builddoctor recipe from-trace`",
    )


_FORM = "docs/reference/recipe.md shows what a recipe holds"
