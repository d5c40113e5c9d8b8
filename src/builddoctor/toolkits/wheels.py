"""NVIDIA's wheels: got through pip, kept in a cache with their sha256, and read without being trusted.

Covers: the cache where it has them, else pip, the large ones one at a time, so that none comes twice and an interrupted
installation goes on. Every name, size and hash is checked before and while a file is written. Refused are names that
lead out, links and other special files, names twice, more or larger files than any toolkit has, encrypted entries, and
files that RECORD does not list or lists with another hash.
Does *not* cover: which wheels (``toolkits.components``), how pip fetches (``gates.pip``), where files go
(``toolkits.layout``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
from installer.records import InvalidRecordEntry, RecordEntry, parse_record_file
from installer.sources import WheelFile
from installer.utils import copyfileobj_with_hashing
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from builddoctor.core.errors import PackageDamagedError, PackageUnavailableError
from builddoctor.core.units import MIB, format_mib, one_line
from builddoctor.gates.pip import OFFLINE_HINT, fetch_wheels, find_pip
from builddoctor.projects.sources.web import sha256_of
from builddoctor.toolkits.components import TOOLKIT, size_mib
from builddoctor.toolkits.managed import FETCH

LARGE_MIB = 5
"""What is smaller is not worth a line, nor a pip of its own."""

MOST_FILES = 50_000
MOST_BYTES = 8 * 1024 * MIB
"""The largest package of CUDA 13 unpacks to 1 GiB."""
MOST_LIST_BYTES = 16 * MIB
"""of RECORD and METADATA"""
MOST_RATIO = 200
"""Headers shrink to a tenth at best; what shrinks more is made to fill a disk."""
SMALL_BYTES = 1 * MIB

_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, InvalidRecordEntry),
    *(NotImplementedError, RuntimeError, EOFError, ValueError, LookupError, OverflowError),
)
"""What the libraries raise for archives with nonsense in them."""
_ODD = re.compile(r"[\x00-\x1f\x7f\\:]")


class Fetcher:
    """Wheels for one architecture. Its user holds the lock of the cache's folder."""

    def __init__(
        self,
        folder: Path,
        platforms: Sequence[str],
        *,
        env: Mapping[str, str],
        offline: bool,
        fresh: bool,
        say: Callable[[str], None],
    ) -> None:
        """``fresh``: ask the index again for whatever has no exact version."""
        self.cache = WheelCache(folder, platforms)
        self.fetched_mib = 0.0
        self._platforms = platforms
        self._env = env
        self._offline = offline
        self._fresh = fresh and not offline
        self._say = say
        self._python = ""

    def cached(self, requirement: str) -> bool:
        """It would be taken from the cache."""
        need = Requirement(requirement)
        exact = need.name != TOOLKIT and any(each.operator == "==" for each in need.specifier)
        return (exact or not self._fresh) and self.cache.best(requirement) is not None

    def get(self, requirement: str) -> tuple[Path, str]:
        """A wheel in the cache, and its sha256.

        Raises PackageUnavailableError, PackageDamagedError, DiskFullError; OSError when the cache cannot be written.
        """
        while self.cached(requirement) and (wheel := self.cache.best(requirement)) is not None:
            if digest := self.cache.checked(wheel):
                return wheel, digest
            self._say(f"{wheel.name} in the cache was damaged, and is fetched again")
        if self._offline:
            raise PackageUnavailableError(
                f"{requirement} is not among the wheels in {self.cache.folder}, and --offline fetches nothing",
                hint=OFFLINE_HINT,
            )
        return self._one(requirement)

    def get_small(self, requirements: Iterable[str]) -> None:
        """All small wheels that are not here, at once. What cannot be had is left for ``get`` to tell."""
        small = [need for need in requirements if size_mib(Requirement(need).name)[0] < LARGE_MIB]
        missing = [] if self._offline else [need for need in small if not self.cached(need)]
        if len(missing) > 1:
            with contextlib.suppress(PackageUnavailableError, PackageDamagedError):
                self._fetch(missing)

    def _one(self, requirement: str) -> tuple[Path, str]:
        size, _ = size_mib(Requirement(requirement).name)
        if size >= LARGE_MIB:
            self._say(f"fetches {requirement} (about {format_mib(size)})")
        kept = self._fetch([requirement])[0]
        digest = self.cache.checked(kept)
        if not digest:
            raise PackageDamagedError(f"{kept.name} changed while it was kept", hint="try again")
        return kept, digest

    def _fetch(self, requirements: Sequence[str]) -> list[Path]:
        self._python = self._python or find_pip(self._env)
        staging = Path(tempfile.mkdtemp(prefix=FETCH, dir=self.cache.folder))
        try:
            wheels = fetch_wheels(self._python, requirements, staging, platforms=self._platforms, env=self._env)
            self.fetched_mib += sum(wheel.stat().st_size for wheel in wheels) / MIB
            return [self.cache.add(wheel) for wheel in wheels]
        finally:
            shutil.rmtree(staging, ignore_errors=True)


