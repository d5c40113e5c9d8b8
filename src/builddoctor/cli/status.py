"""``builddoctor status``: is this shell activated, and which of its builds have a supervisor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from rich.text import Text

from builddoctor.cli.naming import name_of
from builddoctor.cli.output import JsonOption, print_answer
from builddoctor.core.units import shell_word
from builddoctor.gates.environment import ACTIVE, SOCKET, is_supervised
from builddoctor.runtime.activation import Refusal, Supervisor, supervisors
from builddoctor.system.root import SystemRoot


class ActivationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What ``builddoctor status --json`` prints."""

    activated: bool
    """builds of this environment are supervised"""
    inside: bool
    """this command itself runs inside a supervised build"""
    builds: tuple[Supervisor, ...]
    """activated builds of this user that run now"""
    refused: tuple[Refusal, ...]
    """activated builds that run without a supervisor, and why"""


def status(json: JsonOption = False) -> None:
    """Show whether this shell is activated, and the activated builds that run now."""
    running, refused = supervisors(SystemRoot())
    told = ActivationStatus(
        activated=os.access(os.environ.get(ACTIVE, ""), os.X_OK),
        inside=bool(os.environ.get(SOCKET)) and is_supervised(os.environ),
        builds=tuple(running),
        refused=tuple(refused),
    )
    print_answer(told, lambda: _page(told), json=json)


def _page(told: ActivationStatus) -> Iterator[Text]:
    if told.activated:
        yield Text("builds of this shell are supervised")
    else:
        yield Text('builds of this shell are not supervised: eval "$(builddoctor activate)"')
    for build in told.builds:
        yield Text(f"  {build.title}  (process {build.root_pid})")
        yield Text(f"    builddoctor watch {shell_word(name_of(Path(build.trace)))}")
    for refusal in told.refused:
        yield Text(f"  process {refusal.root_pid} builds without a supervisor: {refusal.message}")
        if refusal.hint:
            yield Text(f"    {refusal.hint}")
