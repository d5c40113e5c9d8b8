"""Read a wheel without trusting it: every name, size and hash is checked before and while a file of it is written.

Refused: names that lead out, links and other special files, names twice, more or larger files than any toolkit has,
files that RECORD does not list or lists with another hash, encrypted entries.
Does *not* cover: where the files go (``toolkits.merge``), or the wheel's own hash (``toolkits.cache``).
"""

from __future__ import annotations

import base64
import binascii
import csv
import errno
import hashlib
import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from builddoctor.errors import PackageDamagedError
from builddoctor.units import MIB, one_line

MOST_FILES = 50_000
MOST_BYTES = 8 * 1024 * MIB
"""The largest package of CUDA 13 unpacks to 1 GiB."""
MOST_LIST_BYTES = 16 * MIB
MOST_RATIO = 200
"""Headers shrink to a tenth at best; what shrinks more is made to fill a disk."""
SMALL_BYTES = 1 * MIB

_CHUNK_BYTES = 1 * MIB
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, csv.Error),
    *(NotImplementedError, RuntimeError, EOFError, ValueError, LookupError, OverflowError),
)
"""What the standard library raises for archives with nonsense in them."""
_ODD = re.compile(r"[\x00-\x1f\x7f\\:]")


class WheelEntry(msgspec.Struct, frozen=True):
    """One file of a wheel."""

    name: str
    size: int
    sha256: bytes
    executable: bool


class Wheel(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel that was looked through."""

    path: Path
    name: str
    """as pip spells it: ``nvidia-cuda-nvcc``"""
    version: str
    entries: tuple[WheelEntry, ...]
    """without RECORD"""
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
        raise _damaged(path, str(error)) from error
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
        raise _damaged(wheel.path, str(error)) from error
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
    lists = {part: [info for info in infos if _is_info(info.filename, name, part)] for part in ("RECORD", "METADATA")}
    if any(len(found) != 1 for found in lists.values()):
        raise _damaged(path, "it has no RECORD and METADATA of its own")
    record = dict(_record(path, _text(archive, path, lists["RECORD"][0])))
    entries = []
    for info in infos:
        if info is lists["RECORD"][0]:
            continue
        digest = record.pop(info.filename, b"")
        if not digest:
            raise _damaged(path, f"{one_line(info.filename)} is not in its RECORD")
        executable = bool(info.external_attr >> 16 & 0o111)
        entries.append(WheelEntry(info.filename, info.file_size, digest, executable))
    if missing := next((missing for missing, digest in record.items() if digest), ""):
        raise _damaged(path, f"{one_line(missing)} is missing")
    metadata = _text(archive, path, lists["METADATA"][0])
    return Wheel(path=path, name=canonicalize_name(name), version=version, entries=tuple(entries), metadata=metadata)


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


def _is_info(filename: str, name: str, part: str) -> bool:
    folder, _, rest = filename.partition("/")
    return rest == part and folder.endswith(".dist-info") and canonicalize_name(folder.split("-")[0]) == name


def _text(archive: zipfile.ZipFile, path: Path, info: zipfile.ZipInfo) -> str:
    if info.file_size > MOST_LIST_BYTES:
        raise _damaged(path, f"its {one_line(info.filename)} has {info.file_size // MIB} MiB")
    return archive.read(info).decode()


def _record(path: Path, text: str) -> Iterator[tuple[str, bytes]]:
    for row in csv.reader(io.StringIO(text)):
        if len(row) < 2 or not row[1]:
            continue
        kind, _, digest = row[1].partition("=")
        if kind != "sha256":
            raise _damaged(path, f"its RECORD has {one_line(kind)} hashes")
        try:
            yield row[0], base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4))
        except (binascii.Error, ValueError) as error:
            raise _damaged(path, "its RECORD cannot be read") from error


def _write(archive: zipfile.ZipFile, path: Path, entry: WheelEntry, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    mode = 0o755 if entry.executable else 0o644
    with archive.open(entry.name) as source, os.fdopen(os.open(target, flags, mode), "wb") as out:
        # zipfile gives no more than the size that it says.
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
    if digest.digest() != entry.sha256:
        raise _damaged(path, f"{one_line(entry.name)} is not what its RECORD says")


def _of_the_archive(path: Path, error: OSError) -> Exception:
    """A place before the beginning of the file is nonsense in the archive; anything else is the disk's."""
    return _damaged(path, "it points outside itself") if error.errno == errno.EINVAL else error


def _damaged(path: Path, what: str) -> PackageDamagedError:
    return PackageDamagedError(f"{one_line(path.name)} is damaged or unsafe: {what}", hint=f"rm {path} and try again")
