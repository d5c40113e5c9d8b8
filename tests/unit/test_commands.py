"""A command line imports the command it names; help, mistypes and nothing at all have every one."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from builddoctor.cli.app import main, make_app
from builddoctor.cli.commands import COMMANDS, needed


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("run -- ninja", ["run"]),
        ("build . --help", ["build"]),
        ("trace list", ["trace"]),
        ("--version", []),
        ("--version run", []),
        ("--help", list(COMMANDS)),
        ("-h run", list(COMMANDS)),
        ("biuld .", list(COMMANDS)),
        ("", list(COMMANDS)),
    ],
)
def test_only_the_command_that_is_named_is_loaded(line: str, names: list[str]) -> None:
    assert list(needed(line.split())) == names


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_alone_is_the_same_command(name: str) -> None:
    alone = CliRunner().invoke(make_app([name]), [name, "--help"])
    among_all = CliRunner().invoke(make_app(), [name, "--help"])
    assert alone.exit_code == 0
    assert alone.output == among_all.output
    assert f"builddoctor {name}" in alone.output


def test_help_lists_every_command_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capfd.readouterr().out
    assert re.findall(r"^  (?:\W )?([a-z]+)  ", shown, re.MULTILINE) == list(COMMANDS)


def test_the_version_needs_no_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capfd.readouterr().out.startswith("builddoctor ")
