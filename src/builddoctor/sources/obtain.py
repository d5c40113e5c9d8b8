"""Get a project's sources: from the cache, the package index, git, or an archive; never a finished wheel.

Does *not* cover: which project (``projects.choose``), or building it.

The tree that was got is built in: after a failure the next build of the same version goes on with its objects.
"""

from __future__ import annotations

import errno
import re
import shutil
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path

from packaging.version import InvalidVersion, Version

from builddoctor.errors import BuildDoctorError, FolderNotWritableError, SourceNotFoundError
from builddoctor.intercept import git
from builddoctor.intercept.pip_index import index_urls
from builddoctor.model.source_wanted import Obtained, SourceWanted
from builddoctor.sources.archives import is_archive, unpack
from builddoctor.sources.index import find_sdist
from builddoctor.sources.store import Entry, Store
from builddoctor.sources.web import Web, shown

Say = Callable[[str], None]

_NUMBER = re.compile(r"\d+(?:\.\d+)+(?:[.-]?(?:post|rc)\d+)?")


def obtain(wanted: SourceWanted, *, cache: Path, env: Mapping[str, str], python: str, say: Say) -> Obtained:
    """The sources, on this machine. ``python``: the one whose pip knows the package index. ``say``: progress, a line.

    Raises SourceNotFoundError with the ways on, SourceUnsafeError, FolderNotWritableError.
    """
    store = Store(cache / "sources")
    with store.locked():
        try:
            return _Getting(wanted, store, env, python, say).get()
        except SourceNotFoundError as error:
            raise SourceNotFoundError(str(error), hint=error.hint or _ways_on(wanted, store)) from error
        except OSError as error:
            why = "no space left" if error.errno == errno.ENOSPC else str(error.strerror or error)
            raise FolderNotWritableError(
                f"cannot keep the sources of {wanted.name} in {store.folder}: {why}",
                hint="make room there, or name another folder: `export BUILDDOCTOR_CACHE_DIR=/some/folder`",
            ) from error


def _ways_on(wanted: SourceWanted, store: Store) -> str:
    """Three of them; what the cache has goes before."""
    last = store.newest(wanted.name, wanted.place or wanted.package or wanted.repository)
    cached = f"the cache has {last[1].version}: `--version {last[1].version} --offline`; " if last is not None else ""
    return cached + (
        "without a network: `--source PATH` of a checkout or an archive; or fill the cache where there is one, with "
        f"`builddoctor build {wanted.name} --dry-run`, and copy its folder; or name a mirror, PIP_INDEX_URL, or a proxy"
    )


class _Getting:
    def __init__(self, wanted: SourceWanted, store: Store, env: Mapping[str, str], python: str, say: Say) -> None:
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
            f"nobody knows where the sources of {wanted.name} are", hint="say where: --source PATH or --source URL"
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
        sdist = find_sdist(web, index_urls(self.python, self.env), package, self.wanted.version)
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
        entry = Entry(name=self.wanted.name, version=version, place=place, origin=origin, digest=digest, inside=within)
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
        entry = Entry(name=self.wanted.name, version=label, place=url, origin=origin, digest=commit)
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
        return max(found)[1] if found else ""


def _split(address: str) -> tuple[str, str, str]:
    """``https://host/it.git@v2.8`` into address, ``@``, and what follows it in the last part of the path."""
    head, slash, last = address.rpartition("/")
    name, at, ref = last.partition("@")
    return head + slash + name, at, ref


def _version_of(ref: str) -> str:
    match = _NUMBER.search(ref)
    return match[0] if match else ""
