"""Advice that can be followed: every command that `explain` gives parses, for a shell and for our own program."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

from builddoctor.cli.app import make_app
from builddoctor.core.verdict import Verdict
from builddoctor.diagnose.remedies import ladder
from builddoctor.diagnose.remedy_facts import RemedyFacts
from support.corpus import CORPUS
from support.told import explain

LOGS = sorted(CORPUS.rglob("*.log"))


@pytest.fixture(scope="module")
def commands() -> set[str]:
    """Of every log of the corpora, and of every verdict's ladder."""
    fixes = [fix for log in LOGS for fix in explain([log.read_bytes()]).diagnosis.fixes]
    fixes += [fix for verdict in Verdict for fix in ladder(verdict, RemedyFacts())]
    return {fix.command for fix in fixes if fix.command}


def test_a_shell_reads_every_command(commands: set[str], tmp_path: Path) -> None:
    """`sh -n` reads and does not run."""
    for number, command in enumerate(sorted(commands)):
        (tmp_path / f"{number}.sh").write_text(f"{command}\n")
    check = 'for file in *.sh; do sh -n "$file" || cat "$file"; done'
    done = subprocess.run(["sh", "-c", check], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_our_own_commands_are_there_with_their_options(commands: set[str]) -> None:
    """`builddoctor …` in an advice is what this version takes."""
    ours = [words for command in commands for words in own_commands(command)]
    assert len(ours) >= 5
    for words in ours:
        parsed(make_app(), words)


def own_commands(command: str) -> list[list[str]]:
    """Words behind each ``builddoctor``, up to what a shell ends a command with."""
    words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    found: list[list[str]] = []
    for place, word in enumerate(words):
        if word == "builddoctor":
            rest = words[place + 1 :]
            end = next((at for at, each in enumerate(rest) if set(each) <= set("|;&<>")), len(rest))
            found.append(rest[:end])
    return found


def parsed(command: Any, words: list[str]) -> None:
    """Raises a usage error for what is no command or option of ours."""
    context = command.make_context("builddoctor", list(words))
    if isinstance(command, TyperGroup):
        rest = [*context._protected_args, *context.args]
        _, inner, inner_words = command.resolve_command(context, rest)
        assert inner is not None
        parsed(inner, inner_words)
