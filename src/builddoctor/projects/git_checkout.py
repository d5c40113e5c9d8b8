"""A git checkout as text: where it begins, its submodules, its origin, its tags, and settings that start programs.

Covers: checkouts, worktrees (their ``.git`` is a file), .gitmodules at the top and one level of nested ones; a
submodule's folder counts as present when it holds anything but ``.git``. No git is run.
Does *not* cover: whether a submodule is at the commit that the project pins (its own build says so if it cares); the
user's and the system's configuration; hooks and settings that git's command line overrides (``runtime.fixing``).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from builddoctor.core.project import Submodule
from builddoctor.system.source_files import exists, text_of

MOST_SUBMODULES = 200
MOST_LEVELS_UP = 8
"""a project may lie this deep in its checkout"""
MOST_CHECKOUTS = 500
MOST_FOLDERS = 50_000
MOST_BYTES = 4 * 1024 * 1024

_SECTION = re.compile(r'^\s*\[\s*submodule\s+"')
_SETTING = re.compile(r"^\s*(?P<key>path|url)\s*=\s*(?P<value>.*)$", re.IGNORECASE)

_ORIGIN = re.compile(r"^\[remote \"origin\"\][^\[]*?^[ \t]*url[ \t]*=[ \t]*(\S+)[ \t]*$", re.MULTILINE)
_LAST_OF_URL = re.compile(r"([^/:\\]+?)(?:\.git)?/*\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\s*\Z")

_CONFIGS = ("config", "config.worktree")
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
_OTHER_PROGRAMS = re.compile(r"\[\s*(?=include|lfs[^\]]{0,9}customtransfer)(\w+)", re.IGNORECASE)
"""Another file, which may say anything; git-lfs's own kind of programs."""


def checkout_of(folder: Path) -> Path | None:
    """Top of the git checkout that ``folder`` lies in; None for an archive.

    A .gitmodules without a .git beside it is an archive's, unpacked somewhere in a checkout of something else (a home
    folder that is kept in git).
    """
    for place in [folder, *folder.parents][: MOST_LEVELS_UP + 1]:
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
                found.append(Submodule(path=place, url=inner_url, present=_filled(top / place)))
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


def origin_name(folder: Path) -> str:
    """``builddoctor`` of ``https://host/owner/builddoctor.git``; empty when git's configuration names no origin."""
    shared = next(reversed(_git_folders(folder)), None)
    url = _ORIGIN.search(text_of(shared / "config") or "") if shared is not None else None
    last = _LAST_OF_URL.search(url[1]) if url else None
    return last[1] if last else ""


def tags_of_head(folder: Path) -> list[str]:
    """Tags of the commit that is checked out, annotated ones too; only packed ones, which need no git to be read."""
    git = folder / ".git"
    head = (text_of(git / "HEAD", 4096) or "").strip()
    if head.startswith("ref: refs/heads/") and "\0" not in head and ".." not in head:
        head = (text_of(git / head.removeprefix("ref: "), 4096) or "").strip()
    if not _COMMIT.match(head):
        return []
    found: dict[str, None] = {}
    tag = ""
    for line in (text_of(git / "packed-refs", MOST_BYTES) or "").splitlines():
        commit, _, name = line.partition(" ")
        if not line.startswith("^"):
            tag = name
        # "^COMMIT" names the commit of the annotated tag before it.
        if commit in (head, f"^{head}") and tag.startswith("refs/tags/"):
            found[tag.removeprefix("refs/tags/")] = None
    return list(found)


def program_settings(checkout: Path) -> list[str]:
    """Settings that make git start a program when submodules are fetched: ``sshcommand in .git/config`` for each found.

    The checkout may have come in an archive with a ``.git`` in it. Looked for are names anywhere in the text of its own
    configuration and its submodules', so that no way of writing hides one; a false alarm costs the user one command.
    What could not be looked through is in the list too. Never raises.
    """
    found: dict[str, None] = {}
    folders, complete = _configured_folders(checkout)
    for file in (folder / name for folder in folders for name in _CONFIGS):
        text = text_of(file, MOST_BYTES) or ""
        shown = os.path.relpath(file, checkout)
        for pattern in (_PROGRAM, _UPDATE, _OTHER_PROGRAMS):
            found.update((f"{match[1].lower()} in {shown}", None) for match in pattern.finditer(text))
        if len(text.encode()) >= MOST_BYTES:
            found[f"more than is read of {shown}"] = None
    if not complete:
        found["more submodules than are looked through"] = None
    return list(found)


def _configured_folders(checkout: Path) -> tuple[list[Path], bool]:
    """Every folder in which git may read a configuration; and whether that is all of them."""
    found: dict[Path, None] = {}
    places, seen = [checkout], 0
    for place in places:
        for folder in _git_folders(place):
            if folder in found:
                continue
            found[folder] = None
            # Names of submodules may hold slashes. A link is followed, as git does; round in circles it ends below.
            for below, _, files in os.walk(folder / "modules", followlinks=True):
                seen += 1
                if seen > MOST_FOLDERS:
                    return list(found), False
                if any(name in files for name in _CONFIGS):
                    found[Path(below)] = None
        places += [place / path for path, _ in parse_gitmodules(text_of(place / ".gitmodules") or "")]
        if len(places) > MOST_CHECKOUTS:
            return list(found), False
    return list(found), True


def _git_folders(place: Path) -> list[Path]:
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
