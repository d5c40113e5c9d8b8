"""Fixes of ``doctor --fix``: planned against this machine, applied, and honoured by later builds.

Covers: ``plan`` and ``apply`` for the command line, ``remembered_tmpdir`` for the start of a build.
Does *not* cover: asking the user, printing (``cli``), deciding what is wrong (``doctor``).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from builddoctor.doctor.fixes import SUBMODULES_FIX, Fix, plan_fixes, tmpdir_candidates
from builddoctor.doctor.storage import TMPDIR_FIX
from builddoctor.doctor.tmpdirs import unfit
from builddoctor.errors import BuildDoctorError, FolderNotWritableError
from builddoctor.intercept.streamed import run_streamed
from builddoctor.model.check import Check
from builddoctor.model.machine import Place
from builddoctor.sensors.git_settings import program_settings
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.storage import read_place
from builddoctor.sensors.submodules import checkout_of
from builddoctor.supervise.careful_git import careful_command, careful_environment, find_program
from builddoctor.supervise.folders import cache_folder
from builddoctor.supervise.settings import Settings, read_settings, write_settings


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """How a fix went."""

    name: str
    done: bool
    text: str
    """what was done, or what was in the way"""


def plan(
    checks: Sequence[Check],
    env: Mapping[str, str],
    root: SystemRoot,
    *,
    project: Path,
    build_folder: Path | None = None,
) -> list[Fix]:
    """What ``--fix`` would do for these checks. Writes nothing. ``project``: the folder of the sources."""
    build = build_folder or project
    candidates: list[Place] = []
    if any(check.fix == TMPDIR_FIX for check in checks):
        guesses = tmpdir_candidates(env, user=os.geteuid(), build_folder=str(build), cache=str(cache_folder(env)))
        for role, path in guesses:
            above = read_place(root, Path(path).parent, role=role)
            # /scratch/NAME is used where there is one; nobody wants it made. Our cache folder is ours to make.
            if not above.missing or role == "cache":
                candidates.append(read_place(root, path, role=role))
    checkout = checkout_of(project)
    asked = checkout is not None and any(check.fix == SUBMODULES_FIX for check in checks)
    return plan_fixes(
        checks,
        candidates,
        build_device=read_place(root, build, role="build folder").device,
        project=str(project),
        is_git=checkout is not None,
        starts=program_settings(checkout) if asked and checkout is not None else (),
    )


def apply(fix: Fix, env: Mapping[str, str], *, output_fd: int = 2) -> Applied:
    """Do it. What a command says goes to ``output_fd`` as it comes. Never raises BuildDoctorError."""
    if fix.obstacle:
        return Applied(name=fix.name, done=False, text=fix.obstacle)
    if fix.folder:
        return _move_tmpdir(fix, env)
    shown = " ".join(fix.command)
    program = find_program(fix.command[0], env, project=Path(fix.cwd))
    if not program:
        text = f"`{shown}` could not be started: there is no {fix.command[0]} on PATH, outside of the project"
        return Applied(name=fix.name, done=False, text=text)
    command = careful_command(program, fix.command[1:])
    ended = run_streamed(command, env=careful_environment(env), cwd=fix.cwd, output_fd=output_fd)
    if ended.status is None:
        return Applied(name=fix.name, done=False, text=f"`{shown}` could not be started: {ended.problem}")
    text = f"`{shown}` " + ("went well" if ended.status == 0 else f"failed with exit code {ended.status}")
    return Applied(name=fix.name, done=ended.status == 0, text=text)


def remembered_tmpdir(env: Mapping[str, str], root: SystemRoot) -> str:
    """What TMPDIR has to be for a build that starts now; empty to leave it as it is.

    The folder that ``--fix`` settled, made again if somebody cleaned up, and only while the user's own TMPDIR is unfit
    and that folder is not.
    """
    settled = read_settings(env).tmpdir
    if not settled or not unfit(read_place(root, env.get("TMPDIR") or "/tmp", role="TMPDIR")):  # noqa: S108
        return ""
    try:
        if read_place(root, Path(settled).parent, role="TMPDIR").missing:
            # A job's scratch that is gone, a disk that is not mounted: not to be made up.
            return ""
        make_own(Path(settled))
    except FolderNotWritableError:
        return ""
    return "" if unfit(read_place(root, settled, role="TMPDIR")) else settled


def _move_tmpdir(fix: Fix, env: Mapping[str, str]) -> Applied:
    folder = Path(fix.folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        make_own(folder)
        file = write_settings(env, Settings(tmpdir=fix.folder))
    except OSError as error:
        return Applied(name=fix.name, done=False, text=f"cannot make {folder.parent}: {error.strerror}")
    except BuildDoctorError as error:
        return Applied(name=fix.name, done=False, text=str(error))
    text = f"made {folder}; later builds use it (remembered in {file}; delete that file to undo)"
    return Applied(name=fix.name, done=True, text=text)


def make_own(folder: Path) -> None:
    """Make ``folder`` for this user alone, or see that it is already so: in /var/tmp anybody may have been first."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except (OSError, ValueError) as error:
        raise FolderNotWritableError(f"cannot make {folder}: {getattr(error, 'strerror', None) or error}") from error
    try:
        seen = folder.lstat()
    except OSError as error:
        raise FolderNotWritableError(f"cannot look at {folder}: {error.strerror}") from error
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
        raise FolderNotWritableError(
            f"{folder} is not a folder for you alone (0700)",
            hint=f"see who made it: `ls -ld {folder}`",
        )
