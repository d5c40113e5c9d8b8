"""Where a user's cache, settings, data and state lie by the customs of Linux, also for one who has no home."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from platformdirs import PlatformDirs


def usual_folder(kind: Literal["cache", "config", "data", "state"]) -> Path:
    """Ours of that kind. Below ``/`` where HOME is not set and the user is not in passwd, as in some containers."""
    try:
        found: Path = getattr(PlatformDirs("builddoctor"), f"user_{kind}_path")
    except RuntimeError:
        found = Path()
    # Older versions of platformdirs name a folder `~` instead.
    return found if found.is_absolute() else Path("/", f".{kind}", "builddoctor")
