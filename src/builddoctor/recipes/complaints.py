"""What is wrong with a recipe, said with file, line and key. Pure.

Covers: one complaint as a RecipeError. Does *not* cover: finding out what is wrong (``bounds``, ``shape``,
``checking``).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from builddoctor.errors import RecipeError
from builddoctor.recipes.places import Path, line_of
from builddoctor.units import escaped

_NAMED_BY = {"units": ("place",), "environment": ("name",), "hazards": ("kind",)}
"""What tells an element of these lists from the others, beside its number."""


class Complaint(NamedTuple):
    """Something wrong at a path."""

    path: Path
    what: str
    hint: str


class RecipeText(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe's text, and what its file is called."""

    name: str
    text: str

    def refused(self, what: str, hint: str, *, line: int | None = None) -> RecipeError:
        """``file:line: what``; without a line where there is none."""
        at = f":{line}" if line is not None else ""
        return RecipeError(f"{escaped(self.name)}{at}: {what}", hint=hint)

    def refused_at(self, complaint: Complaint, raw: object) -> RecipeError:
        """Likewise with the key as a person would write it. ``raw``: what the text holds."""
        key = spoken_path(complaint.path, raw)
        line = line_of(self.text, complaint.path) if self.text else None
        return self.refused(f"{key}: {complaint.what}" if key else complaint.what, complaint.hint, line=line)


def spoken_path(path: Path, raw: object) -> str:
    """``units[4] (src/gemm.cu), phases[1], peak_mib``: counted from 1, as people do."""
    parts: list[str] = []
    value, last = raw, ""
    for step in path:
        value = stepped(value, step)
        if isinstance(step, int):
            parts[-1:] = [f"{parts[-1] if parts else ''}[{step + 1}]{_label(last, value)}"]
        else:
            last = step
            parts.append(shown_key(step))
    return ", ".join(parts)


def stepped(value: object, step: str | int) -> object:
    """The value one step further; None where there is none."""
    if isinstance(step, int):
        return value[step] if isinstance(value, (list, tuple)) and 0 <= step < len(value) else None
    return value.get(step) if isinstance(value, dict) else None


def shown_key(key: str) -> str:
    """A key as it may be printed."""
    short = key if len(key) <= 60 else f"{key[:57]}..."
    return escaped(short) if short.replace("_", "a").isalnum() else f'"{escaped(short)}"'


def shown(value: object) -> str:
    """A value as it may be printed: short, one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{escaped(value if len(value) <= 60 else value[:57] + "...")}"'
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    return escaped(str(value))[:60]


def _label(name: str, value: object) -> str:
    for key in _NAMED_BY.get(name, ()):
        label = stepped(value, key)
        if isinstance(label, str) and label:
            return f" ({escaped(label if len(label) <= 80 else label[:77] + '...')})"
    return ""
