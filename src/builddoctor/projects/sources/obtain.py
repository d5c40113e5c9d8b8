"""Get a project's sources: from the cache, the package index, git, or an archive; never a finished wheel.

The cache is one folder: ``NAME-VERSION-KEY/`` holds a tree, complete or not there; ``….json`` beside it tells what it
is; a name ending in ``.part`` is an unfinished one, which the next try goes on with. A tree is built in: after a
failure the next build of the same version goes on with its objects.
Does *not* cover: which project (``projects.choose``), or building it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
from packaging.version import InvalidVersion, Version

from builddoctor.core.errors import BuildDoctorError, FolderNotWritableError, SourceNotFoundError
from builddoctor.core.project import Obtained, SourceWanted
from builddoctor.gates import git
from builddoctor.gates.pip import index_urls, python_version
from builddoctor.projects.sources.archives import is_archive, unpack
from builddoctor.projects.sources.web import Web, find_sdist, shown

Say = Callable[[str], None]

_DATES = 1990_00_00
"""as numbers"""
_NUMBER = re.compile(r"\d+(?:\.\d+)+(?:[.-]?(?:post|rc)\d+)?")


def obtain(wanted: SourceWanted, *, cache: Path, env: Mapping[str, str], python: str, say: Say) -> Obtained:
    """The sources, on this machine. ``say``: progress, a line.

    ``python``: it will build: releases for other Pythons are passed over. Its pip names the package index.
    Raises SourceNotFoundError with the ways on, SourceUnsafeError, FolderNotWritableError.
    """
    store = _Store(cache / "sources")
    with store.locked():
        try:
            return _Search(wanted, store, env, python, say).get()
        except SourceNotFoundError as error:
            raise SourceNotFoundError(str(error), hint=error.hint or _ways_on(wanted, store)) from error
        except OSError as error:
            why = "no space left" if error.errno == errno.ENOSPC else str(error.strerror or error)
            raise FolderNotWritableError(
                f"cannot keep the sources of {wanted.name} in {store.folder}: {why}",
                hint="make room there, or name another folder: `export BUILDDOCTOR_CACHE_DIR=/some/folder`",
            ) from error


def _ways_on(wanted: SourceWanted, store: _Store) -> str:
    """Three of them; what the cache has goes before."""
    last = store.newest(wanted.name, wanted.place or wanted.package or wanted.repository)
    cached = f"the cache has {last[1].version}: `--version {last[1].version} --offline`; " if last is not None else ""
    return cached + (
        "without a network: `--source PATH` of a checkout or an archive; or fill the cache where there is one, with "
        f"`builddoctor build {wanted.name} --fetch`, and copy its folder; or name a mirror, PIP_INDEX_URL, or a proxy"
    )


class _Search:
    """One project, looked for where it is said to be: a place, then the package index, then its repository."""

    def __init__(self, wanted: SourceWanted, store: _Store, env: Mapping[str, str], python: str, say: Say) -> None:
        self.wanted, self.store, self.env, self.python, self.say = wanted, store, env, python, say

    def get(self) -> Obtained:
        wanted = self.wanted
        if wanted.place:
            return self._from_place(wanted.place)
        if wanted.package:
            return self._from_index(wanted.package)
        if wanted.repository:
            return self._from_git(wanted.repository)
        raise SourceNotFoundError(
            f"it is not known where the sources of {wanted.name} are", hint="say where: --source PATH or --source URL"
        )

    def _from_place(self, place: str) -> Obtained:
        path = urllib.parse.urlsplit(place).path if "://" in place else place
        if not place.startswith("git") and is_archive(path):
            return self._from_archive(place)
        return self._from_git(place.removeprefix("git+"))

    def _kept(self, place: str, version: str) -> Obtained | None:
        """From the cache: this version; offline, without one named, the one that was got last."""
        tree = self.store.tree(self.wanted.name, version, place)
        entry = self.store.find(tree) if version else None
        if entry is None and not version and self.wanted.offline:
            last = self.store.newest(self.wanted.name, place)
            if last is not None:
                tree, entry = last
        if entry is None:
            return None
        return Obtained(folder=str(tree / entry.inside), version=entry.version, origin=entry.origin, cached=True)

    def _refuse_offline(self, place: str) -> None:
        if self.wanted.offline:
            version = f" {self.wanted.version}" if self.wanted.version else ""
            raise SourceNotFoundError(
                f"--offline: {self.wanted.name}{version} from {shown(place)} is not in the cache, {self.store.folder}"
            )

    # -- package index -------------------------------------------------------------------------------------

    def _from_index(self, package: str) -> Obtained:
        kept = self._kept(package, self.wanted.version)
        if kept is not None:
            return kept
        self._refuse_offline(package)
        web = Web(self.env)
        indexes, python = index_urls(self.python, self.env), python_version(self.python, self.env)
        sdist = find_sdist(web, indexes, package, self.wanted.version, python=python, say=self.say)
        version = str(sdist.version)
        kept = self._kept(package, version)
        if kept is not None:
            return kept
        tree = self.store.tree(self.wanted.name, version, package)
        part = self.store.unfinished(tree)
        self.say(f"fetches {sdist.name}")
        archive = part / sdist.name
        digest = web.file(sdist.url, archive, sha256=sdist.sha256)
        return self._unpacked(archive, part, tree, version=version, place=package, digest=digest, title=package)

    # -- archives --------------------------------------------------------------------------------------------

    def _from_archive(self, place: str) -> Obtained:
        version = self.wanted.version
        if "://" not in place:
            # Made again under the same name it is another archive.
            stamp = Path(place).stat()
            place = f"{place} {stamp.st_size} {stamp.st_mtime_ns}"
        tree = self.store.tree(self.wanted.name, version, place)
        entry = self.store.find(tree)
        if entry is not None:
            return Obtained(folder=str(tree / entry.inside), version=entry.version, origin=entry.origin, cached=True)
        part = self.store.unfinished(tree)
        if "://" in place:
            self._refuse_offline(place)
            self.say(f"fetches {shown(place)}")
            archive = part / (Path(urllib.parse.urlsplit(place).path).name or "archive")
            digest = Web(self.env).file(place, archive)
        else:
            source = Path(self.wanted.place)
            archive = part / source.name
            shutil.copyfile(source, archive)
            digest = ""
        return self._unpacked(archive, part, tree, version=version, place=place, digest=digest, title=shown(place))

    def _unpacked(
        self, archive: Path, part: Path, tree: Path, *, version: str, place: str, digest: str, title: str
    ) -> Obtained:
        into = part / "tree"
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir()
        try:
            inside = unpack(archive, into)
        except BuildDoctorError:
            shutil.rmtree(part, ignore_errors=True)
            raise
        archive.unlink()
        origin = f"{title} {version}".strip() + (f", sha256 {digest[:16]}" if digest else "")
        within = str(inside.relative_to(part))
        entry = _Entry(name=self.wanted.name, version=version, place=place, origin=origin, digest=digest, inside=within)
        self.store.keep(part, tree, entry)
        return Obtained(folder=str(tree / within), version=version, origin=origin)

    # -- git -------------------------------------------------------------------------------------------------

    def _from_git(self, address: str) -> Obtained:
        url, at, ref = _split(address)
        version = self.wanted.version
        kept = self._kept(url, ref or version)
        if kept is not None:
            return kept
        self._refuse_offline(url)
        if not at:
            ref = self._tag(url, version)
        label = version or _version_of(ref) or ref
        kept = self._kept(url, label)
        if kept is not None:
            return kept
        tree = self.store.tree(self.wanted.name, label, url)
        part = self.store.unfinished(tree)
        self.say(f"fetches {shown(url)}" + (f" at {ref}" if ref else "") + ", with its submodules")
        commit = git.check_out(url, ref, part, self.env)
        origin = f"{shown(url)} {ref}, commit {commit[:12]}"
        entry = _Entry(name=self.wanted.name, version=label, place=url, origin=origin, digest=commit)
        self.store.keep(part, tree, entry)
        return Obtained(folder=str(tree), version=label, origin=origin)

    def _tag(self, url: str, version: str) -> str:
        """The tag of a release; what is no release's number is a branch or commit; the newest release without one."""
        names = git.tags(url, self.env)
        if version:
            usual = self.wanted.tag.replace("{version}", version)
            return next((each for each in (usual, f"v{version}", version) if each in names), version)
        pattern = re.compile(re.escape(self.wanted.tag).replace(re.escape("{version}"), r"(?P<version>[\w.]+)"))
        found = []
        for name in names:
            match = pattern.fullmatch(name)
            try:
                number = Version(match["version"]) if match else None
            except InvalidVersion:
                continue
            if number is not None and not number.is_prerelease:
                found.append((number, name))
        # A tag that is a date (Faiss has v20180223) is newer than no number.
        return max(found, key=lambda each: (each[0].major < _DATES, *each))[1] if found else ""


