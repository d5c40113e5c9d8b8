"""Checks of the folders that a build writes to, and the choice of a folder for temporary files. Pure.

Covers: memory in disguise, space, inodes, mount options, drives of Windows in WSL2; which folder is fit to be TMPDIR,
and which is best.
Does *not* cover: reading them (``system.storage``), making a TMPDIR or remembering it (``doctor --fix``).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from builddoctor.core.check import Check, FixName, Status, Topic
from builddoctor.core.machine import Place
from builddoctor.core.units import format_mib

TMPDIR, SOURCES, BUILD, CACHE, TRACES, SHM = "TMPDIR", "sources", "build folder", "cache", "traces", "/dev/shm"  # noqa: S108
"""Roles of places that are checked."""

FULL_MIB = 16.0
"""Not one compiler can write its files."""

FEW_INODES = 1000
LOW_INODES = 20_000
"""A checkout with submodules and a build folder has tens of thousands of files, nvcc 20 of them a unit at a time."""

SHM_SHARE = 0.05
SHM_LEAST_MIB = 256.0
"""What others keep in /dev/shm is mentioned from here on: no compiler writes there by itself."""

_ELSEWHERE = ("/var/tmp", "home", BUILD)  # noqa: S108
"""Roles of places that a hint may name for temporary files."""

_WINDOWS_DRIVES = frozenset(("9p", "virtiofs"))
"""How WSL2 shows them (virtiofs if .wslconfig says so). WSL1's drvfs is not as slow (microsoft/WSL#4706)."""

_OVERRIDE = {CACHE: "BUILDDOCTOR_CACHE_DIR", TRACES: "BUILDDOCTOR_STATE_DIR"}


def storage_checks(
    places: Sequence[Place],
    *,
    limit_mib: float,
    open_units: int = 0,
    archs: int = 1,
    needs_nvcc: bool = False,
    wsl2: bool = False,
) -> list[Check]:
    """All checks of topic ``disk``.

    ``limit_mib``: the build's memory limit; ``open_units`` and ``archs``: how many units are open at once, for how many
    archs each, 0 when unknown; ``needs_nvcc``: nvcc will be called, which cannot do without TMPDIR (gcc can);
    ``wsl2``: some folders may lie on Windows's drives.
    """
    build_device = next((place.device for place in places if place.role == BUILD), "")
    elsewhere = [place for role in _ELSEWHERE for place in places if place.role == role]
    export = export_line(elsewhere, build_device=build_device)
    found: list[Check] = []
    for place in places:
        if place.role == TMPDIR:
            found += _tmpdir(place, export, _cost(limit_mib, open_units, archs), needs_nvcc=needs_nvcc)
        elif place.role == BUILD:
            found += _build_folder(place)
        elif place.role in _OVERRIDE:
            found += _own_folder(place)
        elif place.role == SHM:
            found += _shared_memory(place, limit_mib)
    if wsl2:
        found += _windows_drive(places)
    for roles, place in _file_systems(places):
        found += _room(roles, place, export)
    return found


def _tmpdir(place: Place, export: str, cost: str, *, needs_nvcc: bool) -> list[Check]:
    named = f"TMPDIR={place.path}"
    if place.missing or not place.writable:
        what = "does not exist" if place.missing else "cannot be written"
        return [
            Topic.DISK.check(
                "tmpdir-usable",
                Status.PROBLEM,
                f"{named} {what}: nvcc stops with `Could not open output file`",
                f"mkdir -p {shlex.quote(place.path)}" if place.missing and place.writable else export,
                fix=FixName.TMPDIR,
                stops=needs_nvcc,
            )
        ]
    found: list[Check] = []
    if place.in_memory:
        found.append(
            Topic.DISK.check(
                "tmpdir-memory",
                Status.WARNING,
                f"{named} is {_kind(place)}: what compilers write there is memory until it is deleted; "
                f"{cost}{_in_use(place)}",
                export,
                fix=FixName.TMPDIR,
            )
        )
    if place.noexec:
        text = f"{named} is mounted noexec: configure steps that run what they compiled there fail"
        found.append(_warning("tmpdir-noexec", text, hint=export, fix=FixName.TMPDIR))
    return found


