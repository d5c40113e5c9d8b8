"""Python's TOML reader, or the package that it came from."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    # What types are checked for is Python 3.10, also where nothing is installed for it.
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]


def loads(text: str) -> dict[str, Any]:
    """What a TOML text holds. Raises ValueError, or RecursionError for one that is nested too deep."""
    found: dict[str, Any] = tomllib.loads(text)
    return found
