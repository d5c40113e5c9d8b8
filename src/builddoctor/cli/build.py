"""``builddoctor build PATH``: find out how a project is built, and supervise that."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from builddoctor.cli import options
from builddoctor.cli.output import print_data, print_notes
from builddoctor.cli.supervised import run_supervised
from builddoctor.projects.archs import arch_environment, parse_archs
from builddoctor.projects.detect import find_project


def build(
    project: Annotated[Path, typer.Argument(metavar="PATH", help="Folder of the project's checkout.")],
    arch: options.Archs = "",
    memory: options.Memory = "",
    cores: options.Cores = 0,
    toolkit: options.ToolkitOption = "",
    trace: options.TraceFile = "",
    summary: options.SummaryFile = "",
    wheel_dir: Annotated[
        Path | None, typer.Option("--wheel-dir", metavar="DIR", help="Where a Python project's wheel goes.")
    ] = None,
    ignore_caps: options.IgnoreCaps = False,
    auto_remedy: options.AutoRemedy = False,
    no_doctor: options.NoDoctor = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command that would run, and stop.")] = False,
) -> int:
    """Build a project: a Python project (setup.py, pyproject.toml), a CMake project, or a folder with build.ninja."""
    archs = parse_archs(arch) if arch else ()
    wheels = wheel_dir.absolute() if wheel_dir is not None else None
    found = find_project(project, archs, os.environ, wheels)
    if dry_run:
        settings = [f"{name}={shlex.quote(value)}" for name, value in arch_environment(archs).items()]
        print_data(" ".join([*settings, shlex.join(found.command)]))
        return 0
    request = options.make_request(
        found.command,
        cwd=found.path,
        title=found.name,
        archs=archs,
        memory=memory,
        cores=cores,
        toolkit=toolkit,
        trace=os.path.abspath(trace) if trace else "",
        summary=summary,
        ignore_caps=ignore_caps,
        no_doctor=no_doctor,
        auto_remedy=auto_remedy,
        need_toolkit=True,
    )
    code = run_supervised(request)
    if code == 0 and found.kind == "python":
        newest = max(Path(found.output).glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime_ns, default=None)
        print_notes([f"  wheel   {newest}"] if newest is not None else [])
    return code
