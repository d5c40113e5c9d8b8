"""The whole examination: what is examined, everything that is read, put before all checks.

Covers: a project by name, a folder, or nothing but the machine; reading host, toolchain, tools and source side by side
(most of it is waiting for small programs); the report, and the short form that stands before every build. It never
writes anything. Does *not* cover: single checks (the other modules here), putting things right (``doctor --fix``).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from builddoctor.core.check import Check, Report, Status
from builddoctor.core.errors import NoBuildSystemError, ProjectNotFoundError, UsageError
from builddoctor.core.machine import Machine, Neighbours
from builddoctor.core.project import KnownProject, Source
from builddoctor.core.toolchain import BuildTools, Toolchain, Toolkit
from builddoctor.doctor.build_tool_checks import build_tool_checks
from builddoctor.doctor.cuda_checks import toolkit_checks
from builddoctor.doctor.hazards import hazard_checks
from builddoctor.doctor.memory_checks import HeavyPhase, evidence_checks, heavy_phase, memory_checks, neighbour_checks
from builddoctor.doctor.source_checks import source_checks
from builddoctor.doctor.storage_checks import BUILD, CACHE, SOURCES, TRACES, storage_checks
from builddoctor.gates.subprocesses import run_captured
from builddoctor.projects.archs import Arch
from builddoctor.projects.catalogue import find_known, known_names, nearest_project, recognise
from builddoctor.projects.source_tree import examine_source
from builddoctor.scheduler.budget import few_units
from builddoctor.system.machine_probe import probe_machine, read_neighbours
from builddoctor.system.oom_evidence import read_visibility
from builddoctor.system.probes import Deadline, job_pool
from builddoctor.system.root import SystemRoot
from builddoctor.toolchain.build_tools import examine_build_tools, unasked_build_tools
from builddoctor.toolchain.inventory import PROBES_S, examine_toolchain


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the examination is about, beside the machine itself."""

    subject: Subject
    wanted_toolkit: str = ""
    known_toolkit: Toolkit | None = None
    """found before, to not find it twice"""
    memory_mib: float | None = None
    site_folders: Sequence[Path] = ()
    cache: Path | None = None
    traces: Path | None = None
    traced_mib: float | None = None
    """largest phase of the last build of this folder, where one left a trace"""
    by_recipe: HeavyPhase | None = None
    """largest phase that the project's nearest recipe tells of"""