class WheelCache:
    """A folder of wheels, for machines of one kind (``platforms`` as pip names them)."""

    def __init__(self, folder: Path, platforms: Sequence[str]) -> None:
        self.folder = folder
        self._platforms = {*platforms, "any", *(f"manylinux{old}" for old in _older(platforms))}

    def best(self, requirement: str) -> Path | None:
        """The newest wheel here that satisfies it; its contents are not looked at."""
        need = Requirement(requirement)
        found: list[tuple[Version, str]] = []
        for name in _names(self.folder):
            try:
                package, version, _, tags = parse_wheel_filename(name)
            except InvalidWheelFilename:
                continue
            if package == canonicalize_name(need.name) and self._fits(tags) and need.specifier.contains(version):
                found.append((version, name))
        return self.folder / max(found)[1] if found else None

    def checked(self, wheel: Path) -> str:
        """The wheel's sha256 when it is still what was fetched; empty, and the wheel gone, when it is not."""
        try:
            noted = _note(wheel).read_text().strip()
            if noted and noted == sha256_of(wheel):
                return noted
        except (OSError, UnicodeDecodeError):
            pass
        for path in (wheel, _note(wheel)):
            path.unlink(missing_ok=True)
        return ""

    def add(self, wheel: Path) -> Path:
        """Take a wheel that was fetched into a folder on the same disk. Raises OSError."""
        kept = self.folder / wheel.name
        note = _note(wheel)
        note.write_text(sha256_of(wheel) + "\n")
        # The wheel comes last: without it, a note says nothing.
        os.replace(note, _note(kept))
        os.replace(wheel, kept)
        return kept

    def _fits(self, tags: frozenset[Tag]) -> bool:
        return any(
            tag.interpreter.startswith("py") and tag.abi == "none" and tag.platform in self._platforms for tag in tags
        )


class WheelEntry(msgspec.Struct, frozen=True):
    """One file of a wheel."""

    name: str
    size: int
    sha256: str
    """as RECORD writes it: base64, of which nothing is padded"""
    executable: bool


