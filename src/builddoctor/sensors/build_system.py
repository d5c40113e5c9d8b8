"""``[build-system]`` of a pyproject.toml, and the project's name.

Covers: any spelling of TOML where Python has a reader for it (from 3.11), and where the file is sound; else the usual
ones, by pattern.
"""

from __future__ import annotations

import re
import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib

    def _loaded(text: str) -> dict[str, Any] | None:
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError):
            return None
else:

    def _loaded(text: str) -> dict[str, Any] | None:  # noqa: ARG001
        return None


MOST_REQUIRES = 100
MOST_CHARACTERS = 256 * 1024
"""for Python's reader, which is slow"""

_BUILD_SYSTEM = re.compile(
    r"^\[[ \t]*build-system[ \t]*\][ \t]*(?:#.*)?$(?P<body>.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL
)
_NAME = re.compile(
    r"""^\[[ \t]*(?:project|tool\.poetry)[ \t]*\][ \t]*(?:\#.*)?$[^\[]*?^name[ \t]*=[ \t]*["'](?P<name>[\w. -]+)["']""",
    re.MULTILINE,
)
_INLINE = re.compile(r"^build-system[ \t]*=[ \t]*\{(?P<body>[^\n]*)$", re.MULTILINE)
_BACKEND = re.compile(r"""(?:^|[,{ \t])build-backend\s*=\s*["'](?P<name>[\w.:]+)["']""", re.MULTILINE)
_BACKEND_PATH = re.compile(r"(?:^|[,{ \t])backend-path\s*=", re.MULTILINE)
_REQUIRES = re.compile(r"(?:^|[,{ \t])requires\s*=\s*\[", re.MULTILINE)
_IN_LIST = re.compile(r""""(?P<double>[^"\n]*)"|'(?P<single>[^'\n]*)'|#[^\n]*|(?P<end>\])""")


def parse_build_system(pyproject: str) -> tuple[str, tuple[str, ...]]:
    """``build-backend`` and ``requires``; empty where it does not say.

    A backend that lies in the project itself (``backend-path``) counts as not said: it cannot be missing.
    """
    table = _table(pyproject)
    if table is None:
        return _by_pattern(pyproject)
    backend, requires = table.get("build-backend", ""), table.get("requires", [])
    if "backend-path" in table or not isinstance(backend, str):
        backend = ""
    texts = [each for each in requires if isinstance(each, str)] if isinstance(requires, list) else []
    return backend, tuple(texts[:MOST_REQUIRES])


def project_table_name(pyproject: str) -> str:
    """``name`` of ``[project]``, or of Poetry's table; empty where it does not say."""
    table = _table(pyproject, "project")
    if table is None:
        found = _NAME.search(pyproject)
        return found["name"] if found else ""
    name = table.get("name", "")
    if not name:
        poetry = (_table(pyproject, "tool") or {}).get("poetry", {})
        name = poetry.get("name", "") if isinstance(poetry, dict) else ""
    return name if isinstance(name, str) else ""


def project_table_version(pyproject: str) -> str:
    """``version`` of ``[project]``; empty where it does not say, or where a backend works it out."""
    version = (_table(pyproject, "project") or {}).get("version", "")
    return version if isinstance(version, str) else ""


def _table(pyproject: str, name: str = "build-system") -> dict[str, Any] | None:
    """None when it could not be read."""
    read = _loaded(pyproject) if len(pyproject) <= MOST_CHARACTERS else None
    table = (read or {}).get(name, {})
    return None if read is None else table if isinstance(table, dict) else {}


def _by_pattern(pyproject: str) -> tuple[str, tuple[str, ...]]:
    section = _BUILD_SYSTEM.search(pyproject) or _INLINE.search(pyproject)
    if section is None:
        return "", ()
    body = section["body"]
    backend, start = None if _BACKEND_PATH.search(body) else _BACKEND.search(body), _REQUIRES.search(body)
    requires: list[str] = []
    for token in _IN_LIST.finditer(body, start.end()) if start else ():
        if token["end"]:
            break
        requires += [text for text in (token["double"], token["single"]) if text]
    return backend["name"] if backend else "", tuple(requires[:MOST_REQUIRES])
