"""What a supervised build is started with: its variables, and its command where a front is called by a path.

Covers: builds with gates, and builds in stages without gates, where a program in front of ninja runs one stage after
the other (``ui.staged``); what is answered to the programs that run a build (fronts) when they start: ninja's window,
and the net for folders configured without us.
Does *not* cover: where each variable comes from (``gates.environment``, ``gates.knobs``), or working the stages out
(``cli.staging``).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from builddoctor.core.request import RunRequest
from builddoctor.gates.environment import (
    NVCC_FLAGS,
    SOCKET,
    UNIT,
    build_environment,
    cache_settings,
    chosen_cache,
    has_net,
    net,
    programs_of,
)
from builddoctor.gates.fronts import MAKE_NAMES, NINJA_NAMES, configured_nvcc, going_on, planned_units, wants_jobs
from builddoctor.gates.protocol import Registered
from builddoctor.runtime.later_toolchain import LaterToolchain
from builddoctor.runtime.prepare import Prepared, is_front_by_path
from builddoctor.system.process import Processes


class Fronts:
    """What is known of the build from those that run it. ``planned`` adds up the units of all ninja runs."""

    def __init__(
        self,
        prepared: Prepared,
        env: Mapping[str, str],
        later: LaterToolchain,
        processes: Processes,
        *,
        keep_going: bool = False,
    ) -> None:
        """``env``: before ours; of a program that is out of sight, in a pid namespace of its own, it has to do."""
        self._prepared = prepared
        self._env = env
        self._later = later
        self._processes = processes
        self._keep_going = keep_going
        self._real = dict(prepared.tools.fronts)
        self._counting: set[asyncio.Task[None]] = set()
        self.planned: int | None = None
        self._plain: dict[str, str | None] = {}
        self._above_make: dict[str, str | None] = {}
        """nvcc's flags before the latest make that got a net did; empty where none has"""

    def net_is_cast(self, plain: Mapping[str, str | None]) -> None:
        """Over the whole build. ``plain``: what its variables were before; None: they were not there."""
        self._plain = dict(plain)

    async def answer(self, front: Registered) -> tuple[list[str], dict[str, str | None]]:
        """Further arguments and environment for this program; None takes a variable away."""
        arguments: list[str] = []
        if wants_jobs(front.name, front.argv):
            arguments = ["-j", str(self._prepared.knobs.window)]
        if self._keep_going:
            arguments += going_on(front.name, front.argv)
        if front.name in NINJA_NAMES:
            counting = asyncio.create_task(self._count(front))
            self._counting.add(counting)
            counting.add_done_callback(self._counting.discard)
        seen = self._processes.environ(front.pid)
        configures = front.name == "cmake" and "--build" not in front.argv
        later = await self._later.settings(seen, decides=configures or front.name in MAKE_NAMES)
        # nvcc's flags before the net of the make that started this program; empty where none did.
        above = dict(self._above_make) if has_net(seen) else {}
        if configures:
            # It asks nvcc for its libraries when it configures, and without a profile nvcc does not know them.
            return arguments, {**later, **above, **self._plain}
        nvcc = await asyncio.to_thread(configured_nvcc, front.name, front.argv, front.cwd, seen or self._env)
        settings = await self._net(nvcc, seen) if nvcc is not None else {}
        if front.name in MAKE_NAMES:
            if settings and not above:
                self._above_make = {name: seen.get(name) for name in NVCC_FLAGS}
            above = {}
        # What make starts may build with another toolkit: it has the net of its own, or none.
        before = {**later, **above}
        own = {
            name: value.replace(f"@{name}@", before.get(name) or "") if name in before else value
            for name, value in settings.items()
        }
        return arguments, before | own

    async def instead(self, unit: Registered) -> str:
        """The gate of nvcc to call instead of this one; empty: it is the right one."""
        seen = self._processes.environ(unit.pid)
        return await self._later.instead(unit.shown, unit.cwd, seen)

    async def _net(self, nvcc: Path, seen: Mapping[str, str]) -> dict[str, str]:
        found = await self._later.gates_of(str(nvcc), seen)
        return net(cuda=found[0], toolkit=found[1]) if found is not None else {}

    async def _count(self, front: Registered) -> None:
        real = self._real.get(front.name)
        if real is None:
            return
        planned = await asyncio.to_thread(planned_units, real, front.argv, front.cwd)
        if planned:
            self.planned = (self.planned or 0) + planned


