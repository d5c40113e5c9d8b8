"""New figures into a recipe file that is there already, with what a person wrote around them. Pure.

Covers: comments at the top and at the end, in front of tables and phases, and behind values that stay; the order of
keys. Units are known by place and output, variables by name, hazards by what they are of. A comment goes where what it
stands at goes, and is lost with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import tomlkit
from tomlkit.items import AoT

from builddoctor.model.recipe import Hazard, PhaseFigures, Recipe, RecipeUnit, Setting
from builddoctor.recipes.places import Path, spots
from builddoctor.recipes.spelling import phase_text, table_lines, written
from builddoctor.recipes.tokens import Token, tokens
from builddoctor.recipes.toml import loads

_TABLES = ("project", "fingerprint", "origin")
_LISTS = ("environment", "hazards", "units")
_COMMENTS = re.compile(r"(?:[ \t]*(?:#[^\n]*)?(?:\n|\Z))*")


class _Block(NamedTuple):
    """A table with its header, and the comments in front of it."""

    before: str
    text: str


def comments_at(text: str) -> str:
    """The comments at the top of a text."""
    found = _COMMENTS.match(text)
    return found[0].strip("\n") if found else ""


class Update:
    """A recipe's text in blocks."""

    def __init__(self, text: str, old: Recipe) -> None:
        self._old = old
        self._blocks: dict[Path, _Block] = {}
        self._usual: bool = True
        """every header is one that ``dump`` would write"""
        headers = [spot for spot in spots(text) if spot.header]
        starts = [*(spot.start for spot in headers), len(text)]
        self._top, before = _parted(text[: starts[0]])
        for spot, start, end in zip(headers, starts, starts[1:], strict=False):
            body, after = _parted(text[start:end])
            self._usual &= spot.path not in self._blocks and spot.path[0] in (_LISTS if spot.path[1:] else _TABLES)
            self._usual &= len(spot.path) <= 2
            self._blocks[spot.path] = _Block(before, body)
            before = after
        self._end = before

    def to(self, new: Recipe) -> str | None:
        """The text with what ``new`` says; None where it has not the usual form."""
        if not self._usual:
            return None
        top = tomlkit.parse(self._top)
        if set(top) - {"schema", "units"}:
            return None
        if new.units:
            top.pop("units", None)
        elif self._old.units:
            top["units"] = []
        top["schema"] = new.schema
        parts = [top.as_string()]
        for name in self._order():
            old, value = getattr(self._old, name), getattr(new, name)
            if name in _LISTS:
                parts += self._list(name, old, value)
            elif (block := self._blocks.get((name,))) is not None:
                parts += [block.before, _table(block.text, old, value)]
            elif lines := table_lines(value):
                parts += [f"\n[{name}]\n", *lines]
        return "".join([*parts, self._end])

    def _order(self) -> list[str]:
        """Tables as the text has them; one that it has not comes in front of the next of the usual order."""
        order = list(dict.fromkeys(str(path[0]) for path in self._blocks))
        names = (*_TABLES, *_LISTS)
        for number, name in enumerate(names):
            if name not in order:
                later = [order.index(each) for each in names[number + 1 :] if each in order]
                order.insert(min(later, default=len(order)), name)
        return order

    def _list(self, name: str, old: Sequence[msgspec.Struct], new: Sequence[msgspec.Struct]) -> Iterator[str]:
        left: dict[object, list[int]] = {}
        for number, each in enumerate(old):
            left.setdefault(_known_by(each), []).append(number)
        for each in new:
            numbers = left.get(_known_by(each))
            block = self._blocks.get((name, numbers[0])) if numbers else None
            if numbers and block is not None:
                yield block.before
                yield _table(block.text, old[numbers.pop(0)], each)
            else:
                yield f"\n[[{name}]]\n" + "".join(table_lines(each))


def _known_by(struct: msgspec.Struct) -> object:
    if isinstance(struct, RecipeUnit):
        return struct.place, struct.output
    if isinstance(struct, Hazard):
        return struct.kind, struct.place, struct.tool, struct.host_arch
    return struct.name if isinstance(struct, Setting) else None


