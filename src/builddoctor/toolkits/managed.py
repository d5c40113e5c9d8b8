"""The folder of managed toolkits: manifests, lock, room on its disk, putting one in place and taking one away.

One folder each, ``cuda-13.0.88-x86_64``, that appears whole or not at all. Names that begin with ``.builddoctor-`` are
for what is being made or taken away; what an interrupted run left there is removed when the lock is held next.
Does *not* cover: what lies in a toolkit (``toolkits.layout``), quotas that the kernel does not tell.
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
from typing import Literal

import msgspec
from packaging.version import InvalidVersion, Version

from builddoctor.core.errors import DiskFullError, FolderNotWritableError, ToolkitNotFoundError
from builddoctor.core.units import format_mib
from builddoctor.system.root import SystemRoot
from builddoctor.system.storage import read_place

MANIFEST = "builddoctor-toolkit.json"
INTO_HINT = "name a folder that you may write to: --into /some/folder, or export BUILDDOCTOR_DATA_DIR=/some/folder"
LOCK = ".builddoctor-lock"
NEW, OLD, FETCH = ".builddoctor-new-", ".builddoctor-old-", ".builddoctor-fetch-"
"""Beginnings of names; with our own in them, for the folder may be one that the user has other things in."""

SPARE_MIB = 16.0
"""left free for links, folders and blocks that are not full"""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_AT_FDCWD, _EXCHANGE = -100, 2

Arch = Literal["x86_64", "aarch64"]


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """One of NVIDIA's packages, as it was merged in."""

    name: str
    version: str
    file: str
    """name of the wheel"""
    sha256: str
    """of the wheel"""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in a managed toolkit, as ``builddoctor-toolkit.json`` there."""

    schema: int = 1
    name: str
    """``cuda-13.0.88-x86_64``: its folder"""
    version: str
    """nvcc's"""
    release: str
    """the toolkit's release that pins the packages: ``13.0.3.0``"""
    arch: Arch
    components: tuple[str, ...]
    """what ``--with`` asked for, since it was first installed"""
    packages: tuple[Package, ...]


class _Version(msgspec.Struct, frozen=True):
    name: str
    version: str


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
    """Take one away, with the lock held. Raises OSError when it cannot even be renamed."""
    old = home.with_name(f"{OLD}{home.name}")
    home.rename(old)
    shutil.rmtree(old, ignore_errors=True)


def write_manifest(home: Path, manifest: Manifest) -> None:
    """NVIDIA's ``version.json``, which some build systems read, and ours. Raises OSError."""
    release = ".".join(manifest.release.split(".")[:3])
    versions = {"cuda": _Version("CUDA SDK", release)}
    for package in manifest.packages:
        key = package.name.removeprefix("nvidia-").replace("-", "_")
        title = package.name.removeprefix("nvidia-").replace("-", " ")
        versions[key] = _Version(title, package.version)
    (home / "version.json").write_bytes(msgspec.json.format(msgspec.json.encode(versions), indent=3) + b"\n")
    (home / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def read_manifest(home: Path) -> Manifest | None:
    """None for a folder that is no managed toolkit, or one whose manifest cannot be read."""
    try:
        return msgspec.json.decode((home / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def check_room(folder: Path, wheels: Path, *, fetch_mib: float, disk_mib: float) -> None:
    """``folder`` of the toolkits and the cache, on one disk or two. Raises DiskFullError."""
    if os.stat(folder).st_dev == os.stat(wheels).st_dev:
        both = f"{format_mib(fetch_mib)} to fetch and {format_mib(disk_mib)} for it"
        require(folder, fetch_mib + disk_mib, both)
    else:
        require(wheels, fetch_mib, f"{format_mib(fetch_mib)} to fetch")
        require(folder, disk_mib, f"{format_mib(disk_mib)} for it")


def require(folder: Path, need_mib: float, what: str) -> None:
    """``what`` says the need in words. Raises DiskFullError."""
    left_mib = free_mib(folder)
    if left_mib is not None and left_mib < need_mib + SPARE_MIB:
        raise DiskFullError(
            f"no room for the toolkit: about {what}, and {format_mib(left_mib)} free in {folder}",
            hint="--into a folder on another disk; BUILDDOCTOR_CACHE_DIR says where wheels are kept",
        )


def free_mib(folder: Path) -> float | None:
    """What is left; None when the disk does not say."""
    return read_place(SystemRoot(), folder, role="toolkits").free_mib


@contextlib.contextmanager
def full_disk_said(folder: Path) -> Iterator[None]:
    """Errors of the system inside, as ours: a full disk, or a folder that cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DiskFullError(
                f"the disk is full: nothing installed in {folder}", hint="--into a folder on another disk"
            ) from error
        raise FolderNotWritableError(
            f"nothing installed in {folder}: {error.strerror or error}", hint=INTO_HINT
        ) from error


def _manifest(folder: Path, name: str) -> Manifest | None:
    manifest = None if name.startswith(".") else read_manifest(folder / name)
    return manifest if manifest is not None and manifest.name == name else None


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")
