"""How a known project spells jobs, threads and architectures in its environment, and what it can do without. Pure.

Covers: the catalogue's facts (``projects.catalogue``) as remedies want them: variables alone, not CMake's settings.
Does *not* cover: what builddoctor exports to every build (``intercept.knobs``, ``projects.archs``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from builddoctor.model.known_project import KnownProject, Spelling
from builddoctor.projects.catalogue import KNOWN_PROJECTS

_ARCH = re.compile(r"\A(?:sm_|compute_)?(\d+)(\d)([af]?)\Z")


class ProjectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One project's. Empty where it has no such variable, or nobody knows of one."""

    name: str = ""
    """the catalogue's; empty for a project that is not known"""
    jobs: str = ""
    """the variable that says how many units are compiled at once"""
    threads: str = ""
    """nvcc's ``--threads``"""
    archs: str = ""
    """the variable with its device architectures"""
    arch_form: Spelling = "number"
    letters: bool = True
    separator: str = ";"
    off: str = ""
    """a setting that leaves a component out"""
    off_text: str = ""
    """which"""
    debug_off: str = ""
    """a setting that builds without debug information"""


def settings_of(project: str) -> ProjectSettings:
    """A project's settings, by its name or by the title of a build of it; empty ones for one that is not known."""
    known = _known(project)
    if known is None:
        return ProjectSettings()
    part = known.components[0] if known.components else None
    archs = known.archs if known.archs is not None and not known.archs.variable.startswith("-") else None
    return ProjectSettings(
        name=known.name,
        jobs=_variable(known.jobs[0].variable if known.jobs else ""),
        threads=_variable(known.threads.variable if known.threads is not None else ""),
        archs=archs.variable if archs is not None else "",
        arch_form=archs.spelling if archs is not None else "number",
        letters=archs.letters if archs is not None else True,
        separator=archs.separator if archs is not None else ";",
        off=_setting(part.off) if part is not None else "",
        off_text=part.what if part is not None else "",
        debug_off=known.debug_off,
    )


def arch_value(settings: ProjectSettings, archs: Sequence[str]) -> str:
    """``sm_90``, ``sm_100a`` as the project's own variable takes them; empty when one is no architecture."""
    found = [_ARCH.match(arch) for arch in archs]
    dot = "." if settings.arch_form == "dotted" else ""
    spelt = [f"{match[1]}{dot}{match[2]}{match[3] if settings.letters else ''}" for match in found if match is not None]
    return settings.separator.join(dict.fromkeys(spelt)) if len(spelt) == len(found) else ""


def _known(project: str) -> KnownProject | None:
    wanted = _plain(project.partition(" ")[0])
    for each in KNOWN_PROJECTS:
        if wanted in {_plain(name) for name in (each.name, *each.aliases)} or project.startswith(each.title):
            return each
    return None


def _plain(name: str) -> str:
    return re.sub(r"[-_.\s]+", "_", name.strip().lower())


def _variable(name: str) -> str:
    """CMake's settings are no variables, and what appends to nvcc's flags is everybody's."""
    return "" if name.startswith("-") or name == "NVCC_APPEND_FLAGS" else name


def _setting(off: str) -> str:
    """``CMAKE_ARGS`` is added to, and not replaced."""
    name, _, value = off.partition("=")
    return f'{name}="${name} {value}"' if name == "CMAKE_ARGS" else off
