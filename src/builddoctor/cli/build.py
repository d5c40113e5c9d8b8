"""``builddoctor build PROJECT|PATH``: get the sources, find out how they are built, and supervise that."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from builddoctor.cli import options
from builddoctor.cli.loudness import Quiet, Verbose, loudness
from builddoctor.cli.options import archs_of
from builddoctor.cli.output import print_answer, print_data
from builddoctor.cli.run import run_supervised
from builddoctor.core.errors import FolderNotWritableError, SourceNotFoundError
from builddoctor.core.project import Obtained, SourceWanted
from builddoctor.core.request import RunRequest
from builddoctor.gates.environment import Mode
from builddoctor.projects.build_plan import BuildKind, BuildPlan, building_python, plan_build, plan_unfetched
from builddoctor.projects.catalogue import recognise
from builddoctor.projects.choose import Choice, choose
from builddoctor.projects.sources.obtain import obtain
from builddoctor.runtime.folders import cache_folder
from builddoctor.runtime.prepare import forget_other_settings, toolkit_of
from builddoctor.runtime.recipe_use import choose_recipe
from builddoctor.runtime.units import Toolchain
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.root import SystemRoot

NO_OBJECTS_KEPT = (
    "until     where its setup.py compiles without Ninja, the next run begins again with an extension that is not "
    "linked (`--store FOLDER` keeps what was compiled)"
)


def build(
    context: typer.Context,
    project: Annotated[
        str,
        typer.Argument(
            metavar="PROJECT|PATH", help="The name of a project (transformer_engine), or the folder of a checkout."
        ),
    ],
    arch: options.Archs = "",
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="PATH|URL",
            help="Where its sources are: a folder, an archive, a git URL, or pypi:NAME in the package index.",
        ),
    ] = "",
    version: Annotated[
        str,
        typer.Option("--version", metavar="V", help="The release or branch to get.  [default: the newest release]"),
    ] = "",
    offline: Annotated[
        bool, typer.Option("--offline", help="Get nothing from the network; use cached sources only.")
    ] = (False),
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="PART", help="Leave a part of the project out.")
    ] = None,
    recipe: options.RecipeOption = "",
    strategy: options.StrategyOption = "gated",
    memory: options.Memory = "",
    cores: options.Cores = None,
    toolkit: options.ToolkitOption = "",
    trace: options.TraceFile = "",
    summary: options.SummaryFile = "",
    wheel_dir: Annotated[
        Path | None, typer.Option("--wheel-dir", metavar="DIR", help="The folder for a Python project's wheel.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="After a failure, continue with what does not depend on it.")
    ] = False,
    cache: Annotated[
        Mode,
        typer.Option("--cache", help="An object cache in front of the compilers; auto: ccache if it is installed."),
    ] = "auto",
    ignore_caps: options.IgnoreCaps = False,
    auto_remedy: options.AutoRemedy = False,
    no_doctor: options.NoDoctor = False,
    until: options.Until = "",
    cluster: options.ClusterOption = "",
    keys: options.KeysOption = "",
    store: options.StoreOption = "",
    store_size: options.StoreSizeOption = "",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the plan and every variable, and stop. No sources are fetched for it."),
    ] = False,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Get the sources into the cache, print their folder, and stop.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="With --dry-run: print the plan as JSON.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Build a project by name, or a checkout: Python, CMake, a folder with build.ninja, or a Makefile.

    A second build of the same sources reuses what the first one compiled.

    \b
    Examples:
      builddoctor build flash_attn --arch h100     # by name: sources, variables, a wheel
      builddoctor build . --arch sm_90 --memory 24GiB
      builddoctor build vllm --dry-run              # what would run, to be pasted
    """
    del quiet, verbose
    loud = loudness(context)
    archs = archs_of(arch, os.environ)
    named_recipe = options.named_recipe(recipe)
    # Before sources are fetched, for minutes: what is wrong here stays wrong.
    request = options.make_request(
        (),
        cwd=Path.cwd(),
        title="",
        archs=archs,
        memory=memory,
        cores=cores,
        toolkit=toolkit,
        trace=os.path.abspath(trace) if trace else "",
        summary="" if dry_run or fetch else summary,
        ignore_caps=ignore_caps,
        no_doctor=no_doctor,
        need_toolkit=True,
        auto_remedy=auto_remedy,
        keep_going=keep_going,
        cache=cache,
        recipe=recipe,
        nearest_recipe=True,
        strategy=strategy,
        until=until,
        cluster=cluster,
        keys=keys,
        store=store,
        store_size=store_size,
    )
    wheels = wheel_dir.absolute() if wheel_dir is not None else None
    choice = choose(project, Path.cwd(), source=source, version=version, offline=offline)
    if dry_run and not fetch and (unfetched := _unfetched(choice)) is not None:
        wanted = unfetched.place or unfetched.package or unfetched.repository
        loud.notes([f"sources   not here: a build fetches them from {wanted}"])
        if choice.known is None:
            raise SourceNotFoundError(
                f"how {project} is built is not known without its sources",
                hint=f"{_fetching(project, source, version)} gets them",
            )
        plan = plan_unfetched(
            choice.known,
            archs,
            os.environ,
            wheel_folder=wheels or Path.cwd() / "dist",
            without=tuple(without or ()),
            version=version,
        )
        loud.notes(plan.notes)
        plan = _with_toolkit(plan, request)
        print_answer(plan, _script(plan, f'cd "$({_fetching(project, source, version)})"'), json=json)
        return 0
    folder, got = _sources(choice, loud.notes)
    known = choice.known or recognise(folder)
    plan = plan_build(
        folder,
        known,
        archs,
        os.environ,
        wheel_folder=wheels or (Path.cwd() / "dist" if got is not None else None),
        without=tuple(without or ()),
        version=got.version if got is not None else "",
        keep_going=keep_going,
    )
    loud.notes([f"sources   {got.origin}{' (cached)' if got.cached else ''}"] if got is not None else [])
    if fetch:
        print_data(plan.folder)
        return 0
    loud.notes(plan.notes)
    if until and plan.nvcc_by_path and not store:
        loud.notes([NO_OBJECTS_KEPT])
    request = msgspec.structs.replace(
        request,
        command=plan.command,
        cwd=plan.folder,
        title=plan.title,
        extra_env=plan.settings,
        need_toolkit=known is None or not known.compiles_nothing,
        nvcc_by_path=plan.nvcc_by_path,
    )
    if dry_run:
        tools = Toolchain(host_arch=os.uname().machine)
        room_mib = math.inf if cluster else MemorySensor(SystemRoot(), env=os.environ).read(0.0).free_mib
        by = choose_recipe(request, named_recipe, tools, os.environ, room_mib=room_mib)
        loud.notes(by.lines if by is not None else [])
        plan = _with_toolkit(plan, request)
        print_answer(plan, _script(plan, f"cd {shlex.quote(plan.folder)}"), json=json)
        return 0
    if strategy == "staged":
        # Only here: with what it imports every build would start later.
        from builddoctor.cli.staging import staged_request

        request = staged_request(
            request, os.environ, say=loud.notes, build_folder=plan.output if plan.kind is BuildKind.CMAKE else plan.kept
        )
    code = run_supervised(request, ready=lambda: _make_ready(plan, loud.notes), named_recipe=named_recipe, loud=loud)
    if code == 0 and plan.kind is BuildKind.PYTHON:
        newest = max(Path(plan.output).glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime_ns, default=None)
        loud.notes([f"  wheel   {newest}"] if newest is not None else [])
    return code


