"""``builddoctor recipe render``: a recipe and a machine, written as something that builds there without builddoctor."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

import builddoctor
from builddoctor.cli import options
from builddoctor.cli.options import archs_of, native_archs
from builddoctor.cli.output import print_data, print_notes, write_file
from builddoctor.core.errors import NoBuildSystemError, UsageError
from builddoctor.core.plan import Plan
from builddoctor.core.project import KnownProject
from builddoctor.core.recipe import Recipe
from builddoctor.core.units import escaped, format_clock, parse_size_mib, parse_span_s, printable, shell_word
from builddoctor.gates.knobs import JOB_KNOBS, THREAD_KNOBS
from builddoctor.plans.inputs import ChosenRecipe, choose_for_plan, choose_host
from builddoctor.plans.matrix import plan_cells, read_cells
from builddoctor.plans.planner import plan_chosen
from builddoctor.projects.build_plan import BuildKind, portable_build
from builddoctor.projects.catalogue import find_known, recognise
from builddoctor.recipes.allowed_variables import allowed
from builddoctor.recipes.shelf import SHIPPED
from builddoctor.system.root import SystemRoot
from builddoctor.ui.scripts.dockerfile import render_dockerfile
from builddoctor.ui.scripts.github_actions import render_workflow
from builddoctor.ui.scripts.render_request import RenderWith, Variable
from builddoctor.ui.scripts.shell_files import render_conda, render_env, render_script, render_slurm
from builddoctor.ui.scripts.slurm_array import ArrayCell, render_slurm_array

TARGETS: dict[str, Callable[[Recipe, Plan, RenderWith], str]] = {
    "sh": render_script,
    "dockerfile": render_dockerfile,
    "env": render_env,
    "slurm": render_slurm,
    "github-actions": render_workflow,
    "conda": render_conda,
}
_SCRIPTS = ("sh", "slurm", "conda")
_CLONES = ("dockerfile", "github-actions")


def render(
    recipe: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A recipe, or a project that has one.")],
    to: Annotated[str, typer.Option("--to", metavar="KIND", help=" | ".join(TARGETS))] = "sh",
    on: Annotated[
        str,
        typer.Option(
            "--on", metavar="MACHINE", help="A machine of `machine list`, or a file.  [default: this machine]"
        ),
    ] = "",
    cores: options.Cores = None,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="The memory that the build gets, e.g. a container's limit.")
    ] = "",
    arch: options.Archs = "",
    version: Annotated[
        str, typer.Option("--version", metavar="V", show_default=False, help="The project's version.")
    ] = "",
    by_arch: Annotated[bool, typer.Option("--by-arch", help="Stages for each architecture.")] = False,
    matrix: options.Matrix = None,
    exclude: options.Exclude = None,
    time: options.TimeLimit = "",
    with_builddoctor: Annotated[
        bool, typer.Option("--with-builddoctor", help="Write a build under builddoctor instead of one in stages.")
    ] = False,
    source: Annotated[
        str, typer.Option("--source", metavar="FOLDER|URL", help="The sources: a folder, or a git repository to clone.")
    ] = "",
    tag: Annotated[str, typer.Option("--tag", metavar="TAG", help="The tag to check out of that repository.")] = "",
    image: Annotated[str, typer.Option("--image", metavar="IMAGE", help="Container image with nvcc.")] = "",
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Write it to this file.")] = "",
) -> None:
    """Write a build as a script, a Dockerfile or the like, in stages that fit into a machine's memory.

    What is written needs no builddoctor. Every number in it names its source.

    \b
    Examples:
      builddoctor recipe render te.toml --to slurm --on gb200-node -o build.sh
      builddoctor recipe render flash_attn --to dockerfile --memory 32GiB
      builddoctor recipe render te.toml --to slurm --matrix python=3.11,3.12 --cores 32 --memory 64GiB -o wheels.sh
    """
    if to not in TARGETS:
        raise UsageError(f"unknown target {to!r}", hint=f"--to {' | '.join(TARGETS)}")
    wanted = tuple(each.sm for each in archs_of(arch, os.environ))
    host = choose_host(
        SystemRoot(), os.environ, on=on, cores=cores or 0, memory_mib=parse_size_mib(memory) if memory else 0.0
    )

    def choose(archs: Sequence[str]) -> ChosenRecipe:
        return choose_for_plan(recipe, host, archs=archs, version=version, env=os.environ, here=Path.cwd())

    def how_of(chosen: ChosenRecipe, plan: Plan) -> RenderWith:
        return _how(chosen, plan, source=source, tag=tag, image=image, with_builddoctor=with_builddoctor)

    if (exclude or time) and not matrix:
        raise UsageError(f"{'--exclude' if exclude else '--time'} without --matrix", hint="--matrix python=3.11,3.12")
    if to not in _CLONES and _from_git(source):
        raise UsageError(
            f"--to {to} clones nothing, and a repository is no folder: {escaped(source)[:100]}",
            hint=f"clone it, and give its folder: --source FOLDER; --to {' | '.join(_CLONES)} clones",
        )
    if matrix:
        if to != "slurm":
            raise UsageError(f"--to {to} has no matrix", hint="--to slurm writes one job of many builds")
        limit_s = parse_span_s(time) if time else 0.0
        cells = read_cells(matrix, exclude or (), archs=wanted, native=native_archs(matrix, os.environ))
        planned = plan_cells(cells, host, choose=choose, by_arch=by_arch, time_limit_s=limit_s)
        never = next((each.plan for each in planned if limit_s and each.plan.attempts is None), None)
        if never is not None:
            late = f"may take longer than a job of {format_clock(limit_s)} has for compilers: it needs a longer --time"
            print_notes([f"builddoctor: {never.longest_unit} {late}"])
        hows: dict[tuple[str, ...], RenderWith] = {}
        for each in planned:
            # One for each set of architectures: working it out may have something to say.
            if each.cell.archs not in hows:
                hows[each.cell.archs] = how_of(each.chosen, each.plan)
        made = [
            ArrayCell(
                name=each.cell.name,
                values=each.cell.values,
                recipe=each.chosen.recipe,
                plan=each.plan,
                how=hows[each.cell.archs],
            )
            for each in planned
        ]
        _write(render_slurm_array(made, time_limit_s=limit_s), to, output)
        return
    chosen = choose(wanted)
    plan = plan_chosen(chosen, host, by_arch=by_arch)
    _write(TARGETS[to](chosen.recipe, plan, how_of(chosen, plan)), to, output)


def _write(text: str, to: str, output: str) -> None:
    if not output or output == "-":
        print_data(text.removesuffix("\n"))
        return
    write_file(Path(output), text.encode(), example="build.sh", executable=to in _SCRIPTS)
    print_notes([f"written {printable(output)}{_next(to, output)}"])


def _how(chosen: ChosenRecipe, plan: Plan, *, source: str, tag: str, image: str, with_builddoctor: bool) -> RenderWith:
    """The project's part of it."""
    from_git = _from_git(source)
    if tag and not from_git:
        raise UsageError(f"--tag {tag}: there is no repository to take it from", hint="--source https://…")
    folder = _folder(source, chosen.recipe) if not from_git else None
    known = (recognise(folder) if folder is not None else None) or find_known(plan.project)
    archs = archs_of(",".join(plan.archs), os.environ)
    build = portable_build(known, folder, archs)
    if build.kind is BuildKind.MAKE and not with_builddoctor:
        raise NoBuildSystemError(
            f"{source or '.'} is built by make, and stages are runs of Ninja", hint="--with-builddoctor builds it gated"
        )
    is_file = "/" in chosen.name or chosen.name.endswith(".toml")
    if with_builddoctor and not is_file and chosen.origin != SHIPPED:
        is_file = True
        print_notes(
            [f"builddoctor: {chosen.name} is not one of builddoctor's own recipes: it has to lie beside the file"]
        )
    return RenderWith(
        source=source or ".",
        tag=tag or (known.tag.format(version=plan.version) if from_git and known and plan.version else ""),
        subfolder=build.subfolder,
        command=build.command,
        variables=_variables(chosen.recipe, known, build.archs, build.settings),
        jobs=_jobs(known),
        threads=_threads(known),
        packages=build.packages,
        image=image,
        with_builddoctor=with_builddoctor,
        builddoctor=builddoctor.__version__,
        recipe=chosen.name if not is_file or chosen.name.endswith(".toml") else f"{chosen.name}.toml",
        recipe_is_file=is_file,
    )


