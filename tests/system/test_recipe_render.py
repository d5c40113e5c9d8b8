"""``builddoctor recipe render`` as a person types it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.recipes.recipe_text import dump
from support.program import Program
from support.recipes import RECIPE

KINDS = ("sh", "dockerfile", "env", "slurm", "github-actions", "conda")
SMALL = ("--cores", "2", "--memory", "3GiB")


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    """A recipe of one's own, in a file."""
    (tmp_path / "mine.toml").write_text(dump(RECIPE))
    return "mine.toml"


@pytest.mark.parametrize("kind", KINDS)
def test_a_recipe_is_rendered_to_a_file_and_to_stdout(program: Program, recipe: str, kind: str) -> None:
    """The same text both ways, for the container that was asked for; scripts can be started."""
    printed = program.run("recipe", "render", recipe, "--to", kind, *SMALL)
    assert printed.returncode == 0, printed.stderr
    written = program.run("recipe", "render", recipe, "--to", kind, *SMALL, "-o", "out")
    assert written.returncode == 0, written.stderr
    assert written.stdout == ""
    assert "written out" in written.stderr
    assert (program.folder / "out").read_text() == printed.stdout
    assert "a container of 2 cores and 3.0 GiB" in printed.stdout
    assert os.access(program.folder / "out", os.X_OK) == (kind in ("sh", "slurm", "conda"))


def test_what_does_not_fit_is_refused_with_what_it_takes(program: Program, recipe: str) -> None:
    """No script is written that could not work."""
    done = program.run("recipe", "render", recipe, "--cores", "2", "--memory", "2GiB", "-o", "out")
    assert done.returncode == 77
    assert "src/attention_forward.cu: 2.1 GiB" in done.stderr
    assert "hint: it takes 2.3 GiB: `--memory 3GiB`" in done.stderr
    assert not (program.folder / "out").exists()


def test_a_build_by_make_has_no_stages(program: Program, recipe: str) -> None:
    """It is refused, and builddoctor's own way is named."""
    (program.folder / "sources").mkdir()
    (program.folder / "sources/Makefile").touch()
    done = program.run("recipe", "render", recipe, *SMALL, "--source", "sources")
    assert done.returncode != 0
    assert "built by make" in done.stderr
    gated = program.run("recipe", "render", recipe, *SMALL, "--source", "sources", "--with-builddoctor")
    assert gated.returncode == 0, gated.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "nix"), "unknown target 'nix'"),
        (("--tag", "v1"), "there is no repository to take it from"),
        (("--source", "nowhere"), "no folder nowhere"),
        (("--to", "dockerfile", "--image", "a b"), "no name of an image"),
        (("-o", "no/such/folder"), "cannot write no/such/folder"),
    ],
)
def test_wrong_options_are_said(program: Program, recipe: str, words: tuple[str, ...], said: str) -> None:
    """In a line, with a hint, and without a traceback."""
    done = program.run("recipe", "render", recipe, *SMALL, *words)
    assert done.returncode != 0
    assert said in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_repository_is_cloned_at_the_tag(program: Program, recipe: str) -> None:
    """In a Dockerfile, where the sources are an address."""
    done = program.run(
        *("recipe", "render", recipe, "--to", "dockerfile", *SMALL),
        *("--source", "https://example.org/attention.git", "--tag", "v0.1"),
    )
    assert "--branch v0.1 -- https://example.org/attention.git /src\n" in done.stdout
