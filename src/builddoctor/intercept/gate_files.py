"""Write gates and links so that nobody ever sees half of one: beside it first, then renamed.

A gate is a shell script of a few lines around ``gate_program``: without a supervisor it execs the real tool, without
any Python, so that an overlay path left in a CMakeCache never breaks a build. Its time stamp is the real tool's, so
that ccache sees a changed compiler when that changes.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

LIBRARY = ".gate"
"""Folder of the gate's program in the overlay; not ``lib``, which is the toolkit's."""


class Gate(msgspec.Struct, frozen=True):
    """One gate: its place in the overlay, what it does (``gate_program``), and the real program's path."""

    place: str
    role: str
    real: str


def interpreter() -> str:
    """The real Python: a version manager's shim would take 200 ms at each gate."""
    return os.path.realpath(sys.executable)


def write_gate(folder: Path, gate: Gate) -> None:
    """Make one gate in the overlay ``folder``."""
    place = folder / gate.place
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    python, program = shlex.quote(interpreter()), shlex.quote(str(folder / LIBRARY / "gate.py"))
    real = shlex.quote(gate.real)
    replace_text(
        place,
        "#!/bin/sh\n"
        f"# builddoctor's gate before {gate.real}: it waits for memory; without a supervisor it is that program.\n"
        f'if [ -S "$BUILDDOCTOR_SOCKET" ] && [ -z "$BUILDDOCTOR_HELD" ] && [ -x {python} ]; then\n'
        f'  exec {python} -IS {program} {gate.role} {real} {shlex.quote(str(place))} "$@"\n'
        "fi\n"
        f'exec {real} "$@"\n',
        mode=0o755,
    )
    _, mtime_ns = stamp(gate.real)
    os.utime(place, ns=(mtime_ns, mtime_ns))


def stamp(path: str) -> tuple[int, int]:
    """Size and modification time (ns); zeros for a file that is not there."""
    try:
        info = os.stat(path)
    except OSError:
        return (0, 0)
    return (info.st_size, info.st_mtime_ns)


def replace_link(link: Path, target: Path) -> None:
    """Make or change a symbolic link in one step."""
    if link.is_symlink() and os.readlink(link) == str(target):
        return
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    temporary.symlink_to(target)
    temporary.replace(link)


def replace_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write beside and rename: whoever runs the old file keeps it whole."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
