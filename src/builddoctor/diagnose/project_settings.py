"""How known projects spell jobs, threads and architectures, and what of them can be left out. Pure.

Covers: variables that their builds read, from ``project_settings.toml``. Names are those of the catalogue of known
projects. Does *not* cover: what builddoctor exports to every build (``intercept.knobs``, ``projects.archs``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import Literal

import msgspec


class ProjectSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One project's. Empty where it has no such setting, or nobody knows of one."""

    jobs: str = ""
    """the variable that says how many units are compiled at once"""
    threads: str = ""
    """nvcc's ``--threads``"""
    archs: str = ""
    """the variable with its device architectures"""
    arch_form: Literal["number", "dotted"] = "number"
    """``90`` or ``9.0``"""
    separator: str = ";"
    off: str = ""
    """settings that leave a component out"""
    off_text: str = ""
    """which"""
    debug_off: str = ""
    """settings that build without debug information"""
    source: str


_ARCH = re.compile(r"\A(?:sm_|compute_)?(\d+)(\d)([af]?)\Z")
_NOTHING = ProjectSettings(source="")


@lru_cache(maxsize=1)
def load_settings() -> dict[str, ProjectSettings]:
    """All projects by name."""
    text = resources.files(__package__).joinpath("project_settings.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, ProjectSettings])


def settings_of(project: str) -> ProjectSettings:
    """A project's settings; empty ones for a project that is not known."""
    return load_settings().get(project, _NOTHING)


def arch_value(settings: ProjectSettings, archs: Sequence[str]) -> str:
    """``sm_90``, ``sm_100a`` as the project's own variable takes them; empty when one is no architecture."""
    found = [_ARCH.match(arch) for arch in archs]
    dot = "." if settings.arch_form == "dotted" else ""
    spelt = [f"{match[1]}{dot}{match[2]}{match[3]}" for match in found if match is not None]
    return settings.separator.join(spelt) if len(spelt) == len(found) else ""
