"""Which version of itself a source tree says that it is.

Covers, in this order: ``PKG-INFO``, pyproject.toml, ``VERSION.txt``, ``version.txt`` and ``VERSION`` at the top or in
``build_tools``, the tag of git's checked-out commit. Files are read with bounds; nothing is run, nothing raises.
Does *not* cover: versions that a setup.py works out.
"""

from __future__ import annotations

import re
from pathlib import Path

from builddoctor.sensors.build_system import project_table_version
from builddoctor.sensors.source_files import text_of

MOST_BYTES = 256 * 1024
MOST_REFS_BYTES = 4 * 1024 * 1024
FILES = ("VERSION.txt", "version.txt", "VERSION", "build_tools/VERSION.txt")

_INFO = re.compile(r"^Version:[ \t]*(\S+)", re.MULTILINE)
_VERSION = re.compile(r"v?(\d+(?:\.\d+)+[\w.+-]{0,40})\s*\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\s*\Z")


def project_version(folder: Path) -> str:
    """Such as ``2.8.0``; empty when nothing says it."""
    info = _INFO.search(_text(folder / "PKG-INFO"))
    stated = [info[1] if info else "", project_table_version(_text(folder / "pyproject.toml"))]
    for text in (*stated, *(_text(folder / name) for name in FILES), _tag(folder / ".git")):
        if found := _VERSION.match(text.strip()):
            return found[1]
    return ""


def _tag(git: Path) -> str:
    """The version among the tags of the commit that is checked out; only what needs no git to read it."""
    head = _text(git / "HEAD").strip()
    if head.startswith("ref: refs/heads/") and "\0" not in head and ".." not in head:
        head = _text(git / head.removeprefix("ref: ")).strip()
    if not _COMMIT.match(head):
        return ""
    tag = ""
    for line in (text_of(git / "packed-refs", MOST_REFS_BYTES) or "").splitlines():
        commit, _, name = line.partition(" ")
        if commit in (head, f"^{head}"):
            tag = name or tag
            if _VERSION.match(tag.removeprefix("refs/tags/")):
                return tag.removeprefix("refs/tags/")
        tag = name if name.startswith("refs/tags/") else ""
    return ""


def _text(path: Path) -> str:
    return text_of(path, MOST_BYTES) or ""
