"""Checks of a project's source tree and of the folders that earlier builds left in it.

Covers: submodules, files that cannot be read, projects that take a finished wheel instead of compiling; what CMake
keeps in its cache, and ninja in its log. CMake takes compiler, ninja and folders from its cache and not from the
environment (3.25 and 4.4, tried): what is gone there fails at configure, whatever the machine has now. A build.ninja
without a cache is torch's, and written anew.
Does *not* cover: fetching submodules (``doctor --fix``). Pure: everything was read before.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence

from builddoctor.core.check import Check, FixName, Status, Topic
from builddoctor.core.project import BuildFolder, KnownProject, Source, Submodule
from builddoctor.core.toolchain import BuildTools, Program, Toolkit
from builddoctor.doctor.tool_versions import first_ninja, log_version, log_writers, short, torch_ninja
from builddoctor.projects.archs import Arch

_AMD = re.compile(r"[/:]rocm/", re.IGNORECASE)
_TESTS_ONLY = re.compile(
    r"\A(?:google-?test|gtest|google-?benchmark|benchmark|nvbench|catch2?|doctest)\Z", re.IGNORECASE
)


def source_checks(
    source: Source,
    *,
    known: KnownProject | None,
    archs: tuple[Arch, ...],
    toolkit: Toolkit | None,
    tools: BuildTools,
    env: Mapping[str, str],
) -> list[Check]:
    """Everything about the folder; one ok line when nothing is wrong."""
    checks = [
        Topic.SOURCE.check(
            "source-unreadable", Status.WARNING, f"{path} cannot be read: what it asks for is not checked"
        )
        for path in source.unread
    ]
    checks += _submodules(source, known, tools, env)
    checks += build_folder_checks(source, archs=archs, toolkit=toolkit, tools=tools)
    if not checks:
        count = sum(1 for module in source.submodules if module.present)
        text = f"{count} submodule{'s are' if count > 1 else ' is'} there" if count else "no submodules are missing"
        checks.append(Topic.SOURCE.check("submodules", Status.OK, text))
    return checks + _prebuilt(known, env)


def _submodules(source: Source, known: KnownProject | None, tools: BuildTools, env: Mapping[str, str]) -> list[Check]:
    unread = _left_out(known, env)
    missing = [
        module for module in source.submodules if not module.present and _for_cuda(module) and module.path not in unread
    ]
    listed = known.needed_submodules if known is not None else ()
    needed = [module for module in missing if module.path in listed or (module.certain and not listed)]
    # A build file may name what only some builds use, an option's or a test's; and a list that is older than the
    # checkout must not stop it: that is worth a word.
    doubtful = [module for module in missing if module.named_in and module not in needed]
    if needed:
        return [_needed(source, needed, known, tools)]
    if doubtful and not source.files.fetches_submodules:
        where = doubtful[0].named_in
        text = f"{_are_empty(doubtful)}, and {where} names {'them' if len(doubtful) > 1 else 'it'}"
        return [_submodule_check(source, Status.WARNING, text, known, stops=False)]
    return []


def _left_out(known: KnownProject | None, env: Mapping[str, str]) -> set[str]:
    """The submodules of those parts that the environment leaves out: ``--without``, or the user's own export."""
    off = [part for part in known.components if _is_set(part.off, env)] if known is not None else []
    return {path for part in off for path in part.submodules}


def _is_set(setting: str, env: Mapping[str, str]) -> bool:
    name, _, value = setting.partition("=")
    return env.get(name) == value


def _needed(source: Source, needed: Sequence[Submodule], known: KnownProject | None, tools: BuildTools) -> Check:
    them = "them" if len(needed) > 1 else "it"
    fetcher = source.files.fetches_submodules
    if not fetcher or not source.checkout:
        where = needed[0].named_in or (known.title if known is not None else "the build")
        archive = "" if source.checkout else " (an archive holds no submodules)"
        text = f"{_are_empty(needed)}{archive}, and {where} needs {them}"
        return _submodule_check(source, Status.PROBLEM, text, known, stops=True)
    if not tools.git:
        text = f"{_are_empty(needed)}, and {fetcher} wants to fetch {them} with git, which is not on PATH"
        return Topic.SOURCE.check("submodules", Status.PROBLEM, text, "apt install git", stops=True)
    text = f"{_are_empty(needed)}: {fetcher} fetches {them} when the build starts, which needs the network"
    return _submodule_check(source, Status.WARNING, text, known, stops=False)


def _submodule_check(source: Source, status: Status, text: str, known: KnownProject | None, *, stops: bool) -> Check:
    if source.checkout:
        hint = f"cd {shlex.quote(source.checkout)} && git submodule update --init --recursive"
    elif known is not None and known.repository:
        hint = f"git clone --recursive {known.repository}"
    else:
        hint = "take the project's git checkout (`git clone --recursive …`) or its source distribution"
    return Topic.SOURCE.check(
        "submodules", status, text, hint, fix=FixName.SUBMODULES if source.checkout else FixName.NONE, stops=stops
    )


def _are_empty(modules: Sequence[Submodule]) -> str:
    paths = [module.path for module in modules]
    if len(paths) == 1:
        return f"{paths[0]} is empty"
    if len(paths) > 3:
        return f"{paths[0]}, {paths[1]} and {len(paths) - 2} more submodules are empty"
    return f"{', '.join(paths[:-1])} and {paths[-1]} are empty"


def _for_cuda(module: Submodule) -> bool:
    """Not AMD's libraries, and not a library that only tests use: a build for CUDA does without."""
    return not _AMD.search(module.url) and not _TESTS_ONLY.match(module.path.rpartition("/")[2])


def _prebuilt(known: KnownProject | None, env: Mapping[str, str]) -> list[Check]:
    if known is None or not known.force_build or env.get(known.force_build.partition("=")[0]):
        return []
    text = f"{known.title} takes a finished wheel from the network where one fits, and then compiles nothing"
    hint = f"export {known.force_build}"
    return [Topic.SOURCE.check("prebuilt-wheel", Status.OK, text, hint)]


# -- folders of earlier builds ---------------------------------------------------------------------------------------


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
        return Topic.SOURCE.check(name, Status.WARNING, text, _afresh(folder))
    else:
        return None
    stops = _is_own(folder, source) and not source.python
    return Topic.SOURCE.check(name, Status.PROBLEM, text, _afresh(folder), stops=stops)


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
    return Topic.SOURCE.check(
        "build-folder-archs", Status.WARNING, text, "to keep both, build this architecture in a folder of its own"
    )


def _compiler(folder: BuildFolder, source: Source, toolkit: Toolkit | None) -> Check | None:
    if toolkit is None or not toolkit.version or not folder.cuda_version or folder.cuda_version == toolkit.version:
        return None
    text = (
        f"{_shown(folder, source)} was configured with nvcc {folder.cuda_version} ({folder.cuda_compiler}); "
        f"CMake keeps to it, and nvcc {toolkit.version} is not used there"
    )
    return Topic.SOURCE.check("build-folder-nvcc", Status.WARNING, text, _afresh(folder))


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
    return Topic.SOURCE.check("ninja-log", Status.WARNING, text, hint)


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
