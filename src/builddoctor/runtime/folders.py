"""Folders of ours: cache (overlays), state (traces), and the run's own with its socket; and those of Python's packages.

BUILDDOCTOR_CACHE_DIR and BUILDDOCTOR_STATE_DIR name others. Where HOME cannot be written (containers, jobs) and none is
named, both lie in a folder of the user's own among the temporary files.
Does *not* cover: what is put there, or TMPDIR (``runtime.tmpdir``).
"""

from __future__ import annotations

import glob
import os
import site
import stat
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from builddoctor.core.errors import FolderNotWritableError
from builddoctor.system.probes import first_program
from builddoctor.system.root import SystemRoot
from builddoctor.system.user_folders import HeldFolder, usual_folder

LONGEST_SOCKET_PATH = 100
"""The kernel takes 107 bytes."""


def cache_folder(env: Mapping[str, str]) -> Path:
    """Where overlays lie: stable, so that a second build is incremental."""
    named = env.get("BUILDDOCTOR_CACHE_DIR")
    return Path(named).absolute() if named else _writable(env, usual_folder("cache"), "cache")


def stages_folder(cache: Path) -> Path:
    """What runs staged builds, and their stages: stable, as CMake keeps the path of its ninja."""
    return cache / "staged"


def traces_folder(env: Mapping[str, str]) -> Path:
    """Where traces go that were given no file."""
    named = env.get("BUILDDOCTOR_STATE_DIR")
    state = Path(named).absolute() if named else _writable(env, usual_folder("state"), "state")
    return state / "traces"


def standing_in(env: Mapping[str, str]) -> str:
    """Where cache and traces go because HOME cannot be written, for a person; empty where it can."""
    ours = _ours(env)
    usual = (("cache", "CACHE", cache_folder(env)), ("traces", "STATE", traces_folder(env)))
    moved = [(what, f"BUILDDOCTOR_{name}_DIR") for what, name, folder in usual if folder.is_relative_to(ours)]
    if not moved:
        return ""
    what, names = (" and ".join(each) for each in zip(*moved, strict=True))
    return f"HOME cannot be written: {what} go to {ours} ({names} {'name' if len(moved) > 1 else 'names'} another)"


def _writable(env: Mapping[str, str], usual: Path, kind: str) -> Path:
    """The usual folder; one among the temporary files where that cannot be made or written, and the other can."""
    usual = usual.absolute()
    if _can_write(usual):
        return usual
    ours = _ours(env)
    try:
        make_own(ours)
    except FolderNotWritableError:
        return usual
    return ours / kind


def make_own(folder: Path) -> None:
    """Make ``folder`` for this user alone, or see that it is so: in /var/tmp another user may have made it first."""
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


def _ours(env: Mapping[str, str]) -> Path:
    return Path(env.get("TMPDIR") or _temporary_folder()).absolute() / f"builddoctor-of-{os.geteuid()}"


def _temporary_folder() -> str:
    """Where the root is read-only whole, what uses it says so."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return "/tmp"  # noqa: S108 - it cannot be written


def _can_write(folder: Path) -> bool:
    """It, or the nearest above it that exists."""
    there = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), Path("/"))
    return os.access(there, os.W_OK | os.X_OK)


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


def run_folder(env: Mapping[str, str], root: SystemRoot) -> HeldFolder:
    """A new folder for this run, with a path short enough for a socket in it."""
    problem: OSError | None = None
    for parent in (env.get("XDG_RUNTIME_DIR"), _temporary_folder(), "/tmp", "/dev/shm"):  # noqa: S108
        if parent and os.path.isabs(parent) and len(parent) + len("/builddoctor-12345678/socket") < LONGEST_SOCKET_PATH:
            try:
                return HeldFolder(parent, "builddoctor-", root)
            except OSError as error:
                problem = error
    raise FolderNotWritableError(
        f"no folder for the build's socket can be made: {problem.strerror if problem else 'all paths are too long'}",
        hint="name one: `export XDG_RUNTIME_DIR=/some/folder`",
    )


def site_folders(env: Mapping[str, str]) -> list[Path]:
    """Where pip puts CUDA's packages: for the build's Python, the first on PATH; for this one; and for this user.

    Not sys.path: that holds the current folder too, and what PYTHONPATH names, which may be a source tree.
    """
    named = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    python = first_program("python", env) or first_program("python3", env)
    if python:
        # Not asked but guessed: nothing is started here, and a virtual environment has it nowhere else.
        libraries = glob.escape(os.path.dirname(os.path.dirname(python)))
        named[:0] = sorted(glob.glob(f"{libraries}/lib/python3*/site-packages"))
    return [Path(folder) for folder in dict.fromkeys([*named, site.getusersitepackages()]) if os.path.isabs(folder)]
