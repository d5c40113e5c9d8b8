"""Recipes as TOML text: written anew in one order, or new figures put into a text that a person has commented. Pure.

Covers: the model's order of keys, defaults left out, a phase a line; figures rounded to what was measured: MiB to a
tenth, seconds and sizes of inputs to a thousandth. The same recipe gives the same text, and a text reads back as the
rounded recipe. A renewed text keeps its comments and the order of its tables and keys; a comment in front of a table
goes where that table goes. Does *not* cover: files, or which figures are the better ones (``merge``).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array, Table

from builddoctor.core.errors import RecipeError
from builddoctor.core.recipe import Hazard, PhaseFigures, Recipe, RecipeUnit, Setting
from builddoctor.recipes.recipe_file import parse_recipe

HEADER = """\
# A recipe of builddoctor: what each unit of this build takes. Sizes are MiB, times are seconds of one core.
# `builddoctor recipe check FILE` says whether it is right; comments of yours are kept when figures are renewed.
"""

_DECIMALS = {"peak_mib": 1, "high_mib": 1, "input_mib": 3, "cpu_s": 3, "high_s": 3}
_TABLES = ("project", "fingerprint", "origin")
_LISTS = ("environment", "hazards", "units")
_COMMENTS = re.compile(r"(?:[ \t]*(?:#[^\n]*)?(?:\n|\Z))*")

_HERE = "\0"
"""Marks a header in a text: TOML holds no such character."""


def dump(recipe: Recipe) -> str:
    """A recipe as TOML."""
    recipe = rounded(recipe)
    top = f"schema = {recipe.schema}\n" + "units = []\n" * (not recipe.units)
    tables = [_new_table(name, table) for name in _TABLES if any(_written(table := getattr(recipe, name)))]
    lists = [_new_table(name, each, many=True) for name in _LISTS for each in getattr(recipe, name)]
    return "".join([HEADER, "\n", top, *tables, *lists])


def updated(text: str, recipe: Recipe, name: str = "the recipe") -> str:
    """``text``, a recipe, so that it says what ``recipe`` says. Raises RecipeError when ``text`` is no recipe.

    A text of an unusual form (units as one inline list, say) is written anew below the comments at its top. ``name``:
    of the file, for messages.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    old, new = parse_recipe(text, name), rounded(recipe)
    if old == new:
        return text
    try:
        result = _renewed(text, old, new)
        if result is not None and parse_recipe(result, name) == new:
            return result
    except (RecipeError, TOMLKitError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        # tomlkit does not take all that the parser takes.
        pass
    found = _COMMENTS.match(text)
    top = found[0].strip("\n") if found else ""
    return f"{top}\n{dump(new).removeprefix(HEADER)}" if top else dump(new)


def rounded(recipe: Recipe) -> Recipe:
    """The same recipe with its figures as they are written. Rounding twice changes nothing more."""
    units = tuple(msgspec.structs.replace(unit, phases=tuple(map(_rounded, unit.phases))) for unit in recipe.units)
    return msgspec.structs.replace(recipe, units=units)


def _rounded(phase: PhaseFigures) -> PhaseFigures:
    # Adding 0.0 takes the sign off a zero.
    figures = {name: round(getattr(phase, name), decimals) + 0.0 for name, decimals in _DECIMALS.items()}
    return msgspec.structs.replace(phase, **figures)


# -- values as TOML ---------------------------------------------------------------------------------------------


def _new_table(name: str, struct: msgspec.Struct, *, many: bool = False) -> str:
    header = f"\n[[{name}]]\n" if many else f"\n[{name}]\n"
    return header + "".join(f"{key} = {text}\n" for key, text in _written(struct))


def _written(struct: msgspec.Struct) -> Iterator[tuple[str, str]]:
    """Keys and values of a table, without what is as by default."""
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if field.required or value != field.default:
            yield field.name, _value(value)


def _value(value: object) -> str:
    """One value; phases on lines of their own."""
    if isinstance(value, tuple):
        if value and isinstance(value[0], PhaseFigures):
            return "[\n" + "".join(f"    {_phase(each)},\n" for each in value) + "]"
        return "[" + ", ".join(map(_value, value)) + "]"
    value = value.value if isinstance(value, enum.Enum) else value
    return tomlkit.item(value).as_string()


def _phase(phase: PhaseFigures) -> str:
    return "{ " + ", ".join(f"{name} = {text}" for name, text in _written(phase)) + " }"


# -- new figures in a commented text ----------------------------------------------------------------------------


class _Block(NamedTuple):
    """One table of a text."""

    name: str
    before: str
    """comments and empty lines in front of its header"""
    text: str
    """from its header to its last value"""


def _renewed(text: str, old: Recipe, new: Recipe) -> str | None:
    """None for a text that has not the usual form."""
    parts = _parts(text)
    if parts is None:
        return None
    head, blocks, end = parts
    top = tomlkit.parse(head)
    if set(top) - {"schema", "units"} or (old.units and "units" in top):
        return None
    if new.units:
        top.pop("units", None)
    elif old.units:
        top["units"] = tomlkit.array()
    top["schema"] = new.schema
    found = [top.as_string()]
    for name in _order(blocks):
        mine = [block for block in blocks if block.name == name]
        then, now = getattr(old, name), getattr(new, name)
        if name in _LISTS:
            found += _renewed_list(name, mine, then, now)
        elif mine:
            found += [mine[0].before, _renewed_table(mine[0].text, then, now)]
        elif any(_written(now)):
            found.append(_new_table(name, now))
    return "".join([*found, end])


def _parts(text: str) -> tuple[str, list[_Block], str] | None:
    """What stands in front of the first header, the tables, and the comments at the end."""
    document = tomlkit.parse(text)
    names: list[str] = []
    for key, item in document.body:
        tables = item.body if isinstance(item, AoT) else [item] if isinstance(item, Table) else []
        for table in tables:
            nested = any(isinstance(inner, (AoT, Table)) for _, inner in table.value.body)
            if key is None or nested or key.key not in (_LISTS if isinstance(item, AoT) else _TABLES):
                return None
            names.append(key.key)
            table.trivia.indent = f"{_HERE}{table.trivia.indent}"
    head, *bodies = document.as_string().split(_HERE)
    if len(bodies) != len(names):
        return None
    head, before = _without_end(head)
    blocks = []
    for name, whole in zip(names, bodies, strict=True):
        body, after = _without_end(whole)
        blocks.append(_Block(name, before, body))
        before = after
    return head, blocks, before


def _without_end(text: str) -> tuple[str, str]:
    """A text up to its last value, and the comments and empty lines behind that, which are the next table's."""
    lines = text.splitlines(keepends=True)
    count = len(lines)
    while count and lines[count - 1].lstrip()[:1] in ("", "#"):
        count -= 1
    body = "".join(lines[:count])
    return body + "\n" * (bool(body) and not body.endswith("\n")), "".join(lines[count:])


def _order(blocks: Sequence[_Block]) -> list[str]:
    """Tables as the text has them; one that it has not comes in front of the next of the usual order."""
    order = list(dict.fromkeys(block.name for block in blocks))
    names = (*_TABLES, *_LISTS)
    for number, name in enumerate(names):
        if name not in order:
            later = [order.index(each) for each in names[number + 1 :] if each in order]
            order.insert(min(later, default=len(order)), name)
    return order


def _renewed_list(
    name: str, blocks: Sequence[_Block], old: Sequence[msgspec.Struct], new: Sequence[msgspec.Struct]
) -> Iterator[str]:
    left: dict[object, list[int]] = {}
    for number, each in enumerate(old):
        left.setdefault(_known_by(each), []).append(number)
    for each in new:
        numbers = left.get(_known_by(each))
        if numbers:
            number = numbers.pop(0)
            yield blocks[number].before
            yield _renewed_table(blocks[number].text, old[number], each)
        else:
            yield _new_table(name, each, many=True)


def _known_by(struct: msgspec.Struct) -> object:
    if isinstance(struct, RecipeUnit):
        return struct.place, struct.output
    if isinstance(struct, Hazard):
        return struct.kind, struct.place, struct.tool, struct.host_arch
    return struct.name if isinstance(struct, Setting) else None


def _renewed_table(text: str, old: msgspec.Struct, new: msgspec.Struct) -> str:
    """A table's text with new values; where nothing is new, as it was."""
    if old == new:
        return text
    document = tomlkit.parse(text)
    top: Any = next(iter(document.values()))
    table: Any = top[0] if isinstance(top, AoT) else top
    values = dict(_written(new))
    for key in list(table):
        if key not in values:
            del table[key]
    for key, value in values.items():
        if key not in table:
            table.add(key, tomlkit.value(value))
        elif getattr(old, key) != getattr(new, key):
            then, now = getattr(old, key), getattr(new, key)
            if key != "phases" or not _renew_phases(table[key], then, now):
                table[key] = tomlkit.value(value)
    return document.as_string()


def _renew_phases(array: Array, old: Sequence[PhaseFigures], new: Sequence[PhaseFigures]) -> bool:
    """The list of phases with its comments; False, and nothing done, where phases have another order now."""
    numbers = [_position(old, phase, new[:at]) for at, phase in enumerate(new)]
    kept = [number for number in numbers if number is not None]
    if kept != sorted(kept):
        return False
    for number, phase in zip(numbers, new, strict=True):
        if number is not None and old[number] != phase:
            array[number] = tomlkit.value(_phase(phase))
    for number in reversed(range(len(old))):
        if number not in kept:
            del array[number]
    for at, number in enumerate(numbers):
        if number is None:
            array.insert(at, tomlkit.value(_phase(new[at])))
    return True


def _position(old: Sequence[PhaseFigures], phase: PhaseFigures, before: Sequence[PhaseFigures]) -> int | None:
    """Where the text has this phase: the first of its kind for the first, and so on; None where it has none."""
    same = [number for number, each in enumerate(old) if _name(each) == _name(phase)]
    earlier = sum(_name(each) == _name(phase) for each in before)
    return same[earlier] if earlier < len(same) else None


def _name(phase: PhaseFigures) -> tuple[str, str, str]:
    return phase.kind.value, phase.tool, phase.arch
