"""Recipe files: read within bounds, validated, and refused with file, line and key.

Covers: one text or one plain file. A recipe is data of a stranger: whatever is in it, the answer is a recipe or a
RecipeError, in bounded time and memory. msgspec decodes and validates it against ``core.recipe``; tomlkit finds the
line of a key that a message names.
Does *not* cover: finding recipes by name (``shelf``), writing them (``recipe_text``).
"""

from __future__ import annotations

import datetime as dt
import difflib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import tomlkit
from msgspec import inspect as types
from tomlkit.container import Container
from tomlkit.items import AoT, Array, Integer, Item, Trivia

from builddoctor.core.errors import RecipeError
from builddoctor.core.recipe import LARGEST_FILE, RECIPE_SCHEMA, PhaseFigures, Recipe
from builddoctor.core.units import escaped
from builddoctor.estimation.course import course_of_text, is_shape
from builddoctor.recipes.allowed_variables import allowed, allowed_names

KeyPath = tuple[str | int, ...]
"""Of a value: such as ``("units", 3, "phases", 0, "peak_mib")``, counted from 0."""

MOST_MARKS = 3_000_000
"""Signs of TOML's structure in one text; each can cost the parser 300 bytes. The largest recipes have 2.5 million."""

LONGEST_LOCATED = 256 * 1024
"""Characters. tomlkit takes ten seconds a MiB: in a longer text a message names no line, only the key."""

_MANY_DOTS = re.compile(r"""(?:\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*){16}""")
"""A dotted key of so many parts, whose parsing takes the square of their number."""

_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)\Z")
"""Where the TOML parser stopped, as it ends its messages."""

_STEP = re.compile(r"\.(\w+)|\[(\d{1,9})\]")
"""Of a path as msgspec ends its messages: ``$.units[3].place``."""

_HERE = "\0"
"""Marks a place in a text: TOML holds no such character."""

_LISTED = "`builddoctor recipe list` shows those that are there"
_PAGE = "docs/reference/recipe.md shows what a recipe holds"


_NAMED_BY = {"units": "place", "environment": "name", "hazards": "kind"}
"""What tells an element of these lists from the others, beside its number."""


class Problem(NamedTuple):
    """What is wrong with one value of a recipe."""

    path: KeyPath
    what: str
    hint: str


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file. Raises RecipeError: no plain file, unreadable, too large, or no recipe."""
    name = str(path)
    try:
        content = _plain_file(path, name)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refusal(name, f"cannot be read: {escaped(reason)}", _LISTED) from error
    return recipe_of(content, name)


def recipe_of(content: bytes, name: str) -> Recipe:
    """The recipe in a file's bytes. ``name``: of the file, for messages. Raises RecipeError."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _refusal(name, "not UTF-8, as TOML is", "save it as UTF-8", line=line) from error
    return parse_recipe(text, name)


def parse_recipe(text: str, name: str) -> Recipe:
    """The recipe in a text. ``name``: of its file, for messages. Raises RecipeError with line, key and a hint.

    Line ends may be Windows', and a byte order mark is skipped.
    """
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise _refusal(name, "it is empty", _LISTED)
    _check_bounds(text, name)
    return _validated(_decoded(text, name), name, text)


def checked(recipe: Recipe, name: str) -> Recipe:
    """A recipe that was made and not read, as strictly as one from a file. Raises RecipeError with the key."""
    return _validated(msgspec.to_builtins(recipe), name, "")


def _plain_file(path: Path, name: str) -> bytes:
    no_file = _refusal(name, "no plain file", f"a recipe is a TOML file; {_LISTED}")
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise no_file
    # Not blocking: by now it may be a pipe after all.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise no_file
        content = stream.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise _too_large(name)
    return content


def _check_bounds(text: str, name: str) -> None:
    """Refuse what would cost the parser too much. Nested brackets end at Python's own bound on recursion."""
    if len(text) > LARGEST_FILE:
        raise _too_large(name)
    if sum(map(text.count, "=,.[{")) > MOST_MARKS:
        raise _refusal(name, "more values than any recipe has", "one recipe is for one project; split it")
    if found := _MANY_DOTS.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise _refusal(name, "a name with more than 16 dots", _PAGE, line=line)


