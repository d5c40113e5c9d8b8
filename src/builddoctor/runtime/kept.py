"""What builddoctor keeps on disk, and what of it may go: the parts of the cache folder, and traces.

Covers: sizes; removing parts that are made again when they are needed; traces beyond an age or a size.
Does *not* cover: toolkits (``toolkits.managed``), or the history, which is small (``history``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from builddoctor.core.units import MIB
from builddoctor.runtime.failure_capture import repro_folder
from builddoctor.runtime.folders import cache_folder, traces_folder

DAY_S = 86_400.0


class KeptPart(msgspec.Struct, frozen=True, kw_only=True):
    """One folder of ours."""

    name: str
    """as ``cache clean`` takes it"""
    holds: str
    """in words"""
    folder: str
    files: int
    size_mib: float
    again: str
    """what has to be done again when it is removed"""


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """Traces that went, or would."""

    traces: int
    size_mib: float
    left: int
    left_mib: float


_PARTS = (
    ("pages", "pages of `trace view`", "nothing: made again when looked at"),
    ("wheels", "NVIDIA's packages, as they were fetched", "`toolkit install` fetches them again"),
    ("sources", "sources of projects built by name", "`build NAME` fetches and compiles all of it again"),
    ("staged", "what runs staged builds", "nothing: made again when one runs"),
    ("overlays", "gates in the place of compilers", "folders configured under builddoctor have to run under it next"),
    ("activated", "what starts supervisors in activated shells", "`activate` again in shells that are"),
)
CHEAP = ("pages", "wheels")
"""What goes where nothing is named."""


def parts(env: Mapping[str, str]) -> list[KeptPart]:
    """All that there are, in the order in which they may go. Reads sizes only."""
    cache = cache_folder(env)
    found = []
    for name, holds, again in _PARTS:
        folder = cache / name
        if folder.is_dir():
            files, size_mib = _size(folder)
            found.append(
                KeptPart(
                    name=name, holds=holds, folder=str(folder), files=files, size_mib=round(size_mib, 1), again=again
                )
            )
    return found


def remove(found: Iterable[KeptPart]) -> None:
    """What cannot be removed stays; a second look at the sizes shows it."""
    for part in found:
        shutil.rmtree(part.folder, ignore_errors=True)


def prune_traces(env: Mapping[str, str], *, now_s: float, days: float, most_mib: float, really: bool) -> Pruned:
    """Remove traces older than ``days``, then the oldest until the rest takes no more than ``most_mib``.

    One that a build still writes stays. ``now_s``: since 1970. What a trace kept for `trace repro` goes with it.
    """
    kept: list[float] = []
    gone: list[float] = []
    for path in sorted(traces_folder(env).glob("*.jsonl"), reverse=True):
        try:
            age_s = now_s - path.stat().st_mtime
        except OSError:
            continue
        beside = repro_folder(path)
        size_mib = _size(path)[1] + (_size(beside)[1] if beside.is_dir() else 0.0)
        if (age_s <= days * DAY_S and sum(kept) + size_mib <= most_mib) or _is_written(path):
            kept.append(size_mib)
            continue
        gone.append(size_mib)
        if really:
            shutil.rmtree(beside, ignore_errors=True)
            with contextlib.suppress(OSError):
                path.unlink()
    return Pruned(traces=len(gone), size_mib=round(sum(gone), 1), left=len(kept), left_mib=round(sum(kept), 1))


def _is_written(path: Path) -> bool:
    """A build holds its lock (``trace.writer``)."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _size(place: Path) -> tuple[int, float]:
    """Files, and the room on disk that they take, MiB. Links are not followed."""
    files, blocks = 0, 0
    for path in [place] if place.is_file() else _below(place):
        with contextlib.suppress(OSError):
            blocks += os.lstat(path).st_blocks
            files += 1
    return files, blocks * 512 / MIB


def _below(folder: Path) -> Iterator[str]:
    for above, _, names in os.walk(folder):
        yield from (os.path.join(above, name) for name in names)
