"""git in a checkout of a stranger's: which git, and with what settings, so that it starts nothing that came with it.

Covers: finding it on PATH outside of the project; settings on its command line that outdo the checkout's own, in its
submodules too (git hands ``-c`` on to the gits it starts). Tried with git 2.39.
Does *not* cover: settings that the user may need from elsewhere and that cannot be outdone (an ssh command, filters):
with those in the checkout, nothing is run (``sensors.git_settings``). What git refuses by itself: ``update = !command``
in a .gitmodules (CVE-2019-19604), and ``ext::`` addresses where nobody allowed them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from builddoctor.sensors.search_path import path_folders, programs
from builddoctor.sensors.submodules import checkout_of

OVERRIDES = (
    "core.fsmonitor=",
    "core.hooksPath=/dev/null",
    "core.askPass=",
    "protocol.ext.allow=never",
)
"""Each can be a program's name in a configuration that came with the checkout; a fetch needs none of them."""


def find_program(name: str, env: Mapping[str, str], *, project: Path) -> str:
    """The first on PATH that does not lie in the project or the current folder; empty without one."""
    trees = _trees(project, home=env.get("HOME", ""))
    for path in programs(name, env):
        places = (os.path.normpath(path), os.path.realpath(path))
        if not any(_is_below(place, tree) for place in places for tree in trees):
            return path
    return ""


def careful_command(git: str, arguments: Sequence[str]) -> list[str]:
    """The command line of this git with the checkout's own settings outdone."""
    return [git, *(word for setting in OVERRIDES for word in ("-c", setting)), *arguments]


def careful_environment(env: Mapping[str, str]) -> dict[str, str]:
    """git may not ask for a name or password; ssh has no terminal to ask on, and no window to open.

    git looks for sh, sed and ssh on PATH, from the folder of the checkout: an entry that stands for it is left out.
    """
    folders = ":".join(path_folders(env))
    return {**env, "PATH": folders, "GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never"}


def _trees(project: Path, *, home: str) -> list[str]:
    """Project and current folder; not where that is the home folder or above, which may well have programs below."""
    named = [str(checkout_of(project) or project), str(project)]
    # Somebody may have deleted it.
    with contextlib.suppress(OSError):
        named.append(os.getcwd())
    home = os.path.realpath(home or "/")
    return [tree for tree in map(os.path.realpath, named) if not _is_below(home, tree)]


def _is_below(path: str, tree: str) -> bool:
    return path == tree or path.startswith(tree.rstrip("/") + "/")
