"""Activated environments: builds that nobody starts through us, and the supervisors that their gates start.

Covers: what ``builddoctor activate`` sets, the program that starts a supervisor, the folder of their sockets, and what
a supervisor says of itself for ``builddoctor status``.
Does *not* cover: a gate's side (``gates.gate_program``), or supervising (``runtime.build``).

There is one supervisor a build: the processes below the topmost one that has the activated environment, as a rule the
command that was typed. Builds at the same time share one budget by the ledger (``runtime.sharing``). It ends with that
process, or when nothing has compiled for ``IDLE_S``; the next gate starts another. It signals nothing but compilers
whose gates asked it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from builddoctor.core.request import RunRequest
from builddoctor.gates.environment import activation_environment
from builddoctor.gates.overlay import interpreter, replace_text
from builddoctor.runtime.build_environment import library_homes
from builddoctor.runtime.folders import make_own
from builddoctor.runtime.prepare import prepare, settle_environment
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.process import Processes
from builddoctor.system.root import Clock, SystemRoot

IDLE_S = 45.0
"""So long after the last compiler a supervisor ends, though its build's first process still runs."""

_Word = TypeVar("_Word")


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """A build that was started by somebody else."""

    pid: int
    """of the process that it is"""
    start_ticks: int
    socket: Path
    """where its gates look for a supervisor"""
    listening: Callable[[], None]
    """called when gates are served"""

    @property
    def name(self) -> str:
        return f"{self.pid}-{self.start_ticks}"


class Supervisor(msgspec.Struct, frozen=True, kw_only=True):
    """A supervisor that a gate has started, as ``builddoctor status`` shows it."""

    pid: int
    start_ticks: int
    root_pid: int
    """the process whose build it is"""
    title: str
    trace: str
    started_at: str
    """UTC, ISO 8601"""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a build has no supervisor; its compilers run as they would without builddoctor."""

    root_pid: int
    message: str
    hint: str


def sockets_folder() -> Path:
    """Made for this user alone; gates look for it by the same rule. Not TMPDIR: a build may set that anew.

    Raises FolderNotWritableError.
    """
    folder = Path(f"/tmp/builddoctor-of-{os.geteuid()}")  # noqa: S108 - closed to others, and its owner is looked at
    make_own(folder)
    return folder


def activation(request: RunRequest, env: Mapping[str, str], root: SystemRoot, clock: Clock) -> dict[str, str]:
    """Variables that make the builds of a shell supervised ones. ``env``: not activated.

    Makes the overlays and the program that starts supervisors. Raises BuildDoctorError where builds would not start.
    """
    env = settle_environment(env, root).env
    sensor = MemorySensor(root, env=env, user_limit_mib=request.memory_mib, clock=clock)
    prepared = prepare(request, env, root, sensor)
    homes = library_homes(Path(prepared.toolkit.home), env) if prepared.toolkit is not None else {}
    return activation_environment(
        env,
        start=_start_program(prepared.cache, request),
        host=prepared.host,
        cuda=prepared.cuda,
        toolkit=prepared.toolkit,
        fallback_folder=prepared.fallback_folder,
        exports={**homes, **prepared.knobs.exports},
    )


def _start_program(cache: Path, request: RunRequest) -> Path:
    """One for each set of options, under a stable path: caches of builds are named after their environment."""
    options = []
    if request.memory_mib is not None:
        options += ["--memory-mib", f"{request.memory_mib:g}"]
    if request.cores is not None:
        options += ["--cores", str(request.cores)]
    folder = cache / "activated"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "-".join(["supervisor", *(each.strip("-") for each in options)])
    # -E: a build's PYTHONPATH is not ours.
    command = [sys.executable or interpreter(), "-E", "-m", "builddoctor.cli.join", *options]
    replace_text(
        path,
        "#!/bin/sh\n"
        "# builddoctor: started by the first gate of an activated build, with the process that the build is\n"
        f'exec {shlex.join(command)} "$@"\n',
        mode=0o755,
    )
    return path


def note_supervisor(joined: Joined, title: str, trace: str, started_at: str, processes: Processes) -> None:
    """Leave word for ``status``. What cannot be written is left out."""
    own = os.getpid()
    word = Supervisor(
        pid=own,
        start_ticks=processes.start_ticks(own) or 0,
        root_pid=joined.pid,
        title=title,
        trace=trace,
        started_at=started_at,
    )
    _write(joined.socket.with_name(f"{joined.name}.json"), word)


def note_refusal(socket: Path, refusal: Refusal) -> None:
    """Leave word why there is no supervisor; gates of that build do not try again for a while."""
    _write(socket.with_name(f"{socket.name}.refused"), refusal)


def remove_notes(joined: Joined) -> None:
    """When it ends: nothing of it stays."""
    for path in (joined.socket, joined.socket.with_name(f"{joined.name}.json")):
        with contextlib.suppress(OSError):
            path.unlink()


def supervisors(root: SystemRoot) -> tuple[list[Supervisor], list[Refusal]]:
    """Those that run, and builds that still run and have none. What the dead have left is removed."""
    folder, processes = sockets_folder(), Processes(root)
    running, refused = [], []
    for path in sorted(folder.glob("*-*.json")):
        word = _read(path, Supervisor)
        if word is not None and processes.lives(word.pid, word.start_ticks):
            running.append(word)
        else:
            _remove(path, path.with_suffix(""))
    for path in sorted(folder.glob("*-*.refused")):
        refusal = _read(path, Refusal)
        ticks = path.stem.partition("-")[2]
        if refusal is not None and ticks.isdigit() and processes.lives(refusal.root_pid, int(ticks)):
            refused.append(refusal)
        else:
            _remove(path)
    return running, refused


def _write(path: Path, word: msgspec.Struct) -> None:
    with contextlib.suppress(OSError):
        replace_text(path, msgspec.json.encode(word).decode(errors="replace"), mode=0o600)


def _remove(*paths: Path) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


def _read(path: Path, kind: type[_Word]) -> _Word | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
