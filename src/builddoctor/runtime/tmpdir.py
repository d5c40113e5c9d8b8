"""TMPDIR of a build: nvcc makes files there for any question, and names another cause when it cannot.

Covers: whether it can be used at all; the folder that ``doctor --fix`` settled instead, in one small JSON file of the
state folder; a folder on disk where TMPDIR is in memory.
Does *not* cover: which folders are fit (``doctor.storage_checks``).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from builddoctor.core.errors import FolderNotWritableError
from builddoctor.core.machine import Place
from builddoctor.core.units import printable
from builddoctor.doctor.fixes import tmpdir_candidates
from builddoctor.doctor.storage_checks import best, export_line, unfit
from builddoctor.runtime.folders import cache_folder, make_own, traces_folder
from builddoctor.system.root import SystemRoot
from builddoctor.system.storage import read_place, read_places
from builddoctor.toolchain.discover import FULL_MIB


def require_tmpdir(env: Mapping[str, str], root: SystemRoot) -> None:
    """Raises FolderNotWritableError when nvcc cannot write its temporary files."""
    if any("-objtemp" in env.get(name, "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")):
        # It writes them beside its objects.
        return
    place, *others = read_places(root, env, ())
    what = ""
    if place.missing:
        what = "does not exist"
    elif not place.writable:
        what = "cannot be written"
    elif place.free_mib is not None and place.free_mib < FULL_MIB:
        what = "is full"
    if what:
        elsewhere = [other for other in others if other.role in ("/var/tmp", "home")]  # noqa: S108
        made = place.missing and place.writable and not place.read_only and not os.path.lexists(place.path)
        hint = f"mkdir -p {shlex.quote(place.path)}" if made else export_line(elsewhere)
        raise FolderNotWritableError(f"nvcc cannot write its temporary files: TMPDIR={place.path} {what}", hint=hint)


LARGEST_BYTES = 64 * 1024


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of it. A file of a newer version may hold more: that is left out."""

    tmpdir: str = ""
    """absolute path that replaces an unfit TMPDIR; empty for none"""


def settings_file(env: Mapping[str, str]) -> Path:
    """Beside the folder of traces."""
    return traces_folder(env).parent / "settings.json"


def read_settings(env: Mapping[str, str]) -> Settings:
    """The settings; those of a new user where there is no file, or none that can be read."""
    try:
        with settings_file(env).open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
        settings = msgspec.json.decode(content, type=Settings)
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        return Settings()
    return settings if settings.tmpdir.startswith("/") and settings.tmpdir.isprintable() else Settings()


def write_settings(env: Mapping[str, str], settings: Settings) -> Path:
    """Write the file whole or not at all; its path. Raises FolderNotWritableError."""
    path = settings_file(env)
    try:
        content = msgspec.json.encode(settings) + b"\n"
    except UnicodeEncodeError as error:
        raise FolderNotWritableError(
            f"cannot remember {printable(settings.tmpdir)}: its name is no UTF-8",
            hint="name another folder: `export TMPDIR=/some/folder`",
        ) from error
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix="settings-", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise FolderNotWritableError(
            f"cannot write {path}: {error.strerror}",
            hint="name another folder: `export BUILDDOCTOR_STATE_DIR=/some/folder`",
        ) from error
    return path


def remembered_tmpdir(env: Mapping[str, str], root: SystemRoot) -> str:
    """What TMPDIR has to be for a build that starts now; empty to leave it as it is.

    The folder that ``--fix`` settled, made again if it was removed, and only while the user's own TMPDIR is unfit
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


def tmpdir_places(env: Mapping[str, str], root: SystemRoot, *, build_folder: str) -> list[Place]:
    """Folders that could replace TMPDIR, as they are. Writes nothing."""
    found: list[Place] = []
    for role, path in tmpdir_candidates(
        env, user=os.geteuid(), build_folder=build_folder, cache=str(cache_folder(env))
    ):
        above = read_place(root, Path(path).parent, role=role)
        # /scratch/NAME is used where there is one, and never made. Our cache folder is ours to make.
        if not above.missing or role == "cache":
            found.append(read_place(root, path, role=role))
    return found


def tmpdir_on_disk(env: Mapping[str, str], root: SystemRoot, *, build_folder: str) -> str:
    """A folder on a disk, made for this user alone, where TMPDIR is in memory; empty where it is not, or there is none.

    What is written to a tmpfs counts against the memory limit of whoever writes it, until it is deleted.
    """
    if not read_place(root, env.get("TMPDIR") or "/tmp", role="TMPDIR").in_memory:  # noqa: S108
        return ""
    places = tmpdir_places(env, root, build_folder=build_folder)
    place = best(places, build_device=read_place(root, build_folder, role="build folder").device)
    if place is None:
        return ""
    try:
        Path(place.path).parent.mkdir(parents=True, exist_ok=True)
        make_own(Path(place.path))
    except (OSError, FolderNotWritableError):
        return ""
    return place.path