def _parted(text: str) -> tuple[str, str]:
    """A table's text up to its last value, and the comments and empty lines behind, which are the next table's."""
    end = 0
    for token in tokens(text):
        if token.kind not in "#\n":
            end = token.end
    line = text.find("\n", end)
    end = len(text) if line < 0 else line + 1
    return text[:end] + ("" if text[:end].endswith("\n") or not end else "\n"), text[end:]


def _table(text: str, old: msgspec.Struct, new: msgspec.Struct) -> str:
    """A table's text with new values; where nothing is new, as it was."""
    if old == new:
        return text
    phases = ""
    span = _span_of(text, "phases")
    if isinstance(new, RecipeUnit) and span is not None:
        phases = _phases(text[slice(*span)], new.phases)
        # tomlkit is slow: it sees no phases.
        text = f"{text[: span[0]]}[]{text[span[1] :]}"
    document = tomlkit.parse(text)
    top: Any = next(iter(document.values()))
    table: Any = top[0] if isinstance(top, AoT) else top
    values = dict(written(new))
    for key in list(table):
        if key not in values:
            del table[key]
    for key, value in values.items():
        if key == "phases" and phases:
            continue
        fresh = tomlkit.value(value)
        if key not in table:
            table.add(key, fresh)
        elif getattr(old, key) != getattr(new, key):
            table[key] = fresh
    text = document.as_string()
    span = _span_of(text, "phases") if phases else None
    return f"{text[: span[0]]}{phases}{text[span[1] :]}" if span is not None else text


def _span_of(text: str, key: str) -> tuple[int, int] | None:
    """From where to where the list goes that this key of the text's one table names."""
    start = next((spot.start for spot in spots(text) if not spot.header and spot.path[-1:] == (key,)), None)
    if start is None:
        return None
    depth, begin = 0, -1
    for token in tokens(text, start):
        if token.kind in "[{":
            begin = token.start if begin < 0 else begin
            depth += 1
        elif token.kind in "]}":
            depth -= 1
            if depth == 0:
                return begin, token.end
    return None


def _phases(text: str, phases: Sequence[PhaseFigures]) -> str:
    """The list of phases anew, with the comments that the old one's phases have."""
    left: dict[object, list[tuple[list[str], str]]] = {}
    last: list[str] = []
    for kind, before, behind in _noted(text):
        if kind is None:
            last = before
        else:
            left.setdefault(kind, []).append((before, behind))
    lines = []
    for phase in phases:
        found = left.get((phase.kind.value, phase.tool, phase.arch))
        before, behind = found.pop(0) if found else ([], "")
        lines += [f"    {comment}\n" for comment in before]
        lines.append(f"    {phase_text(phase)},{'  ' * bool(behind)}{behind}\n")
    lines += [f"    {comment}\n" for comment in last]
    return "[\n" + "".join(lines) + "]" if lines else "[]"


def _noted(text: str) -> Iterator[tuple[object, list[str], str]]:
    """Each phase of a list: what it is known by, the comments above it, and the one behind it; at the end None."""
    before: list[str] = []
    phase: tuple[object, list[str]] | None = None
    begin: Token | None = None
    depth = 0
    for token in tokens(text):
        if token.kind == "#":
            comment = text[token.start : token.end].rstrip()
            if phase is not None:
                yield phase[0], phase[1], comment
                phase = None
            else:
                before.append(comment)
        elif token.kind in "[{":
            depth += 1
            if depth == 2:
                if phase is not None:
                    yield *phase, ""
                phase, begin = None, token
        elif token.kind in "]}":
            depth -= 1
            if depth == 1 and begin is not None:
                phase, before = (_kind_of(text[begin.start : token.end]), before), []
        elif token.kind == "\n" and phase is not None:
            yield *phase, ""
            phase = None
    if phase is not None:
        yield *phase, ""
    yield None, before, ""


def _kind_of(text: str) -> object:
    phase = loads(f"phase = {text}")["phase"]
    return tuple(phase.get(key, "") for key in ("kind", "tool", "arch"))
