"""Everything that is settled before a build starts: environment, toolkit, overlays, limits, window, knobs, versions.

Covers: finding, checking and refusing: nothing has been started when it raises. The doctor's short look: which checks
matter now, what is worth a warning, what cannot succeed and would fail after minutes. Where TMPDIR goes, and what else
the environment loses; extensions that distutils has built before with other settings; the largest phase of the last
build of a folder.
Does *not* cover: the checks themselves (``doctor``), or running (``runtime.build``).
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from builddoctor.cluster.addresses import tls_for
from builddoctor.core.check import Check, Status
from builddoctor.core.errors import (
    BuildImpossibleError,
    ClusterError,
    FolderNotWritableError,
    MemoryBudgetError,
    PlatformError,
    ToolkitBrokenError,
    ToolkitNotFoundError,
    TraceError,
)
from builddoctor.core.events import Header
from builddoctor.core.limits import MemoryReading, held_by
from builddoctor.core.phase import Outcome
from builddoctor.core.request import RunRequest
from builddoctor.core.toolchain import Toolkit
from builddoctor.core.units import format_mib, whole_number
from builddoctor.doctor.examine import Question, Subject, examine_briefly, is_project, subject_of
from builddoctor.doctor.storage_checks import NVCC_FILES_MIB
from builddoctor.gates import knobs
from builddoctor.gates.environment import plain_environment
from builddoctor.gates.overlay import FRONTS, HostTools, host_overlay, toolkit_overlay, triton_overlay
from builddoctor.gates.subprocesses import run_captured
from builddoctor.phase_store.folder import DEFAULT_MIB, StoreFolder
from builddoctor.phase_store.remote import RemoteStore
from builddoctor.phase_store.result import Store
from builddoctor.projects.archs import parse_archs
from builddoctor.projects.build_commands import builds_folder
from builddoctor.runtime.folders import cache_folder, site_folders, stages_folder, standing_in, traces_folder
from builddoctor.runtime.recipe_use import ChosenRecipe
from builddoctor.runtime.tmpdir import remembered_tmpdir, require_tmpdir, tmpdir_on_disk
from builddoctor.runtime.units import Toolchain
from builddoctor.scheduler.budget import most_open, slots, window
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.platform import usable_cores
from builddoctor.system.process import read_process_room
from builddoctor.system.root import SystemRoot
from builddoctor.system.shortage import SECOND_LOOK_S, Sleep, is_short, look_twice, read_holders
from builddoctor.system.storage import read_places
from builddoctor.toolchain.discover import candidates, find_toolkit, lost_homes
from builddoctor.toolchain.host_compiler import clangs, host_compilers, uncaught_driver
from builddoctor.toolchain.triton import TritonTool, triton_tools
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.state import BuildState
from builddoctor.ui.doctor_page import brief_lines
from builddoctor.ui.staged import is_stand_in

if TYPE_CHECKING:
    from builddoctor.cluster.client import Cluster
    from builddoctor.runtime.fleet import StartedFleet

STOPS_ANY_COMMAND = frozenset(("memory-limit",))
"""With ``run`` it is not known what the command needs."""

STOPS_BUILD_COMMANDS = frozenset(("nvcc-arch", "submodules"))
"""These stop a command that builds the project of the folder that it is started in: not `git submodule update`."""

QUIET = frozenset(("memory-held", "cores-memory", "python-version", "libraries"))
"""Worth a line where the doctor is asked, not before every build."""

OF_BUILD_COMMANDS = frozenset(("build-folder-nvcc",))
"""A script may load the very toolkit that the folder was configured with."""

LOOKED_AT = 30
"""Traces, newest first."""

MOST_BYTES = 64 * 1024 * 1024
"""Of traces, read in all, some 2 s of it: this stands before every page of the doctor."""

NOTE = "builddoctor-settings.json"
"""In a build folder: what its extensions were built with."""

_FLAGS = (
    "TORCH_CUDA_ARCH_LIST",
    "CUDAARCHS",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "CFLAGS",
    "CXXFLAGS",
    "CUDA_HOME",
)


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
    triton: tuple[TritonTool, ...]
    """gates before the programs in Triton's package, by the variables that name them"""
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
    cluster: Cluster | None = None
    """other machines that run phases"""
    store: Store | None = None
    """results of phases of earlier builds"""

    @property
    def toolchain(self) -> Toolchain:
        """As units' names across builds have it."""
        return Toolchain(
            nvcc=self.toolkit.version if self.toolkit is not None else "",
            host_compiler=next((each.version for each in self.tools.compilers), ""),
            host_arch=os.uname().machine,
        )


