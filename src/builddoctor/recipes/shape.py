"""What in a parsed recipe is not as the model has it, in words. Pure.

Covers: unknown keys, missing keys, wrong types, texts and numbers out of bounds. ``msgspec`` decides whether a recipe
is right; this says where it is wrong, and what belongs there.
Does *not* cover: what holds between several values (``checking``).
"""

from __future__ import annotations

import difflib
import enum
import math
import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import inspect as types

from builddoctor.model.recipe import Recipe
from builddoctor.recipes.complaints import Complaint, shown, shown_key
from builddoctor.recipes.places import Path
from builddoctor.recipes.wording import texts

_PAGE = "docs/reference/recipe.md shows every key"


def complaints(raw: object) -> Iterator[Complaint]:
    """Everything in ``raw``, a parsed TOML, that is not as ``Recipe`` has it."""
    return _Shape().of(raw, types.type_info(Recipe), ())


class _Shape:
    def __init__(self) -> None:
        self._texts = texts()

    def of(self, value: object, kind: types.Type, path: Path) -> Iterator[Complaint]:
        """Complaints about one value and what is in it."""
        if isinstance(kind, types.StructType):
            yield from self._table(value, kind, path)
        elif isinstance(kind, types.VarTupleType):
            yield from self._list(value, kind, path)
        elif isinstance(kind, types.UnionType):
            yield from self.of(value, next(each for each in kind.types if not isinstance(each, types.NoneType)), path)
        elif isinstance(kind, types.StrType):
            yield from self._text(value, kind, path)
        elif isinstance(kind, (types.FloatType, types.IntType)):
            yield from _number(value, kind, path)
        elif isinstance(kind, types.BoolType):
            if not isinstance(value, bool):
                yield Complaint(
                    path, f"{shown(value)} is neither true nor false", "write `true` or `false`, without quotes"
                )
        elif isinstance(kind, types.EnumType):
            yield from _choice(value, [each.value for each in kind.cls], path)
        elif isinstance(kind, types.LiteralType):
            yield from _choice(value, list(kind.values), path)

    def _table(self, value: object, kind: types.StructType, path: Path) -> Iterator[Complaint]:
        if not isinstance(value, dict):
            yield Complaint(path, f"{shown(value)} stands where a table belongs", _PAGE)
            return
        fields = {field.encode_name: field for field in kind.fields}
        for key in value:
            if key not in fields:
                yield Complaint((*path, key), *_unknown(key, [name for name in fields if name not in value]))
        for name, field in fields.items():
            if field.required and name not in value:
                yield Complaint(path, f"`{name}` is missing", f"add `{name} = ...` there; {_PAGE}")
        for key, each in value.items():
            if key in fields:
                yield from self.of(each, fields[key].type, (*path, key))

    def _list(self, value: object, kind: types.VarTupleType, path: Path) -> Iterator[Complaint]:
        if not isinstance(value, (list, tuple)):
            hint = f"write its header as `[[{path[-1]}]]`" if isinstance(value, dict) and path else _PAGE
            yield Complaint(path, f"{shown(value)} stands where a list belongs", hint)
            return
        if kind.max_length is not None and len(value) > kind.max_length:
            yield Complaint(path, f"{len(value):,} elements; {kind.max_length:,} are allowed", _PAGE)
            return
        for number, each in enumerate(value):
            yield from self.of(each, kind.item_type, (*path, number))

    def _text(self, value: object, kind: types.StrType, path: Path) -> Iterator[Complaint]:
        known = self._texts.get(kind.pattern or "")
        hint = f'such as "{known.example}"' if known else _PAGE
        if not isinstance(value, str):
            yield Complaint(path, f"{shown(value)} is no text", f"text stands in quotes, {hint}")
        elif kind.max_length is not None and len(value) > kind.max_length:
            yield Complaint(path, f"a text of {len(value):,} characters; {kind.max_length} are allowed", hint)
        elif kind.pattern is not None and re.search(kind.pattern, value) is None:
            yield Complaint(path, f"{shown(value)} is not {known.words if known else 'allowed there'}", hint)


def _number(value: object, kind: types.FloatType | types.IntType, path: Path) -> Iterator[Complaint]:
    what, hint = _number_words(kind, path)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        yield Complaint(path, f"{shown(value)} is no number", hint)
    elif isinstance(value, float) and math.isnan(value):
        yield Complaint(path, f"NaN is no {what}", hint)
    elif kind.ge is not None and value < kind.ge:
        yield Complaint(path, f"{shown(value)} is below {kind.ge:,g}", hint)
    elif kind.le is not None and value > kind.le:
        yield Complaint(path, f"{shown(value)} is above {kind.le:,}".removesuffix(".0"), hint)
    elif isinstance(kind, types.IntType) and not float(value).is_integer():
        yield Complaint(path, f"{shown(value)} is no whole number", hint)


def _number_words(kind: types.FloatType | types.IntType, path: Path) -> tuple[str, str]:
    name = str(path[-1]) if path else ""
    endings = {
        "_mib": ("size", "a size in MiB"),
        "_s": ("time", "seconds of one core"),
        "_kib": ("size", "a size in KiB"),
    }
    what, words = next((each for end, each in endings.items() if name.endswith(end)), ("number", "a number"))
    if isinstance(kind, types.IntType):
        words = f"{words}, a whole number" if what != "number" else "a whole number"
    low = 0 if kind.ge is None else kind.ge
    return what, f"it is {words}, from {low:,g}" + (f" to {int(kind.le):,}" if kind.le is not None else " on")


def _choice(value: object, allowed: Sequence[object], path: Path) -> Iterator[Complaint]:
    words = [str(each.value if isinstance(each, enum.Enum) else each) for each in allowed]
    if any(value == each and type(value) is type(each) for each in allowed):
        return
    near = difflib.get_close_matches(value[:100], words, 1) if isinstance(value, str) else []
    hint = f'did you mean "{near[0]}"?' if near else "write one of them, in quotes"
    yield Complaint(path, f"{shown(value)} is none of {', '.join(words)}", hint)


def _unknown(key: str, free: list[str]) -> tuple[str, str]:
    near = difflib.get_close_matches(key[:100], free, 1)
    if near:
        return "there is no such key", f"did you mean `{near[0]}`?"
    rest = f"what can stand there: {', '.join(free)}" if free else "take it out"
    return "there is no such key", rest


def from_msgspec(error: msgspec.ValidationError) -> Complaint:
    """What msgspec says, where nothing above found the reason."""
    words, _, path = str(error).rpartition(" - at `$")
    steps: list[str | int] = [int(each[1:-1]) if each[0] == "[" else each[1:] for each in _STEP.findall(path)]
    return Complaint(tuple(steps), shown_key(words or path), _PAGE)


_STEP = re.compile(r"\.\w+|\[\d{1,9}\]")
