"""Carry a half-done build to another machine: ``builddoctor save`` and ``restore``.

Covers: the archive of build folders, with the exact times of their files, and of the history; the times of sources.
Build tools compare times, and a fresh checkout has new ones: a source whose content is as it was when the build was
saved gets the time that it had then, so that only what is missing, and what has changed, is compiled.
In another folder, or with another HOME, build files and ninja's logs get the paths that are valid there (``moves``,
``ninja_files``). Headers of a toolkit or of torch that were installed anew, and are the same, are newer than what was
compiled with them: then all that came along becomes newer than those, in the order that it had.
Does *not* cover: what other places the build's commands name, a virtual environment outside of HOME, say.

An archive from elsewhere is not trusted: it may write below the folder that it is restored in, and nowhere else.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import stat
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from builddoctor.carry.moves import Moves
from builddoctor.carry.ninja_builds import DEPS, LOG, NinjaBuilds
from builddoctor.carry.ninja_files import paths_in
from builddoctor.carry.times import newer_times
from builddoctor.core.errors import FolderNotWritableError, UsageError
from builddoctor.core.units import MIB
from builddoctor.runtime.folders import cache_folder, history_file

FORMAT = 2
MANIFEST = "builddoctor-build.json"
_TREE = "tree/"
_HISTORY = "history.sqlite"
_NOT_SOURCES = frozenset((".git", "__pycache__", ".venv", "node_modules", ".builddoctor"))
"""The last: what `ci/gitlab.yml` leaves in a checkout."""
_LISTED = re.compile(rb"(?<![^\s:])/(?:[^\s\\:]|\\ )+")
"""an absolute path in a list of headers for make"""
_MARKS = ("build.ninja", "CMakeCache.txt", LOG)
MOST_MANIFEST_BYTES = 512 * MIB
MOST_SOURCE_BYTES = 4096 * MIB
"""What is larger counts as changed."""


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
    home: str
    cache: str
    """where our own overlays lay"""
    builds: list[str]
    """the build folders"""
    built: list[Stamp]
    sources: list[Stamp]
    outside: list[Stamp]
    """what it was compiled with that lies elsewhere, by absolute paths"""


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
    """the folder that it was saved in, where that is another one: its build files name this one now"""
    outside_changed: int
    """headers elsewhere that are missing or other than they were: what was compiled with them is compiled again"""
    outside_example: str
    """one of them"""
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
    manifest = Manifest(
        format=FORMAT,
        folder=str(folder),
        home=env.get("HOME", ""),
        cache=str(cache_folder(env)),
        builds=list(builds),
        built=built,
        sources=sources,
        outside=_outside(tops, folder),
    )
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
            taken = [place for member in tar if member.name.startswith(_TREE) and (place := _take(tar, member, folder))]
            history = _take_history(tar, history_file(env))
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UsageError(f"{archive} cannot be read: {error}", hint="`builddoctor save FILE` writes one") from error
    moves = Moves(
        [
            (manifest.folder, str(folder)),
            (manifest.cache, str(cache_folder(env))),
            (manifest.home, env.get("HOME", manifest.home)),
        ]
    )
    ninja = NinjaBuilds([each.parent for each in taken if each.name == LOG], env)
    outside = [(Path(os.fsdecode(moves(os.fsencode(one.path)))), one) for one in manifest.outside]
    other = [path for path, one in outside if not _is_as_before(path, one)]
    same = [one for one in manifest.sources if _is_as_before(_inside(folder, one.path), one)]
    times = {} if other else _newer_times(manifest, outside, ninja)
    for place in taken if moves else ():
        if not place.is_symlink() and place.name not in (LOG, DEPS):
            moves.carry_out(place)
    ninja.go_on(moves, times)
    _set_times(folder, manifest, same, times)
    return Restored(
        files=len(taken),
        sources_as_before=len(same),
        sources_changed=len(manifest.sources) - len(same),
        moved_from="" if manifest.folder == str(folder) else manifest.folder,
        outside_changed=len(other),
        outside_example=str(other[0]) if other else "",
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


def _outside(tops: Sequence[Path], folder: Path) -> list[Stamp]:
    """What the build's own lists of headers name elsewhere. A link counts as what it leads to."""
    found = set()
    for top in tops:
        for above, _, names in os.walk(top):
            for name in names:
                file = Path(above, name)
                if name == DEPS:
                    paths = paths_in(file.read_bytes())
                elif name.endswith(".d") and not file.is_symlink():
                    paths = [each.replace(b"\\ ", b" ") for each in _LISTED.findall(file.read_bytes())]
                else:
                    continue
                found |= {os.path.realpath(os.path.join(above, os.fsdecode(each))) for each in paths}
    elsewhere = [each for each in sorted(found) if not Path(each).is_relative_to(folder) and os.path.isfile(each)]
    stamps = [Stamp(each, os.stat(each).st_mtime_ns, _digest(Path(each))) for each in elsewhere]
    return [each for each in stamps if each.digest]


def _newer_times(manifest: Manifest, outside: Sequence[tuple[Path, Stamp]], ninja: NinjaBuilds) -> dict[int, int]:
    return newer_times(
        {one.mtime_ns for one in (*manifest.built, *manifest.sources)} | ninja.times(),
        objects=[one.mtime_ns for one in manifest.built if one.path.endswith(".o")],
        outside=[(one.mtime_ns, path.stat().st_mtime_ns) for path, one in outside],
        now_ns=time.time_ns(),
    )


def _set_times(folder: Path, manifest: Manifest, same: Sequence[Stamp], times: Mapping[int, int]) -> None:
    if times:
        # All else has been compiled with nothing of this, so it counts as changed just now.
        as_before = {one.path for one in same}
        for path in _files(folder, folder, {folder / each for each in manifest.builds}):
            if path not in as_before:
                os.utime(folder / path, follow_symlinks=False)
    for one in (*manifest.built, *same):
        at_ns = times.get(one.mtime_ns, one.mtime_ns)
        with contextlib.suppress(OSError):
            os.utime(_inside(folder, one.path), ns=(at_ns, at_ns), follow_symlinks=False)


def _is_as_before(path: Path, one: Stamp) -> bool:
    return not path.is_symlink() and path.is_file() and _digest(path) == one.digest


def _digest(path: Path) -> str:
    """Empty where it cannot be read, or is too large. Files of the kernel's are of no size, and not read: some wait."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_SOURCE_BYTES:
                return ""
            while size and (piece := file.read(1 << 20)):
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


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> Path | None:
    """One file or link of a build folder; None for anything else, which is left."""
    place = _inside(folder, member.name.removeprefix(_TREE))
    if not (member.isfile() or (member.issym() and _stays_inside(folder, place, member.linkname))):
        return None
    place.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        place.unlink()
    if member.issym():
        os.symlink(member.linkname, place)
        return place
    source = tar.extractfile(member)
    assert source is not None
    with source, place.open("xb") as target:
        while piece := source.read(1 << 20):
            target.write(piece)
    place.chmod(member.mode & 0o777)
    return place


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