def build_variables(
    request: RunRequest, prepared: Prepared, base: Mapping[str, str], fronts: Fronts, *, socket: Path, run_folder: Path
) -> dict[str, str]:
    """``base`` with the project's settings, overlays, knobs and object cache in it. ``fronts`` hears of a net."""
    wanted = {**base, **dict(request.extra_env)}
    if request.stages:
        env = staged_environment(wanted, request, prepared, run_folder=run_folder)
    else:
        env = build_environment(
            wanted,
            socket=str(socket),
            host=prepared.host,
            cuda=prepared.cuda,
            toolkit=prepared.toolkit,
            fallback_folder=prepared.fallback_folder,
        )
    if prepared.toolkit is not None:
        env |= library_homes(Path(prepared.toolkit.home), env)
    env |= prepared.knobs.exports
    env |= {each.variable: each.path for each in prepared.triton}
    if request.nvcc_by_path and prepared.cuda is not None and prepared.toolkit is not None:
        caught = net(cuda=prepared.cuda, toolkit=prepared.toolkit)
        fronts.net_is_cast({name: env.get(name) for name in caught})
        env |= {name: value.replace(f"@{name}@", env.get(name, "")) for name, value in caught.items()}
    cache = chosen_cache(request.cache, base)
    if cache:
        programs = programs_of(prepared.toolkit, prepared.tools.compilers)
        nvcc = Path(env["CUDACXX"]) if prepared.toolkit is not None else None
        settings = cache_settings(cache, programs, nvcc=nvcc, run_folder=run_folder)
        # What the user has set stands, but for the way to nvcc, which is ours.
        env |= {name: value for name, value in settings.items() if name == "PYTORCH_NVCC" or name not in base}
    return env


def library_homes(home: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Where cuDNN and NCCL are, if they lie in the toolkit itself and no variable says where.

    TransformerEngine and torch look there by these names; CMake's ``find_path(nccl.h)`` does not look into CUDA_HOME.
    """
    found: dict[str, str] = {}
    for header, names in (("cudnn.h", ("CUDNN_PATH", "CUDNN_HOME")), ("nccl.h", ("NCCL_HOME",))):
        if (home / "include" / header).exists() and not any(env.get(name) for name in names):
            found[names[0]] = str(home)
    if found:
        folders = [each for each in env.get("CMAKE_PREFIX_PATH", "").split(":") if each]
        found["CMAKE_PREFIX_PATH"] = ":".join(dict.fromkeys([*folders, str(home)]))
    return found


MARK = "ran-in-stages"
"""In the run's folder: made by the first ninja that found its stages."""


def staged_environment(
    base: Mapping[str, str], request: RunRequest, prepared: Prepared, *, run_folder: Path
) -> dict[str, str]:
    """``base`` with the stages in it, and the toolkit where ``base`` would not find it. Jobs are left to the user."""
    env = dict(base)
    for inner in (SOCKET, UNIT, "BUILDDOCTOR_HELD"):
        env.pop(inner, None)
    folders = [f"{prepared.host}/bin", *filter(None, (base.get("PATH") or os.defpath).split(":"))]
    toolkit = prepared.toolkit
    if toolkit is not None:
        env.setdefault("CUDA_HOME", toolkit.home)
        # At the end: a toolkit in /usr/bin or in a conda prefix must not bring its python along.
        folders.append(toolkit.here)
        for name in ("CUDACXX", "PYTORCH_NVCC"):
            if request.toolkit or not env.get(name):
                env[name] = toolkit.nvcc
    if prepared.fallback_folder:
        folders.append(prepared.fallback_folder)
    env["PATH"] = ":".join(dict.fromkeys(folders))
    env["BUILDDOCTOR_STAGES"] = request.stages
    env["BUILDDOCTOR_STAGES_MARK"] = str(run_folder / MARK)
    if request.keep_going:
        env["BUILDDOCTOR_STAGES_KEEP_GOING"] = "1"
    if is_front_by_path(request.command) and os.path.basename(request.command[0]) in NINJA_NAMES:
        env["BUILDDOCTOR_REAL_NINJA"] = os.path.abspath(request.command[0])
    return env


def command_of(request: RunRequest, prepared: Prepared) -> tuple[str, ...]:
    """The build command; a ninja, cmake or make that is called by a path, through what stands in front of it."""
    command = request.command
    if not is_front_by_path(command):
        return command
    name = os.path.basename(command[0])
    if request.stages:
        return (f"{prepared.host}/bin/ninja", *command[1:]) if name in NINJA_NAMES else command
    return (f"{prepared.host}/bin/{name}", *command[1:])


def unstaged_warning(request: RunRequest, *, run_folder: Path) -> str:
    """At the end: what to say where the build has called no ninja that knew of its stages; else empty."""
    if not request.stages or (run_folder / MARK).exists():
        return ""
    return (
        "no stage was run: the build called no ninja from PATH, or one whose build.ninja has none of the recipe's "
        "targets, so nothing kept its memory; leave `--strategy staged` out to build with gates"
    )
