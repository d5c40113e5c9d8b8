"""Which folder is fit to be TMPDIR, and which is best. Pure.

Does *not* cover: making one, or remembering it (``supervise.fixing``).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from builddoctor.model.machine import Place

LEAST_FREE_MIB = 1024.0
"""Below this a build fails sooner or later: 20 open units hold this much by ``NVCC_FILES_MIB``. A round number."""

ENOUGH_FREE_MIB = 5 * 1024.0
"""Below this a build may fail: pip unpacks and links below TMPDIR, a library of several archs takes gigabytes."""

NVCC_FILES_MIB = 45.0
"""What nvcc keeps in TMPDIR for one open unit and arch: preprocessed sources, generated C++, PTX, cubins.

Nine in ten units of TransformerEngine 2.8 (sm_100, nvcc 13.0) stay below it, the largest has 92 MiB: the summed input
sizes of a unit's phases. They are deleted at the unit's end, but stay when nvcc itself is killed."""

_NETWORK = frozenset(
    ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p", "afs", "panfs", "wekafs")
)
"""File systems on which many small files are slow."""


def unfit(place: Place) -> str:
    """Why a build had better not use this folder for temporary files; empty when it may."""
    if place.missing:
        return "does not exist"
    if place.read_only:
        return "is mounted read-only"
    if not place.writable:
        return "cannot be written"
    if place.in_memory:
        return f"is a {place.filesystem or 'file system'} in memory"
    if place.noexec:
        return "is mounted noexec"
    if place.free_mib is not None and place.free_mib < LEAST_FREE_MIB:
        return "is nearly full"
    return ""


def best(candidates: Sequence[Place], *, build_device: str = "") -> Place | None:
    """The candidate to take; a missing folder counts if it can be made. None when none is fit.

    Room for a whole build first, local before network, then the build folder's own file system, then the most room;
    on one file system, and among equals, the first.
    """
    first: dict[str, Place] = {}
    for place in candidates:
        if _can_be_made_fit(place):
            first.setdefault(place.device or place.path, place)
    return max(
        first.values(),
        key=lambda place: (
            (place.free_mib or 0.0) >= ENOUGH_FREE_MIB,
            not is_network(place),
            bool(place.device) and place.device == build_device,
            place.free_mib or 0.0,
        ),
        default=None,
    )


def is_network(place: Place) -> bool:
    """Its files are on another machine."""
    return place.filesystem in _NETWORK or place.filesystem == "fuse.sshfs"


def export_line(candidates: Sequence[Place], *, build_device: str = "") -> str:
    """A line for the shell that moves TMPDIR to disk; without a disk, one that makes nvcc write beside its objects.

    nvcc 13.0 takes ``-objtemp`` from NVCC_APPEND_FLAGS when it compiles, links and preprocesses alike.
    """
    place = best([each for each in candidates if not each.missing], build_device=build_device)
    if place is None:
        return 'export NVCC_APPEND_FLAGS="$NVCC_APPEND_FLAGS -objtemp"'
    return f"export TMPDIR=$(mktemp -d {shlex.quote(place.path.rstrip('/') + '/build.XXXXXX')})"


def _can_be_made_fit(place: Place) -> bool:
    """As it is, or after ``mkdir``. Blanks are left out: not every build quotes its TMPDIR."""
    plain = place.path.startswith("/") and place.path.isprintable() and " " not in place.path
    usable = place.writable and not (place.read_only or place.in_memory or place.noexec)
    return plain and usable and (place.free_mib or 0.0) >= LEAST_FREE_MIB
