"""Folders of a user: where cache, settings, data and state lie by the customs of Linux, also for one who has no home;
and folders that end with the process that made them.

What a process that was killed leaves is removed by the next that makes such a folder there. That it is dead, the kernel
says: it held a lock. A folder without that lock, of another user, or of another boot is left alone: where a file system
is shared, another machine's locks may not be seen.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Literal

from platformdirs import PlatformDirs

from builddoctor.system.root import SystemRoot

OURS = "builddoctor-"
LOCK = ".held"
"""In such a folder; it names the boot once it is locked."""


def usual_folder(kind: Literal["cache", "config", "data", "state"]) -> Path:
    """Ours of that kind. Below ``/`` where HOME is not set and the user is not in passwd, as in some containers."""
    try:
        found: Path = getattr(PlatformDirs("builddoctor"), f"user_{kind}_path")
    except RuntimeError:
        found = Path()
    # Older versions of platformdirs name a folder `~` instead.
    return found if found.is_absolute() else Path("/", f".{kind}", "builddoctor")


class HeldFolder:
    """A new folder for this process and user alone (0700), which goes with it."""

    def __init__(self, parent: str, prefix: str, root: SystemRoot) -> None:
        """``prefix``: of its name, with ``OURS`` at its beginning; ``root`` tells the boot. Raises OSError."""
        boot = (root.text("/proc/sys/kernel/random/boot_id") or "").strip().encode()
        for entry in _entries(parent):
            if entry.name.startswith(OURS) and _is_dead(entry, boot):
                shutil.rmtree(entry, ignore_errors=True)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # No program that this process starts has it: it is let go when this one ends, however it ends.
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            os.write(self._lock, boot)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _entries(parent: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(parent) as found:
            return list(found)
    except OSError:
        return []


def _is_dead(entry: os.DirEntry[str], boot: bytes) -> bool:
    """It was held by a process of this user since this boot, and is no more."""
    try:
        seen = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or not boot:
            return False
        lock = os.open(os.path.join(entry.path, LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # One that is just being made has not written yet.
        return os.read(lock, 64) == boot
    except OSError:
        return False
    finally:
        os.close(lock)
