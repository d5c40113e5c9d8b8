"""Settings in a checkout's own git configuration that make git start a program when submodules are fetched.

Covers: the configuration of the checkout, of its submodules (``.git/modules``, or a ``.git`` in their folders) and of
worktrees, as text. It may have come in an archive with a ``.git`` in it. Looked for are names anywhere in the text, so
that no trick of writing hides one; a false alarm costs the user one command.
Does *not* cover: the user's and the system's configuration, which are theirs; hooks and the settings that can be
outdone on git's command line (``supervise.careful_git``).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from builddoctor.sensors.source_files import text_of
from builddoctor.sensors.submodules import parse_gitmodules

MOST_CHECKOUTS = 500
MOST_FOLDERS = 50_000
MOST_BYTES = 4 * 1024 * 1024

_NAMES = ("config", "config.worktree")

_PROGRAM = re.compile(
    r"(?<![\w-])"
    r"(sshcommand|gitproxy|helper|smudge|process|clean|uploadpack|vcs|driver|command|alternaterefscommand|recentobjectshook)"
    r"[ \t]*(?:=|\r?$)",
    re.IGNORECASE | re.MULTILINE,
)
_UPDATE = re.compile(
    r"(?<![\w-])(update)[ \t]*=(?![ \t]*(?:none|checkout|merge|rebase)[ \t]*\r?$)", re.IGNORECASE | re.MULTILINE
)
"""``submodule.NAME.update = !command``: in a .gitmodules git refuses it, here it does not."""
_SECTION = re.compile(r"\[\s*(?=include|lfs[^\]]{0,9}customtransfer)(\w+)", re.IGNORECASE)
"""Another file, which may say anything; git-lfs's own kind of programs."""


def program_settings(checkout: Path) -> list[str]:
    """``sshcommand in .git/config`` for each found, and what could not be looked through. Never raises."""
    found: dict[str, None] = {}
    folders, complete = _git_folders(checkout)
    for file in (folder / name for folder in folders for name in _NAMES):
        text = text_of(file, MOST_BYTES) or ""
        shown = os.path.relpath(file, checkout)
        for pattern in (_PROGRAM, _UPDATE, _SECTION):
            found.update((f"{match[1].lower()} in {shown}", None) for match in pattern.finditer(text))
        if len(text.encode()) >= MOST_BYTES:
            found[f"more than is read of {shown}"] = None
    if not complete:
        found["more submodules than are looked through"] = None
    return list(found)


def _git_folders(checkout: Path) -> tuple[list[Path], bool]:
    """Every folder in which git may read a configuration; and whether that is all of them."""
    found: dict[Path, None] = {}
    places, seen = [checkout], 0
    for place in places:
        for folder in _of_checkout(place):
            if folder in found:
                continue
            found[folder] = None
            # Names of submodules may hold slashes. A link is followed, as git does; round in circles it ends below.
            for below, _, files in os.walk(folder / "modules", followlinks=True):
                seen += 1
                if seen > MOST_FOLDERS:
                    return list(found), False
                if any(name in files for name in _NAMES):
                    found[Path(below)] = None
        places += [place / path for path, _ in parse_gitmodules(text_of(place / ".gitmodules") or "")]
        if len(places) > MOST_CHECKOUTS:
            return list(found), False
    return list(found), True


def _of_checkout(place: Path) -> list[Path]:
    """Its git folder; for a worktree or a submodule, the one that its ``.git`` file names, and what that shares."""
    git = place / ".git"
    if os.path.isdir(git):
        return [git]
    named = (text_of(git, 4096) or "").strip()
    if not named.startswith("gitdir:") or "\0" in named:
        return []
    own = Path(os.path.normpath(place / named.removeprefix("gitdir:").strip()))
    shared = (text_of(own / "commondir", 4096) or "").strip()
    return [own, Path(os.path.normpath(own / shared))] if shared and "\0" not in shared else [own]
