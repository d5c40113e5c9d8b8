"""The guard of this folder: what unit tests may not do, they cannot do."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from builddoctor.gates.subprocesses import run_captured


@pytest.mark.parametrize(
    "forbidden",
    [
        lambda: os.fork(),  # noqa: PLW0108 - looked up when it is called, behind the guard
        lambda: subprocess.run(["true"], check=False),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: os.execvpe("true", ["true"], {}),
        lambda: os.kill(os.getpid(), 0),
        lambda: signal.pidfd_send_signal(0, 0),
        lambda: run_captured(["true"]),
    ],
)
def test_starting_or_signalling_a_process_fails_the_test(forbidden: Callable[[], object]) -> None:
    """By whatever way, builddoctor's own probes included."""
    with pytest.raises(AssertionError, match="a unit test called"):
        forbidden()
