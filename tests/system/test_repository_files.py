"""Files that GitHub, and people who cite, read: by the linters and schemas that are made for them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from builddoctor.recipes.recipe_text import dump
from support.program import Program
from support.recipes import RECIPE

ROOT = Path(__file__).parents[2]


def complaints(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout + done.stderr if done.returncode else ""


def test_the_workflow_of_a_release_and_the_action_are_clean() -> None:
    """Keys, expressions, shell, versions that GitHub still runs, and actions by their commit."""
    assert complaints(["jactionlint", "action.yml", ".github/workflows/release.yml"]) == ""


def test_a_rendered_workflow_is_clean(program: Program) -> None:
    """As the rules of correctness go; versions by tags, as people write them."""
    (program.folder / "mine.toml").write_text(dump(RECIPE))
    done = program.run(
        "recipe",
        "render",
        "mine.toml",
        "--to",
        "github-actions",
        "--cores",
        "2",
        "--memory",
        "3GiB",
        "-o",
        "wheels.yml",
    )
    assert done.returncode == 0, done.stderr
    assert complaints(["jactionlint", "--profile", "correctness", str(program.folder / "wheels.yml")]) == ""


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("github-actions", "action.yml"),
        ("github-workflows", ".github/workflows/release.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/build.yml"),
        ("citation-file-format", "CITATION.cff"),
    ],
)
def test_a_file_is_what_its_schema_asks(schema: str, file: str) -> None:
    assert complaints(["check-jsonschema", "--builtin-schema", f"vendor.{schema}", file]) == ""
