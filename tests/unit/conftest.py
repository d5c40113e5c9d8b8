"""Unit tests start and signal nothing: whoever tries to is told so."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from builddoctor.recipes import recipe_file

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


@pytest.fixture(scope="session", autouse=True)
def _recipes_are_parsed_once() -> Iterator[None]:
    """Those that come with builddoctor take a second, and whoever asks for the nearest one reads them all. The program
    itself reads them once, and keeps none."""
    parse = recipe_file.parse_recipe
    recipe_file.parse_recipe = functools.lru_cache(maxsize=256)(parse)
    yield
    recipe_file.parse_recipe = parse


@pytest.fixture(autouse=True)
def _starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", _forbidden("subprocess.Popen"))
    monkeypatch.setattr(signal, "pidfd_send_signal", _forbidden("signal.pidfd_send_signal"))
    for name in FORBIDDEN_OF_OS:
        monkeypatch.setattr(os, name, _forbidden(f"os.{name}"))