class _Read(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the checks are made from."""

    machine: Machine
    neighbours: Neighbours
    toolchain: Toolchain
    tools: BuildTools
    source: Source | None


def examine(root: SystemRoot, env: Mapping[str, str], question: Question) -> Report:
    """All checks. Takes about as long as the slowest program asked: well under two seconds."""
    read = _read(root, env, question)
    subject, machine = question.subject, read.machine
    checks = memory_checks(machine, _heavy(question), archs=len(subject.archs))
    checks += neighbour_checks(
        read.neighbours, host=machine.host, headroom_mib=machine.headroom_mib, reserve_mib=machine.reserve_mib
    )
    checks += evidence_checks(read_visibility(root))
    checks += _disk(read, subject)
    checks += _toolchain(read, subject, env)
    checks += _tools(read, subject, env)
    checks += _source(read, subject, env)
    return _report(machine, subject, checks)


def examine_briefly(root: SystemRoot, env: Mapping[str, str], question: Question, *, with_tools: bool = True) -> Report:
    """What stops a build or spoils it: memory, disk, archs, host compiler, submodules. For the start of a build.

    ``with_tools``: the project is built the usual way, so cmake, python and its packages matter too.
    """
    read = _read(root, env, question, with_tools=with_tools)
    subject = question.subject
    checks = memory_checks(read.machine, _heavy(question), archs=len(subject.archs)) + _disk(read, subject)
    if read.toolchain.toolkit is not None:
        # Without one, the build itself knows better whether it needs it.
        checks += _toolchain(read, subject, env)
    if with_tools:
        checks += _tools(read, subject, env)
    checks += _source(read, subject, env)
    return _report(read.machine, subject, checks)


def _read(root: SystemRoot, env: Mapping[str, str], question: Question, *, with_tools: bool = True) -> _Read:
    """Programs are asked while files are read. ``with_tools``: cmake, python and ninja too, which take longest."""
    subject = question.subject
    deadline = Deadline(PROBES_S)
    with job_pool(deadline) as pool:
        toolchain = pool.submit(
            partial(
                examine_toolchain,
                root,
                env,
                wanted=question.wanted_toolkit,
                site_folders=question.site_folders,
                known=question.known_toolkit,
                run=run_captured,
                deadline=deadline,
            )
        )
        source = examine_source(subject.folder, env) if subject.folder is not None else None
        # What an earlier build left asks for the version of its ninja.
        asked = with_tools or (source is not None and bool(source.build_folders))
        ask_tools = partial(examine_build_tools, env, source, run=run_captured, deadline=deadline)
        tools = pool.submit(ask_tools if asked else partial(unasked_build_tools, env))
        folders = [(SOURCES, Path(source.folder)), (BUILD, _build_folder(source))] if source is not None else []
        folders += [(role, path) for role, path in ((CACHE, question.cache), (TRACES, question.traces)) if path]
        return _Read(
            machine=probe_machine(root, env, folders=folders, memory_mib=question.memory_mib),
            neighbours=read_neighbours(root, str(subject.folder or "/")),
            toolchain=toolchain.result(),
            tools=tools.result(),
            source=source,
        )


def _build_folder(source: Source) -> Path:
    """Where objects go: the folder configured last, else ``build``, which is made when it is not there."""
    configured = [folder.path for folder in source.build_folders if folder.configured]
    return Path(configured[0]) if configured else Path(source.folder) / "build"


def _disk(read: _Read, subject: Subject) -> list[Check]:
    machine = read.machine
    return storage_checks(
        machine.places,
        limit_mib=machine.limit_mib,
        open_units=few_units(machine.cores, machine.budget_mib),
        archs=max(1, len(subject.archs)),
        needs_nvcc=read.toolchain.toolkit is not None or read.toolchain.trouble == "temporary",
        wsl2=machine.platform.wsl_version == 2,
    )


def _toolchain(read: _Read, subject: Subject, env: Mapping[str, str]) -> list[Check]:
    known = subject.known
    return [
        *toolkit_checks(
            read.toolchain,
            subject.archs,
            needed=known.needed_libraries if known is not None else (),
            needs_nvcc=_has_cuda(read, subject),
            compiles_cuda=_compiles_cuda(read, subject, env),
        ),
        *hazard_checks(
            read.toolchain,
            subject.archs,
            machine=read.machine.platform.architecture,
            project=known.name if known is not None else "",
            conda_prefix=env.get("CONDA_PREFIX", ""),
        ),
    ]


def _has_cuda(read: _Read, subject: Subject) -> bool:
    """CUDA code may be compiled: the project's own files say so, or it is known for it."""
    known = subject.known
    if read.source is None:
        return known is not None or bool(subject.archs)
    if known is not None and (known.always_cuda or known.needed_libraries):
        return True
    # A folder with nothing but a build.ninja has no other files to say so.
    configured = any(folder.cuda_compiler for folder in read.source.build_folders)
    return bool(read.source.files.cuda) or (configured and not read.source.python and not read.source.cmake)


def _compiles_cuda(read: _Read, subject: Subject, env: Mapping[str, str]) -> bool:
    """CUDA code is compiled for certain, with the host compiler that nvcc takes by itself, and checked by nvcc."""
    if read.source is None:
        return _has_cuda(read, subject)
    always = read.source.files.cuda_certain or (subject.known is not None and subject.known.always_cuda)
    chosen = read.source.files.host_compiler or any(folder.host_compiler for folder in read.source.build_folders)
    flags = " ".join(env.get(name, "") for name in ("CUDAFLAGS", "CMAKE_ARGS", "SKBUILD_CMAKE_ARGS"))
    elsewhere = env.get("CMAKE_TOOLCHAIN_FILE") or re.search(r"-ccbin|compiler-bindir|HOST_COMPILER|TOOLCHAIN", flags)
    return always and not chosen and not elsewhere


def _tools(read: _Read, subject: Subject, env: Mapping[str, str]) -> list[Check]:
    return build_tool_checks(
        read.tools,
        source=read.source,
        known=subject.known,
        archs=subject.archs,
        toolkit=read.toolchain.toolkit,
        env=env,
        gpus=len(read.machine.platform.gpus),
    )


def _source(read: _Read, subject: Subject, env: Mapping[str, str]) -> list[Check]:
    if read.source is None:
        return []
    return source_checks(
        read.source,
        known=subject.known,
        archs=subject.archs,
        toolkit=read.toolchain.toolkit,
        tools=read.tools,
        env=env,
    )


def _heavy(question: Question) -> HeavyPhase:
    known = question.subject.known
    return heavy_phase(
        traced_mib=question.traced_mib,
        by_recipe=question.by_recipe,
        known_mib=known.heavy_phase_mib if known is not None else None,
        known_source=known.heavy_source if known is not None else "",
    )


def _report(machine: Machine, subject: Subject, checks: Sequence[Check]) -> Report:
    return Report(
        status=max((check.status for check in checks), key=lambda status: status.rank, default=Status.OK),
        project=subject.known.name if subject.known is not None else subject.title,
        archs=tuple(arch.sm for arch in subject.archs),
        cores=machine.cores,
        limit_mib=machine.limit_mib,
        headroom_mib=machine.headroom_mib,
        budget_mib=machine.budget_mib,
        limited_by=machine.limited_by,
        checks=tuple(checks),
    )


# -- what is examined ------------------------------------------------------------------------------------------------


BUILD_FILES = ("setup.py", "pyproject.toml", "CMakeLists.txt", "build.ninja", ".gitmodules")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """One project, as far as it is known."""

    folder: Path | None = None
    """its sources; None where only its name is known, or there is no project at all"""
    known: KnownProject | None = None
    archs: tuple[Arch, ...] = ()

    @property
    def title(self) -> str:
        """What the page calls it; empty without a project."""
        if self.known is not None:
            return self.known.title
        return self.folder.name if self.folder is not None else ""


def current_folder() -> Path | None:
    """None when it has been deleted."""
    try:
        return Path.cwd()
    except OSError:
        return None


def find_subject(named: str | None, here: Path | None, archs: tuple[Arch, ...]) -> Subject:
    """What ``named`` (a path or a project's name; None for ``here``) stands for. ``here`` is None when it is gone.

    Raises ProjectNotFoundError, NoBuildSystemError for a file, UsageError for a name of no letters.

    A name goes before a folder of that name inside that project's own checkout: TransformerEngine's holds a package
    ``transformer_engine``.
    """
    if named is None:
        return subject_of(here, archs) if here is not None and is_project(here) else Subject(archs=archs)
    if not named.strip():
        raise UsageError("the name of the project is empty", hint="builddoctor doctor .")
    known = find_known(named) if "/" not in named else None
    if known is not None and here is not None and recognise(here) == known:
        return Subject(folder=here, known=known, archs=archs)
    folder = Path(here or "/", os.path.expanduser(named))
    if here is None and known is None and not os.path.isabs(os.path.expanduser(named)):
        raise ProjectNotFoundError(
            f"the current folder has been deleted, so there is no {named} in it",
            hint="give its full path",
        )
    if os.path.isfile(folder):
        above = os.path.dirname(named) or "."
        raise NoBuildSystemError(
            f"{named} is a file, not a project folder", hint=f"builddoctor doctor {shlex.quote(above)}"
        )
    if os.path.isdir(folder) and (known is None or recognise(folder) == known):
        return subject_of(folder, archs)
    if known is not None:
        return Subject(known=known, archs=archs)
    close = nearest_project(named)
    raise ProjectNotFoundError(
        f"neither a folder nor a project that we know: {named}",
        hint=f"did you mean `builddoctor doctor {close}`?" if close else f"known by name: {', '.join(known_names())}",
    )


def subject_of(folder: Path, archs: tuple[Arch, ...]) -> Subject:
    """The project in this folder."""
    real = Path(os.path.realpath(folder))
    return Subject(folder=real, known=recognise(real), archs=archs)


def is_project(folder: Path) -> bool:
    """There is something here that can be built."""
    return any(os.path.exists(folder / name) for name in BUILD_FILES)