class Wheel(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel that was looked through."""

    path: Path
    name: str
    """as pip spells it: ``nvidia-cuda-nvcc``"""
    version: str
    entries: tuple[WheelEntry, ...]
    """without RECORD and what signs it"""
    metadata: str

    @property
    def unpacked_bytes(self) -> int:
        return sum(entry.size for entry in self.entries)


def read_wheel(path: Path) -> Wheel:
    """Everything but the contents. Raises PackageDamagedError; OSError where the file cannot be read."""
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
        with zipfile.ZipFile(path) as archive:
            return _read(archive, path, name, str(version))
    except InvalidWheelFilename as error:
        raise PackageDamagedError(f"{one_line(path.name)} is not a wheel's name") from error
    except _UNREADABLE as error:
        raise _damaged(path, one_line(str(error))[:300]) from error
    except OSError as error:
        raise _of_the_archive(path, error) from error


def write_entries(wheel: Wheel, targets: dict[str, Path]) -> None:
    """Write the entries named in ``targets`` (entry name to path), none of which may exist yet.

    Raises PackageDamagedError when one is not what RECORD says, OSError where it cannot be written.
    """
    try:
        with zipfile.ZipFile(wheel.path) as archive:
            for entry in wheel.entries:
                target = targets.get(entry.name)
                if target is not None:
                    _write(archive, wheel.path, entry, target)
    except _UNREADABLE as error:
        raise _damaged(wheel.path, one_line(str(error))[:300]) from error
    except OSError as error:
        raise _of_the_archive(wheel.path, error) from error


def _read(archive: zipfile.ZipFile, path: Path, name: str, version: str) -> Wheel:
    infos = [info for info in archive.infolist() if not info.is_dir()]
    if len(infos) > MOST_FILES:
        raise _damaged(path, f"it holds {len(infos)} files")
    seen: set[str] = set()
    for info in infos:
        _check(path, info, seen)
    if sum(info.file_size for info in infos) > MOST_BYTES:
        raise _damaged(path, "it unpacks to more than 8 GiB")
    source = WheelFile(archive)
    lists = [info for info in infos if info.filename in {f"{source.dist_info_dir}/{each}" for each in _LISTS}]
    if len(lists) != len(_LISTS):
        raise _damaged(path, "it has no RECORD and METADATA of its own")
    if larger := next((info for info in lists if info.file_size > MOST_LIST_BYTES), None):
        raise _damaged(path, f"its {one_line(larger.filename)} has {larger.file_size // MIB} MiB")
    # Contents are compared while they are written: a toolkit's are read once.
    source.validate_record(validate_contents=False)
    rows = parse_record_file(source.read_dist_info("RECORD").splitlines())
    hashes = {row[0]: hash_ for row in rows if (hash_ := RecordEntry.from_elements(*row).hash_) is not None}
    if other := next((each.name for each in hashes.values() if each.name != "sha256"), None):
        raise _damaged(path, f"its RECORD has {one_line(other)} hashes")
    if missing := next(iter(sorted(set(hashes) - seen)), ""):
        raise _damaged(path, f"{one_line(missing)} is missing")
    entries = tuple(
        WheelEntry(info.filename, info.file_size, hashes[info.filename].value, bool(info.external_attr >> 16 & 0o111))
        for info in infos
        if info.filename in hashes
    )
    metadata = source.read_dist_info("METADATA")
    return Wheel(path=path, name=canonicalize_name(name), version=version, entries=entries, metadata=metadata)


_LISTS = ("RECORD", "METADATA")


def _check(path: Path, info: zipfile.ZipInfo, seen: set[str]) -> None:
    # What zipfile shows has been cut at a NUL; ``orig_filename`` is what stands in the archive.
    name = info.orig_filename
    if not name or name.startswith("/") or _ODD.search(name) or {"..", ".", ""} & set(name.split("/")):
        raise _damaged(path, f"a file in it is called {one_line(name)}")
    if name in seen:
        raise _damaged(path, f"{one_line(name)} is in it twice")
    seen.add(name)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise _damaged(path, f"{one_line(name)} is a link or a special file")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _damaged(path, f"{one_line(name)} is packed in a way that wheels are not")
    if info.flag_bits & 1:
        raise _damaged(path, f"{one_line(name)} is encrypted")
    if info.file_size > SMALL_BYTES and info.file_size > MOST_RATIO * info.compress_size:
        raise _damaged(path, f"{one_line(name)} unpacks to {info.file_size // MIB} MiB from next to nothing")


def _write(archive: zipfile.ZipFile, path: Path, entry: WheelEntry, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    mode = 0o755 if entry.executable else 0o644
    with archive.open(entry.name) as source, os.fdopen(os.open(target, flags, mode), "wb") as out:
        # zipfile gives no more than the size that it says.
        digest, _ = copyfileobj_with_hashing(cast("BinaryIO", source), out, "sha256")
    if digest != entry.sha256:
        raise _damaged(path, f"{one_line(entry.name)} is not what its RECORD says")


def _of_the_archive(path: Path, error: OSError) -> Exception:
    """A place before the beginning of the file is nonsense in the archive; anything else is the disk's."""
    return _damaged(path, "it points outside itself") if error.errno == errno.EINVAL else error


def _damaged(path: Path, what: str) -> PackageDamagedError:
    return PackageDamagedError(f"{one_line(path.name)} is damaged or unsafe: {what}", hint=f"rm {path} and try again")


def _note(wheel: Path) -> Path:
    return wheel.with_name(f"{wheel.name}.sha256")


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(name for name in os.listdir(folder) if name.endswith(".whl"))
    return []


def _older(platforms: Sequence[str]) -> list[str]:
    """``1_x86_64``, ``2010_x86_64``: names from before versions of glibc were in them."""
    archs = {name.removeprefix("linux_") for name in platforms if name.startswith("linux_")}
    return [f"{old}_{arch}" for old in ("1", "2010", "2014") for arch in archs] + [
        f"_2_{minor}_{arch}" for minor in range(5, 17) for arch in archs
    ]
