"""Everything that is settled before a build starts: toolkit, overlays, limits, window, knobs.

Covers: finding, checking and refusing; nothing has been started when it raises.
Does *not* cover: running (``supervise.build``).
"""

from __future__ import annotations

import glob
import os
import shutil
import site
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import msgspec
import ninja

from builddoctor.doctor.tmpdirs import NVCC_FILES_MIB
from builddoctor.errors import (
    FolderNotWritableError,
    MemoryBudgetError,
    PlatformError,
    ToolkitBrokenError,
    ToolkitNotFoundError,
)
from builddoctor.intercept import knobs
from builddoctor.intercept.compilers import clangs, host_compilers, uncaught_driver
from builddoctor.intercept.overlay import FRONTS, HostTools, host_overlay, toolkit_overlay
from builddoctor.intercept.toolkit import find_toolkit
from builddoctor.model.limits import MemoryReading
from builddoctor.model.request import RunRequest
from builddoctor.model.toolkit import Toolkit
from builddoctor.policy.budget import LEAST_BUDGET_MIB, allowance, most_open, slots, window
from builddoctor.sensors.cores import usable_cores
from builddoctor.sensors.limits import MemorySensor
from builddoctor.sensors.process_room import read_process_room
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.search_path import first_program
from builddoctor.sensors.stand_ins import is_stand_in
from builddoctor.sensors.storage import read_places
from builddoctor.sensors.toolkits import candidates
from builddoctor.supervise.folders import cache_folder, stages_folder
from builddoctor.supervise.temporary import require_tmpdir
from builddoctor.units import format_mib, whole_number


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What a build starts with."""

    toolkit: Toolkit | None
    toolkit_problem: str
    """why there is none, where the build may not need one"""
    cuda: Path | None
    """the toolkit's overlay"""
    host: Path
    """the host overlay; of a staged build the folder whose ``bin`` has the program that runs stages"""
    uncaught: str
    """a g++ whose compiler cannot be gated; empty when all is well"""
    tools: HostTools
    fallback_folder: str
    cache: Path
    cores: int
    slots: int
    """phases that may run at once"""
    most_open: int
    """units that may be begun and not ended, whatever jobs the user asked for"""
    most_threads: int | None
    """what ``--threads`` may be set to; None for any number"""
    knobs: knobs.KnobSettings
    reading: MemoryReading
    budget_mib: float


def prepare(request: RunRequest, env: Mapping[str, str], root: SystemRoot, sensor: MemorySensor) -> Prepared:
    """Settle everything, or raise what is in the way."""
    if not sys.platform.startswith("linux"):
        raise PlatformError(
            f"builddoctor needs Linux; this is {sys.platform}",
            hint="run it in a Linux container or virtual machine, where the build runs",
        )
    reading, budget = _memory(sensor)
    cores = max(1, request.cores or usable_cores(root))
    toolkit, problem = _toolkit(request, env, root)
    cache = cache_folder(env)
    fallback_folder = "" if shutil.which("ninja", path=env.get("PATH")) else ninja.BIN_DIR
    tools = _host_tools(env, fallback_folder, request.command)
    staged = request.strategy == "staged"
    host = stages_folder(cache) if staged else host_overlay(cache, tools)
    jobs = window(cores, budget, read_process_room(root))
    settings = knobs.settle(env, window=jobs, cores=cores, ignore_caps=request.ignore_caps)
    if staged:
        # What the user has set is left to the build; its stages have jobs of their own.
        settings = msgspec.structs.replace(settings, exports={}, caps=())
    return Prepared(
        toolkit=toolkit,
        toolkit_problem=problem,
        cuda=toolkit_overlay(cache, toolkit, env) if toolkit is not None and not staged else None,
        host=host,
        uncaught=uncaught_driver(env, host / "gcc") if not staged else "",
        tools=tools,
        fallback_folder=fallback_folder,
        cache=cache,
        cores=cores,
        # What the user said is meant as it is.
        slots=request.cores or slots(cores),
        most_open=most_open(
            cores,
            budget,
            jobs,
            temporary_mib=_temporary_mib(env, root),
            unit_files_mib=NVCC_FILES_MIB * max(1, len(request.archs)),
        ),
        most_threads=settings.most_threads if toolkit is None or knows_threads(toolkit.version) else 1,
        knobs=settings,
        reading=reading,
        budget_mib=budget,
    )


