"""Carry a half-done build to another machine: ``builddoctor save`` and ``restore``.

Covers: the archive of build folders, with the exact times of their files, and of the history; the times of sources.
Build tools compare times, and a fresh checkout has new ones: a source whose content is as it was when the build was
saved gets the time that it had then, so that only what is missing, and what has changed, is compiled. ninja's own logs
are in its build folder.
Does *not* cover: builds that call files by another path than before. CMake and ninja have absolute paths in their
commands, so the folder has to be the same one; a person is told where it is not.

An archive from elsewhere is not trusted: it may write below the folder that it is restored in, and nowhere else.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from builddoctor.core.errors import FolderNotWritableError, UsageError
from builddoctor.core.units import MIB
from builddoctor.runtime.folders import history_file

FORMAT = 1
MANIFEST = "builddoctor-build.json"
_TREE = "tree/"
_HISTORY = "history.sqlite"
_NOT_SOURCES = frozenset((".git", "__pycache__", ".venv", "node_modules"))
_MARKS = ("build.ninja", "CMakeCache.txt", ".ninja_log")
MOST_MANIFEST_BYTES = 512 * MIB


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """A file: path below the folder, time (ns), and of sources the digest of its content."""

    path: str
    mtime_ns: int
    digest: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an archive says of itself, as its first member."""

    format: int
    folder: str
    """absolute path of the folder that it was saved in"""
    built: list[Stamp]
    sources: list[Stamp]


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What ``save`` prints."""

    archive: str
    size_mib: float
    build_folders: list[str]
    files: int
    sources: int


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What ``restore`` prints."""

    files: int
    sources_as_before: int
    sources_changed: int
    moved_from: str
    """the folder that it was saved in, where that is another one: its commands name that"""
    history: bool
    """the history came along; False: there was none in it, or there is one here"""


def build_folders(folder: Path) -> list[str]:
    """Those of ``folder`` that a build was configured or run in, and ``build``; not deeper than two levels."""
    found = {path.parent for mark in _MARKS for depth in ("*", "*/*") for path in folder.glob(f"{depth}/{mark}")}
    found |= {folder / "build"} if (folder / "build").is_dir() else set()
    outermost = [each for each in found if not found & set(each.parents)]
    return sorted(str(each.relative_to(folder)) for each in outermost)


def save(archive: Path, folder: Path, builds: Sequence[str], env: Mapping[str, str]) -> Saved:
    """Write the archive: whole, or not at all. Raises UsageError where there is nothing to save."""
    tops = [folder / each for each in builds]
    for top in tops:
        if not top.is_dir() or not top.resolve().is_relative_to(folder.resolve()):
            raise UsageError(
                f"{top} is no folder below {folder}", hint="name build folders: `builddoctor save FILE build`"
            )
    if not tops:
        raise UsageError(f"there is no build folder in {folder}", hint="name it: `builddoctor save FILE out/release`")
    skipped = {top.resolve() for top in tops} | {archive.resolve()}
    built = [Stamp(path, os.lstat(folder / path).st_mtime_ns) for top in tops for path in _files(top, folder, set())]
    sources = [
        Stamp(path, os.stat(folder / path).st_mtime_ns, _digest(folder / path))
        for path in _files(folder, folder, skipped)
        if (folder / path).is_file()
    ]
    manifest = Manifest(format=FORMAT, folder=str(folder), built=built, sources=sources)
    part = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        with tarfile.open(part, "w:gz", compresslevel=1) as tar:
            _add_bytes(tar, MANIFEST, msgspec.json.encode(manifest))
            for one in built:
                tar.add(folder / one.path, arcname=_TREE + one.path, recursive=False)
            if (history := history_file(env)).is_file():
                _add_bytes(tar, _HISTORY, history.read_bytes())
        os.replace(part, archive)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise FolderNotWritableError(f"cannot write {archive}: {error.strerror}") from error
    return Saved(
        archive=str(archive),
        size_mib=round(archive.stat().st_size / MIB, 1),
        build_folders=list(builds),
        files=len(built),
        sources=len(sources),
    )