def _build_folder(place: Place) -> list[Check]:
    if not place.writable:
        why = f"is on a file system mounted read-only ({place.mount})" if place.read_only else "cannot be written"
        text = f"the build folder {place.path} {why}"
        hint = "copy the sources to a folder of yours and build there: `cp -r` keeps submodules"
        return [Topic.DISK.check("build-folder-usable", Status.PROBLEM, text, hint)]
    found: list[Check] = []
    if place.in_memory:
        text = f"the build folder {place.path} is {_kind(place)}: objects and libraries there are memory of this build"
        hint = "build in a folder on disk; `/var/tmp` usually is one"
        found.append(_warning("build-folder-memory", f"{text}{_in_use(place)}", hint=hint))
    if place.noexec:
        text = f"the build folder {place.path} is mounted noexec: CMake's and configure's trial programs cannot run"
        hint = f"mount -o remount,exec {shlex.quote(place.mount)}    # as root; or build elsewhere"
        found.append(_warning("build-folder-noexec", text, hint=hint))
    return found


def _windows_drive(places: Sequence[Place]) -> list[Check]:
    """One line, for the sources before the build folder in them."""
    there = [place for role in (SOURCES, BUILD) for place in places if place.role == role]
    place = next((place for place in there if place.filesystem in _WINDOWS_DRIVES), None)
    if place is None:
        return []
    text = (
        f"{place.role}: {place.path} is on a drive of Windows ({place.filesystem}): each file goes through "
        "Windows, and a build takes many times as long (microsoft/WSL#4197)"
    )
    hint = "build in a folder of Linux's own file system, such as one in your home"
    if place.role == SOURCES:
        hint = f"cp -r {shlex.quote(place.path)} ~/ && cd ~/{shlex.quote(PurePosixPath(place.path).name)}"
    return [_warning("windows-drive", text, hint=hint)]


def _own_folder(place: Place) -> list[Check]:
    what = ""
    if not place.writable:
        what = "cannot be written"
    elif place.role == CACHE and place.noexec:
        what = "is mounted noexec: gates cannot be started from there"
    if not what:
        return []
    name = f"{place.role}-folder"
    text = f"builddoctor's folder for {place.role}, {place.path}, {what}"
    hint = f"export {_OVERRIDE[place.role]}=/some/folder"
    return [Topic.DISK.check(name, Status.PROBLEM, text, hint)]


def _shared_memory(place: Place, limit_mib: float) -> list[Check]:
    used_mib = _used_mib(place)
    if not place.in_memory or used_mib < max(SHM_LEAST_MIB, SHM_SHARE * limit_mib):
        return []
    text = f"{place.path} holds {format_mib(used_mib)}: memory until it is deleted, though no process may own it"
    return [_warning("shm-in-use", text, hint=f"ls -lS {shlex.quote(place.path)}")]


def _file_systems(places: Sequence[Place]) -> list[tuple[str, Place]]:
    """TMPDIR and build folder, as one where they share a file system."""
    groups: dict[str, list[Place]] = {}
    for place in places:
        if place.role in (TMPDIR, BUILD):
            groups.setdefault(place.device or place.mount or place.path, []).append(place)
    return [(" and ".join(place.role for place in group), group[0]) for group in groups.values()]


