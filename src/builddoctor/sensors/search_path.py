"""Programs on PATH, as builddoctor itself looks for what it asks: in absolute folders only.

An empty or relative entry stands for the current folder, which may be somebody's source tree: what came with that is
not run because it happens to be called git.
Does *not* cover: what a build takes from its PATH (that is the build's own business), and gates of ours, which callers
leave out (``sensors.toolkits.is_overlay``).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping


def path_folders(env: Mapping[str, str]) -> list[str]:
    """The absolute ones, in order; the system's usual ones where PATH is not set."""
    return [folder for folder in (env.get("PATH") or os.defpath).split(":") if folder.startswith("/")]


def programs(name: str, env: Mapping[str, str]) -> Iterator[str]:
    """Paths of all programs of that name, the first one first. A name with a slash stands for itself."""
    if "/" in name:
        yield from filter(None, [shutil.which(name)])
        return
    for folder in path_folders(env):
        if path := shutil.which(name, path=folder):
            yield path


def first_program(name: str, env: Mapping[str, str]) -> str:
    """The first of them; empty when there is none."""
    return next(programs(name, env), "")
