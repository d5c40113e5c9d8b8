"""Advice that can be followed: every command that `explain` gives parses, for a shell and for our own program."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from builddoctor.core.verdict import Verdict
from builddoctor.diagnose.remedies import ladder
from builddoctor.diagnose.remedy_facts import RemedyFacts
from support.corpus import CORPUS
from support.own_commands import own_commands, parse
from support.told import explain


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("failing", "innocent"), id="kept"),
        pytest.param(("threads",), id="threads", marks=pytest.mark.slow),
    ],
)
def commands(request: pytest.FixtureRequest) -> set[str]:
    """Of every log of these corpora, and of every verdict's ladder."""
    logs = sorted(log for kind in request.param for log in (CORPUS / kind).rglob("*.log"))
    assert logs
    fixes = [fix for log in logs for fix in explain([log.read_bytes()]).diagnosis.fixes]
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
        parse(words)