def versions_of(tools: Toolchain) -> list[str]:
    """What a vendor asks for first."""
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    named = (("nvcc", tools.nvcc), ("gcc", tools.host_compiler), ("", libc), ("", tools.host_arch))
    return [f"{name} {value}".strip() for name, value in named if value]


def prepare(
    request: RunRequest,
    env: Mapping[str, str],
    root: SystemRoot,
    sensor: MemorySensor,
    *,
    fleet: StartedFleet | None = None,
    sleep: Sleep = time.sleep,
) -> Prepared:
    """Settle everything, or raise what is in the way. ``fleet``: nodes that come with the build. ``sleep``: waits
    before memory is looked at again."""
    if not sys.platform.startswith("linux"):
        raise PlatformError(
            f"builddoctor needs Linux; this is {sys.platform}",
            hint="run it in a Linux container or virtual machine, where the build runs",
        )
    reading, budget = _memory(root, sensor, sleep)
    cores = max(1, request.cores or usable_cores(root))
    toolkit, problem = toolkit_of(request, env, root)
    cache = cache_folder(env)
    fallback_folder = "" if shutil.which("ninja", path=env.get("PATH")) else own_ninja()
    tools = _host_tools(env, fallback_folder, request.command)
    staged = request.strategy == "staged"
    host = stages_folder(cache) if staged else host_overlay(cache, tools)
    # The user's own limit is the build's, not that of nodes beside it.
    cluster = _join(request, toolkit, tools, fleet, cores=cores, free_mib=reading.free_mib)
    # Units that other machines compile wait in as many places here.
    away = cluster.cores() if cluster is not None else 0
    wide = cores + max(away, fleet.cores(cores) if fleet is not None else 0)
    jobs = window(wide, budget, read_process_room(root))
    settings = knobs.settle(env, window=jobs, cores=cores, ignore_caps=request.ignore_caps)
    if staged:
        # What the user has set is left to the build; its stages have jobs of their own.
        settings = msgspec.structs.replace(settings, exports={}, caps=())
    return Prepared(
        toolkit=toolkit,
        toolkit_problem=problem,
        cuda=toolkit_overlay(cache, toolkit, env) if toolkit is not None and not staged else None,
        host=host,
        uncaught=uncaught_driver(env, host / "gcc", run=run_captured) if not staged else "",
        tools=tools,
        triton=triton_overlay(cache, triton_tools(request.command, env)) if not staged else (),
        fallback_folder=fallback_folder,
        cache=cache,
        cores=cores,
        # What the user said is meant as it is.
        slots=request.cores or slots(cores),
        most_open=most_open(
            wide,
            budget,
            jobs,
            temporary_mib=_temporary_mib(env, root),
            unit_files_mib=NVCC_FILES_MIB * max(1, len(request.archs)),
        ),
        most_threads=settings.most_threads if toolkit is None or knows_threads(toolkit.version) else 1,
        knobs=settings,
        reading=reading,
        budget_mib=budget,
        cluster=cluster,
        store=_store(request),
    )


def _join(
    request: RunRequest,
    toolkit: Toolkit | None,
    tools: HostTools,
    fleet: StartedFleet | None,
    *,
    cores: int,
    free_mib: float,
) -> Cluster | None:
    """The cluster that the user named, or that comes with the build. Raises ClusterError where it cannot be joined."""
    if not request.cluster and fleet is None:
        return None
    if toolkit is None:
        raise ClusterError(
            "no CUDA toolkit was found here, and only its compilers run on other machines",
            hint="name it with `--toolkit`, or leave out `--cluster`",
        )
    # Only here: Dask takes half a second to load.
    from builddoctor.runtime.away import join

    if fleet is None:
        return join(request.cluster, request.cluster_keys, toolkit, tools.compilers)
    address = fleet.join(toolkit.home, cores=cores, free_mib=free_mib)
    return join(address, str(fleet.keys), toolkit, tools.compilers, news=fleet.news)


