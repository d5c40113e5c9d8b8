"""A recipe that is there already, brought up to date by builds that it does not know yet. Pure.

Covers: what is kept (environment, hazards, title), what is counted together, what is replaced because it is of other
tools or of another source. Does *not* cover: the file with its comments (``recipes.writing``).
"""

from __future__ import annotations

import msgspec

from builddoctor.model.recipe import Fingerprint, Recipe, RecipeUnit
from builddoctor.recipes.comparing import UNIT_WORDS, fingerprint_words
from builddoctor.recipes.from_rows import unit_names
from builddoctor.recipes.merging import merge


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """The recipe as it is now, and what became of the old figures."""

    recipe: Recipe
    words: tuple[str, ...] = ()


def renew(old: Recipe, new: Recipe) -> Renewed:
    """``new`` is of builds that are not in ``old``.

    Raises RecipeError when it is of another project, or for other architectures or another processor: whoever meant
    that means another file.
    """
    merge([_without_units(old), _without_units(new)])
    tools = _tools(old, new)
    if tools:
        recipe = msgspec.structs.replace(
            new,
            project=msgspec.structs.replace(new.project, title=new.project.title or old.project.title),
            environment=old.environment,
            hazards=old.hazards,
        )
        return Renewed(recipe=recipe, words=(f"its figures were of other tools, and are replaced: {'; '.join(tools)}",))
    kept, changed = _of_the_same_source(old, new)
    merged = merge([kept, new])
    words = f"{changed} of its units have another source or other options now: their figures are the new ones"
    return Renewed(
        recipe=msgspec.structs.replace(
            merged,
            project=msgspec.structs.replace(old.project, version=old.project.version or new.project.version),
            fingerprint=_fresh(merged.fingerprint, new.fingerprint),
        ),
        words=(words,) if changed else (),
    )


def _without_units(recipe: Recipe) -> Recipe:
    return msgspec.structs.replace(recipe, units=())


def _tools(old: Recipe, new: Recipe) -> list[str]:
    """What makes old figures useless. Sources and options are looked at unit by unit."""
    found = [words for words in fingerprint_words(old.fingerprint, new.fingerprint) if words not in UNIT_WORDS]
    if old.project.version and new.project.version and old.project.version != new.project.version:
        found.insert(0, f"version {old.project.version}, then {new.project.version}")
    return found


def _fresh(then: Fingerprint, now: Fingerprint) -> Fingerprint:
    """With what the old one did not say."""
    return msgspec.structs.replace(
        then,
        nvcc=then.nvcc or now.nvcc,
        host_compiler=then.host_compiler or now.host_compiler,
        host_arch=then.host_arch or now.host_arch,
    )


def _of_the_same_source(old: Recipe, new: Recipe) -> tuple[Recipe, int]:
    """The old recipe without the figures of units that have changed, and how many these are."""
    names = unit_names([[(unit.place, unit.output, unit.target) for unit in recipe.units] for recipe in (old, new)])
    now = dict(zip(names[1], new.units, strict=True))
    units: list[RecipeUnit] = []
    changed = 0
    for name, unit in zip(names[0], old.units, strict=True):
        other = now.get(name)
        if other is None:
            units.append(unit)
        elif _other(unit.source_digest, other.source_digest) or _other(unit.options, other.options):
            changed += 1
            units.append(msgspec.structs.replace(other, phases=()))
        else:
            digest, options = unit.source_digest or other.source_digest, unit.options or other.options
            units.append(msgspec.structs.replace(unit, source_digest=digest, options=options))
    return msgspec.structs.replace(old, units=tuple(units)), changed


def _other(then: str, now: str) -> bool:
    return bool(then and now) and then != now
