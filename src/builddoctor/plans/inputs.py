"""What a plan is made of: the recipe for what was typed, and the machine, reduced to what a plan needs.

Covers: a recipe by name, file, address; a project by name or folder, with the nearest of its recipes; this machine, one
by name or file, and a container's cores and memory; what a person should know of the machine: memory of GPUs, NUMA
nodes, memory shared with a GPU.
Does *not* cover: the plan (``plans.planner``), probing (``system.machine_probe``), names and files (``machines``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from builddoctor.core.errors import RecipeError, UsageError
from builddoctor.core.limits import LevelKind, MemoryLevel, MemoryReading, Surroundings
from builddoctor.core.machine import Machine, NumaNode
from builddoctor.core.recipe import Recipe
from builddoctor.core.units import escaped, format_mib, shell_word
from builddoctor.machines.named import NominalMachine, load_machine
from builddoctor.projects.archs import archs_of_gpus, parse_archs, visible_archs
from builddoctor.projects.catalogue import find_known, nearest_project, recognise
from builddoctor.projects.metadata import project_name, project_version
from builddoctor.recipes.match import Distance, Wanted, distance, names_of, nearest, squeezed
from builddoctor.recipes.shelf import PROJECTS_OWN, Shelved, find_recipe, shelved
from builddoctor.scheduler.budget import allowance
from builddoctor.system.machine_probe import probe_machine
from builddoctor.system.root import SystemRoot

MOST_CORES = 100_000


class ChosenRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe, and how far it is from what is planned."""

    name: str
    """what ``--recipe`` takes"""
    origin: str
    recipe: Recipe
    distance: Distance
    archs: tuple[str, ...] = ()
    """those wanted: as asked for, else those of the machine's GPUs; empty for the recipe's own"""


def choose_host(
    root: SystemRoot, env: Mapping[str, str], *, on: str = "", cores: int = 0, memory_mib: float = 0.0
) -> PlanHost:
    """``on``: a machine's name or file; empty for this one. Raises MachineNotFoundError, UsageError."""
    if on:
        found = load_machine(on)
        host = host_of_machine(found) if isinstance(found, Machine) else host_of_profile(found)
        return limited(host, cores=cores, memory_mib=memory_mib)
    probed = host_of_machine(probe_machine(root, env))
    archs = (each.sm for capability in visible_archs(env) for each in parse_archs(capability))
    here = msgspec.structs.replace(probed, archs=tuple(archs))
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
) -> ChosenRecipe:
    """A recipe's name goes before a project's; of a project's recipes the nearest is taken. Raises RecipeError.

    A project is planned for the GPUs of that machine, where ``archs`` says nothing else.
    """
    wanted = Wanted(version=version, archs=tuple(sorted(archs)), host_arch=host.host_arch, page_kib=host.page_kib)
    there = msgspec.structs.replace(wanted, archs=wanted.archs or host.archs)
    folder = Path(here, os.path.expanduser(named))
    if _is_folder(folder) and (find_known(named) is None or "/" in named):
        return _of_project(_name_of(folder), named, _with_version(there, folder), shelved(env, folder))
    if "/" in named or named.endswith(".toml") or ":" in named:
        return _chosen(find_recipe(named, env, here), named, wanted)
    shelf = shelved(env, here)
    exact = next((each for each in shelf if squeezed(each.name) == squeezed(named)), None)
    if exact is not None and (exact.recipe is None or not names_of(named) & {squeezed(exact.recipe.project.name)}):
        return _chosen(find_recipe(named, env, here), exact.name, wanted)
    return _of_project(named, named, there, shelf)


def _of_project(project: str, named: str, wanted: Wanted, shelf: Sequence[Shelved]) -> ChosenRecipe:
    found = nearest(shelf, msgspec.structs.replace(wanted, project=project))
    if found is None:
        raise _no_recipe(project, named, shelf)
    # From elsewhere the project's own has no name.
    name = str(found[0].path) if "/" in named and found[0].origin == PROJECTS_OWN else found[0].name
    return _chosen(found[0], name, wanted)


