"""``-q`` and ``-v``: how much is said of a build on stderr beside its own output.

Covers: the two flags, behind a command or before it. Does *not* cover: the screens that say less or more
(``ui.screen``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from builddoctor.cli.output import print_notes
from builddoctor.core.errors import UsageError
from builddoctor.core.word import Word

Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing beside the build's own output, unless it fails.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print each decision on compilers as a line, in place of the board.")
]


class Loudness(Word):
    """What is said: only why a build failed, what a person usually wants to know, or every decision."""

    QUIET = "quiet"
    USUAL = "usual"
    VERBOSE = "verbose"

    @property
    def notes(self) -> Callable[[Iterable[str]], None]:
        """What prints notes, or drops them."""
        return print_notes if self is not Loudness.QUIET else lambda _: None


FLAGS = (Loudness.QUIET.value, Loudness.VERBOSE.value)


def loudness(context: typer.Context) -> Loudness:
    """As the flags say; what was typed behind the command counts before what was set elsewhere. Raises UsageError."""
    chosen = [name for name in FLAGS if context.params[name]]
    if len(chosen) > 1:
        chosen = [name for name in chosen if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"]
        if len(chosen) != 1:
            raise UsageError("--quiet and --verbose exclude each other", hint="use one of them")
    return Loudness(chosen[0]) if chosen else Loudness.USUAL


def pass_on(context: typer.Context, name: str, known: Iterable[str]) -> None:
    """What was typed before command ``name`` is its default. ``known``: its options. Raises UsageError."""
    chosen = {flag: True for flag in FLAGS if context.params[flag]}
    if not chosen:
        return
    if unknown := set(chosen).difference(known):
        raise UsageError(f"{name} has no --{unknown.pop()}", hint=f"`builddoctor {name} --help` shows what there is")
    defaults = dict((context.default_map or {}).get(name, {}))
    context.default_map = {name: {**{key: value for key, value in defaults.items() if key not in FLAGS}, **chosen}}
