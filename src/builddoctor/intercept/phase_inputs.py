"""Copy what a compiler phase reads, so that the phase can be run again when its temporary files are gone.

Covers: files named on the command line, as they are or packed; a C or C++ source as the phase's own compiler
preprocesses it, since its headers are not copied. All of it bounded in bytes, memory and time.
Does *not* cover: which phases are worth it (``supervise.keeping``), or the command beside the copies (``phase_files``).
"""

from __future__ import annotations

import contextlib
import gzip
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from builddoctor.intercept.captured import Captured, run_captured
from builddoctor.intercept.phase_files import LINKERS, input_paths, preprocesses, preprocessing, short_name, source_path
from builddoctor.intercept.side_by_side import Patience
from builddoctor.units import MIB

CHUNK_BYTES = 1 * MIB
PACKING = 3
"""A preprocessed source becomes a sixth, at 60 MB a second; more effort gains little."""

PREPROCESS_MIB = (384.0, 1024.0)
"""Address space of a preprocessor, least and most: few sources take 100 MiB, the largest some 300."""

PREPROCESS_S = 60.0
HEADERS_MISSING = "its headers are not here: it needs the include folders that its command names"


class PhaseCall(msgspec.Struct, frozen=True, kw_only=True):
    """A phase's program as it was called."""

    tool: str
    """path of the program itself, not of a gate"""
    argv: tuple[str, ...]
    """without the program"""
    cwd: str
    env: Mapping[str, str] = {}
    """for the preprocessor alone; never written anywhere"""

    @property
    def name(self) -> str:
        return os.path.basename(self.tool)


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """One input, copied. ``name`` is without the ``.gz`` of a packed one."""

    name: str
    path: str
    size_bytes: int


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """What was copied of a phase. ``note``: what is missing; empty when nothing is."""

    files: tuple[Copied, ...]
    preprocessed: bool = False
    note: str = ""
    written_bytes: int = 0


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class TooLargeError(Exception):
    """More than may be written."""


def copy_inputs(
    call: PhaseCall, folder: Path, *, packed: bool, most_bytes: int, patience: Patience, memory_mib: float
) -> Copies:
    """Copy what ``call`` reads into ``folder``, which is there and empty.

    ``packed``: each file as ``NAME.gz``. ``most_bytes``: that may be written. ``memory_mib``: address
    space that a preprocessor may have; with too little there is none.
    Raises OSError for a disk that is full or fails, TooLargeError.
    """

    def is_file(path: str) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return os.path.isfile(os.path.join(call.cwd, path))
        return False

    writer = _Writer(folder, packed=packed, most_bytes=most_bytes)
    source = source_path(call.name, call.argv, is_file)
    if (
        source
        and not preprocesses(call.argv)
        and not source.endswith((".ii", ".i"))
        and memory_mib >= PREPROCESS_MIB[0]
    ):
        name = os.path.splitext(short_name(source))[0] + (".i" if call.name == "cc1" else ".ii")
        # Written from another folder.
        whole = folder.absolute() / f".{name}"
        try:
            done = _preprocess(call, whole, min(memory_mib, PREPROCESS_MIB[1]), patience)
            if done.status == 0:
                size = writer.take(whole, name)
                file = Copied(name=name, path=source, size_bytes=size)
                return Copies(files=(file,), preprocessed=True, written_bytes=writer.written_bytes)
        finally:
            whole.unlink(missing_ok=True)
    files: list[Copied] = []
    for path in input_paths(call.name, call.argv, is_file):
        name = _free_name(short_name(path), [file.name for file in files])
        size = writer.take(Path(call.cwd, path), name)
        files.append(Copied(name=name, path=path, size_bytes=size))
    return Copies(files=tuple(files), note=_missing(call, bool(source)), written_bytes=writer.written_bytes)


def unpack(packed: Path, target: Path, *, most_bytes: int) -> None:
    """``NAME.gz`` as a plain file. Raises OSError (damaged ones, too) and TooLargeError."""
    with gzip.open(packed, "rb") as source, target.open("xb") as file:
        try:
            _pour(source, file.write, most_bytes, file.tell)
        except EOFError as error:
            raise OSError(0, "it stops short", str(packed)) from error
        except zlib.error as error:
            raise OSError(0, "it is damaged", str(packed)) from error


def limited(argv: Sequence[str], memory_mib: float) -> list[str]:
    """The same command in so much address space at most."""
    return ["/bin/sh", "-c", f'ulimit -v {int(memory_mib * 1024)} || exit 126; exec "$@"', "sh", *argv]


class _Writer:
    def __init__(self, folder: Path, *, packed: bool, most_bytes: int) -> None:
        self._folder, self._packed, self._most = folder, packed, most_bytes
        self.written_bytes = 0

    def take(self, source: Path, name: str) -> int:
        """Copy one file; gives its size, unpacked."""
        target = self._folder / (f"{name}.gz" if self._packed else name)
        left = self._most - self.written_bytes
        with source.open("rb") as reading, target.open("xb") as file:
            if self._packed:
                with gzip.GzipFile(filename="", mode="wb", compresslevel=PACKING, fileobj=file, mtime=0) as packing:
                    size = _pour(reading, packing.write, left, file.tell)
            else:
                size = _pour(reading, file.write, left, file.tell)
            self.written_bytes += file.tell()
        return size


def _pour(source: _Readable, write: Callable[[bytes], object], most_bytes: int, written: Callable[[], int]) -> int:
    size = 0
    while data := source.read(CHUNK_BYTES):
        write(data)
        size += len(data)
        if written() > most_bytes:
            raise TooLargeError(f"more than {most_bytes // MIB} MiB")
    return size


def _preprocess(call: PhaseCall, output: Path, memory_mib: float, patience: Patience) -> Captured:
    argv = limited([call.tool, *preprocessing(call.argv, str(output))], memory_mib)
    env = {name: value for name, value in call.env.items() if not name.startswith("BUILDDOCTOR_")}
    return run_captured(argv, env=env, cwd=call.cwd, timeout_s=PREPROCESS_S, patience=patience)


def _missing(call: PhaseCall, source: bool) -> str:
    if source or preprocesses(call.argv) or call.name.startswith("clang"):
        return HEADERS_MISSING
    if call.name in LINKERS:
        return "objects and libraries are not here: it needs those that its command names"
    return "what it read from a pipe is not here" if "-" in call.argv else ""


def _free_name(name: str, taken: Sequence[str]) -> str:
    stem, dot, suffix = name.partition(".")
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{stem}-{number}{dot}{suffix}"
    return free