def _from_git(source: str) -> bool:
    return "://" in source or source.startswith("git@")


def _folder(source: str, recipe: Recipe) -> Path | None:
    """Sources that are here and are the recipe's; without any it is built as its project usually is."""
    if source:
        path = Path(os.path.expanduser(source))
        if not path.is_dir():
            raise UsageError(f"no folder {source}", hint="the sources' folder, or the address of a git repository")
        return path
    known = find_known(recipe.project.name)
    return Path.cwd() if known is not None and recognise(Path.cwd()) == known else None


def _variables(
    recipe: Recipe,
    known: KnownProject | None,
    archs: tuple[tuple[str, str], ...],
    settings: tuple[tuple[str, str], ...],
) -> tuple[Variable, ...]:
    """Architectures as planned; the project's settings; the recipe's own, where they say nothing of these."""
    found = {name: Variable(name=name, value=value, forced=True) for name, value in archs}
    for name, value in settings:
        found.setdefault(name, Variable(name=name, value=value))
    taken = {*found, *JOB_KNOBS, *THREAD_KNOBS, *_jobs(known), *_threads(known)}
    for each in recipe.environment:
        if each.name not in taken and allowed(each.name):
            found[each.name] = Variable(name=each.name, value=each.value, why=each.why)
    return tuple(found.values())


def _jobs(known: KnownProject | None) -> tuple[str, ...]:
    own = [knob.variable for knob in known.jobs] if known is not None else []
    return tuple(dict.fromkeys((*own, "MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL")))


def _threads(known: KnownProject | None) -> tuple[str, ...]:
    return (known.threads.variable,) if known is not None and known.threads is not None else ("NVCC_THREADS",)


def _next(to: str, output: str) -> str:
    shown = shell_word(output)
    return {
        "sh": f"; `sh {shown} FOLDER` builds the sources in FOLDER",
        "dockerfile": f"; `docker build -f {shown} --target wheels --output dist FOLDER`",
        "env": f"; `docker run --env-file {shown}`",
        "slurm": f"; `sbatch {shown} FOLDER`",
    }.get(to, "")
