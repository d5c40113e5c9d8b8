"""The folder of managed toolkits: names, lock, what is there, taking one away.

One folder each, ``cuda-13.0.88-x86_64``, that appears whole or not at all. Names that begin with ``.builddoctor-`` are
for what is being made or taken away; what an interrupted run left there goes when the lock is held next.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from packaging.version import InvalidVersion, Version

from builddoctor.errors import FolderNotWritableError, ToolkitNotFoundError
from builddoctor.model.managed import Manifest
from builddoctor.toolkits.layout import read_manifest

INTO_HINT = "name a folder that you may write to: --into /some/folder, or export BUILDDOCTOR_DATA_DIR=/some/folder"
LOCK = ".builddoctor-lock"
NEW, OLD, FETCH = ".builddoctor-new-", ".builddoctor-old-", ".builddoctor-fetch-"
"""Beginnings of names; with our own in them, for the folder may be one that the user has other things in."""
_AT_FDCWD, _EXCHANGE = -100, 2


def make_folder(folder: Path, *, hint: str = INTO_HINT) -> None:
    """Raises FolderNotWritableError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        problem = "" if os.access(folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
        if not problem and os.statvfs(folder).f_flag & os.ST_RDONLY:
            problem = os.strerror(errno.EROFS)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise FolderNotWritableError(f"cannot write to {folder}: {problem}", hint=hint)


@contextlib.contextmanager
def locked(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Alone in ``folder``; the kernel gives the lock back when we die. Waits for another, and says so."""
    try:
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise FolderNotWritableError(f"cannot write to {folder}: {error.strerror}", hint=INTO_HINT) from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waits for another installation in {folder}")
            fcntl.flock(fd, fcntl.LOCK_EX)
        for name in os.listdir(folder):
            if name.startswith((NEW, OLD, FETCH)):
                shutil.rmtree(folder / name, ignore_errors=True)
        yield
    finally:
        os.close(fd)


def put_in_place(new: Path, home: Path) -> None:
    """``new`` becomes ``home``, at once, whatever was there. Raises OSError."""
    if not home.exists():
        new.rename(home)
        return
    old = home.with_name(f"{OLD}{home.name}")
    # Exchanged in one step: a build that runs with it finds every path at every moment.
    libc = ctypes.CDLL(None, use_errno=True)
    exchange = getattr(libc, "renameat2", None)
    if exchange is None or exchange(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(home), _EXCHANGE):
        home.rename(old)
        new.rename(home)
    else:
        new.rename(old)
    shutil.rmtree(old, ignore_errors=True)


def manifests(folder: Path) -> list[tuple[Path, Manifest]]:
    """Every managed toolkit in ``folder``, the newest first."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    found = [(folder / name, manifest) for name in names if (manifest := _manifest(folder, name)) is not None]
    return sorted(found, key=lambda one: (_version(one[1].version), one[1].arch), reverse=True)


def named(folder: Path, name: str) -> Path:
    """The one toolkit that is called so, or has this version. Raises ToolkitNotFoundError."""
    every = manifests(folder)
    found = [path for path, manifest in every if name in (manifest.name, str(path))]
    found = found or [path for path, manifest in every if f"{manifest.version}.".startswith(f"{name}.")]
    if len(found) == 1:
        return found[0]
    names = ", ".join(manifest.name for _, manifest in every) or "none"
    what = f"{name} is the name of {len(found)} toolkits" if found else f"no managed toolkit {name}"
    raise ToolkitNotFoundError(f"{what}: there are {names} in {folder}", hint="builddoctor toolkit list")


def remove(home: Path) -> None:
    """Take one away; who holds the lock calls it. Raises OSError when it cannot even be renamed."""
    old = home.with_name(f"{OLD}{home.name}")
    home.rename(old)
    shutil.rmtree(old, ignore_errors=True)


def _manifest(folder: Path, name: str) -> Manifest | None:
    manifest = None if name.startswith(".") else read_manifest(folder / name)
    return manifest if manifest is not None and manifest.name == name else None


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")
