"""TMPDIR before a build: nvcc makes files there for any question, and blames everything else when it cannot.

Does *not* cover: folders that a build could do with, but had better not (``doctor.storage``).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from builddoctor.doctor.tmpdirs import export_line
from builddoctor.errors import FolderNotWritableError
from builddoctor.intercept.toolkit import FULL_MIB
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.storage import read_places


def require_tmpdir(env: Mapping[str, str], root: SystemRoot) -> None:
    """Raises FolderNotWritableError when nvcc cannot write its temporary files."""
    if any("-objtemp" in env.get(name, "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")):
        # It writes them beside its objects.
        return
    place, *others = read_places(root, env, ())
    what = ""
    if place.missing:
        what = "does not exist"
    elif not place.writable:
        what = "cannot be written"
    elif place.free_mib is not None and place.free_mib < FULL_MIB:
        what = "is full"
    if what:
        elsewhere = [other for other in others if other.role in ("/var/tmp", "home")]  # noqa: S108
        made = place.missing and place.writable and not place.read_only and not os.path.lexists(place.path)
        hint = f"mkdir -p {shlex.quote(place.path)}" if made else export_line(elsewhere)
        raise FolderNotWritableError(f"nvcc cannot write its temporary files: TMPDIR={place.path} {what}", hint=hint)