def _store(request: RunRequest) -> Store | None:
    """The store that the user named. Raises FolderNotWritableError, or UsageError where anybody may write to it; of one
    elsewhere ClusterError where there are no keys."""
    if not request.store:
        return None
    if not request.store_keys:
        return StoreFolder(Path(request.store), most_mib=request.store_mib or DEFAULT_MIB)
    return RemoteStore(request.store, tls_for(request.store, Path(request.store_keys), "client"))


def _temporary_mib(env: Mapping[str, str], root: SystemRoot) -> float | None:
    """What is left in TMPDIR; 0 where that is memory."""
    place, *_ = read_places(root, env, ())
    return 0.0 if place.in_memory else place.free_mib


def knows_threads(version: str) -> bool:
    """nvcc has ``--threads`` since 11.2. Where its version is unknown, it is taken to be old."""
    numbers = [whole_number(part) for part in version.split(".")[:2]]
    return len(numbers) == 2 and tuple(-1 if each is None else each for each in numbers) >= (11, 2)


def _memory(root: SystemRoot, sensor: MemorySensor, sleep: Sleep) -> tuple[MemoryReading, float]:
    reading, allowed = look_twice(lambda: sensor.read(0.0), sleep=sleep)
    level = allowed.level
    if is_short(allowed):
        held = held_by(read_holders(root, level))
        raise MemoryBudgetError(
            f"no memory to build in: {format_mib(level.headroom_mib)} free of {format_mib(level.limit_mib)} "
            f"({level.source}), and no more after {SECOND_LOOK_S:.0f} s{held}",
            hint="end what else runs there, or raise that limit; `builddoctor run --memory` can only lower it",
        )
    return reading, allowed.budget_mib


def own_ninja() -> str:
    """The folder of the ninja that came with us. Conda's package of that name is the program alone."""
    try:
        import ninja
    except ModuleNotFoundError:
        return ""
    return ninja.BIN_DIR


