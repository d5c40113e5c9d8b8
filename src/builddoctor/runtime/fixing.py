"""Fixes of ``doctor --fix``: planned against this machine, and applied.

Covers: ``plan`` and ``apply`` for the command line. git in a checkout of unknown origin starts nothing that came with
it: it is found on PATH outside of the project, and settings on its command line outdo the checkout's own, in its
submodules too (git hands ``-c`` on to the gits it starts). Tried with git 2.39.
Does *not* cover: asking the user, printing (``cli``), deciding what is wrong (``doctor``); what later builds do with
another TMPDIR (``runtime.tmpdir``); settings that the user may need from elsewhere and that cannot be outdone (an ssh
command, filters): with those in the checkout, nothing is run (``projects.git_checkout``). git itself refuses ``update
= !command`` in a .gitmodules (CVE-2019-19604), and ``ext::`` addresses where they are not allowed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from builddoctor.core.check import Check, FixName
from builddoctor.core.errors import BuildDoctorError
from builddoctor.doctor.fixes import Fix, plan_fixes
from builddoctor.gates.subprocesses import run_streamed
from builddoctor.projects.git_checkout import checkout_of, program_settings
from builddoctor.runtime.folders import make_own
from builddoctor.runtime.tmpdir import Settings, tmpdir_places, write_settings
from builddoctor.system.probes import path_folders, programs
from builddoctor.system.root import SystemRoot
from builddoctor.system.storage import read_place


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
    asked_tmpdir = any(check.fix == FixName.TMPDIR for check in checks)
    checkout = checkout_of(project)
    asked = checkout is not None and any(check.fix == FixName.SUBMODULES for check in checks)
    return plan_fixes(
        checks,
        tmpdir_places(env, root, build_folder=str(build)) if asked_tmpdir else (),
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


OVERRIDES = (
    "core.fsmonitor=",
    "core.hooksPath=/dev/null",
    "core.askPass=",
    "protocol.ext.allow=never",
)
"""Each can be a program's name in a configuration that came with the checkout; a fetch needs none of them."""


def find_program(name: str, env: Mapping[str, str], *, project: Path) -> str:
    """The first on PATH that does not lie in the project or the current folder; empty without one."""
    trees = _trees(project, home=env.get("HOME", ""))
    for path in programs(name, env):
        places = (os.path.normpath(path), os.path.realpath(path))
        if not any(_is_below(place, tree) for place in places for tree in trees):
            return path
    return ""


def careful_command(git: str, arguments: Sequence[str]) -> list[str]:
    """The command line of this git with the checkout's own settings outdone."""
    return [git, *(word for setting in OVERRIDES for word in ("-c", setting)), *arguments]


def careful_environment(env: Mapping[str, str]) -> dict[str, str]:
    """git may not ask for a name or password; ssh has no terminal to ask on, and no window to open.

    git looks for sh, sed and ssh on PATH, from the folder of the checkout: an entry that stands for it is left out.
    """
    folders = ":".join(path_folders(env))
    return {**env, "PATH": folders, "GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never"}


def _trees(project: Path, *, home: str) -> list[str]:
    """Project and current folder; not where that is the home folder or above, which may well have programs below."""
    named = [str(checkout_of(project) or project), str(project)]
    # It may have been deleted.
    with contextlib.suppress(OSError):
        named.append(os.getcwd())
    home = os.path.realpath(home or "/")
    return [tree for tree in map(os.path.realpath, named) if not _is_below(home, tree)]


def _is_below(path: str, tree: str) -> bool:
    return path == tree or path.startswith(tree.rstrip("/") + "/")
