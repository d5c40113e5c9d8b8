"""The ledger: a folder in which every supervised build of this user keeps one small file about itself.

Covers: the folder (ours, closed to others), our own file, reading the others', removing those of the dead.
Does *not* cover: what the figures mean (``policy.sharing``) or when they are written (``supervise.sharing``).

Nobody ever waits for anybody. A file belongs to one build, which alone writes it, in one go and with a checksum;
whoever reads half of it reads again. Its owner holds a lock on it (flock) for life, so the kernel itself says when he
is dead, and whoever notices removes the file. It gets its name when it is locked and filled, so that nobody takes a new
one for a dead one's.

The folder is not XDG_RUNTIME_DIR: that is set in one login and not in the other, and all builds must meet.
BUILDDOCTOR_LEDGER_DIR names another. Containers that share it (a bind mount) see each other; others do not.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from builddoctor.model.build_record import BuildRecord
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.scopes import boot_id

MOST_BYTES = 4096
MOST_BUILDS = 256
READ_AGAIN = 3
"""A file read while it is being written is whole a few microseconds later."""

_NAME = re.compile(r"\A[0-9a-f]{16}\Z")
_NEW = "new-"
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(BuildRecord)


def ledger_folder(env: Mapping[str, str]) -> Path | None:
    """The folder, made where it is missing; None when no place has one that is ours alone."""
    named = env.get("BUILDDOCTOR_LEDGER_DIR", "")
    user = os.geteuid()
    places = [named] if os.path.isabs(named) else [f"{parent}/builddoctor-{user}-ledger" for parent in _PARENTS]
    for place in places:
        with contextlib.suppress(OSError):
            os.mkdir(place, 0o700)
        with contextlib.suppress(OSError, ValueError):
            status = os.lstat(place)
            if stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077:
                return Path(place)
    return None


_PARENTS = ("/tmp", "/dev/shm")  # noqa: S108 - closed to others, and its owner is looked at


def open_ledger(env: Mapping[str, str], root: SystemRoot) -> Ledger | None:
    """The ledger of this user; None where there is no place for one: then no build knows of another."""
    folder = ledger_folder(env)
    if folder is None:
        return None
    with contextlib.suppress(OSError):
        return Ledger(folder, boot_id(root))
    return None


class _Peer:
    """Another build's file, held open."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.record: BuildRecord | None = None


class Ledger:
    """Our file and the others'. No method raises for what is in the folder."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        """Raises OSError when no file can be made and locked there."""
        self.build_id = secrets.token_hex(8)
        self._folder = folder
        self._boot_id = boot_id
        self._peers: dict[str, _Peer] = {}
        self._descriptor = self._new_file(BuildRecord(build_id=self.build_id, pid=os.getpid(), boot_id=boot_id))

    def _new_file(self, record: BuildRecord) -> int:
        path = self._folder / f"{_NEW}{self.build_id}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(descriptor, _packed(record), 0)
            os.rename(path, self._folder / self.build_id)
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        return descriptor

    def write(self, record: BuildRecord) -> None:
        """Say how it stands with us."""
        record = msgspec.structs.replace(record, build_id=self.build_id, boot_id=self._boot_id)
        with contextlib.suppress(OSError):
            if os.fstat(self._descriptor).st_nlink:
                os.pwrite(self._descriptor, _packed(record), 0)
                return
            # Somebody emptied the folder: nobody would see us any more.
            gone, self._descriptor = self._descriptor, self._new_file(record)
            os.close(gone)

    def peers(self) -> tuple[BuildRecord, ...]:
        """The other builds that live, as they last said. About 10 us, and 5 us for each."""
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            names = []
        wanted = [name for name in names if _NAME.match(name.removeprefix(_NEW)) and name != self.build_id]
        wanted = wanted[:MOST_BUILDS]
        for name in self._peers.keys() - set(wanted):
            os.close(self._peers.pop(name).descriptor)
        records = [record for name in wanted if (record := self._look(name)) is not None]
        return tuple(record for record in records if record.boot_id == self._boot_id)

    def close(self) -> None:
        """We are done: our file goes."""
        for peer in self._peers.values():
            os.close(peer.descriptor)
        self._peers.clear()
        with contextlib.suppress(OSError):
            if _same(self._folder / self.build_id, self._descriptor):
                os.unlink(self._folder / self.build_id)
        os.close(self._descriptor)

    def _look(self, name: str) -> BuildRecord | None:
        peer = self._peers.get(name)
        if peer is None:
            descriptor = _opened(self._folder / name)
            if descriptor is None:
                return None
            if name.startswith(_NEW) and not os.fstat(descriptor).st_size:
                # Its owner locks it before he fills it; our own try of that lock must not be in his way.
                os.close(descriptor)
                return None
            peer = self._peers[name] = _Peer(descriptor)
        if _ownerless(peer.descriptor):
            del self._peers[name]
            self._bury(name, peer.descriptor)
            return None
        if name.startswith(_NEW):
            # Its owner is about to give it its name.
            return None
        record = _read(peer.descriptor)
        if record is not None and record.build_id == name:
            peer.record = record
        return peer.record

    def _bury(self, name: str, descriptor: int) -> None:
        path = self._folder / name
        with contextlib.suppress(OSError):
            if _same(path, descriptor):
                os.unlink(path)
        os.close(descriptor)


def _packed(record: BuildRecord) -> bytes:
    body = _ENCODER.encode(record)
    return b"%08x %d\n%s" % (zlib.crc32(body), len(body), body)


def _read(descriptor: int) -> BuildRecord | None:
    """None for what is no record of ours."""
    for _ in range(READ_AGAIN):
        try:
            head, _, rest = os.pread(descriptor, MOST_BYTES, 0).partition(b"\n")
        except OSError:
            return None
        checksum, _, length = head.partition(b" ")
        if not re.fullmatch(rb"[0-9]{1,4}", length):
            return None
        body = rest[: int(length)]
        if b"%08x" % zlib.crc32(body) == checksum:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                return _DECODER.decode(body)
            return None
    return None


def _opened(path: Path) -> int | None:
    """A small plain file of this user's, and nothing else: no link, no pipe, no other's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    status = os.fstat(descriptor)
    plain = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_size <= MOST_BYTES
    if plain and status.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    return None


def _ownerless(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _same(path: Path, descriptor: int) -> bool:
    there, held = os.lstat(path), os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)
