"""Command lines of ours, found in text: each is parsed by the real command line, and none is run."""

from __future__ import annotations

import re
import shlex
from typing import Any

from typer.core import TyperGroup

from builddoctor.cli.app import make_app

_SUBSTITUTED = re.compile(r'"\$\(([^()"]*)\)"')
"""``"$(…)"``, which is one word to a shell."""


def own_commands(command: str) -> list[list[str]]:
    """Words behind each ``builddoctor``, up to what a shell ends a command with."""
    lexer = shlex.shlex(_SUBSTITUTED.sub(r"(\1)", command), posix=True, punctuation_chars=True)
    # Else a comma, as in `--with cublas,nccl`, would be a word.
    lexer.whitespace_split = True
    words = list(lexer)
    found: list[list[str]] = []
    for place, word in enumerate(words):
        if word == "builddoctor":
            rest = words[place + 1 :]
            end = next((at for at, each in enumerate(rest) if set(each) <= set("|;&<>()")), len(rest))
            found.append(rest[:end])
    return found


def parse(words: list[str]) -> None:
    """Raises a usage error for what is no command or option of ours."""
    _parse(make_app(), words)


def _parse(command: Any, words: list[str], parent: Any = None) -> None:
    # Commands are kept, and with them the names of their option for help, which come from the program above.
    context = command.make_context("builddoctor", list(words), parent=parent)
    if isinstance(command, TyperGroup):
        rest = [*context._protected_args, *context.args]
        _, inner, inner_words = command.resolve_command(context, rest)
        assert inner is not None
        _parse(inner, inner_words, context)
