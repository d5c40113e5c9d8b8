"""Archives of sources, unpacked so that nothing reaches out of the folder.

Covers: tar (plain, gz, bz2, xz) through tarfile's ``data`` filter (PEP 706), and zip. Refused are absolute names and
``..``, which the filter would mend, links that lead out, paths through a link of the archive, devices, and more bytes
or files than any project has. Does *not* cover: fetching them.
"""

from __future__ import annotations

import lzma
import posixpath
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builddoctor.core.errors import SourceUnsafeError
from builddoctor.core.units import printable

if not hasattr(tarfile, "data_filter"):
    # Pythons before 3.10.12 and 3.11.4 have no filter: Debian 12's own, say.
    from backports import tarfile  # type: ignore[no-redef,import-not-found,import-untyped,unused-ignore]

MOST_FILES = 400_000
MOST_BYTES = 20 * 1024**3
"""PyTorch with all its submodules has 120,000 files and 3 GB."""

_UNREADABLE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, ValueError, NotImplementedError, RuntimeError),
)
"""What the standard library raises for archives with nonsense in them."""

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
    except _UNREADABLE as error:
        raise SourceUnsafeError(
            f"{archive} cannot be unpacked: {printable(str(error))[:200]}",
            hint="it is cut off or no archive: fetch it again, or give --source a folder",
        ) from error


def _untar(archive: Path, into: Path) -> None:
    count, size = 0, 0
    links: set[str] = set()
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            count, size = count + 1, size + max(0, member.size)
            _check_size(archive, count, size)
            name = _inside(archive, member.name)
            if not name:
                continue
            _check_parents(archive, name, links)
            if member.issym():
                _check_link(archive, name, member.linkname)
                links.add(name)
            elif member.islnk():
                other = _inside(archive, member.linkname)
                _check_parents(archive, other, links)
                if other in links or not (into / other).is_file():
                    raise _unsafe(archive, member.name, "a link to what is no file of it")
            elif member.isfile():
                links.discard(name)
            elif not member.isdir():
                raise _unsafe(archive, member.name, "a device or a pipe")
            if not member.isdir():
                # A link of the same name would be written through.
                (into / name).unlink(missing_ok=True)
            tar.extract(member, into, filter="data")


def _unzip(archive: Path, into: Path) -> None:
    size = 0
    with zipfile.ZipFile(archive) as packed:
        for count, info in enumerate(packed.infolist(), 1):
            size += info.file_size
            _check_size(archive, count, size)
            if not _inside(archive, info.filename):
                continue
            mode = info.external_attr >> 16
            if stat.S_ISLNK(mode):
                raise _unsafe(archive, info.filename, "a link in a zip file")
            # zipfile writes no more than the size that it says.
            target = Path(packed.extract(info, into))
            if not info.is_dir():
                target.chmod(0o755 if mode & stat.S_IXUSR else 0o644)


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
