"""Which recipe a build goes by, and what is said of it before the build starts.

Covers: the one that was asked for, else the nearest of the project where the command takes one by itself; how far it
is from this build; hazards that hold here; variables that it was measured with.
Does *not* cover: files (``recipes.shelf``), or what its figures are worth for a unit (``recipes.recall``).

A recipe's variables are never set, not even for one that was asked for by name: the same command builds the same
binary with or without a recipe, and a file from elsewhere says what compiling takes, not what is compiled. Where they
differ here the build is told so in one line that can be pasted. Variables that builddoctor sets itself (jobs, threads,
architectures) are left out: it sets them whatever the recipe was measured with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from builddoctor.errors import RecipeError
from builddoctor.intercept.knobs import JOB_KNOBS, THREAD_KNOBS
from builddoctor.model.recipe import Hazard, Recipe
from builddoctor.model.request import RunRequest
from builddoctor.projects.archs import Arch, arch_environment
from builddoctor.recipes.matching import Distance, Wanted, distance, nearest
from builddoctor.recipes.shelf import Shelved, find_recipe, shelved, user_folder
from builddoctor.sensors.project_version import project_version
from builddoctor.sensors.root import page_size
from builddoctor.supervise.unit_keys import Toolchain, project_folder, project_of
from builddoctor.units import one_line, printable, shell_word

NO_RECIPE = "none"
"""``--recipe none``: go by no recipe."""

MOST_HAZARDS = 4
"""Of more than these the rest is counted."""

OURS = frozenset((*JOB_KNOBS, *THREAD_KNOBS, *arch_environment((Arch(9, 0, ""),))))
"""Variables that builddoctor sets."""


class ChosenRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe for one build."""

    name: str
    recipe: Recipe
    wanted: Wanted
    distance: Distance
    new_file: Path
    """where a recipe made of this build would go: in its place where it is the user's own, else to the user's folder"""
    lines: tuple[str, ...] = ()
    """what to say of it before the build begins"""


def choose_recipe(
    request: RunRequest, named: Shelved | None, tools: Toolchain, env: Mapping[str, str]
) -> ChosenRecipe | None:
    """The build's recipe; None for none. Raises RecipeError for one that was asked for and cannot be had.

    ``named``: the one that was asked for, where it was looked up before. A recipe that nobody asked for is no reason
    for a build to fail: one that cannot be read is passed over.
    """
    if request.recipe == NO_RECIPE or not (request.recipe or request.nearest_recipe):
        return None
    wanted = wanted_of(request, tools)
    if request.recipe:
        found = named or find_recipe(request.recipe, env, request.cwd)
        return _chosen(found, wanted, request, env)
    with contextlib.suppress(RecipeError, OSError):
        if (near := nearest(shelved(env), wanted)) is not None:
            return _chosen(near[0], wanted, request, env)
    return None


def _chosen(found: Shelved, wanted: Wanted, request: RunRequest, env: Mapping[str, str]) -> ChosenRecipe | None:
    if found.recipe is None:
        return None
    far = distance(found.recipe, wanted)
    own = found.path if found.path is not None and not found.shipped else None
    return ChosenRecipe(
        name=found.name,
        recipe=found.recipe,
        wanted=wanted,
        distance=far,
        new_file=own or user_folder(env) / f"{found.name}.toml",
        lines=recipe_lines(found.name, found.recipe, far, wanted.host_arch, {**env, **dict(request.extra_env)}),
    )


def wanted_of(request: RunRequest, tools: Toolchain) -> Wanted:
    """What is known of a build before it starts."""
    project = project_of(project_folder(request.command, request.cwd))
    return Wanted(
        project=project.name,
        version=project_version(project.folder),
        archs=request.archs,
        nvcc=tools.nvcc,
        host_compiler=tools.host_compiler,
        host_arch=tools.host_arch,
        page_kib=page_size() // 1024,
    )


def recipe_lines(name: str, recipe: Recipe, far: Distance, host_arch: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """What a person should know of a recipe before the build begins, a line each."""
    origin = recipe.origin
    runs = f", {origin.runs} run{'s' * (origin.runs != 1)}" if origin.runs else ""
    head = f"recipe    {name} ({origin.provenance}{runs})"
    lines = [f"{head}; {'; '.join(far.words)}: {far.trust}" if far.words else head]
    here = [each for each in recipe.hazards if each.host_arch in ("", host_arch)]
    lines += [_hazard_line(each) for each in here[:MOST_HAZARDS]]
    if len(here) > MOST_HAZARDS:
        lines.append(f"hazard    {len(here) - MOST_HAZARDS} more are known: builddoctor recipe show {shell_word(name)}")
    other = [each for each in recipe.environment if each.name not in OURS and env.get(each.name) != each.value]
    if other:
        settings = " ".join(f"{each.name}={shell_word(each.value)}" for each in other)
        lines.append(f"recipe    was measured with settings that this build has not, and does not get: {settings}")
    return tuple(one_line(printable(line)) for line in lines)


def _hazard_line(hazard: Hazard) -> str:
    where = f"{hazard.place}: " if hazard.place else ""
    return f"hazard    {where}{hazard.text}{f' ({hazard.source})' if hazard.source else ''}"