def _chosen(found: Shelved, name: str, wanted: Wanted) -> ChosenRecipe:
    assert found.recipe is not None, "unreadable recipes were refused"
    version = wanted.version or found.recipe.project.version
    far = distance(found.recipe, msgspec.structs.replace(wanted, version=version))
    return ChosenRecipe(name=name, origin=found.origin, recipe=found.recipe, distance=far, archs=wanted.archs)


def _no_recipe(project: str, named: str, shelf: Sequence[Shelved]) -> RecipeError:
    alike = (each for each in shelf if each.recipe is None and squeezed(each.name).startswith(squeezed(project)))
    broken = next(alike, None)
    if broken is not None:
        return RecipeError(f"the recipe {escaped(broken.name)} cannot be read: {broken.problem}")
    there = sorted({each.recipe.project.name for each in shelf if each.recipe is not None})
    others = f"; there are recipes of {', '.join(there[:8])}" if there else ""
    name, _, version = named.partition("==")
    if version and (of_pip := find_known(name)) is not None:
        return RecipeError(
            f"no recipe of {escaped(named)[:100]}; a version is named as an option",
            hint=f"`builddoctor plan {of_pip.name} --version {shell_word(version)}`",
        )
    close = "" if find_known(named) is not None or "/" in named else nearest_project(named)
    meant = f"; did you mean {close}?" if close else ""
    makes = (
        f"one build makes one: `builddoctor build {shell_word(named)} --trace t.jsonl`, then `builddoctor recipe "
        "from-trace t.jsonl`"
    )
    return RecipeError(
        f"no recipe of {escaped(project)[:100] or 'that project'}{meant or others}",
        hint=f"`builddoctor plan {close}`" if close else makes,
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


class PlanHost(msgspec.Struct, frozen=True, kw_only=True):
    """What a build may have there."""

    name: str
    """what ``--on`` takes; ``this machine``; or the flags as given"""
    title: str = ""
    host_arch: str = ""
    cores: int
    memory_mib: float
    """the limit"""
    free_share: float = 1.0
    """of the limit: what is free before the build, its reserve not taken off"""
    reserve_mib: float
    beside_mib: float = 0.0
    """held beside the compilers by what starts them"""
    budget_mib: float
    page_kib: int = 4
    surroundings: Surroundings = Surroundings()
    archs: tuple[str, ...] = ()
    """what code for its GPUs is compiled for; empty where it has none"""
    contained: bool = False
    """the limit is a cgroup's, and not all memory of a machine"""
    measured: bool = False
    """it was probed; else its figures are nominal"""
    notes: tuple[str, ...] = ()


def host_of_profile(machine: NominalMachine) -> PlanHost:
    """A named machine."""
    notes = list(machine.notes)
    if machine.hbm_mib_as_numa:
        notes.insert(0, _hbm_note(machine.hbm_mib_as_numa))
    if machine.unified_memory:
        notes.append("GPU and CPU share this memory, and running out freezes the machine: more is kept free")
    if machine.page_kib is None:
        notes.append("no source says which page size it is run with: taken as 4 KiB")
    return PlanHost(
        name=machine.name,
        title=machine.title,
        host_arch=machine.architecture,
        cores=machine.cores,
        memory_mib=machine.limit_mib,
        free_share=machine.headroom_mib / machine.limit_mib,
        reserve_mib=machine.reserve_mib,
        budget_mib=machine.budget_mib,
        page_kib=machine.page_kib or 4,
        archs=tuple(each.sm for each in archs_of_gpus(machine.gpus)),
        surroundings=Surroundings(
            unified_memory=machine.unified_memory, ci_runner=machine.ci_runner, whole_vm=machine.whole_vm
        ),
        notes=tuple(notes),
    )


def host_of_machine(machine: Machine) -> PlanHost:
    """A machine that was probed, as full as it was then."""
    around = machine.surroundings
    notes = []
    hbm_mib = sum(node.total_mib for node in machine.numa.nodes if node.kind == "hbm")
    if hbm_mib > 0:
        notes.append(_hbm_note(hbm_mib))
    dram = [node for node in machine.numa.nodes if node.kind == "dram" and node.cpus]
    if len(dram) > 1:
        notes.append(_nodes_note(dram))
    if around.unified_memory or machine.platform.unified_memory:
        notes.append("GPU and CPU share this memory, and running out freezes the machine: more is kept free")
    limit_mib = max(machine.limit_mib, 1.0)
    return PlanHost(
        name=machine.name,
        host_arch=machine.platform.architecture,
        cores=max(1, min(machine.cores, MOST_CORES)),
        memory_mib=limit_mib,
        free_share=min(1.0, max(0.0, machine.headroom_mib / limit_mib)),
        reserve_mib=machine.reserve_mib,
        budget_mib=max(0.0, machine.budget_mib),
        page_kib=machine.platform.page_kib,
        surroundings=around,
        contained=any(level.kind.startswith("cgroup") for level in machine.levels),
        measured=True,
        notes=tuple(notes),
    )


def limited(host: PlanHost, *, cores: int = 0, memory_mib: float = 0.0) -> PlanHost:
    """The same machine with a container's cores and memory; 0 leaves what it has. Raises UsageError for what it lacks.

    With a memory of its own the container begins empty: what others hold is outside of it.
    """
    if not cores and not memory_mib:
        return host
    if cores < 0 or cores > MOST_CORES:
        raise UsageError(f"{cores} cores are no number of cores to plan for", hint="--cores 8")
    flags = [f"--cores {cores}"] if cores else []
    if memory_mib:
        flags.append(f"--memory {format_mib(memory_mib).replace(' ', '')}")
    changed = msgspec.structs.replace(host, cores=cores or host.cores, name=f"{host.name}, {' '.join(flags)}")
    if not memory_mib:
        return changed
    reserve_mib, budget_mib = _budget(memory_mib, memory_mib, host.surroundings, contained=True)
    return msgspec.structs.replace(
        changed,
        memory_mib=memory_mib,
        free_share=1.0,
        reserve_mib=reserve_mib,
        budget_mib=budget_mib,
        contained=True,
        measured=False,
    )


def figures_only(*, cores: int, memory_mib: float, like: PlanHost) -> PlanHost:
    """``--cores`` and ``--memory`` alone: a container of that size on a machine of the kind of ``like``."""
    host = limited(like, cores=cores, memory_mib=memory_mib)
    return msgspec.structs.replace(
        host,
        name=f"a container of {host.cores} core{'s' * (host.cores != 1)} and {format_mib(host.memory_mib)}",
        title="",
        notes=(),
    )


def shared_with(host: PlanHost, beside_mib: float) -> PlanHost:
    """The same machine, on which that much is not for compilers."""
    return msgspec.structs.replace(
        host, beside_mib=beside_mib, budget_mib=max(0.0, host.budget_mib - (beside_mib - host.beside_mib))
    )


def scaled(host: PlanHost, *, cores: int, memory_mib: float) -> PlanHost:
    """The same machine with other cores and memory, as full as it is."""
    free_mib = max(0.0, host.free_share * memory_mib - host.beside_mib)
    reserve_mib, budget_mib = _budget(memory_mib, free_mib, host.surroundings, contained=host.contained)
    return msgspec.structs.replace(
        host, cores=max(1, cores), memory_mib=memory_mib, reserve_mib=reserve_mib, budget_mib=budget_mib
    )


def _budget(
    limit_mib: float, headroom_mib: float, surroundings: Surroundings, *, contained: bool
) -> tuple[float, float]:
    level = MemoryLevel(
        source="planned",
        kind=LevelKind.CGROUP_V2 if contained else LevelKind.HOST,
        limit_mib=limit_mib,
        headroom_mib=headroom_mib,
    )
    allowed = allowance(MemoryReading(levels=(level,), surroundings=surroundings), 0.0)
    return allowed.reserve_mib, allowed.budget_mib


def _hbm_note(hbm_mib: float) -> str:
    return (
        f"memory of the GPUs ({hbm_mib / 1024:.0f} GiB of HBM, NUMA nodes to the kernel) is not counted as host memory"
    )


def _nodes_note(nodes: list[NumaNode]) -> str:
    sizes = ", ".join(format_mib(node.total_mib) for node in nodes)
    return f"{len(nodes)} NUMA nodes with CPUs ({sizes}): a job bound to one of them has that much and no more"
