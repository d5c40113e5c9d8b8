"""Open a page in the user's browser, where there is a screen for one.

Does *not* cover: whether the browser really shows it; it lives on without us.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

OPENERS = (("xdg-open",), ("gio", "open"), ("sensible-browser",), ("x-www-browser",), ("firefox",), ("chromium",))


def open_in_browser(page: Path, env: Mapping[str, str]) -> bool:
    """Start a browser on it. False where there is no screen, or no browser."""
    command = browser_command(page, env)
    if command is None:
        return False
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        # Browsers talk on stdout, which is for the path; and they outlive the terminal.
        os.posix_spawnp(
            command[0],
            list(command),
            dict(env),
            file_actions=[(os.POSIX_SPAWN_DUP2, nothing, number) for number in (0, 1, 2)],
            setsid=True,
        )
    except OSError:
        return False
    finally:
        os.close(nothing)
    return True


def browser_command(page: Path, env: Mapping[str, str]) -> Sequence[str] | None:
    """$BROWSER as it is usually written (several, ``:`` between them; ``%s`` for the address), or what opens files."""
    address = page.absolute().as_uri()
    path = env.get("PATH")
    for named in env.get("BROWSER", "").split(":"):
        try:
            words = shlex.split(named)
        except ValueError:
            continue
        if words and shutil.which(words[0], path=path):
            filled = [word.replace("%s", address) for word in words]
            return filled if filled != words else [*words, address]
    if not (env.get("DISPLAY") or env.get("WAYLAND_DISPLAY")):
        return None
    return next(([*words, address] for words in OPENERS if shutil.which(words[0], path=path)), None)