def restore(archive: Path, folder: Path, env: Mapping[str, str]) -> Restored:
    """Put the build folders back, and give unchanged sources their times. Raises UsageError for what is no archive."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            manifest = _manifest(tar, archive)
            files = sum(_take(tar, member, folder) for member in tar if member.name.startswith(_TREE))
            history = _take_history(tar, history_file(env))
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UsageError(f"{archive} cannot be read: {error}", hint="`builddoctor save FILE` writes one") from error
    for one in manifest.built:
        with contextlib.suppress(OSError):
            os.utime(_inside(folder, one.path), ns=(one.mtime_ns, one.mtime_ns), follow_symlinks=False)
    same = changed = 0
    for one in manifest.sources:
        path = _inside(folder, one.path)
        if path.is_symlink() or not path.is_file() or _digest(path) != one.digest:
            changed += 1
            continue
        same += 1
        with contextlib.suppress(OSError):
            os.utime(path, ns=(one.mtime_ns, one.mtime_ns))
    return Restored(
        files=files,
        sources_as_before=same,
        sources_changed=changed,
        moved_from="" if manifest.folder == str(folder) else manifest.folder,
        history=history,
    )


def _files(top: Path, folder: Path, skipped: set[Path]) -> Iterator[str]:
    """Files and links below ``top``, by their paths below ``folder``."""
    for above, folders, names in os.walk(top):
        here = Path(above)
        if skipped:
            folders[:] = [
                each for each in folders if each not in _NOT_SOURCES and (here / each).resolve() not in skipped
            ]
        links = [each for each in folders if (here / each).is_symlink()]
        for name in (*names, *links):
            path = here / name
            mode = os.lstat(path).st_mode
            if (stat.S_ISREG(mode) or stat.S_ISLNK(mode)) and path.resolve() not in skipped:
                yield str(path.relative_to(folder))


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError:
        return ""
    return digest.hexdigest()[:32]


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def _manifest(tar: tarfile.TarFile, archive: Path) -> Manifest:
    first = tar.next()
    file = tar.extractfile(first) if first is not None and first.name == MANIFEST and first.isfile() else None
    if file is None or first is None or first.size > MOST_MANIFEST_BYTES:
        raise UsageError(f"{archive} is no saved build", hint="`builddoctor save FILE` writes one")
    try:
        manifest = msgspec.json.decode(file.read(), type=Manifest)
    except msgspec.DecodeError as error:
        raise UsageError(f"{archive} is no saved build: {error}") from error
    if manifest.format != FORMAT:
        raise UsageError(f"{archive} was saved by another version of builddoctor (format {manifest.format})")
    return manifest


def _inside(folder: Path, path: str) -> Path:
    """Raises UsageError for a path that leaves the folder, by its words or by a link on its way."""
    pure = PurePosixPath(path)
    place = folder / path
    if pure.is_absolute() or ".." in pure.parts or not place.parent.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"the archive names a place outside of the folder: {path}")
    return place


def _stays_inside(folder: Path, link: Path, target: str) -> bool:
    return not target.startswith("/") and (link.parent / target).resolve().is_relative_to(folder.resolve())


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> bool:
    """One file or link of a build folder; anything else is left."""
    place = _inside(folder, member.name.removeprefix(_TREE))
    if not (member.isfile() or (member.issym() and _stays_inside(folder, place, member.linkname))):
        return False
    place.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        place.unlink()
    if member.issym():
        os.symlink(member.linkname, place)
        return True
    source = tar.extractfile(member)
    assert source is not None
    with source, place.open("xb") as target:
        while piece := source.read(1 << 20):
            target.write(piece)
    place.chmod(member.mode & 0o777)
    return True


def _take_history(tar: tarfile.TarFile, target: Path) -> bool:
    """Where there is none yet: what earlier runs took is known then."""
    names = tar.getnames()
    if _HISTORY not in names or target.exists():
        return False
    source = tar.extractfile(_HISTORY)
    if source is None:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read())
    return True
