"""What a plan is made of: the recipe for what was typed, and the machine.

Covers: a recipe by name, file, address; a project by name or folder, with the nearest of its recipes; this machine, one
by name or file, and a container's cores and memory. Does *not* cover: the plan (``plans.planner``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from builddoctor.errors import RecipeError
from builddoctor.machines.files import load_machine
from builddoctor.model.machine import Machine
from builddoctor.model.recipe import Recipe
from builddoctor.plans.hosts import PlanHost, figures_only, host_of_machine, host_of_profile, limited
from builddoctor.projects.known import find_known, recognise
from builddoctor.projects.known import nearest as nearest_name
from builddoctor.recipes.matching import Distance, Wanted, distance, names_of, nearest, squeezed
from builddoctor.recipes.shelf import Shelved, find_recipe, shelved
from builddoctor.sensors.machine import probe_machine
from builddoctor.sensors.project_name import project_name
from builddoctor.sensors.project_version import project_version
from builddoctor.sensors.root import SystemRoot
from builddoctor.units import escaped, shell_word


class ForPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe, and how far it is from what is planned."""

    name: str
    """what ``--recipe`` takes"""
    origin: str
    recipe: Recipe
    distance: Distance


def choose_host(
    root: SystemRoot, env: Mapping[str, str], *, on: str = "", cores: int = 0, memory_mib: float = 0.0
) -> PlanHost:
    """``on``: a machine's name or file; empty for this one. Raises MachineNotFoundError, UsageError."""
    if on:
        found = load_machine(on)
        host = host_of_machine(found) if isinstance(found, Machine) else host_of_profile(found)
        return limited(host, cores=cores, memory_mib=memory_mib)
    here = host_of_machine(probe_machine(root, env))
    if cores and memory_mib:
        return figures_only(cores=cores, memory_mib=memory_mib, like=here)
    return limited(here, cores=cores, memory_mib=memory_mib)


def choose_for_plan(
    named: str,
    host: PlanHost,
    *,
    archs: Sequence[str],
    version: str,
    env: Mapping[str, str],
    here: Path,
) -> ForPlan:
    """A recipe's name goes before a project's; of a project's recipes the nearest is taken. Raises RecipeError."""
    wanted = Wanted(version=version, archs=tuple(sorted(archs)), host_arch=host.host_arch, page_kib=host.page_kib)
    folder = Path(here, os.path.expanduser(named))
    if _is_folder(folder) and (find_known(named) is None or "/" in named):
        return _of_project(_name_of(folder), named, _with_version(wanted, folder), env)
    if "/" in named or named.endswith(".toml") or ":" in named:
        return _chosen(find_recipe(named, env, here), named, wanted)
    shelf = shelved(env)
    exact = next((each for each in shelf if squeezed(each.name) == squeezed(named)), None)
    if exact is not None and (exact.recipe is None or not names_of(named) & {squeezed(exact.recipe.project.name)}):
        return _chosen(find_recipe(named, env, here), exact.name, wanted)
    return _of_project(named, named, wanted, env)


def _of_project(project: str, named: str, wanted: Wanted, env: Mapping[str, str]) -> ForPlan:
    shelf = shelved(env)
    found = nearest(shelf, msgspec.structs.replace(wanted, project=project))
    if found is None:
        raise _no_recipe(project, named, shelf)
    return _chosen(found[0], found[0].name, wanted)


def _chosen(found: Shelved, name: str, wanted: Wanted) -> ForPlan:
    assert found.recipe is not None, "whoever cannot be read was refused"
    version = wanted.version or found.recipe.project.version
    far = distance(found.recipe, msgspec.structs.replace(wanted, version=version))
    return ForPlan(name=name, origin=found.origin, recipe=found.recipe, distance=far)


def _no_recipe(project: str, named: str, shelf: Sequence[Shelved]) -> RecipeError:
    alike = (each for each in shelf if each.recipe is None and squeezed(each.name).startswith(squeezed(project)))
    broken = next(alike, None)
    if broken is not None:
        return RecipeError(f"the recipe {escaped(broken.name)} cannot be read: {broken.problem}")
    there = sorted({each.recipe.project.name for each in shelf if each.recipe is not None})
    others = f"; there are recipes of {', '.join(there[:8])}" if there else ""
    close = "" if find_known(named) is not None or "/" in named else nearest_name(named)
    meant = f"; did you mean {close}?" if close else ""
    return RecipeError(
        f"no recipe of {escaped(project)[:100] or 'that project'}{meant or others}",
        hint=f"one build makes one: `builddoctor build {shell_word(named)} --trace t.jsonl`, then `builddoctor recipe "
        "from-trace t.jsonl`",
    )


def _with_version(wanted: Wanted, folder: Path) -> Wanted:
    return wanted if wanted.version else msgspec.structs.replace(wanted, version=project_version(folder))


def _name_of(folder: Path) -> str:
    known = recognise(folder)
    return known.name if known is not None else project_name(folder)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False
