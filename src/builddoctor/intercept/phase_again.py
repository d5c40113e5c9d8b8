"""Come to a phase's own command and input again, from the command of its unit: the driver's steps up to it are run.

Covers: nvcc (``--dryrun``) and gcc (``-###``) as drivers. Steps run one at a time, in bounded memory and time, and
write only into a folder of ours; the phase itself is not run.
Does *not* cover: copying what it reads (``intercept.phase_inputs``).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from builddoctor.errors import ReproError
from builddoctor.intercept.captured import Captured, run_captured
from builddoctor.intercept.driver_steps import (
    Step,
    Steps,
    bare_arguments,
    find_step,
    is_nvcc,
    read_dryrun,
    read_inner,
    steps_before,
)
from builddoctor.intercept.phase_files import INNER_COMPILERS
from builddoctor.intercept.phase_inputs import PhaseCall, limited
from builddoctor.sensors.search_path import first_program
from builddoctor.trace.commands import Command

STEP_S = 1800.0
ASK_S = 60.0
_FROM_DRYRUN = ("PATH", "LD_LIBRARY_PATH", "CICC_PATH", "NVVMIR_LIBRARY_DIR", "TOP", "_HERE_")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The phase: its program, what it does (``model.phase.PhaseKind``), its architecture where it has one."""

    tool: str
    kind: str
    arch: str = ""

    def __str__(self) -> str:
        return f"{self.tool} {self.arch}".strip()


class Again:
    """One unit's command, run up to a phase. ``folder``: for temporary files, empty."""

    def __init__(
        self,
        command: Command,
        *,
        nvcc: str,
        env: Mapping[str, str],
        folder: Path,
        memory_mib: float,
        tell: Callable[[str], None],
    ) -> None:
        self._command = command
        self._nvcc = nvcc
        clean = {name: value for name, value in env.items() if not name.startswith("BUILDDOCTOR_")}
        self._env = {**clean, "TMPDIR": str(folder)}
        self._folder = folder
        self._memory_mib = memory_mib
        self._tell = tell

    def call_of(self, wanted: Wanted) -> PhaseCall:
        """The phase's call, with its input there. Raises ReproError."""
        if not is_nvcc(self._command.tool):
            return self._inner(self._command.tool, self._command.argv, wanted)
        if not self._nvcc:
            raise ReproError(
                "no nvcc here to make the phase's input with", hint="export PATH=/usr/local/cuda/bin:$PATH"
            )
        steps = self._nvcc_steps()
        env = self._env | {name: steps.settings[name] for name in _FROM_DRYRUN if name in steps.settings}
        place = find_step(steps.steps, tool=wanted.tool, kind=wanted.kind, arch=wanted.arch)
        if place is None:
            raise ReproError(
                f"the unit's command has no step {wanted}: it has {_listed(steps)}",
                hint="is it the same compiler, with the same NVCC_APPEND_FLAGS, as in the build?",
            )
        before = steps_before(steps.steps, place)
        for number, index in enumerate(before, 1):
            step = steps.steps[index]
            self._tell(f"makes the input, step {number} of {len(before)}: {step.name}")
            self._run(step, env)
        step = steps.steps[place]
        if wanted.tool in INNER_COMPILERS or wanted.tool == "collect2":
            self._env = env
            return self._inner(step.words[0], step.words[1:], wanted)
        tool = step.words[0] if "/" in step.words[0] else first_program(step.words[0], env)
        return PhaseCall(tool=tool or step.words[0], argv=step.words[1:], cwd=self._command.cwd, env=env)

    def _nvcc_steps(self) -> Steps:
        argv = bare_arguments(self._command.argv, output=str(self._folder / "out.o"))
        done = self._ask([self._nvcc, "--dryrun", *argv, "--threads", "1"])
        steps = read_dryrun(done.output)
        if not steps.steps:
            raise ReproError(
                f"`nvcc --dryrun` printed no steps: {_last_words(done)}",
                hint=f"cd {shlex.quote(self._command.cwd)} && {shlex.join([self._nvcc, '--dryrun', *argv])}",
            )
        return steps

    def _inner(self, driver: str, arguments: tuple[str, ...], wanted: Wanted) -> PhaseCall:
        """The call of a program inside gcc."""
        argv = [driver, "-###", *bare_arguments(arguments, output=str(self._folder / "out.o"))]
        done = self._ask(argv)
        found = [step for step in read_inner(done.output).steps if step.name == wanted.tool]
        if not found:
            raise ReproError(
                f"{driver} has no step {wanted.tool}: {_last_words(done)}",
                hint=f"cd {shlex.quote(self._command.cwd)} && {shlex.join(argv)}",
            )
        step = found[0]
        return PhaseCall(tool=step.words[0], argv=step.words[1:], cwd=self._command.cwd, env=self._env)

    def _ask(self, argv: list[str]) -> Captured:
        done = run_captured(argv, env=self._env, cwd=self._command.cwd, timeout_s=ASK_S)
        if done.status is None:
            raise ReproError(f"{argv[0]} could not be asked: {done.problem}", hint="is it still on this machine?")
        return done

    def _run(self, step: Step, env: Mapping[str, str]) -> None:
        argv = limited(["/bin/sh", "-c", step.line], self._memory_mib)
        done = run_captured(argv, env=env, cwd=self._command.cwd, timeout_s=STEP_S)
        if done.status != 0:
            raise ReproError(
                f"{step.name}, which makes the phase's input, failed: {_last_words(done)}",
                hint="with more memory for it: `--memory 16GiB`",
            )


def nvcc_of(toolkit: str, env: Mapping[str, str]) -> str:
    """The build's nvcc where it still is, else the first on PATH; empty without any."""
    theirs = os.path.join(toolkit, "bin", "nvcc")
    return theirs if toolkit and os.access(theirs, os.X_OK) else first_program("nvcc", env)


def _listed(steps: Steps) -> str:
    return ", ".join(dict.fromkeys(step.name for step in steps.steps)) or "none"


def _last_words(done: Captured) -> str:
    if done.problem:
        return done.problem
    lines = [line for line in done.output.strip().splitlines() if not line.startswith(("#$", " "))]
    return "; ".join(lines[-3:]) or f"it ended with status {done.status}"
