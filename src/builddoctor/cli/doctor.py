"""``builddoctor doctor [PROJECT|PATH]``: examine host, toolchain and source before the build."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from builddoctor.cli import options
from builddoctor.cli.options import archs_of
from builddoctor.cli.output import JsonOption, json_text, print_data, print_notes
from builddoctor.core.check import Report, Status
from builddoctor.core.errors import UsageError
from builddoctor.core.units import one_line, parse_size_mib
from builddoctor.doctor.examine import Question, Subject, current_folder, examine, find_subject
from builddoctor.doctor.memory_checks import HeavyPhase
from builddoctor.runtime import fixing
from builddoctor.runtime.folders import cache_folder, site_folders, traces_folder
from builddoctor.runtime.prepare import last_peak_mib
from builddoctor.runtime.recipe_use import heavy_by_recipe
from builddoctor.runtime.tmpdir import remembered_tmpdir
from builddoctor.system.root import SystemRoot
from builddoctor.ui.doctor_page import check_lines, styled, verdict_line

EXIT_CODES = {Status.OK: 0, Status.WARNING: 1, Status.PROBLEM: 2}
"""By the worst finding."""


def doctor(
    project: Annotated[
        str | None,
        typer.Argument(
            metavar="PROJECT|PATH",
            show_default=False,
            help="The name of a project, or a folder.  [default: this folder]",
        ),
    ] = None,
    arch: options.Archs = "",
    memory: options.Memory = "",
    toolkit: options.ToolkitOption = "",
    json: JsonOption = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Show the fixes that are safe to apply, and apply them after confirmation.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --fix: apply them without confirmation.")] = False,
) -> int:
    """Check memory, disk, toolchain and source before a build. Reads only; needs no root and no network.

    The exit code is 0 without findings, 1 if the worst finding is a warning, 2 if it is a problem.

    \b
    Examples:
      builddoctor doctor                            # this machine, and the project of this folder
      builddoctor doctor flash_attn --arch gb200
      builddoctor doctor --fix
    """
    env = os.environ
    if yes and not fix:
        raise UsageError("--yes needs --fix", hint="builddoctor doctor --fix --yes")
    subject = find_subject(project, current_folder(), archs_of(arch, os.environ))
    root = SystemRoot()
    question = Question(
        subject=subject,
        wanted_toolkit=toolkit,
        memory_mib=parse_size_mib(memory) if memory else None,
        site_folders=site_folders(env),
        cache=cache_folder(env),
        traces=traces_folder(env),
        traced_mib=last_peak_mib(env, subject.folder) if subject.folder is not None else None,
        by_recipe=_by_recipe(subject, env),
    )
    report = examine(root, env, question)
    if json:
        print_data(json_text(report, pretty=True))
    else:
        _page(subject, report)
    if fix and _fix(report, subject, root, yes=yes):
        moved = remembered_tmpdir(env, root)
        report = examine(root, {**env, "TMPDIR": moved} if moved else env, question)
        print_notes([f"builddoctor: now: {verdict_line(report.checks)}"])
    return EXIT_CODES[report.status]


def _by_recipe(subject: Subject, env: Mapping[str, str]) -> HeavyPhase | None:
    if subject.known is None:
        return None
    return heavy_by_recipe(subject.known.name, subject.folder, [arch.sm for arch in subject.archs], env)


def _page(subject: Subject, report: Report) -> None:
    about = " · ".join(part for part in (subject.title, *report.archs) if part)
    lines = [f"builddoctor doctor{'  ' + one_line(about) if about else ''}", ""]
    lines += check_lines(report.checks, width=shutil.get_terminal_size((100, 24)).columns)
    lines += ["", verdict_line(report.checks)]
    # Colour on a terminal only, and none with NO_COLOR; a hint is never wrapped.
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(styled(line))


def _fix(report: Report, subject: Subject, root: SystemRoot, *, yes: bool) -> bool:
    """Preview on stderr; then, after a yes, one after the other. True when something was done."""
    fixes = fixing.plan(report.checks, os.environ, root, project=subject.folder or current_folder() or Path("/"))
    if not fixes:
        print_notes(["builddoctor: there is nothing that can be fixed safely"])
        return False
    print_notes(["builddoctor would:", *(f"  {line}" for fix in fixes for line in fix.preview.splitlines())])
    if not any(fix.possible for fix in fixes) or not (yes or _asked()):
        return False
    applied = [fixing.apply(fix, os.environ) for fix in fixes if fix.possible]
    print_notes(f"builddoctor: {each.text}" for each in applied)
    return any(each.done for each in applied)


def _asked() -> bool:
    """A yes from a terminal; without one, what to add."""
    if not sys.stdin.isatty():
        print_notes(["builddoctor: nothing was changed; `--fix --yes` applies the fixes"])
        return False
    print("do it? [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201
    return sys.stdin.readline().strip().lower() in ("y", "yes")
