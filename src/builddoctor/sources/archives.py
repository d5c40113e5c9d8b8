"""Archives of sources, unpacked so that nothing reaches out of the folder.

Covers: tar (plain, gz, bz2, xz) and zip; refuses absolute names, ``..``, links that lead out, devices, and more bytes
or files than any project has. Does *not* cover: fetching them.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builddoctor.errors import SourceUnsafeError
from builddoctor.units import printable

MOST_FILES = 400_000
MOST_BYTES = 20 * 1024**3
"""PyTorch with all its submodules has 120,000 files and 3 GB."""

_CHUNK_BYTES = 1024 * 1024
SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar", ".zip")


def is_archive(name: str) -> bool:
    """By its name."""
    return name.lower().endswith(SUFFIXES)


def unpack(archive: Path, into: Path) -> Path:
    """Unpack into the empty folder ``into``; gives the folder that holds the project.

    Raises SourceUnsafeError, and OSError when the disk is full.
    """
    with _told(archive):
        if archive.name.lower().endswith(".zip"):
            _unzip(archive, into)
        else:
            _untar(archive, into)
    entries = list(into.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else into


@contextmanager
def _told(archive: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise SourceUnsafeError(
            f"{archive} cannot be unpacked: {printable(str(error))[:200]}",
            hint="it is cut off or no archive: fetch it again, or give --source a folder",
        ) from error


def _untar(archive: Path, into: Path) -> None:
    count, size = 0, 0
    with tarfile.open(archive, "r:*") as tar:
        folders: set[str] = set()
        links: set[str] = set()
        for member in tar:
            count, size = count + 1, size + max(0, member.size)
            _check_size(archive, count, size)
            name = _inside(archive, member.name)
            if not name:
                continue
            _check_parents(archive, name, links)
            target = into / name
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                folders.add(name)
            elif member.issym():
                _check_link(archive, name, member.linkname)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                target.symlink_to(member.linkname)
                links.add(name)
            elif member.islnk():
                other = into / _inside(archive, member.linkname)
                _check_parents(archive, _inside(archive, member.linkname), links)
                target.parent.mkdir(parents=True, exist_ok=True)
                if not other.is_file() or other.is_symlink():
                    raise _unsafe(archive, member.name, "a link to what is no file of it")
                shutil.copyfile(other, target)
            elif member.isfile():
                stream = tar.extractfile(member)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                with target.open("xb") as file:
                    if stream is not None:
                        shutil.copyfileobj(stream, file, _CHUNK_BYTES)
                target.chmod(0o755 if member.mode & stat.S_IXUSR else 0o644)
                # Builds compare times of files: those of the archive are what its authors had.
                os.utime(target, (max(0, member.mtime), max(0, member.mtime)))
                links.discard(name)
            else:
                raise _unsafe(archive, member.name, "a device or a pipe")


def _unzip(archive: Path, into: Path) -> None:
    size = 0
    with zipfile.ZipFile(archive) as packed:
        for count, info in enumerate(packed.infolist(), 1):
            size += info.file_size
            _check_size(archive, count, size)
            name = _inside(archive, info.filename)
            if not name:
                continue
            mode = info.external_attr >> 16
            if stat.S_ISLNK(mode):
                raise _unsafe(archive, info.filename, "a link in a zip file")
            target = into / name
            if info.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with packed.open(info) as stream, target.open("xb") as file:
                _copy_at_most(archive, stream, file, info.file_size)
            target.chmod(0o755 if mode & stat.S_IXUSR else 0o644)


def _copy_at_most(archive: Path, stream: object, file: object, size: int) -> None:
    """A zip file may hold more than it says."""
    left = size
    while chunk := stream.read(_CHUNK_BYTES):  # type: ignore[attr-defined]
        left -= len(chunk)
        if left < 0:
            raise _unsafe(archive, archive.name, "more bytes than it says")
        file.write(chunk)  # type: ignore[attr-defined]


def _inside(archive: Path, name: str) -> str:
    """The name within the folder; empty for the folder itself."""
    if "\0" in name or name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/"):
        raise _unsafe(archive, name, "a path that leads out of its folder")
    plain = posixpath.normpath(name)
    return "" if plain == "." else plain


def _check_parents(archive: Path, name: str, links: set[str]) -> None:
    """Nothing is written through a link of the archive."""
    parent = posixpath.dirname(name)
    while parent:
        if parent in links:
            raise _unsafe(archive, name, "a path through a link")
        parent = posixpath.dirname(parent)


def _check_link(archive: Path, name: str, target: str) -> None:
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    if target.startswith("/") or "\0" in target or reached == ".." or reached.startswith("../"):
        raise _unsafe(archive, name, "a link that leads out of its folder")


def _check_size(archive: Path, count: int, size: int) -> None:
    if count > MOST_FILES or size > MOST_BYTES:
        raise _unsafe(archive, archive.name, f"more than {MOST_FILES} files or {MOST_BYTES // 1024**3} GiB")


def _unsafe(archive: Path, name: str, what: str) -> SourceUnsafeError:
    return SourceUnsafeError(
        f"{archive.name} is not unpacked: {printable(name)[:120]} is {what}",
        hint="no source distribution needs that: fetch it from the project's own page, and compare its sha256",
    )