def _temporary_mib(env: Mapping[str, str], root: SystemRoot) -> float | None:
    """What is left in TMPDIR; 0 where that is memory."""
    place, *_ = read_places(root, env, ())
    return 0.0 if place.in_memory else place.free_mib


def knows_threads(version: str) -> bool:
    """nvcc has ``--threads`` since 11.2. Where its version is unknown, it is taken to be old."""
    numbers = [whole_number(part) for part in version.split(".")[:2]]
    return len(numbers) == 2 and tuple(-1 if each is None else each for each in numbers) >= (11, 2)


def _memory(sensor: MemorySensor) -> tuple[MemoryReading, float]:
    reading = sensor.read(0.0)
    allowed = allowance(reading, 0.0)
    tightest, budget = allowed.level, allowed.budget_mib
    # kubelet's own figure is no reason to refuse: it rises when the kernel gives up page cache.
    if budget < LEAST_BUDGET_MIB and tightest.kind != "eviction":
        raise MemoryBudgetError(
            f"no memory to build in: {format_mib(tightest.headroom_mib)} free of {format_mib(tightest.limit_mib)} "
            f"({tightest.source})",
            hint="end what else runs there, or raise that limit; `builddoctor run --memory` can only lower it",
        )
    return reading, budget


def site_folders(env: Mapping[str, str]) -> list[Path]:
    """Where pip puts CUDA's packages: for the build's Python, the first on PATH; for this one; and for this user.

    Not sys.path: that holds the current folder too, and what PYTHONPATH names, which may be somebody's source tree.
    """
    named = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    python = first_program("python", env) or first_program("python3", env)
    if python:
        # Not asked but guessed: nothing is started here, and a virtual environment has it nowhere else.
        libraries = glob.escape(os.path.dirname(os.path.dirname(python)))
        named[:0] = sorted(glob.glob(f"{libraries}/lib/python3*/site-packages"))
    return [Path(folder) for folder in dict.fromkeys([*named, site.getusersitepackages()]) if os.path.isabs(folder)]


def _toolkit(request: RunRequest, env: Mapping[str, str], root: SystemRoot) -> tuple[Toolkit | None, str]:
    """The toolkit; without one only when the build may not need it, and the user did not name one."""
    if request.need_toolkit or request.toolkit:
        require_tmpdir(env, root)
    found = candidates(root, env, wanted=request.toolkit, site_folders=site_folders(env))
    try:
        return find_toolkit(found, env, wanted=request.toolkit), ""
    except (ToolkitNotFoundError, ToolkitBrokenError, FolderNotWritableError) as error:
        if request.need_toolkit or request.toolkit:
            raise
        return None, str(error)


def _host_tools(env: Mapping[str, str], fallback_folder: str, command: tuple[str, ...]) -> HostTools:
    path = ":".join(filter(None, (env.get("PATH", os.defpath), fallback_folder)))
    fronts = {name: found for name in FRONTS if (found := _which_real(name, path))}
    if is_front_by_path(command) and not is_stand_in(command[0]):
        # `run -- /opt/bin/ninja`: that one, and not the first on PATH.
        fronts[os.path.basename(command[0])] = os.path.abspath(command[0])
    return HostTools(compilers=tuple(host_compilers(env)), fronts=tuple(fronts.items()), clangs=tuple(clangs(env)))


def is_front_by_path(command: tuple[str, ...]) -> bool:
    """The build command is ninja, cmake or make called by a path: it has to be called through its gate instead."""
    return "/" in command[0] and os.path.basename(command[0]) in FRONTS and os.access(command[0], os.X_OK)


def _which_real(name: str, path: str) -> str:
    """The first on PATH that is no gate or stand-in of ours (we may have been started from a supervised build)."""
    for folder in path.split(":"):
        found = shutil.which(name, path=folder) if folder.startswith("/") else None
        if found and not (Path(folder).parent / ".builddoctor-overlay").exists() and not is_stand_in(found):
            return found
    return ""
