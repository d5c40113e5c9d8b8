"""``builddoctor toolkit install|list|path|remove``: CUDA toolkits without root, and all that this machine has."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, Literal, cast

import msgspec
import typer

from builddoctor.cli.output import JsonOption, print_answer, print_notes
from builddoctor.core.errors import FolderNotWritableError, UsageError
from builddoctor.core.units import one_line
from builddoctor.gates.own_signals import end_in_order
from builddoctor.gates.subprocesses import run_captured
from builddoctor.runtime.folders import cache_folder, site_folders
from builddoctor.system.root import SystemRoot
from builddoctor.toolchain.cuda_libraries import machine_name
from builddoctor.toolchain.discover import candidates, find_toolkit, managed_folder
from builddoctor.toolkits import managed
from builddoctor.toolkits.components import parse_components
from builddoctor.toolkits.install import Order, install, plan
from builddoctor.toolkits.layout import TRIPLES
from builddoctor.toolkits.listing import all_toolkits
from builddoctor.ui.machine_page import plan_rows, toolkit_rows

app = typer.Typer(
    no_args_is_help=True, help="CUDA toolkits: install without root, list, remove.", rich_markup_mode=None
)

Version = Annotated[str, typer.Argument(metavar="VERSION", help="Such as 13.0.")]
Into = Annotated[
    str,
    typer.Option(
        "--into", metavar="FOLDER", help="Keep toolkits in this folder instead of ~/.local/share/builddoctor/toolkits."
    ),
]


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """What ``toolkit remove --json`` prints."""

    removed: str
    """its folder"""


@app.command("install")
def install_toolkit(
    version: Version,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME[,NAME]",
            help="Also cublas, cudnn, nccl, nvrtc, nvml, cufft, curand, cusparse, cusolver, nvtx, profiler, all …",
        ),
    ] = None,
    arch: Annotated[
        str, typer.Option("--arch", metavar="ARCH", help="x86_64 or aarch64.  [default: this machine's]")
    ] = "",
    into: Into = "",
    offline: Annotated[bool, typer.Option("--offline", help="Use cached wheels only.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Install it again, with the newest packages that the release allows.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be downloaded, and how much.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Install a CUDA toolkit from NVIDIA's Python packages, without root. Prints its CUDA_HOME.

    It always has nvcc, the runtime and CCCL. pip downloads the packages from its configured index. Components can be
    added later.

    \b
    Examples:
      builddoctor toolkit install 13.0
      export CUDA_HOME=$(builddoctor toolkit install 13.0 --with cublas)
    """
    folder = Path(os.path.abspath(os.path.expanduser(into))) if into else _managed()
    order = Order(
        version=version,
        components=parse_components(with_ or ()),
        arch=_arch(arch),
        folder=folder,
        wheels=_wheels(folder),
        offline=offline,
        force=force,
    )
    end_in_order()
    if dry_run:
        planned = plan(order, os.environ, _say)
        print_answer(planned, lambda: plan_rows(planned), json=json)
        return
    done = install(order, os.environ, _say)
    if done.already:
        _say(f"{done.toolkit.name} is installed already, with all that was asked for; --force installs it again")
    elif order.arch == machine_name():
        named = shlex.quote(done.path) if into else ".".join(done.toolkit.version.split(".")[:2])
        _say(
            f"builddoctor build … --toolkit {named}; for other builds: export CUDA_HOME={shlex.quote(done.path)}; "
            'export PATH="$CUDA_HOME/bin:$PATH"'
        )
    print_answer(done, one_line(done.path), json=json)


@app.command("list")
def list_toolkits(json: JsonOption = False) -> None:
    """List all CUDA toolkits of this machine (system, conda, wheels, managed), and what each lacks."""
    found = all_toolkits(
        SystemRoot(),
        os.environ,
        site_folders=site_folders(os.environ),
        managed=managed_folder(SystemRoot(), os.environ),
    )
    print_answer(found, lambda: toolkit_rows(found, here=machine_name()), json=json)


@app.command("path")
def path(version: Version, json: JsonOption = False) -> None:
    """Print the CUDA_HOME of the toolkit that `--toolkit VERSION` takes, for scripts."""
    root = SystemRoot()
    nvccs = candidates(root, os.environ, wanted=version, site_folders=site_folders(os.environ))
    found = find_toolkit(nvccs, os.environ, wanted=version, run=run_captured)
    print_answer(found.home, one_line(found.home), json=json)


@app.command("remove")
def remove(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="As in `toolkit list`: cuda-13.0.88-x86_64, or its version.")
    ],
    into: Into = "",
    json: JsonOption = False,
) -> None:
    """Remove a managed toolkit. Its wheels stay in the cache; other kinds of toolkits are not touched."""
    folder = Path(os.path.abspath(os.path.expanduser(into))) if into else _managed()
    home = managed.named(folder, name)
    try:
        with managed.locked(folder, _say):
            managed.remove(home)
    except OSError as error:
        raise FolderNotWritableError(
            f"cannot remove {home}: {error.strerror or error}", hint=f"rm -r {shlex.quote(str(home))}"
        ) from error
    print_answer(Removed(removed=str(home)), f"removed {one_line(str(home))}", json=json)


def _say(text: str) -> None:
    print_notes([f"builddoctor: {text}"])


def _managed() -> Path:
    folder = managed_folder(SystemRoot(), os.environ)
    if folder is None:
        raise FolderNotWritableError("there is no HOME to keep toolkits in", hint=managed.INTO_HINT)
    return folder


def _wheels(folder: Path) -> Path:
    """The cache; beside the toolkits where that cannot be written."""
    wheels = cache_folder(os.environ) / "wheels"
    try:
        managed.make_folder(wheels)
    except FolderNotWritableError:
        return folder / ".builddoctor-wheels"
    return wheels


def _arch(text: str) -> Literal["x86_64", "aarch64"]:
    name = {"arm64": "aarch64", "sbsa": "aarch64", "amd64": "x86_64"}.get(text.lower(), text) or machine_name()
    if name not in TRIPLES:
        raise UsageError(f"--arch {name}: NVIDIA has packages for x86_64 and aarch64", hint="--arch aarch64")
    return cast("Literal['x86_64', 'aarch64']", name)
