"""Submodules of a checkout, from its .gitmodules and its folders. No git is run.

Covers: the top level and one level of nested ones; a folder counts as present when it holds anything but ``.git``.
Does *not* cover: whether a submodule is at the commit that the project pins (its own build says so if it cares).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from builddoctor.model.source import Submodule
from builddoctor.sensors.source_files import exists, text_of

MOST_SUBMODULES = 200
MOST_LEVELS_UP = 8
"""a project may lie this deep in its checkout"""

_SECTION = re.compile(r'^\s*\[\s*submodule\s+"')
_SETTING = re.compile(r"^\s*(?P<key>path|url)\s*=\s*(?P<value>.*)$", re.IGNORECASE)


def checkout_of(folder: Path) -> Path | None:
    """Top of the git checkout that ``folder`` lies in; None for an archive.

    A .gitmodules without a .git beside it is an archive's, unpacked somewhere in a checkout of something else (a home
    folder that is kept in git).
    """
    for place in [folder, *folder.parents][: MOST_LEVELS_UP + 1]:
        # A file in worktrees and submodules.
        if exists(place / ".git"):
            return place
        if exists(place / ".gitmodules"):
            return None
    return None


def submodules_of(top: Path) -> list[Submodule]:
    """All submodules of the tree at ``top``, in the order of .gitmodules, nested ones behind their parents."""
    found: list[Submodule] = []
    for path, url in parse_gitmodules(text_of(top / ".gitmodules") or ""):
        present = _filled(top / path)
        found.append(Submodule(path=path, url=url, present=present))
        if present:
            for inner, inner_url in parse_gitmodules(text_of(top / path / ".gitmodules") or ""):
                place = f"{path}/{inner}"
                found.append(Submodule(path=place, url=inner_url, present=_filled(top / place), nested=True))
    return found[:MOST_SUBMODULES]


def parse_gitmodules(text: str) -> list[tuple[str, str]]:
    """(path, url) of each submodule. Paths that lead out of the checkout are left out."""
    entries: list[dict[str, str]] = []
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            inside = bool(_SECTION.match(line))
            if inside:
                entries.append({})
        elif inside and (setting := _SETTING.match(line)):
            entries[-1][setting["key"].lower()] = _unquoted(setting["value"].strip())
    pairs = [(os.path.normpath(entry["path"]), entry.get("url", "")) for entry in entries if entry.get("path")]
    return [(path, url) for path, url in pairs if _stays_inside(path)][:MOST_SUBMODULES]


def _unquoted(value: str) -> str:
    if value.startswith('"'):
        return value[1:].partition('"')[0]
    return re.split(r"\s[#;]", value, maxsplit=1)[0].strip()


def _stays_inside(path: str) -> bool:
    return path not in (".", "..") and not path.startswith(("/", "../")) and path.isprintable()


def _filled(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.name != ".git" for entry in entries)
    except PermissionError:
        # It may be full: what cannot be seen must not stop a build.
        return True
    except (OSError, ValueError):
        return False
