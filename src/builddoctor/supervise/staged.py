"""A build in stages, without gates: a program in front of ninja runs one stage after the other (``render.staged``).

Covers: what such a build is started with, and what is said of it. The guardian, the sampler and its pauses for what no
gate asked for are the same as ever (``supervise.pausing``); nothing asks before it starts.
Does *not* cover: working the stages out, and putting the programs where they lie (``cli.staging``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from builddoctor.intercept.environment import SOCKET, UNIT
from builddoctor.intercept.fronts import NINJA_NAMES
from builddoctor.model.request import RunRequest
from builddoctor.supervise.prepare import Prepared, is_front_by_path
from builddoctor.supervise.session import Session

MARK = "ran-in-stages"
"""In the run's folder: made by the first ninja that found its stages."""

WHY_PAUSED = "a staged build has no gates, where it would have waited for its memory before it started"


def staged_environment(
    base: Mapping[str, str], request: RunRequest, prepared: Prepared, *, run_folder: Path
) -> dict[str, str]:
    """``base`` with the stages in it, and the toolkit where ``base`` would not find it. Jobs are left to the user."""
    env = dict(base)
    for inner in (SOCKET, UNIT, "BUILDDOCTOR_HELD"):
        env.pop(inner, None)
    folders = [f"{prepared.host}/bin", *filter(None, (base.get("PATH") or os.defpath).split(":"))]
    toolkit = prepared.toolkit
    if toolkit is not None:
        env.setdefault("CUDA_HOME", toolkit.home)
        # At the end: a toolkit in /usr/bin or in a conda prefix must not bring its python along.
        folders.append(toolkit.here)
        for name in ("CUDACXX", "PYTORCH_NVCC"):
            if request.toolkit or not env.get(name):
                env[name] = toolkit.nvcc
    if prepared.fallback_folder:
        folders.append(prepared.fallback_folder)
    env["PATH"] = ":".join(dict.fromkeys(folders))
    env["BUILDDOCTOR_STAGES"] = request.stages
    env["BUILDDOCTOR_STAGES_MARK"] = str(run_folder / MARK)
    if request.keep_going:
        env["BUILDDOCTOR_STAGES_KEEP_GOING"] = "1"
    if is_front_by_path(request.command) and os.path.basename(request.command[0]) in NINJA_NAMES:
        env["BUILDDOCTOR_REAL_NINJA"] = os.path.abspath(request.command[0])
    return env


def command_of(request: RunRequest, prepared: Prepared) -> tuple[str, ...]:
    """The build command; a ninja, cmake or make that is called by a path, through what stands in front of it."""
    command = request.command
    if not is_front_by_path(command):
        return command
    name = os.path.basename(command[0])
    if request.stages:
        return (f"{prepared.host}/bin/ninja", *command[1:]) if name in NINJA_NAMES else command
    return (f"{prepared.host}/bin/{name}", *command[1:])


def tell_if_unstaged(request: RunRequest, session: Session, *, run_folder: Path) -> None:
    """At the end: the build has called no ninja that knew of its stages."""
    if request.stages and not (run_folder / MARK).exists():
        session.tell(
            "no stage was run: the build called no ninja from PATH, or one whose build.ninja has none of the recipe's "
            "targets, so nothing kept its memory; leave `--strategy staged` out to build with gates",
            warning=True,
        )
