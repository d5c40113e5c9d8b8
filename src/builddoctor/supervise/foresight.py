"""The doctor's short look before a build: what is worth a warning, and what cannot succeed.

Covers: choosing the checks that matter now, stopping a build in a second that would fail after minutes, and TMPDIR as
``doctor --fix`` settled it.
Does *not* cover: the checks themselves (``doctor``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from builddoctor.doctor.examine import Question, examine_briefly
from builddoctor.doctor.subject import Subject, is_project, subject_of
from builddoctor.errors import BuildImpossibleError
from builddoctor.model.check import Check, Status
from builddoctor.model.request import RunRequest
from builddoctor.model.toolkit import Toolkit
from builddoctor.projects.archs import parse_archs
from builddoctor.projects.build_commands import builds_folder
from builddoctor.render.checks import brief_lines
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.toolkits import lost_homes
from builddoctor.supervise.fixing import remembered_tmpdir
from builddoctor.supervise.folders import standing_in
from builddoctor.supervise.prepare import site_folders
from builddoctor.supervise.recipe_choice import ChosenRecipe
from builddoctor.supervise.remedying import tmpdir_on_disk

STOPS_ANY_COMMAND = frozenset(("memory-limit",))
"""With ``run`` nobody knows what the command needs."""

STOPS_BUILD_COMMANDS = frozenset(("nvcc-arch", "submodules"))
"""These stop a command that builds the project of the folder that it is started in: not `git submodule update`."""

QUIET = frozenset(("memory-held", "cores-memory", "python-version", "libraries"))
"""Worth a line to somebody who asks, not before every build."""


class Foresight(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen before the build."""

    env: Mapping[str, str]
    """the environment to build in"""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    recipe: ChosenRecipe | None = None
    """what the build goes by, beside its history"""


def settle_environment(
    env: Mapping[str, str], root: SystemRoot, *, own_homes: bool = False, remedy_for: str = ""
) -> Foresight:
    """The environment of the build: TMPDIR moved where ``doctor --fix`` settled that, and said so.

    ``own_homes``: CUDA_HOME and CUDA_PATH go where they name no toolkit; the build gets one of ours. Not with ``run``,
    whose command may be what puts a toolkit there. ``remedy_for``: the build's folder, with ``--auto-remedy``.
    """
    notes: list[str] = []
    moved = remembered_tmpdir(env, root)
    if moved:
        env = {**env, "TMPDIR": moved}
        notes.append(f"temporary files go to {moved}, as `doctor --fix` settled it")
    elif remedy_for and (moved := tmpdir_on_disk(env, root, build_folder=remedy_for)):
        was = env.get("TMPDIR") or "/tmp"  # noqa: S108
        env = {**env, "TMPDIR": moved}
        notes.append(
            f"temporary files go to {moved}: {was} is in memory, and counts against its limit (`--auto-remedy`)"
        )
    if elsewhere := standing_in(env):
        notes.append(elsewhere)
    for name in lost_homes(env) if own_homes else ():
        notes.append(f"no CUDA toolkit is where {name}={env[name]} points: this build does without it")
        env = {key: value for key, value in env.items() if key != name}
    return Foresight(env=env, notes=tuple(notes))


def look_ahead(request: RunRequest, env: Mapping[str, str], root: SystemRoot, toolkit: Toolkit | None) -> list[str]:
    """Warnings, a line each. Raises BuildImpossibleError when the build cannot succeed."""
    folder = Path(request.cwd)
    archs = parse_archs(",".join(request.archs)) if request.archs else ()
    subject = subject_of(folder, archs) if is_project(folder) else Subject(archs=archs)
    report = examine_briefly(
        root,
        env,
        Question(
            subject=subject,
            wanted_toolkit=request.toolkit,
            known_toolkit=toolkit,
            memory_mib=request.memory_mib,
            site_folders=site_folders(env),
        ),
        with_tools=request.need_toolkit,
    )
    fatal = [check for check in report.checks if check.stops_build and _applies(check, request)]
    if fatal:
        raise BuildImpossibleError(
            f"this build cannot succeed (`--no-doctor` tries it): {'; '.join(check.text for check in fatal)}",
            hint=fatal[0].hint or "`builddoctor doctor` shows the whole page",
        )
    told = [check for check in report.checks if check.status is not Status.OK and check.name not in QUIET]
    return brief_lines(told)


def _applies(check: Check, request: RunRequest) -> bool:
    if request.need_toolkit or check.name in STOPS_ANY_COMMAND:
        return True
    return check.name in STOPS_BUILD_COMMANDS and builds_folder(request.command, request.cwd)
