"""The supervisor that a gate starts (``python -m builddoctor.cli.join PID-TICKS``): no command that a person types.

``PID-TICKS``: the process that the build is, and when it started. A ``+`` on stdout says that gates are served; the
gate that started it waits for that, or for the end of the output.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from builddoctor.cli.run import title_of
from builddoctor.core.board import EventRow
from builddoctor.core.errors import BuildDoctorError
from builddoctor.core.request import RunRequest
from builddoctor.gates.environment import plain_environment
from builddoctor.gates.overlay import command_at_gate
from builddoctor.runtime.activation import Joined, Refusal, note_refusal, sockets_folder
from builddoctor.runtime.build import supervise
from builddoctor.system.process import Processes
from builddoctor.system.root import SystemRoot
from builddoctor.ui.screen import Screen


class _NoScreen(Screen):
    """Nobody looks, and the build's output is its own."""

    relayed = ()

    def event(self, event: EventRow) -> None:
        """It is in the trace."""

    def start(self) -> list[asyncio.Task[None]]:
        return []


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory-mib", type=float)
    parser.add_argument("--cores", type=int)
    parser.add_argument("root")
    arguments = parser.parse_args()
    pid, _, ticks = arguments.root.partition("-")
    root = SystemRoot()
    processes = Processes(root)
    socket = sockets_folder() / arguments.root
    command = _as_typed(command_at_gate(processes.argv(int(pid)))) or ("build",)
    env = plain_environment(os.environ)
    request = RunRequest(
        command=command,
        cwd=_folder_of(int(pid)),
        title=title_of(command),
        memory_mib=arguments.memory_mib,
        cores=arguments.cores,
        doctor=False,
    )
    joined = Joined(pid=int(pid), start_ticks=int(ticks), socket=socket, listening=_say_listening)
    try:
        supervise(
            request,
            env,
            lambda state, listener, trace: _NoScreen(state, listener, trace=trace, env=env),
            root=root,
            joined=joined,
        )
    except BuildDoctorError as error:
        note_refusal(socket, Refusal(root_pid=int(pid), message=str(error), hint=error.hint))
        return error.exit_code
    return 0


def _as_typed(command: tuple[str, ...]) -> tuple[str, ...]:
    """``pip install x``, where a script's first line has made that ``python /venv/bin/pip install x``."""
    scripted = len(command) > 1 and os.path.basename(command[0]).startswith("python") and os.path.isabs(command[1])
    return command[1:] if scripted else command


def _folder_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return "/"


def _say_listening() -> None:
    os.write(1, b"+")
    # The gate reads no more, and must not wait for the end of it.
    os.dup2(2, 1)


if __name__ == "__main__":
    sys.exit(main())