def _decoded(text: str, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.toml.decode(text)
    except RecursionError as error:
        raise _refusal(name, "brackets are nested too deep", _PAGE) from error
    except ValueError as error:
        said, line = str(error), None
        if at := _POSITION.search(said):
            line = int(at[1]) if at[1] else text.rstrip().count("\n") + 1
            said = said[: at.start()]
        hint = "text stands in quotes, a value on the line of its key; a key or a table stands there once"
        raise _refusal(name, f"not TOML: {escaped(said[:200])}", hint, line=line) from error
    return found


def _validated(raw: dict[str, Any], name: str, text: str) -> Recipe:
    """``text``: what ``raw`` was read from, for lines; empty where there is none."""
    problem = _wrong_version(raw)
    if problem is None:
        try:
            recipe = msgspec.convert(raw, Recipe)
        except msgspec.ValidationError as error:
            problem = explained(error, raw)
        else:
            problem = next(_contradictions(recipe), None)
            if problem is None:
                return msgspec.structs.replace(recipe, schema=RECIPE_SCHEMA)
    key = _spoken(problem.path, raw)
    what = f"{key}: {problem.what}" if key else problem.what
    raise _refusal(name, what, problem.hint, line=line_of(text, problem.path))


def _refusal(name: str, what: str, hint: str, *, line: int | None = None) -> RecipeError:
    """``file:line: what``; without a line where there is none."""
    at = f":{line}" if line is not None else ""
    return RecipeError(f"{escaped(name)}{at}: {what}", hint=hint)


def _too_large(name: str) -> RecipeError:
    what = f"more than {LARGEST_FILE // 1024**2} MiB, which no recipe has"
    return _refusal(name, what, "`builddoctor recipe from-trace` makes a recipe of a trace")


def _wrong_version(raw: dict[str, Any]) -> Problem | None:
    newest = f"`schema = {RECIPE_SCHEMA}` is the newest"
    version = raw.get("schema")
    if "schema" not in raw:
        return Problem((), "`schema` is missing", f"add `schema = {RECIPE_SCHEMA}` as the first line")
    if type(version) is not int:
        return Problem(("schema",), "it is no whole number", newest)
    if version > RECIPE_SCHEMA:
        what = f"made by a newer builddoctor: version {_shown(version)}, and this one reads up to {RECIPE_SCHEMA}"
        return Problem(("schema",), what, "`pip install -U builddoctor`")
    return Problem(("schema",), "there never was such a version", newest) if version < 1 else None


# -- what msgspec refuses, in words -----------------------------------------------------------------------------


def explained(error: msgspec.ValidationError, raw: object) -> Problem:
    """What is wrong at the path that msgspec names: said by the model's own words for what belongs there."""
    at = str(error).rpartition(" - at `$")
    path: KeyPath = tuple(name or int(number) for name, number in _STEP.findall(at[2] if at[1] else ""))
    kind: types.Type = types.type_info(Recipe)
    value = raw
    for step in path:
        kind, value = _inner(kind, step), _at(value, step)
    about, kind = (kind.extra_json_schema or {}, kind.type) if isinstance(kind, types.Metadata) else ({}, kind)
    if isinstance(kind, types.StructType) and isinstance(value, dict):
        return _wrong_keys(value, kind, path)
    words, hint = _expected(kind, about)
    if isinstance(kind, types.StrType) and not isinstance(value, str):
        hint = f"text stands in quotes; {hint}"
    if isinstance(kind, types.VarTupleType) and isinstance(value, dict) and path:
        hint = f"write its header as `[[{path[-1]}]]`"
    if isinstance(value, str) and isinstance(kind, (types.EnumType, types.LiteralType)):
        near = difflib.get_close_matches(value[:100], words.split(", "), 1)
        hint = f'did you mean "{near[0]}"?' if near else hint
    return Problem(path, f"{_shown(value)} is not {words}", hint)


def _inner(kind: types.Type, step: str | int) -> types.Type:
    """The type of what is one step further; that of anything where the model has no such step."""
    kind = kind.type if isinstance(kind, types.Metadata) else kind
    if isinstance(kind, types.VarTupleType) and isinstance(step, int):
        return kind.item_type
    fields = kind.fields if isinstance(kind, types.StructType) else ()
    found = next((field.type for field in fields if field.encode_name == step), types.AnyType())
    if isinstance(found, types.UnionType):
        return next(each for each in found.types if not isinstance(each, types.NoneType))
    return found


def _wrong_keys(table: dict[str, Any], kind: types.StructType, path: KeyPath) -> Problem:
    """A key that the model does not have, or one that is missing."""
    names = [field.encode_name for field in kind.fields]
    for key in table:
        if key not in names:
            free = [name for name in names if name not in table]
            near = difflib.get_close_matches(key[:100], free, 1)
            rest = f"what can stand there: {', '.join(free)}" if free else "take it out"
            return Problem((*path, key), "there is no such key", f"did you mean `{near[0]}`?" if near else rest)
    missing = next(
        (field.encode_name for field in kind.fields if field.required and field.encode_name not in table), ""
    )
    return Problem(path, f"`{missing}` is missing", f"add `{missing} = ...` there; {_PAGE}")


def _expected(kind: types.Type, about: dict[str, Any]) -> tuple[str, str]:
    """What belongs there, in words, and a hint."""
    examples = about.get("examples")
    hint = f'such as "{examples[0]}"' if examples else _PAGE
    if "description" in about:
        return str(about["description"]), hint
    if isinstance(kind, types.EnumType):
        return f"one of {', '.join(str(each.value) for each in kind.cls)}", "write one of them, in quotes"
    if isinstance(kind, types.LiteralType):
        return f"one of {', '.join(map(str, kind.values))}", "write one of them, in quotes"
    if isinstance(kind, types.BoolType):
        return "true or false", "without quotes"
    if isinstance(kind, types.IntType):
        return f"a whole number, from {kind.ge:,} to {kind.le:,}", hint
    if isinstance(kind, types.VarTupleType):
        return f"a list of at most {kind.max_length:,} elements" if kind.max_length else "a list", hint
    return "a table" if isinstance(kind, types.StructType) else "what a recipe holds there", hint


def _at(value: object, step: str | int) -> object:
    """The value one step further; None where there is none."""
    if isinstance(step, int):
        return value[step] if isinstance(value, (list, tuple)) and 0 <= step < len(value) else None
    return value.get(step) if isinstance(value, dict) else None


def _shown(value: object) -> str:
    """A value as it may be printed: short, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{escaped(value if len(value) <= 60 else value[:57] + "...")}"'
    if isinstance(value, (dict, list, tuple)):
        return "a table" if isinstance(value, dict) else f"a list of {len(value):,}"
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    return "NaN" if value != value else escaped(str(value))[:60]


# -- what the types do not say ----------------------------------------------------------------------------------


def _contradictions(recipe: Recipe) -> Iterator[Problem]:
    """Empty names, what is there twice, variables that may not be set, figures and days that cannot be."""
    if not recipe.project.name:
        yield Problem(("project", "name"), "it is empty", 'name the project as it is imported: `name = "flash_attn"`')
    yield from _archs(recipe.fingerprint.archs, ("fingerprint", "archs"))
    try:
        dt.date.fromisoformat(recipe.origin.date or "2026-01-31")
    except ValueError:
        what = f"{_shown(recipe.origin.date)} is no day of the calendar"
        yield Problem(("origin", "date"), what, 'write it as "2026-01-31"')
    yield from _variables(recipe)
    for number, hazard in enumerate(recipe.hazards):
        if not hazard.text:
            yield Problem(("hazards", number, "text"), "it is empty", "say what happens, and what helps")
    yield from _units(recipe)


def _variables(recipe: Recipe) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for number, setting in enumerate(recipe.environment):
        path: KeyPath = ("environment", number, "name")
        if not allowed(setting.name):
            near = difflib.get_close_matches(setting.name, allowed_names(), 1)
            yield Problem(
                path,
                f"a recipe may not set {setting.name}",
                (f"did you mean `{near[0]}`? " if near else "")
                + "Allowed are the jobs, threads, architectures and switches of known projects, such as MAX_JOBS or "
                "TORCH_CUDA_ARCH_LIST; docs/reference/recipe.md lists them all",
            )
        if setting.name in seen:
            yield Problem(path, f"environment[{seen[setting.name] + 1}] sets it too", "keep one of them")
        seen.setdefault(setting.name, number)


def _units(recipe: Recipe) -> Iterator[Problem]:
    seen: dict[tuple[str, ...], int] = {}
    for number, unit in enumerate(recipe.units):
        place: KeyPath = ("units", number, "place")
        if not unit.place:
            yield Problem(place, "it is empty", "a unit is known by its source's path, a link by `link NAME`")
        first = seen.setdefault((unit.place, unit.output, unit.target, unit.options), number)
        if first != number:
            what = f"units[{first + 1}] has the same place, output, target and options"
            yield Problem(place, what, "keep one of them, or say by `output` how they differ")
        yield from _archs(unit.archs, ("units", number, "archs"))
        for position, phase in enumerate(unit.phases):
            yield from _figures(phase, ("units", number, "phases", position))


def _figures(phase: PhaseFigures, path: KeyPath) -> Iterator[Problem]:
    for high_name, high, usual_name, usual in (
        ("high_mib", phase.high_mib, "peak_mib", phase.peak_mib),
        ("high_s", phase.high_s, "cpu_s", phase.cpu_s),
    ):
        if 0 < high < usual:
            what = f"{high:g} is below {usual_name}, {usual:g}"
            hint = f"it is the largest of all runs, never below their median; without it, it is as {usual_name}"
            yield Problem((*path, high_name), what, hint)
    if phase.course and not is_shape(course_of_text(phase.course)):
        what = "times do not rise to 1000, or what it held does not reach 1000 and no more"
        yield Problem((*path, "course"), what, "take it out, or make the recipe anew from a trace")


def _archs(archs: tuple[str, ...], path: KeyPath) -> Iterator[Problem]:
    for number, arch in enumerate(archs):
        if not arch:
            yield Problem((*path, number), "it is empty", 'name an architecture, such as "sm_90", or take it out')
        elif arch in archs[:number]:
            yield Problem((*path, number), f"{_shown(arch)} is there twice", "keep one of them")


# -- keys and lines for a person --------------------------------------------------------------------------------


def _spoken(path: KeyPath, raw: object) -> str:
    """``units[4] (src/gemm.cu), phases[1], peak_mib``: counted from 1, as people do."""
    parts: list[str] = []
    value = raw
    for at, step in enumerate(path):
        value = _at(value, step)
        if isinstance(step, int):
            label = _at(value, _NAMED_BY.get(str(path[at - 1]), ""))
            said = f" ({escaped(label if len(label) <= 80 else label[:77] + '...')})" if isinstance(label, str) else ""
            parts[-1:] = [f"{''.join(parts[-1:])}[{step + 1}]{said if label else ''}"]
        else:
            short = escaped(step if len(step) <= 60 else f"{step[:57]}...")
            parts.append(short if short.replace("_", "a").isalnum() else f'"{short}"')
    return ", ".join(parts)


def line_of(text: str, path: KeyPath) -> int | None:
    """The line of what has this path, from 1. None for a long text, and for one that tomlkit does not take."""
    if not path and text:
        return 1
    if not text or len(text) > LONGEST_LOCATED:
        return None
    try:
        document = tomlkit.parse(text)
        if document.as_string() != text:
            # It puts tables of one list together that stand apart.
            return None
        _mark(document, path)
        before, found, _ = document.as_string().partition(_HERE)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return before.count("\n") + 1 if found else None


def _mark(document: Container, path: KeyPath) -> None:
    """Put ``_HERE`` in front of the value with this path, or in its place."""
    outer: Any = document
    inner: Any = document
    for step in path:
        outer = inner
        inner = outer[step] if isinstance(step, int) else _container(outer).item(step)
    if isinstance(inner, AoT):
        inner = inner[0]
    if isinstance(outer, Array):
        outer[int(path[-1])] = Integer(0, Trivia(), _HERE)
    else:
        inner.trivia.indent = f"{_HERE}{inner.trivia.indent}"


def _container(item: Container | Item) -> Container:
    found: Container = item if isinstance(item, Container) else item.value
    return found
