"""Recipes of older forms, brought to today's: a step from each version to the next. Pure.

Covers: the version that a file says. There is one version so far, and so no step. A step takes the table as it was
parsed and gives that of the next version; it says nothing of figures that the older form did not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from builddoctor.model.recipe import RECIPE_SCHEMA
from builddoctor.recipes.complaints import Complaint, shown

Step = Callable[[dict[str, Any]], dict[str, Any]]

STEPS: Mapping[int, Step] = {}
"""By the version that a step begins from."""


def migrated(
    raw: dict[str, Any], steps: Mapping[int, Step] = STEPS, newest: int = RECIPE_SCHEMA
) -> dict[str, Any] | Complaint:
    """The table in the newest form, ``schema`` with it; or why there is none."""
    if "schema" not in raw:
        return Complaint((), "`schema` is missing", f"add `schema = {newest}` as the first line")
    version = raw["schema"]
    if type(version) is not int:
        return Complaint(("schema",), "it is no whole number", f"`schema = {newest}` is the newest")
    if version > newest:
        return Complaint(
            ("schema",),
            f"made by a newer builddoctor: version {shown(version)}, and this one reads up to {newest}",
            "`pip install -U builddoctor`",
        )
    for number in range(version, newest) if version > newest - 1000 else ():
        if number not in steps:
            break
        raw = {**steps[number](raw), "schema": number + 1}
    if raw["schema"] != newest:
        return Complaint(("schema",), "there never was such a version", f"`schema = {newest}` is the newest")
    return raw
