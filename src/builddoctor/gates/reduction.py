"""Trials of a reduction, one by one or by C-Vise: each runs the phase on a smaller input, in bounded memory and time.

Covers: one trial (``gates.trial_program`` does the work), C-Vise under our bounds and its end with all that it started.
Trials keep the smallest good file themselves, whole, so that any of this may be ended at any time.
Does *not* cover: what to try and which bounds (``repro.reducing``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from builddoctor.core.errors import ExtraMissingError, ReproError
from builddoctor.gates import trial_program
from builddoctor.gates.subprocesses import run_captured
from builddoctor.system.probes import Captured, Deadline, first_program

CVISE = "cvise"
GRACE_S = 30.0
"""For what is around a compiler in a trial."""

LEAST_CVISE_MIB = 1024.0
_LEFT_OUT = re.compile(r"\b(?:[Cc]lang\w*|[Cc]lex\w*)::[\w-]+")
"""Passes of C-Vise: clang's front end may run away on what the compiler's does; those that leave out single tokens take
most of the trials, for the last tenth of the text, and leave half declarations."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What ``gates.trial_program`` is told, as JSON."""

    folder: str
    links: tuple[str, ...]
    """files of ``folder`` that it also needs"""
    script: str
    input: str
    beyond_mib: float
    address_mib: float
    cpu_s: int
    wall_s: float
    clean: bool = True
    """the compiler must have nothing to say against the text"""
    best: str = ""
    """where the smallest good file is kept"""


class TrialSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What one saw of the compiler. ``peak_mib`` of one that grew beyond is where it was ended."""

    beyond: bool = False
    clean: bool = True
    peak_mib: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    exit_code: int | None = None
    output: str = ""
    """its first lines"""


class Trials:
    """All of one reduction. ``work``: a folder of ours, empty; what the compiler writes stays below it."""

    def __init__(self, work: Path, *, env: Mapping[str, str]) -> None:
        self._work = work
        clean = {name: value for name, value in env.items() if not name.startswith(("BUILDDOCTOR_", "LIMIT_"))}
        self._env = {**clean, "TMPDIR": str(work)}

    @property
    def best(self) -> Path:
        """The smallest good file, where there was one."""
        return self._work / "best"

    def best_seen(self) -> TrialSeen:
        """Of the compiler with that file."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode((self._work / "best.json").read_bytes(), type=TrialSeen)
        return TrialSeen()

    def once(self, trial: Trial, text: bytes, deadline: Deadline) -> tuple[bool, TrialSeen]:
        """Whether ``text`` is still good, and what was seen. Raises ReproError where no trial can be run."""
        settings = self._settings(trial)
        with tempfile.TemporaryDirectory(prefix="trial-", dir=self._work) as folder:
            Path(folder, trial.input).write_bytes(text)
            argv = [*_program(), "trial", str(settings)]
            done = run_captured(argv, env=self._env, cwd=folder, timeout_s=trial.wall_s + GRACE_S, deadline=deadline)
        if done.status not in (0, 1) and not done.silent:
            raise ReproError(f"a trial could not be run: {done.problem or done.output.strip()}")
        with contextlib.suppress(msgspec.MsgspecError):
            return done.status == 0, msgspec.json.decode(done.output, type=TrialSeen)
        return False, TrialSeen()

    def cvise(self, program: str, trial: Trial, text: bytes, *, parallel: int, deadline: Deadline) -> bytes | None:
        """What C-Vise makes of ``text``; None where ``deadline`` ended it. Raises ReproError where it fails."""
        folder = self._work / "cvise"
        folder.mkdir()
        (folder / trial.input).write_bytes(text)
        test = self._work / "test.sh"
        test.write_text(f"#!/bin/sh\nexec {shlex.join([*_program(), 'trial', str(self._settings(trial))])}\n")
        test.chmod(0o700)
        kind = ["--not-c"] if trial.input.endswith(".ptx") else ["--remove-pass", ",".join(self._unwanted(program))]
        # Many of a pass of its own hold the file beside the compiler of a trial.
        within = ["within", str(max(LEAST_CVISE_MIB, trial.address_mib))]
        limits = ["--n", str(parallel), "--timeout", str(round(trial.wall_s + GRACE_S))]
        argv = [*_program(), *within, program, *limits, *kind, "--tidy", "--skip-key-off", "--shaddap"]
        done = self._run([*argv, str(test), trial.input], folder, deadline)
        if done.status is None and done.silent:
            return None
        made = folder / trial.input
        if done.status != 0 or not made.is_file():
            lines = (done.problem or done.output).strip().splitlines()
            raise ReproError(f"C-Vise failed: {lines[-1] if lines else 'it said nothing'}", hint=f"{CVISE} --version")
        return made.read_bytes()

    def _unwanted(self, program: str) -> list[str]:
        done = self._run([program, "--list-passes", "any", "any"], self._work, Deadline(GRACE_S))
        return sorted(set(_LEFT_OUT.findall(done.output)))

    def _run(self, argv: list[str], cwd: Path, deadline: Deadline) -> Captured:
        return run_captured(argv, env=self._env, cwd=str(cwd), timeout_s=deadline.left_s, deadline=deadline)

    def _settings(self, trial: Trial) -> Path:
        path = self._work / "settings.json"
        path.write_bytes(msgspec.json.encode(trial))
        return path


def find_cvise(env: Mapping[str, str]) -> str:
    """Its path. Raises ExtraMissingError."""
    if path := first_program(CVISE, env):
        return path
    raise ExtraMissingError(
        "C-Vise, which makes the input smaller, is not installed (no `cvise` on PATH)",
        hint="apt-get install cvise",
    )


def _program() -> list[str]:
    return [os.path.realpath(sys.executable), "-IS", os.path.abspath(trial_program.__file__)]
