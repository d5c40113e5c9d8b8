"""``build.sh`` of a conda recipe, and what belongs into its ``meta.yaml``. Pure."""

from __future__ import annotations

import msgspec

from builddoctor.model.plan import Plan
from builddoctor.model.recipe import Recipe
from builddoctor.render.recipes.how import WHEEL, RenderWith
from builddoctor.render.recipes.provenance import heading
from builddoctor.render.recipes.quoting import comments
from builddoctor.render.recipes.script import staged_body
from builddoctor.render.recipes.sh import about

INSTALL = ("{python}", "-m", "pip", "install", "--no-build-isolation", "--no-deps", "-vv", "{source}")
"""Into the environment that conda-build packs."""

_META = """\
# build.sh of a conda recipe. It sets everything itself; in meta.yaml it needs, besides the project's own requirements:
#
#   requirements:
#     build:
#       - ninja
#       - cmake
#       - {{ compiler('cxx') }}
#       - {{ compiler('cuda') }}
#
# conda-build has no option for memory: what this script finds free is what it goes by, so it is right in a container
# with a limit too. MEMORY_MIB gets through to it with `build: script_env: [MEMORY_MIB]`."""


def render(recipe: Recipe, plan: Plan, how: RenderWith) -> str:
    """The script. Raises MemoryBudgetError or RecipeError."""
    if how.command == WHEEL:
        how = msgspec.structs.replace(how, command=INSTALL)
    lines = ["#!/bin/bash", _META, "#", *comments([heading(plan), "", *about(recipe, plan, how)])]
    return "\n".join([*lines, staged_body(recipe, plan, how, folder="${SRC_DIR:-.}")])
