"""Folders of ours: cache (overlays), state (traces), and the run's own with its socket.

BUILDDOCTOR_CACHE_DIR and BUILDDOCTOR_STATE_DIR name others. Does *not* cover: what is put there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from builddoctor.errors import FolderNotWritableError

LONGEST_SOCKET_PATH = 100
"""The kernel takes 107 bytes."""


def cache_folder(env: Mapping[str, str]) -> Path:
    """Where overlays lie: stable, so that a second build is incremental."""
    return Path(env.get("BUILDDOCTOR_CACHE_DIR") or platformdirs.user_cache_path("builddoctor")).absolute()


def stages_folder(cache: Path) -> Path:
    """What runs staged builds, and their stages: stable, as CMake keeps the path of its ninja."""
    return cache / "staged"


def traces_folder(env: Mapping[str, str]) -> Path:
    """Where traces go that were given no file."""
    state = env.get("BUILDDOCTOR_STATE_DIR") or platformdirs.user_state_path("builddoctor")
    return Path(state).absolute() / "traces"


def history_file(env: Mapping[str, str]) -> Path:
    """What earlier builds took; beside the folder of traces."""
    return traces_folder(env).parent / "history.sqlite"


def trace_file(env: Mapping[str, str], named: str, trace_id: str, stamp: str) -> Path:
    """The trace's path; its folder is made when it is ours, not when the user named it."""
    if named:
        return Path(named).absolute()
    folder = traces_folder(env)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderNotWritableError(
            f"cannot make the folder for traces, {folder}: {error.strerror}",
            hint="name a file, `--trace build.jsonl`, or another folder, `export BUILDDOCTOR_STATE_DIR=/some/folder`",
        ) from error
    return folder / f"{stamp}-{trace_id}.jsonl"


def run_folder(env: Mapping[str, str]) -> Path:
    """A new folder for this run, for this user alone (0700), with a path short enough for a socket in it."""
    problem: OSError | None = None
    for parent in (env.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp", "/dev/shm"):  # noqa: S108
        if parent and os.path.isabs(parent) and len(parent) + len("/builddoctor-12345678/socket") < LONGEST_SOCKET_PATH:
            try:
                return Path(tempfile.mkdtemp(prefix="builddoctor-", dir=parent))
            except OSError as error:
                problem = error
    raise FolderNotWritableError(
        f"no folder for the build's socket can be made: {problem.strerror if problem else 'all paths are too long'}",
        hint="name one: `export XDG_RUNTIME_DIR=/some/folder`",
    )