def toolkit_of(request: RunRequest, env: Mapping[str, str], root: SystemRoot) -> tuple[Toolkit | None, str]:
    """The toolkit; without one only when the build may not need it, and the user did not name one."""
    if request.need_toolkit or request.toolkit:
        require_tmpdir(env, root)
    found = candidates(root, env, wanted=request.toolkit, site_folders=site_folders(env))
    try:
        return find_toolkit(found, env, wanted=request.toolkit, run=run_captured), ""
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
    compilers = tuple(host_compilers(env, run=run_captured))
    return HostTools(compilers=compilers, fronts=tuple(fronts.items()), clangs=tuple(clangs(env)))


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


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen before the build."""

    env: Mapping[str, str]
    """the environment to build in"""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    recipe: ChosenRecipe | None = None
    """what the build goes by, beside its history"""


def settle_environment(
    env: Mapping[str, str], root: SystemRoot, *, own_homes: bool = False, remedy_for: str = ""
) -> Preflight:
    """The environment of the build, not activated: TMPDIR moved where ``doctor --fix`` settled that, and said so.

    ``own_homes``: CUDA_HOME and CUDA_PATH go where they name no toolkit; the build gets one of ours. Not with ``run``,
    whose command may be what puts a toolkit there. ``remedy_for``: the build's folder, with ``--auto-remedy``.
    """
    env, notes = plain_environment(env), []
    moved = remembered_tmpdir(env, root)
    if moved:
        env = {**env, "TMPDIR": moved}
        notes.append(f"temporary files go to {moved}, as `doctor --fix` settled it")
    elif remedy_for and (moved := tmpdir_on_disk(env, root, build_folder=remedy_for)):
        was = env.get("TMPDIR") or "/tmp"  # noqa: S108
        env = {**env, "TMPDIR": moved}
        notes.append(
            f"temporary files go to {moved}: {was} is in memory, and counts against its limit (`--auto-remedy`)"
        )
    if elsewhere := standing_in(env):
        notes.append(elsewhere)
    for name in lost_homes(env) if own_homes else ():
        notes.append(f"no CUDA toolkit is where {name}={env[name]} points: this build does without it")
        env = {key: value for key, value in env.items() if key != name}
    return Preflight(env=env, notes=tuple(notes))


def look_ahead(request: RunRequest, env: Mapping[str, str], root: SystemRoot, toolkit: Toolkit | None) -> list[str]:
    """Warnings, a line each. Raises BuildImpossibleError when the build cannot succeed."""
    folder = Path(request.cwd)
    archs = parse_archs(",".join(request.archs)) if request.archs else ()
    subject = subject_of(folder, archs) if is_project(folder) else Subject(archs=archs)
    report = examine_briefly(
        root,
        env,
        Question(
            subject=subject,
            wanted_toolkit=request.toolkit,
            known_toolkit=toolkit,
            memory_mib=request.memory_mib,
            site_folders=site_folders(env),
        ),
        with_tools=request.need_toolkit,
    )
    fatal = [check for check in report.checks if check.stops_build and _applies(check, request)]
    if fatal:
        raise BuildImpossibleError(
            f"this build cannot succeed (`--no-doctor` tries it): {'; '.join(check.text for check in fatal)}",
            hint=fatal[0].hint or "`builddoctor doctor` shows the whole page",
        )
    quiet = QUIET if request.need_toolkit or builds_folder(request.command, request.cwd) else QUIET | OF_BUILD_COMMANDS
    told = [check for check in report.checks if check.status is not Status.OK and check.name not in quiet]
    return brief_lines(told)


def _applies(check: Check, request: RunRequest) -> bool:
    if request.need_toolkit or check.name in STOPS_ANY_COMMAND:
        return True
    return check.name in STOPS_BUILD_COMMANDS and builds_folder(request.command, request.cwd)


def forget_other_settings(folder: Path, settings: Iterable[tuple[str, str]], env: Mapping[str, str]) -> int:
    """Remove the extensions of ``folder/build`` unless the last build had the same settings; gives how many those were.

    distutils goes by the times of files alone: built for sm_90, an extension is newer than its sources, and is taken as
    it is when sm_80 is asked for. torch with Ninja, CMake and make compare commands, and need none of this. What else
    changes a compile is not noticed: a compiler of another version for one. Objects stay: distutils compiles them again
    by itself. What cannot be removed or noted is left.
    """
    effective = {**{name: env[name] for name in _FLAGS if name in env}, **dict(settings)}
    wanted = msgspec.json.encode(effective, order="sorted")
    build = folder / "build"
    note = build / NOTE
    with contextlib.suppress(OSError):
        if note.read_bytes() == wanted:
            return 0
    removed = 0
    for extension in build.glob("lib*/**/*.so"):
        with contextlib.suppress(OSError):
            extension.unlink()
            removed += 1
    with contextlib.suppress(OSError):
        build.mkdir(exist_ok=True)
        temporary = note.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(wanted)
        os.replace(temporary, note)
    return removed


def last_peak_mib(env: Mapping[str, str], folder: Path) -> float | None:
    """The largest phase of the last traced build that ran in ``folder`` or below; None without one.

    Of traces of other folders only the first line is read; one that is too large to read now is passed over.
    """
    traces = sorted(glob.glob(f"{glob.escape(str(traces_folder(env)))}/*.jsonl"), reverse=True)[:LOOKED_AT]
    left_bytes = MOST_BYTES
    for path in map(Path, traces):
        reader = TraceReader(path, curves=False)
        try:
            peak_mib = _peak_mib(reader, folder, left_bytes) if path.is_file() else 0.0
        except (TraceError, OSError, ValueError):
            peak_mib = 0.0
        if peak_mib:
            return peak_mib
        left_bytes -= reader.bytes_read
        if left_bytes <= 0:
            break
    return None


def _peak_mib(reader: TraceReader, folder: Path, most_bytes: int) -> float:
    state = BuildState()
    for event in reader:
        if isinstance(event, Header) and (
            not Path(event.cwd).is_relative_to(folder) or reader.path.stat().st_size > most_bytes
        ):
            return 0.0
        state.apply(event)
        if reader.bytes_read > most_bytes:
            # Of a build that goes on right now.
            return 0.0
    attempts = [attempt for phase in state.phases.values() for attempt in phase.row.attempts]
    return max((each.peak_mib for each in attempts if each.outcome == Outcome.OK.value), default=0.0)
