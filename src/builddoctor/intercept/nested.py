"""A build inside a supervised build: the outer supervisor has the gates already.

Covers: telling so, and becoming the command. Does *not* cover: supervising twice; two governors would each think that
the memory is theirs.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence

from builddoctor.errors import CommandNotFoundError
from builddoctor.intercept.environment import SOCKET


def is_supervised(env: Mapping[str, str]) -> bool:
    """A supervisor answers at the socket that this environment names."""
    path = env.get(SOCKET)
    if not path:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def become(command: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
    """Turn into ``command``; does not return. Raises CommandNotFoundError when it cannot be started."""
    os.chdir(cwd)
    try:
        os.execvpe(command[0], list(command), dict(env))  # noqa: S606 - becoming the user's command is the point
    except OSError as error:
        raise CommandNotFoundError(f"the build command cannot be started: {command[0]}: {error.strerror}") from error