def _room(roles: str, place: Place, export: str) -> list[Check]:
    """Space and inodes of one file system."""
    where = f"{place.mount or place.path} ({place.filesystem or 'unknown file system'})"
    moves = roles == TMPDIR
    hint = export if moves else f"du -xh -d 2 {shlex.quote(place.mount or place.path)} | sort -h | tail"
    fix = FixName.TMPDIR if moves else FixName.NONE
    found: list[Check] = []
    free_mib = place.free_mib
    if free_mib is None:
        if not place.in_memory:
            text = f"how much is free for {roles} on {where} cannot be asked"
            there = place.mount if place.missing and place.mount else place.path
            found.append(
                _warning(
                    "disk-space",
                    text,
                    hint=f"df -h {shlex.quote(there)}",
                )
            )
    else:
        status = _graded(free_mib, LEAST_FREE_MIB, ENOUGH_FREE_MIB)
        room = f"{format_mib(free_mib)} free for {roles} on {where}"
        text = {
            Status.OK: room,
            Status.WARNING: f"{room}: little; objects and libraries of several archs take gigabytes",
            Status.PROBLEM: f"{room}: `No space left on device` is near; nvcc with --threads dies of it without a word",
        }[status]
        found.append(_graded_check("disk-space", status, text, hint, fix, stops=free_mib < FULL_MIB))
    inodes = place.free_inodes
    if inodes is not None and inodes < LOW_INODES:
        status = _graded(inodes, FEW_INODES, LOW_INODES)
        text = f"{inodes} inodes free for {roles} on {where}: no more files than that can be made, whatever is free"
        counting = hint if moves else f"du -x --inodes -d 2 {shlex.quote(place.mount or place.path)} | sort -n | tail"
        found.append(_graded_check("disk-inodes", status, text, counting, fix, stops=inodes == 0))
    return found


def _graded(value: float, problem_below: float, warning_below: float) -> Status:
    if value < problem_below:
        return Status.PROBLEM
    return Status.WARNING if value < warning_below else Status.OK


def _graded_check(name: str, status: Status, text: str, hint: str, fix: FixName, *, stops: bool) -> Check:
    if status is Status.OK:
        return Topic.DISK.check(name, status, text)
    return Topic.DISK.check(name, status, text, hint, fix=fix, stops=stops)


def _warning(name: str, text: str, *, hint: str, fix: FixName = FixName.NONE) -> Check:
    return Topic.DISK.check(name, Status.WARNING, text, hint, fix=fix)


def _cost(limit_mib: float, open_units: int, archs: int) -> str:
    each_mib = NVCC_FILES_MIB * max(1, archs)
    if open_units <= 0:
        return f"about {each_mib:.0f} MiB of nvcc's files for each open unit"
    whole = format_mib(each_mib * open_units)
    return f"about {whole} of nvcc's files with {open_units} units open, inside the limit of {format_mib(limit_mib)}"


def _kind(place: Place) -> str:
    return f"a {place.filesystem}" if place.filesystem in ("tmpfs", "ramfs") else f"in memory ({place.filesystem})"


def _in_use(place: Place) -> str:
    used_mib = _used_mib(place)
    return f"; {format_mib(used_mib)} are in use there now" if used_mib >= 1 else ""


def _used_mib(place: Place) -> float:
    if place.total_mib is None or place.free_mib is None:
        return 0.0
    return max(0.0, place.total_mib - place.free_mib)


# -- a folder for temporary files ------------------------------------------------------------------------------------


LEAST_FREE_MIB = 1024.0
"""Below this a build fails sooner or later: 20 open units hold this much by ``NVCC_FILES_MIB``. A round number."""

ENOUGH_FREE_MIB = 5 * 1024.0
"""Below this a build may fail: pip unpacks and links below TMPDIR, a library of several archs takes gigabytes."""

NVCC_FILES_MIB = 45.0
"""What nvcc keeps in TMPDIR for one open unit and arch: preprocessed sources, generated C++, PTX, cubins.

Nine in ten units of TransformerEngine 2.8 (sm_100, nvcc 13.0) stay below it, the largest has 92 MiB: the summed input
sizes of a unit's phases. They are deleted at the unit's end, but stay when nvcc itself is killed."""

_NETWORK = _WINDOWS_DRIVES | frozenset(
    ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "afs", "panfs", "wekafs")
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
