"""Is there room for a toolkit: before anything is fetched by known sizes, afterwards by what came.

Does *not* cover: what fetching needs besides (pip unpacks nothing), quotas that the kernel does not tell.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builddoctor.errors import DiskFullError, FolderNotWritableError
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.storage import read_place
from builddoctor.toolkits import store
from builddoctor.units import format_mib

SPARE_MIB = 16.0
"""left free for links, folders and blocks that are not full"""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def check_room(folder: Path, wheels: Path, *, fetch_mib: float, disk_mib: float) -> None:
    """``folder`` of the toolkits and the cache, on one disk or two. Raises DiskFullError."""
    if os.stat(folder).st_dev == os.stat(wheels).st_dev:
        both = f"{format_mib(fetch_mib)} to fetch and {format_mib(disk_mib)} for it"
        require(folder, fetch_mib + disk_mib, both)
    else:
        require(wheels, fetch_mib, f"{format_mib(fetch_mib)} to fetch")
        require(folder, disk_mib, f"{format_mib(disk_mib)} for it")


def require(folder: Path, need_mib: float, what: str) -> None:
    """``what`` says the need in words. Raises DiskFullError."""
    left_mib = free_mib(folder)
    if left_mib is not None and left_mib < need_mib + SPARE_MIB:
        raise DiskFullError(
            f"no room for the toolkit: about {what}, and {format_mib(left_mib)} free in {folder}",
            hint="--into a folder on another disk; BUILDDOCTOR_CACHE_DIR says where wheels are kept",
        )


def free_mib(folder: Path) -> float | None:
    """What is left; None when the disk does not say."""
    return read_place(SystemRoot(), folder, role="toolkits").free_mib


@contextmanager
def full_disk_said(folder: Path) -> Iterator[None]:
    """Errors of the system inside, as ours: a full disk, or a folder that cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DiskFullError(
                f"the disk is full: nothing installed in {folder}", hint="--into a folder on another disk"
            ) from error
        raise FolderNotWritableError(
            f"nothing installed in {folder}: {error.strerror or error}", hint=store.INTO_HINT
        ) from error