def _split(address: str) -> tuple[str, str, str]:
    """``https://host/it.git@v2.8`` into address, ``@``, and what follows it in the last part of the path."""
    head, slash, last = address.rpartition("/")
    name, at, ref = last.partition("@")
    return head + slash + name, at, ref


def _version_of(ref: str) -> str:
    match = _NUMBER.search(ref)
    return match[0] if match else ""


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What one tree is."""

    name: str
    version: str
    place: str
    """the package, or the address of the repository or archive"""
    origin: str
    digest: str
    """sha256 of an archive, or the commit"""
    inside: str = ""
    """the project's folder in the tree"""


class _Store:
    """Trees kept in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One at a time: another builddoctor that wants the same waits, and finds it there."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FolderNotWritableError(
                f"cannot keep sources in {self.folder}: {error.strerror}",
                hint="name another folder: `export BUILDDOCTOR_CACHE_DIR=/some/folder`",
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def tree(self, name: str, version: str, place: str) -> Path:
        """Where such a tree lies, or will lie."""
        key = hashlib.sha256(f"{place}\0{version}".encode()).hexdigest()[:8]
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{name}-{version}" if version else name).strip("-.")
        return self.folder / f"{plain[:80]}-{key}"

    def find(self, tree: Path) -> _Entry | None:
        """What the tree is; None when it is not there, or not whole."""
        try:
            entry = msgspec.json.decode(_note(tree).read_bytes(), type=_Entry)
        except (OSError, msgspec.MsgspecError):
            return None
        return entry if (tree / entry.inside).is_dir() else None

    def newest(self, name: str, place: str) -> tuple[Path, _Entry] | None:
        """The tree of this project and place that was got last, whatever its version."""
        found = []
        with contextlib.suppress(OSError):
            for note in self.folder.glob("*.json"):
                tree = note.with_suffix("")
                entry = self.find(tree)
                if entry is not None and (entry.name, entry.place) == (name, place):
                    found.append((note.stat().st_mtime_ns, str(tree), entry))
        if not found:
            return None
        _, tree_name, entry = max(found, key=lambda each: each[:2])
        return Path(tree_name), entry

    def unfinished(self, tree: Path) -> Path:
        """A folder to get it into; what an earlier try left is in it."""
        part = tree.with_name(tree.name + ".part")
        part.mkdir(parents=True, exist_ok=True)
        return part

    def keep(self, part: Path, tree: Path, entry: _Entry) -> None:
        """It is whole now."""
        if tree.exists():
            shutil.rmtree(tree)
        os.replace(part, tree)
        temporary = _note(tree).with_suffix(".new")
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(entry), indent=2) + b"\n")
        os.replace(temporary, _note(tree))


def _note(tree: Path) -> Path:
    return tree.with_name(tree.name + ".json")
