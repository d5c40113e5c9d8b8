"""The whole examination: everything that is read, put before all checks.

Covers: reading host, toolchain, tools and source side by side (most of it is waiting for small programs), and the
report; the short form that stands before every build. Never writes anything.
Does *not* cover: single checks (the other modules here), putting things right (``supervise.fixing``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from builddoctor.doctor.build_tools import build_tool_checks
from builddoctor.doctor.evidence import evidence_checks
from builddoctor.doctor.hazards import hazard_checks
from builddoctor.doctor.memory import memory_checks
from builddoctor.doctor.neighbours import neighbour_checks
from builddoctor.doctor.source import source_checks
from builddoctor.doctor.storage import BUILD, CACHE, TRACES, storage_checks
from builddoctor.doctor.subject import Subject
from builddoctor.doctor.toolkit import toolkit_checks
from builddoctor.doctor.weight import Weight, weigh
from builddoctor.intercept.build_tools import examine_build_tools, unasked_build_tools
from builddoctor.intercept.side_by_side import Patience, side_by_side
from builddoctor.intercept.toolchain import PATIENCE_S, examine_toolchain
from builddoctor.model.build_tools import BuildTools
from builddoctor.model.check import Check, Report, Status
from builddoctor.model.machine import Machine
from builddoctor.model.neighbours import Neighbours
from builddoctor.model.source import Source
from builddoctor.model.toolchain import Toolchain
from builddoctor.model.toolkit import Toolkit
from builddoctor.policy.budget import few_units
from builddoctor.sensors.machine import probe_machine
from builddoctor.sensors.neighbours import read_neighbours
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.source import examine_source
from builddoctor.sensors.visibility import read_visibility


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
    checks = memory_checks(machine, _weight(question), archs=len(subject.archs))
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
    checks = memory_checks(read.machine, _weight(question), archs=len(subject.archs)) + _disk(read, subject)
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
    patience = Patience(PATIENCE_S)
    with side_by_side(patience) as pool:
        toolchain = pool.submit(
            partial(
                examine_toolchain,
                root,
                env,
                wanted=question.wanted_toolkit,
                site_folders=question.site_folders,
                known=question.known_toolkit,
                patience=patience,
            )
        )
        source = examine_source(subject.folder, env) if subject.folder is not None else None
        # What an earlier build left asks for the version of its ninja.
        asked = with_tools or (source is not None and bool(source.build_folders))
        ask_tools = partial(examine_build_tools, env, source, patience=patience)
        tools = pool.submit(ask_tools if asked else partial(unasked_build_tools, env))
        folders = [(BUILD, _build_folder(source))] if source is not None else []
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
    """CUDA code is compiled for certain, and nobody chooses another host compiler for it, or has nvcc take any."""
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


def _weight(question: Question) -> Weight:
    known = question.subject.known
    return weigh(
        traced_mib=question.traced_mib,
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
