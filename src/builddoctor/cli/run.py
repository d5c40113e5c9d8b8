"""``builddoctor run -- COMMAND…``: supervise any build command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from builddoctor.cli import options
from builddoctor.cli.archs import archs_of
from builddoctor.cli.supervised import run_supervised
from builddoctor.errors import UsageError
from builddoctor.trace.masking import mask_argv
from builddoctor.units import printable


def run(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND…", show_default=False, help="The build command, after `--`.")
    ] = None,
    arch: options.Archs = "",
    recipe: options.RecipeOption = "",
    strategy: options.StrategyOption = "gated",
    memory: options.Memory = "",
    cores: options.Cores = 0,
    toolkit: options.ToolkitOption = "",
    trace: options.TraceFile = "",
    summary: options.SummaryFile = "",
    ignore_caps: options.IgnoreCaps = False,
    auto_remedy: options.AutoRemedy = False,
    no_doctor: options.NoDoctor = False,
) -> int:
    """Supervise any build command: ninja, cmake --build, pip install, python setup.py …

    The command runs as it is, in this folder; its exit code is passed through unchanged.
    """
    if not command or not command[0]:
        raise UsageError("no command to run", hint="it goes after `--`: `builddoctor run -- ninja -C build`")
    named_recipe = options.named_recipe(recipe)
    request = options.make_request(
        tuple(command),
        cwd=Path.cwd(),
        title=printable(" ".join(mask_argv([os.path.basename(command[0]), *command[1:]])))[:60],
        archs=archs_of(arch, os.environ),
        memory=memory,
        cores=cores,
        toolkit=toolkit,
        trace=trace,
        summary=summary,
        ignore_caps=ignore_caps,
        no_doctor=no_doctor,
        auto_remedy=auto_remedy,
        need_toolkit=False,
        recipe=recipe,
        strategy=strategy,
    )
    if strategy == "staged":
        # Only here: with what it imports every build would start later.
        from builddoctor.cli.staging import staged_request

        request = staged_request(request, os.environ)
    return run_supervised(request, named_recipe=named_recipe)
