"""The ledger: a folder in which every supervised build of this user keeps one small file about itself.

Covers: the folder (ours, closed to others), our own file, reading the others', removing those of the dead.
Does *not* cover: what the figures mean (``policy.sharing``) or when they are written (``supervise.sharing``).

Nobody ever waits for anybody: there are no locks. A file belongs to one build, which alone writes it, under another
name first, so that whoever reads it reads all of it. A build is dead when its supervisor is: pid and start time say so,
where both count processes alike; elsewhere a dead build falls silent, like one that was stopped.

The folder is not XDG_RUNTIME_DIR: that is set in one login and not in the other, and all builds must meet.
BUILDDOCTOR_LEDGER_DIR names another. Containers that share it (a bind mount) see each other; others do not.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from builddoctor.model.build_record import BuildRecord
from builddoctor.sensors.process import Processes
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.scopes import boot_id

MOST_BYTES = 4096
MOST_BUILDS = 64
FORGOTTEN_S = 86_400.0
"""Files of builds that nobody here can ask about are removed when they are this old."""

_NAME = re.compile(r"\A[0-9a-f]{16}\Z")
_NEW = ".new"
_PARENTS = ("/tmp", "/dev/shm")  # noqa: S108 - closed to others, and its owner is looked at
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(BuildRecord)
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(env: Mapping[str, str]) -> tuple[Path, int]:
    """The folder, made where it is missing, and a descriptor of it. Raises OSError when no place is ours alone."""
    named = env.get("BUILDDOCTOR_LEDGER_DIR", "")
    user = os.geteuid()
    places = [named] if os.path.isabs(named) else [f"{parent}/builddoctor-{user}-ledger" for parent in _PARENTS]
    problem: OSError | None = None
    for place in places:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(place, 0o700)
            descriptor = os.open(place, _FOLDER_FLAGS)
        except (OSError, ValueError) as error:
            problem = error if isinstance(error, OSError) else OSError(str(error))
            continue
        status = os.fstat(descriptor)
        if status.st_uid == user and not status.st_mode & 0o077:
            return Path(place), descriptor
        os.close(descriptor)
        problem = PermissionError(f"{place} is not this user's alone")
    raise problem or OSError("no place for it")


class Ledger:
    """Our file and the others'. Raises OSError where the folder cannot be used, and for nothing that lies in it."""

    def __init__(self, env: Mapping[str, str], root: SystemRoot, *, pid: int | None = None) -> None:
        """Raises OSError when there is no folder for it. ``pid``: whose life stands for the build, if not ours."""
        self.build_id = secrets.token_hex(8)
        self._env = dict(env)
        self._processes = Processes(root)
        self._pid = pid or os.getpid()
        self._start_ticks = self._processes.start_ticks(self._pid) or 0
        self._boot_id = boot_id(root)
        self._pid_space = root.link("/proc/self/ns/pid")[:64]
        self._beat = 0
        self._folder, self._descriptor = open_folder(env)

    def write(self, record: BuildRecord) -> None:
        """Say how it stands with us. About 50 us."""
        self._beat += 1
        content = _ENCODER.encode(
            msgspec.structs.replace(
                record,
                build_id=self.build_id,
                pid=self._pid,
                start_ticks=self._start_ticks,
                boot_id=self._boot_id,
                pid_space=self._pid_space,
                beat=self._beat,
            )
        )
        try:
            self._put(content)
        except FileNotFoundError:
            # Somebody removed the folder just now.
            self._put(content)

    def _put(self, content: bytes) -> None:
        self._enter()
        new = f"{self.build_id}{_NEW}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(new, flags, 0o600, dir_fd=self._descriptor)
        try:
            if os.write(descriptor, content) != len(content):
                raise OSError("no space for it")
        finally:
            os.close(descriptor)
        os.replace(new, self.build_id, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def others(self) -> list[BuildRecord]:
        """The other builds that live, as they last said. About 10 us, and 40 us for each."""
        names = [name for name in sorted(os.listdir(self._descriptor)) if _NAME.match(name.removesuffix(_NEW))]
        found: list[BuildRecord] = []
        for name in names:
            if len(found) < MOST_BUILDS and not name.startswith(self.build_id):
                record = None if name.endswith(_NEW) else self._read(name)
                if record is None or record.build_id != name:
                    self._forget(name)
                elif self._lives(record):
                    found.append(record)
        return found

    def close(self) -> None:
        """We are done: our file goes."""
        for name in (self.build_id, f"{self.build_id}{_NEW}"):
            self._remove(name)
        os.close(self._descriptor)

    def _enter(self) -> None:
        """Somebody may have removed the folder: nobody would see us any more."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.lstat(self._folder), os.fstat(self._descriptor)):
                return
        folder, descriptor = open_folder(self._env)
        os.close(self._descriptor)
        self._folder, self._descriptor = folder, descriptor

    def _read(self, name: str) -> BuildRecord | None:
        """A small plain file of this user's, and nothing else: no link, no pipe, no other's, no nonsense."""
        try:
            descriptor = os.open(
                name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._descriptor
            )
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            plain = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink <= 1
            if not plain or status.st_size > MOST_BYTES:
                return None
            return _DECODER.decode(os.read(descriptor, MOST_BYTES))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        finally:
            os.close(descriptor)

    def _lives(self, record: BuildRecord) -> bool:
        if record.boot_id != self._boot_id:
            self._forget(record.build_id)
            return False
        if not record.start_ticks or not record.pid_space or record.pid_space != self._pid_space:
            # Its pid is somebody else's here, or nobody's: only its silence tells.
            self._forget(record.build_id)
            return True
        if self._processes.lives(record.pid, record.start_ticks):
            return True
        for name in (record.build_id, f"{record.build_id}{_NEW}"):
            self._remove(name)
        return False

    def _forget(self, name: str) -> None:
        """Remove what has long been of no use to anybody."""
        with contextlib.suppress(OSError):
            status = os.lstat(name, dir_fd=self._descriptor)
            if stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime > FORGOTTEN_S:
                self._remove(name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._descriptor)
