"""Unit tests start and signal nothing: whoever tries to is told so."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from typing import NoReturn

import pytest

FORBIDDEN_OF_OS = (
    "fork",
    "forkpty",
    "posix_spawn",
    "posix_spawnp",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "execl",
    "execle",
    "execlp",
    "execlpe",
    "system",
    "kill",
    "killpg",
)


def _forbidden(name: str) -> Callable[..., NoReturn]:
    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise AssertionError(f"a unit test called {name}")

    return refuse


@pytest.fixture(autouse=True)
def _starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", _forbidden("subprocess.Popen"))
    monkeypatch.setattr(signal, "pidfd_send_signal", _forbidden("signal.pidfd_send_signal"))
    for name in FORBIDDEN_OF_OS:
        monkeypatch.setattr(os, name, _forbidden(f"os.{name}"))
