"""A recipe's tables and values as TOML. Pure.

Covers: the model's order of keys, defaults left out, a phase a line; figures rounded to what was measured: MiB to a
tenth, seconds and sizes of inputs to a thousandth. Does *not* cover: a file (``writing``, ``commented``).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator

import msgspec

from builddoctor.model.recipe import PhaseFigures, Recipe

_DECIMALS = {"peak_mib": 1, "high_mib": 1, "input_mib": 3, "cpu_s": 3, "high_s": 3}
_PLAIN = re.compile(r'[^\x00-\x1f"\\\x7f]*\Z')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def rounded(recipe: Recipe) -> Recipe:
    """The same recipe with its figures as they are written. Rounding twice changes nothing more."""
    units = tuple(msgspec.structs.replace(unit, phases=tuple(map(_rounded, unit.phases))) for unit in recipe.units)
    return msgspec.structs.replace(recipe, units=units)


def _rounded(phase: PhaseFigures) -> PhaseFigures:
    # Adding 0.0 takes the sign off a zero.
    figures = {name: round(getattr(phase, name), decimals) + 0.0 for name, decimals in _DECIMALS.items()}
    return msgspec.structs.replace(phase, **figures)


def table_lines(struct: msgspec.Struct) -> list[str]:
    """The lines below a table's header."""
    return [f"{name} = {text}\n" for name, text in written(struct)]


def written(struct: msgspec.Struct) -> Iterator[tuple[str, str]]:
    """Keys and values of a table as TOML, without what is as by default."""
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if field.required or value != field.default:
            yield field.name, value_text(value)


def value_text(value: object) -> str:
    """One value as TOML; phases on lines of their own."""
    if isinstance(value, tuple):
        if value and isinstance(value[0], PhaseFigures):
            return "[\n" + "".join(f"    {phase_text(each)},\n" for each in value) + "]"
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)) and not isinstance(value, enum.Enum):
        return repr(value)
    return quoted(str(value.value if isinstance(value, enum.Enum) else value))


def phase_text(phase: PhaseFigures) -> str:
    """One phase as an inline table."""
    return "{ " + ", ".join(f"{name} = {text}" for name, text in written(phase)) + " }"


def quoted(text: str) -> str:
    """A text as TOML's basic string, whatever is in it."""
    if _PLAIN.match(text):
        return f'"{text}"'
    return '"' + "".join(_ESCAPES.get(each) or _escaped(each) for each in text) + '"'


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if character < " " or character == "\x7f" else character
