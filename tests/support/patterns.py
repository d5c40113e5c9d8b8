"""What can be proven of a regular expression from its parse tree: texts that it needs, and that it cannot run away.

The parse tree is a private module of the standard library: of use in tests, not in the program.
"""

from __future__ import annotations

import re
import sys
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as constants
    from re import _parser as parser
else:
    import sre_constants as constants
    import sre_parse as parser

UNBOUNDED = 1000
"""Repeats that may go on for so long count as without a bound."""

REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT)
PLACES = (constants.AT, constants.ASSERT, constants.ASSERT_NOT)
"""What takes no characters."""


def needs_one_of(pattern: str, texts: tuple[str, ...]) -> bool:
    """Whatever the pattern finds holds one of the texts."""
    return not _without(parser.parse(pattern), {""}, texts)


def _without(tree: Any, before: set[str], texts: tuple[str, ...]) -> set[str]:
    """How a find that holds none of the texts yet may end, as far as one of them could begin there."""
    states = before
    for kind, value in tree:
        if kind == constants.LITERAL:
            states = _longer(states, {chr(value)}, texts)
        elif kind == constants.SUBPATTERN:
            states = _without(value[3], states, texts)
        elif kind == constants.BRANCH:
            states = set().union(*(_without(branch, states, texts) for branch in value[1]))
        elif kind == constants.IN and all(each[0] == constants.LITERAL for each in value):
            states = _longer(states, {chr(each[1]) for each in value}, texts)
        elif kind in REPEATS:
            low, high, inner = value
            once = _without(inner, states, texts)
            if high == 1:
                states = once | (states if low == 0 else set())
            else:
                states = {""} if (states if low == 0 else once) else set()
        elif kind not in PLACES:
            states = {""} if states else set()
    return states


def _longer(states: set[str], characters: set[str], texts: tuple[str, ...]) -> set[str]:
    longer = {state + character for state in states for character in characters}
    beginnings = {text[:end] for text in texts for end in range(len(text))}
    return {
        next(found[at:] for at in range(len(found) + 1) if found[at:] in beginnings)
        for found in longer
        if not any(text in found for text in texts)
    }


def runs_away(pattern: str) -> str | None:
    """Why a search could take more than so many steps for each character of a line; None where it cannot.

    Refused: a repeat without a bound around another repeat, and two of them in a row that take the same characters.
    """
    return _look(parser.parse(pattern), inside=False)


def _look(tree: Any, *, inside: bool) -> str | None:
    last: set[int] = set()
    for kind, value in tree:
        if kind in REPEATS:
            low, high, inner = value
            large = high == constants.MAXREPEAT or high >= UNBOUNDED
            if large and inside:
                return "a repeat without a bound inside another one"
            taken = _characters(inner) if large else set()
            if last & taken:
                return "two repeats without a bound in a row take the same characters"
            if (why := _look(inner, inside=inside or large)) is not None:
                return why
            last = (taken or last) if low == 0 or large else set()
            continue
        for part in _parts(kind, value):
            if (why := _look(part, inside=inside)) is not None:
                return why
        if kind not in PLACES:
            last = set()
    return None


def _parts(kind: Any, value: Any) -> list[Any]:
    if kind == constants.SUBPATTERN:
        return [value[3]]
    if kind == constants.BRANCH:
        return list(value[1])
    return [value[1]] if kind in (constants.ASSERT, constants.ASSERT_NOT) else []


def _characters(tree: Any) -> set[int]:
    """Code points below 256 that a piece of a pattern can take, rather too many than too few."""
    found: set[int] = set()
    for kind, value in tree:
        if kind == constants.LITERAL:
            found.add(value)
        elif kind == constants.IN:
            one = re.compile("[" + "".join(map(_as_class, value)) + "]")
            found |= {code for code in range(256) if one.match(chr(code))}
        else:
            return set(range(256))
    return found


_CATEGORIES = {
    constants.CATEGORY_DIGIT: r"\d",
    constants.CATEGORY_NOT_DIGIT: r"\D",
    constants.CATEGORY_SPACE: r"\s",
    constants.CATEGORY_NOT_SPACE: r"\S",
    constants.CATEGORY_WORD: r"\w",
    constants.CATEGORY_NOT_WORD: r"\W",
}


def _as_class(part: Any) -> str:
    kind, value = part
    if kind == constants.NEGATE:
        return "^"
    if kind == constants.LITERAL:
        return re.escape(chr(value))
    if kind == constants.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    return _CATEGORIES[value]
