"""Options that several commands share, and their way into a RunRequest."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from builddoctor.cluster.addresses import checked_address, checked_store_address, keys_folder
from builddoctor.cluster.fleet import read_fleet
from builddoctor.core.errors import ExtraMissingError, FolderNotWritableError, UsageError
from builddoctor.core.request import RunRequest
from builddoctor.core.units import parse_size_mib, parse_until_s, read_size_mib
from builddoctor.gates.environment import Mode, chosen_cache
from builddoctor.projects.archs import Arch, arch_environment, parse_archs, visible_archs, wants_native
from builddoctor.recipes.shelf import Shelved, find_recipe
from builddoctor.runtime.recipe_use import NO_RECIPE

Archs = Annotated[
    str,
    typer.Option(
        "--arch", metavar="ARCH[,ARCH]", help="Device architectures: sm_100,sm_90a; also gb200, h100, native."
    ),
]
Matrix = Annotated[
    list[str] | None,
    typer.Option(
        "--matrix",
        metavar="NAME=VALUE,…",
        show_default=False,
        help="An axis of a matrix of builds, e.g. arch=sm_90,sm_100 or python=3.11,3.12; each multiplies them.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="NAME=VALUE,…",
        show_default=False,
        help="Leave out the cells of the matrix that have all of these values.",
    ),
]
TimeLimit = Annotated[
    str,
    typer.Option(
        "--time", metavar="4h", show_default=False, help="Time limit of one job; a longer build takes several."
    ),
]
Memory = Annotated[
    str,
    typer.Option("--memory", metavar="SIZE", help="An additional memory limit, e.g. 24GiB; the lowest limit counts."),
]
Cores = Annotated[
    int | None,
    typer.Option(
        "--cores",
        metavar="N",
        show_default=False,
        help="Compiler phases that may run at the same time.  [default: usable cores, and one more for each eight]",
    ),
]
ToolkitOption = Annotated[
    str, typer.Option("--toolkit", metavar="PATH|VERSION", help="The CUDA toolkit: its folder, its nvcc, or e.g. 13.0.")
]
TraceFile = Annotated[str, typer.Option("--trace", metavar="FILE", help="Write the trace to this file.")]
SummaryFile = Annotated[
    str, typer.Option("--summary", metavar="FILE", help="Write the summary to this file, one JSON object.")
]
IgnoreCaps = Annotated[
    bool,
    typer.Option(
        "--ignore-caps", help="Do not treat MAX_JOBS and similar variables as upper bounds; memory alone decides."
    ),
]

AutoRemedy = Annotated[
    bool,
    typer.Option(
        "--auto-remedy",
        help="If a compiler does not fit alone, apply the fixes that leave the binary unchanged, and report them.",
    ),
]

NoDoctor = Annotated[
    bool,
    typer.Option("--no-doctor", help="Skip the checks of host, toolchain and source before the build."),
]

Until = Annotated[
    str,
    typer.Option(
        "--until",
        metavar="5h20m|18:00",
        help="Start nothing that cannot end by then, and stop in order: exit code 75, to be continued.",
    ),
]

ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="ADDRESS|KIND:…",
        help="Other machines that run phases: what does not fit here, or waits. Such as tls://build-host:8786, or "
        "nodes that start and end with the build: local:4, ssh:hosts.txt, slurm:nodes=4,partition=NAME.",
    ),
]
KeysOption = Annotated[
    str,
    typer.Option(
        "--keys",
        metavar="FOLDER",
        show_default=False,
        help="The folder of the cluster's keys, also for a store elsewhere.  [default: ~/.config/builddoctor/cluster; "
        "for nodes that come with a build, keys of its own]",
    ),
]

StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="FOLDER|ADDRESS",
        help="Keep what compiler phases write, and take from there what earlier builds have kept. A folder, or what "
        "`cluster serve --store` offers: tls://build-host:8787.",
    ),
]
StoreSizeOption = Annotated[
    str,
    typer.Option(
        "--store-size",
        metavar="SIZE",
        show_default=False,
        help="What that folder may hold; what was used longest ago goes first.  [default: 10GiB]",
    ),
]

RecipeOption = Annotated[
    str,
    typer.Option(
        "--recipe",
        metavar="NAME|FILE|none",
        show_default=False,
        help="Figures of earlier builds to plan with. They change no limit and set no variable.",
    ),
]

Strategy = Literal["gated", "staged"]
StrategyOption = Annotated[
    Strategy,
    typer.Option(
        "--strategy",
        help="gated: each compiler phase waits for its memory. staged: no gates; ninja runs the recipe's stages one "
        "after the other.",
    ),
]


def make_request(
    command: tuple[str, ...],
    *,
    cwd: Path,
    title: str,
    archs: tuple[Arch, ...],
    memory: str,
    cores: int | None,
    toolkit: str,
    trace: str,
    summary: str,
    ignore_caps: bool,
    no_doctor: bool,
    need_toolkit: bool,
    auto_remedy: bool = False,
    keep_going: bool = False,
    cache: Mode = "none",
    recipe: str = "",
    nearest_recipe: bool = False,
    strategy: Strategy = "gated",
    until: str = "",
    cluster: str = "",
    keys: str = "",
    store: str = "",
    store_size: str = "",
) -> RunRequest:
    """Check every value before anything starts. Raises UsageError or FolderNotWritableError.

    ``cache``: an object cache. It has the variables for architectures that any project may read.
    """
    if cores is not None and cores < 1:
        raise UsageError(f"--cores {cores}: a build needs at least 1", hint="leave it out to use all cores")
    chosen_cache(cache, os.environ)
    fleet = read_fleet(cluster) if cluster else None
    store_address = checked_store_address(store) if _is_like_an_address(store) else ""
    address = checked_address(cluster) if cluster and fleet is None else ""
    # A bad address is said before a missing package: it stays bad with every package installed.
    if store:
        _require_zstandard()
    cluster_keys = _keys(keys, own=fleet is not None) if cluster else ""
    if store_address and store_size:
        raise UsageError(
            f"--store-size: {store_address} has the size that it was given there",
            hint="leave it out here; `builddoctor cluster serve --store FOLDER --store-size SIZE`",
        )
    if summary:
        _check_writable(Path(summary))
    return RunRequest(
        command=command,
        cwd=str(cwd),
        title=title,
        archs=tuple(arch.sm for arch in archs),
        memory_mib=parse_size_mib(memory) if memory else None,
        cores=cores,
        toolkit=toolkit,
        trace=trace,
        summary=os.path.abspath(summary) if summary else "",
        ignore_caps=ignore_caps,
        auto_remedy=auto_remedy,
        doctor=not no_doctor,
        need_toolkit=need_toolkit,
        extra_env=tuple(arch_environment(archs).items()),
        keep_going=keep_going,
        cache=cache,
        recipe=recipe,
        nearest_recipe=nearest_recipe,
        strategy=strategy,
        cluster=address,
        cluster_keys=cluster_keys,
        fleet=fleet,
        store=store_address or store_folder(store),
        store_keys=str(keys_folder(keys).absolute()) if store_address else "",
        store_mib=store_mib(store_size) if store_size else None,
        until_s=parse_until_s(until, datetime.now().astimezone()) if until else None,
    )


def _keys(folder: str, *, own: bool) -> str:
    """``own``: nodes that come with the build get keys for it alone, where none are named."""
    there = with_cluster(folder)
    return "" if own and not folder else str(there.absolute())


def with_cluster(folder: str) -> Path:
    """The folder of a cluster's keys; asked wherever Dask is needed, after what was named is checked.

    Raises ExtraMissingError.
    """
    try:
        import builddoctor.cluster.keys  # noqa: F401
    except ImportError as error:
        raise ExtraMissingError(
            f"clusters need Dask ({error})", hint="`pip install 'builddoctor[cluster]'`, on each of the machines"
        ) from error
    return keys_folder(folder)


_LIKE_AN_ADDRESS = re.compile(r"\w+:/|(tls|tcp|https?):|(tls|tcp)[^\w.-]|([\w.-]+|\[.*\]):\d+/?$")


def _is_like_an_address(text: str) -> bool:
    """A folder that is there already is none, whatever its name."""
    return _LIKE_AN_ADDRESS.match(text) is not None and not os.path.isdir(text)


def offered_folder(folder: str) -> str:
    """As ``store_folder``, of what others are to be given. Raises UsageError for an address."""
    if _is_like_an_address(folder):
        raise UsageError(
            f"--store {folder}: an address, where a folder is to be offered",
            hint="name the folder; `--listen` says where it is offered",
        )
    return store_folder(folder)


def store_folder(folder: str) -> str:
    """Absolute. Raises ExtraMissingError."""
    if folder:
        _require_zstandard()
    return os.path.abspath(os.path.expanduser(folder)) if folder else ""


def _require_zstandard() -> None:
    if importlib.util.find_spec("zstandard") is None:
        raise ExtraMissingError("a store needs zstandard", hint="`pip install 'builddoctor[store]'`")


def store_mib(text: str) -> float:
    """Raises UsageError for what is no size."""
    size_mib = read_size_mib(text)
    if not size_mib:
        raise UsageError(f"--store-size {text}: not a size", hint="write it as `--store-size 10GiB`")
    return size_mib


def named_recipe(recipe: str) -> Shelved | None:
    """What ``--recipe`` names; None where it names none. Raises RecipeError before anything starts."""
    return find_recipe(recipe, os.environ, Path.cwd()) if recipe not in ("", NO_RECIPE) else None


def _check_writable(path: Path) -> None:
    """A summary that cannot be written is said before the build, not after it."""
    try:
        # Emptied: where builddoctor itself fails, an earlier build's figures must not be taken for this one's.
        with path.open("wb"):
            pass
    except OSError as error:
        raise FolderNotWritableError(
            f"cannot write the summary {path}: {error.strerror}", hint="name a file in a folder that you may write"
        ) from error


def archs_of(text: str, env: Mapping[str, str]) -> tuple[Arch, ...]:
    """None for an empty text. Raises UsageError."""
    if not text:
        return ()
    return parse_archs(text, native=visible_archs(env) if wants_native(text) else ())


def native_archs(matrix: Iterable[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs of this machine, where the matrix asks for them."""
    return visible_archs(env) if any(wants_native(axis.partition("=")[2]) for axis in matrix) else ()
