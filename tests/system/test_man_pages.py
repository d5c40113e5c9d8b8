"""The man pages, by the programs that show them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from builddoctor.cli.app import COMMANDS

MAN = Path(__file__).resolve().parents[2] / "share" / "man" / "man1"
PAGES = sorted(MAN.iterdir())
ENV = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"}

NO_DATE = 'missing date, using "": TH'
"""The pages are the same whenever they are written."""


def test_every_command_has_a_page() -> None:
    """And so has the program; there is no other."""
    assert {page.name for page in PAGES} == {"builddoctor.1", *(f"builddoctor-{name}.1" for name in COMMANDS)}


@pytest.mark.skipif(not (shutil.which("man") and shutil.which("groff")), reason="no man here")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_man_shows_a_page_without_a_warning(page: Path) -> None:
    """Its sections are there, and what is typed can be pasted: dashes are dashes."""
    shown = subprocess.run(["man", "--warnings", "-l", page], env=ENV, capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    titles = re.findall(r"^[A-Z].*$", shown.stdout, re.MULTILINE)[1:]
    assert titles[:2] == ["NAME", "SYNOPSIS"]
    assert {"DESCRIPTION", "EXIT STATUS", "SEE ALSO"} <= set(titles)
    assert re.search(rf"^ +{page.stem} +- ", shown.stdout, re.MULTILINE)


@pytest.mark.skipif(not (shutil.which("man") and shutil.which("groff")), reason="no man here")
def test_a_page_says_what_is_typed_as_it_is_typed() -> None:
    """Options, with what stands for them, examples and exit codes."""
    page = MAN / "builddoctor-run.1"
    run = subprocess.run(["man", "-l", page], env=ENV, capture_output=True, text=True, check=True).stdout
    assert re.search(r"^ +--memory SIZE$", run, re.MULTILINE)
    assert "BUILDDOCTOR_MEMORY" in run
    page = MAN / "builddoctor.1"
    program = subprocess.run(["man", "-l", page], env=ENV, capture_output=True, text=True, check=True).stdout
    assert "builddoctor run -- ninja -C build" in program
    assert 'eval "$(builddoctor activate)"' in program
    assert re.search(r"^ +78 +A trace cannot be read", program, re.MULTILINE)
    assert "~/.config/builddoctor/config.toml" in program


@pytest.mark.skipif(not shutil.which("mandoc"), reason="no mandoc here")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_mandoc_has_nothing_to_say(page: Path) -> None:
    """But that there is no date."""
    said = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True, text=True).stdout
    assert [line for line in said.splitlines() if NO_DATE not in line] == []