def _sources(choice: Choice, tell: Callable[[list[str]], None]) -> tuple[Path, Obtained | None]:
    if choice.wanted is None:
        assert choice.folder is not None
        return choice.folder, None
    got = obtain(
        choice.wanted,
        cache=cache_folder(os.environ),
        env=os.environ,
        python=building_python(os.environ),
        say=lambda line: tell([f"sources   {line}"]),
    )
    return Path(got.folder), got


def _unfetched(choice: Choice) -> SourceWanted | None:
    """What would be fetched: it is neither a folder nor in the cache."""
    if choice.wanted is None:
        return None
    at_hand = msgspec.structs.replace(choice.wanted, offline=True)
    try:
        obtain(at_hand, cache=cache_folder(os.environ), env=os.environ, python="python3", say=lambda _: None)
    except SourceNotFoundError:
        return None if choice.wanted.offline else choice.wanted
    return None


def _fetching(project: str, source: str, version: str) -> str:
    options = [*(("--source", source) if source else ()), *(("--version", version) if version else ())]
    return shlex.join(["builddoctor", "build", project, "--fetch", *options])


def _with_toolkit(plan: BuildPlan, request: RunRequest) -> BuildPlan:
    """The plan of a dry run with the toolkit that was named: what runs it later has no gates that would choose it."""
    if not request.toolkit:
        return plan
    toolkit, _ = toolkit_of(request, os.environ, SystemRoot())
    assert toolkit is not None, "one that was named is found, or refused"
    named = (("CUDA_HOME", toolkit.home), ("CUDACXX", f"{toolkit.home}/bin/nvcc"))
    return msgspec.structs.replace(plan, settings=(*plan.settings, *named))


def _script(plan: BuildPlan, change_folder: str) -> str:
    """What would run, to be pasted into a shell."""
    lines = [f"mkdir -p {shlex.quote(folder)}" for folder in plan.make_folders]
    lines.append(change_folder)
    settings = [f"{name}={shlex.quote(value)}" for name, value in plan.settings]
    return "\n".join([*lines, " ".join([*settings, shlex.join(plan.command)])])


def _make_ready(plan: BuildPlan, tell: Callable[[list[str]], None]) -> None:
    """What has to be there before, once it is known that the build can begin."""
    for folder in plan.make_folders:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FolderNotWritableError(
                f"cannot make the build folder {folder}: {error.strerror}",
                hint="read-only sources are built in a copy: cp -r SOURCES /some/folder",
            ) from error
    if plan.nvcc_by_path and forget_other_settings(Path(plan.folder), plan.settings, os.environ):
        tell(["this folder was built with other settings before: its extensions are built again"])
