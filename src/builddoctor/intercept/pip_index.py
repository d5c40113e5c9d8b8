"""Where pip looks for packages, as pip itself says it.

Does *not* cover: what lies there (``sources.index``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from builddoctor.intercept.captured import run_captured

_OWN_DEFAULT = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
_SETTING = re.compile(r"^(?P<section>[^.\s]+)\.(?P<key>(?:extra-)?index-url)='(?P<value>[^']*)'\s*$", re.MULTILINE)
_SECTIONS = (":env:", "download", "install", "global")
"""What counts more comes first."""

ANSWERS_WITHIN_S = 60.0


def index_urls(python: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """The index and further ones, in pip's order; none where pip does not answer."""
    settings = run_captured([python, "-m", "pip", "config", "list"], env=env, timeout_s=ANSWERS_WITHIN_S)
    found: dict[tuple[str, str], str] = {}
    if settings.status == 0:
        for match in _SETTING.finditer(settings.output):
            found[match["section"], match["key"]] = match["value"]
    main = _first(found, "index-url")
    further = _first(found, "extra-index-url").split()
    if not main:
        asked = run_captured([python, "-c", _OWN_DEFAULT], env=env, timeout_s=ANSWERS_WITHIN_S)
        lines = asked.output.split() if asked.status == 0 else []
        main = lines[-1] if lines and "://" in lines[-1] else ""
    return tuple(dict.fromkeys(url.rstrip("/") for url in (main, *further) if url))


def _first(found: Mapping[tuple[str, str], str], key: str) -> str:
    return next((found[section, key] for section in _SECTIONS if (section, key) in found), "")
