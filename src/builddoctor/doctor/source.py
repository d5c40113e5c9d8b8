"""Checks of a project's source tree: what is missing before a build starts.

Covers: submodules, files that cannot be read, and projects that take a finished wheel instead of compiling; with
``doctor.build_folders``, what an earlier build left. Pure: everything was read before.
Does *not* cover: fetching submodules (``doctor --fix``).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from builddoctor.doctor.build_folders import build_folder_checks
from builddoctor.model.build_tools import BuildTools
from builddoctor.model.check import Check, Status
from builddoctor.model.known_project import KnownProject
from builddoctor.model.source import Source, Submodule
from builddoctor.model.toolkit import Toolkit
from builddoctor.projects.archs import Arch

TOPIC = "source"
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
        Check(
            name="source-unreadable",
            topic=TOPIC,
            status=Status.WARNING,
            text=f"{path} cannot be read: what it asks for is not checked",
        )
        for path in source.unread
    ]
    checks += _submodules(source, known, tools)
    checks += build_folder_checks(source, archs=archs, toolkit=toolkit, tools=tools)
    if not checks:
        count = sum(1 for module in source.submodules if module.present)
        text = f"{count} submodule{'s are' if count > 1 else ' is'} there" if count else "no submodules are missing"
        checks.append(Check(name="submodules", topic=TOPIC, status=Status.OK, text=text))
    return checks + _prebuilt(known, env)


def _submodules(source: Source, known: KnownProject | None, tools: BuildTools) -> list[Check]:
    missing = [module for module in source.submodules if not module.present and _for_cuda(module)]
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
        return [_check(source, Status.WARNING, text, known, stops=False)]
    return []


def _needed(source: Source, needed: Sequence[Submodule], known: KnownProject | None, tools: BuildTools) -> Check:
    them = "them" if len(needed) > 1 else "it"
    fetcher = source.files.fetches_submodules
    if not fetcher or not source.checkout:
        where = needed[0].named_in or (known.title if known is not None else "the build")
        archive = "" if source.checkout else " (an archive holds no submodules)"
        text = f"{_are_empty(needed)}{archive}, and {where} needs {them}"
        return _check(source, Status.PROBLEM, text, known, stops=True)
    if not tools.git:
        text = f"{_are_empty(needed)}, and {fetcher} wants to fetch {them} with git, which is not on PATH"
        return Check(
            name="submodules",
            topic=TOPIC,
            status=Status.PROBLEM,
            text=text,
            hint="apt install git",
            stops_build=True,
        )
    text = f"{_are_empty(needed)}: {fetcher} fetches {them} when the build starts, which needs the network"
    return _check(source, Status.WARNING, text, known, stops=False)


def _check(source: Source, status: Status, text: str, known: KnownProject | None, *, stops: bool) -> Check:
    if source.checkout:
        hint = f"cd {shlex.quote(source.checkout)} && git submodule update --init --recursive"
    elif known is not None and known.repository:
        hint = f"git clone --recursive {known.repository}"
    else:
        hint = "take the project's git checkout (`git clone --recursive …`) or its source distribution"
    return Check(
        name="submodules",
        topic=TOPIC,
        status=status,
        text=text,
        hint=hint,
        fix="submodules" if source.checkout else "",
        stops_build=stops,
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
    return [Check(name="prebuilt-wheel", topic=TOPIC, status=Status.OK, text=text, hint=hint)]
