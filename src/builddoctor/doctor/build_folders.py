"""Checks of folders that an earlier build left: what CMake keeps in its cache, and ninja in its log.

Pure. CMake takes compiler, ninja and folders from its cache and not from the environment (3.25 and 4.4, tried): what is
gone there fails at configure, whatever the machine has now. A build.ninja without a cache is torch's, and written anew.
"""

from __future__ import annotations

import os
import re
import shlex

from builddoctor.doctor.versions import first_ninja, log_version, log_writers, short, torch_ninja
from builddoctor.model.build_tools import BuildTools, Program
from builddoctor.model.check import Check, Status
from builddoctor.model.source import BuildFolder, Source
from builddoctor.model.toolkit import Toolkit
from builddoctor.projects.archs import Arch

TOPIC = "source"
_ARCH = re.compile(r"\A(?P<number>\d+[af]?)(?:-real|-virtual)?\Z")


def build_folder_checks(
    source: Source, *, archs: tuple[Arch, ...], toolkit: Toolkit | None, tools: BuildTools
) -> list[Check]:
    """What is stale in each folder; nothing for those that are as they should be."""
    checks: list[Check] = []
    for folder in source.build_folders:
        broken = _broken(folder, source) if folder.configured else None
        if broken is not None:
            # Configured anew, the rest does not matter.
            checks.append(broken)
            continue
        found = [_ninja(folder, source, tools)]
        if folder.configured:
            found += [_archs(folder, source, archs), _compiler(folder, source, toolkit)]
        checks += [check for check in found if check is not None]
    return checks


def _broken(folder: BuildFolder, source: Source) -> Check | None:
    """CMake refuses to configure this folder, or may do so."""
    shown = _shown(folder, source)
    # CMake does not look for compilers of languages that the project does not have, nor for launchers.
    used = [program for program in folder.gone if program in (folder.cxx_compiler, folder.make_program)]
    perhaps = [program for program in folder.gone if program not in used]
    if any(program in folder.overlays for program in used):
        gone = ", ".join(used)
        name, text = "build-folder-overlay", f"{shown} still calls {gone}, a gate of builddoctor's that was deleted"
    elif used:
        gone = ", ".join(used)
        name, text = "build-folder-programs", f"{shown} was configured with {gone}, which is gone; CMake keeps to it"
    elif folder.moved_from:
        name, text = "build-folder-moved", f"{shown} was configured as {folder.moved_from}; CMake refuses it here"
    elif _is_own(folder, source) and folder.other_source:
        text = f"{shown} was configured for the sources in {folder.other_source}; CMake refuses it for these"
        name = "build-folder-source"
    elif perhaps:
        gone = ", ".join(perhaps)
        if any(program in folder.overlays for program in perhaps):
            name, text = "build-folder-overlay", f"{shown} names {gone}, a gate of builddoctor's that was deleted"
        else:
            name, text = "build-folder-programs", f"{shown} names {gone}, which is gone: what uses it fails"
        return Check(name=name, topic=TOPIC, status=Status.WARNING, text=text, hint=_afresh(folder))
    else:
        return None
    stops = _is_own(folder, source) and not source.python
    return Check(name=name, topic=TOPIC, status=Status.PROBLEM, text=text, hint=_afresh(folder), stops_build=stops)


def _is_own(folder: BuildFolder, source: Source) -> bool:
    """`builddoctor build` of a CMake project takes this very folder."""
    return source.cmake and folder.path == f"{source.folder.rstrip('/')}/build"


def _archs(folder: BuildFolder, source: Source, archs: tuple[Arch, ...]) -> Check | None:
    words = [word for word in folder.archs.split(";") if word]
    had = {match["number"] for word in words if (match := _ARCH.match(word))}
    asked = {arch.number for arch in archs}
    # `native`, `all`, `OFF`: CMake and the project decide.
    if not asked or not had or len(had) > len(words) or had == asked or any(not _ARCH.match(word) for word in words):
        return None
    text = f"{_shown(folder, source)} was configured for {', '.join(words)}: all its CUDA units are compiled again"
    return Check(
        name="build-folder-archs",
        topic=TOPIC,
        status=Status.WARNING,
        text=text,
        hint="to keep both, build this architecture in a folder of its own",
    )


def _compiler(folder: BuildFolder, source: Source, toolkit: Toolkit | None) -> Check | None:
    if toolkit is None or not toolkit.version or not folder.cuda_version or folder.cuda_version == toolkit.version:
        return None
    text = (
        f"{_shown(folder, source)} was configured with nvcc {folder.cuda_version} ({folder.cuda_compiler}); "
        f"CMake keeps to it, and nvcc {toolkit.version} is not used there"
    )
    return Check(name="build-folder-nvcc", topic=TOPIC, status=Status.WARNING, text=text, hint=_afresh(folder))


def _ninja(folder: BuildFolder, source: Source, tools: BuildTools) -> Check | None:
    """The ninja that builds here next does not read this log, or another one on PATH does not."""
    used = _used_ninja(folder, source, tools)
    if used is None or folder.ninja_log is None or not used.version:
        return None
    shown = _shown(folder, source)
    if log_version(used.version) != folder.ninja_log:
        same = next((n for n in _all(tools) if log_version(n.version) == folder.ninja_log), None)
        text = (
            f"{shown} was built by {log_writers(folder.ninja_log)}, and ninja {short(used.version)} ({used.path}) "
            "is next: it builds everything again"
        )
        hint = _take(same, folder) if same is not None else ""
    else:
        first = first_ninja(tools)
        if first is None or log_version(first.version) in (None, folder.ninja_log) or first.path == used.path:
            return None
        text = (
            f"{shown} is built by ninja {short(used.version)} ({used.path}), and PATH has ninja "
            f"{short(first.version)} first: called there by hand, it builds everything again"
        )
        hint = f"cmake --build {shlex.quote(folder.path)}"
    return Check(name="ninja-log", topic=TOPIC, status=Status.WARNING, text=text, hint=hint)


def _used_ninja(folder: BuildFolder, source: Source, tools: BuildTools) -> Program | None:
    if not folder.configured:
        return torch_ninja(tools) if source.python else first_ninja(tools)
    if not folder.generator.startswith("Ninja"):
        return None
    if not folder.make_program or folder.make_program in folder.overlays:
        return first_ninja(tools)
    return next((ninja for ninja in _all(tools) if ninja.path == folder.make_program), None)


def _all(tools: BuildTools) -> tuple[Program, ...]:
    return (*tools.configured_ninjas, *tools.ninjas)


def _take(ninja: Program, folder: BuildFolder) -> str:
    if folder.configured:
        return f"cmake -DCMAKE_MAKE_PROGRAM={shlex.quote(ninja.path)} {shlex.quote(folder.path)}"
    return f'export PATH={shlex.quote(os.path.dirname(ninja.path))}:"$PATH"'


def _afresh(folder: BuildFolder) -> str:
    """Configured anew, objects kept."""
    return f"rm -r {shlex.quote(folder.path + '/CMakeCache.txt')} {shlex.quote(folder.path + '/CMakeFiles')}"


def _shown(folder: BuildFolder, source: Source) -> str:
    if folder.path == source.folder:
        return "this folder"
    return folder.path.removeprefix(source.folder.rstrip("/") + "/")
