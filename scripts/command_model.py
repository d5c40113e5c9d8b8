"""The commands as the program itself has them, for what is made from them: the reference, man pages, tests.

Does *not* cover: the pages themselves (``generate``, ``man_pages``).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from typer.core import TyperGroup

from builddoctor.cli.app import COMMANDS, command, make_app

_EXAMPLES = "\b\nExamples:\n"


@dataclass(frozen=True)
class Parameter:
    """An argument, or an option."""

    names: tuple[str, ...]
    """of an option; none of an argument"""
    metavar: str
    """empty for a flag, and for a choice"""
    choices: tuple[str, ...]
    default: str
    """empty where none is shown"""
    help: str

    @property
    def meaning(self) -> str:
        """The help, with the choices and the default, where it does not say them itself."""
        default = f"default: {self.default}" if self.default else ""
        said = "; ".join(filter(None, (" | ".join(self.choices), default)))
        return f"{self.help}  [{said}]" if said and "[default" not in self.help else self.help


@dataclass(frozen=True)
class Command:
    """A command, or a group with its commands. The program itself is the group without a name before it."""

    path: str
    """``builddoctor trace show``"""
    summary: str
    """one sentence"""
    text: str
    """all of the help but its examples"""
    examples: str
    arguments: tuple[Parameter, ...]
    options: tuple[Parameter, ...]
    commands: tuple[Command, ...]

    @property
    def usage(self) -> str:
        return " ".join([self.path, *(each.metavar for each in self.arguments)])

    @property
    def prints_json(self) -> bool:
        return any("--json" in each.names for each in self.options)

    def walk(self) -> Iterator[Command]:
        """It and all below it, each before its own."""
        yield self
        for each in self.commands:
            yield from each.walk()


def the_program() -> Command:
    """All of ``builddoctor``."""
    return _command(make_app(), "builddoctor", {name: command(name) for name in COMMANDS})


def _command(found: Any, path: str, below: dict[str, Any] | None = None) -> Command:
    below = below or (found.commands if isinstance(found, TyperGroup) else {})
    text, _, examples = inspect.cleandoc(found.help or "").partition(_EXAMPLES)
    if found.epilog:
        examples = inspect.cleandoc(found.epilog).removeprefix(_EXAMPLES)
    parameters = [each for each in found.params if each.name != "help" and not getattr(each, "hidden", False)]
    return Command(
        path=path,
        summary=found.get_short_help_str(1000),
        text=text.strip(),
        examples=inspect.cleandoc(examples),
        arguments=tuple(_parameter(each) for each in parameters if each.param_type_name == "argument"),
        options=tuple(_parameter(each) for each in parameters if each.param_type_name == "option"),
        commands=tuple(_command(each, f"{path} {name}") for name, each in below.items()),
    )


def _parameter(found: Any) -> Parameter:
    kind = found.type_descriptor.annotation
    plain = isinstance(found.default, (str, int, float)) and not isinstance(found.default, bool)
    argument = found.param_type_name == "argument"
    metavar = found.metavar or (found.name.upper() if argument else "")
    # Several of them say themselves whether one is needed.
    optional = argument and not found.required and "…" not in metavar
    return Parameter(
        names=() if argument else tuple(found.opts),
        metavar=f"[{metavar}]" if optional else metavar,
        choices=get_args(kind) if get_origin(kind) is Literal else (),
        default=f"{found.default}" if plain and found.default and found.show_default and not argument else "",
        help=re.sub(r"\s+", " ", found.help or ""),
    )
