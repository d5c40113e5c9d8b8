"""Code blocks of the pages: each is run (``tests/system/test_pages.py``), looked into here, or says why not."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from builddoctor.trace.exports.tables import write_sqlite
from support.made_traces import Made, usual_units, write_trace
from support.own_commands import own_commands, parse
from support.page_blocks import CHECKED, PAGES, ROOT, Block, blocks, inline_code

BLOCKS = [block for page in PAGES for block in blocks(page)]
OPTIONAL = re.compile(r"\[[^]]*\]")
UNFINISHED = ("Missing parameter", "requires an argument")
"""A sentence may name a command or an option without what belongs behind it."""


def of(language: str) -> list[Any]:
    return [pytest.param(block, id=block.where) for block in BLOCKS if block.language == language and not block.reason]


def unaccounted(found: list[Block]) -> list[str]:
    """Blocks that nobody runs or checks, and that do not say why."""
    return [block.where for block in found if not block.reason and block.language not in ("sh", *CHECKED)]


def test_each_block_is_run_or_checked_or_says_why_not() -> None:
    """Also one that was added just now."""
    assert len(BLOCKS) > 50
    assert unaccounted(BLOCKS) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("```console\n$ ls\n```\n", 1),
        ("```\nls\n```\n", 1),
        ("words\n\n    ls\n", 3),
        ("<!-- not run: -->\n```text\nls\n```\n", 2),
        ("- a list\n\n  ```text\n  ls\n  ```\n", 3),
    ],
)
def test_a_block_without_a_word_on_it_is_found(text: str, line: int) -> None:
    """Fenced or indented, in a list too; a reason has to say something."""
    assert unaccounted(blocks(ROOT / "docs/new.md", text)) == [f"docs/new.md:{line}"]


@pytest.mark.parametrize("words", [["atach"], ["run", "--unless", "5h"], ["attach", "the", "build"]])
def test_a_command_that_we_do_not_have_is_complained_of(words: list[str]) -> None:
    """A command, an option, an argument too many; in a sentence as well."""
    assert complaint(words, UNFINISHED)
    assert complaint(["trace", "list"], ()) == ""


def test_a_reason_is_that_of_the_block_right_behind_it() -> None:
    """And of no other."""
    text = (
        "<!-- not run: needs Slurm -->\n```sh\nsrun\n```\n\n```sh\nls\n```\n\n<!-- exit: 0, 1 -->\n\n```sh\nls\n```\n"
    )
    found = blocks(ROOT / "docs/new.md", text)
    assert [(block.reason, block.exits) for block in found] == [("needs Slurm", (0,)), ("", (0,)), ("", (0, 1))]


def test_every_command_of_ours_parses() -> None:
    """In blocks of any language, whether they are run or not, and in sentences."""
    lines = [(block.where, line, ()) for block in BLOCKS for line in joined(block.text)]
    said = [(f"{page.name}:{at}", text, UNFINISHED) for page in PAGES for at, text in inline_code(page)]
    lines += [each for each in said if each[1].startswith("builddoctor ")]
    ours = [
        (where, words, allowed)
        for where, line, allowed in lines
        if "builddoctor " in line and "…" not in line
        for words in own_commands(OPTIONAL.sub("", line.split("#")[0]))
    ]
    complaints = [f"{where}: {words}: {told}" for where, words, allowed in ours if (told := complaint(words, allowed))]
    assert complaints == []
    assert len(ours) > 100


def complaint(words: list[str], allowed: tuple[str, ...]) -> str:
    """What the command line says against these words."""
    try:
        parse(words)
    except SystemExit:
        return ""  # --help and its like
    except Exception as error:  # noqa: BLE001 - which class it is depends on typer's version
        return "" if any(each in str(error) for each in allowed) else str(error)
    return ""


def joined(text: str) -> list[str]:
    return text.replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("block", of("toml"))
def test_toml_is_toml(block: Block) -> None:
    """And holds something."""
    assert msgspec.toml.decode(block.text)


@pytest.mark.parametrize("block", of("yaml"))
def test_a_workflow_gives_the_action_what_it_takes(block: Block) -> None:
    """Inputs of ``action.yml``, the required ones among them."""
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    steps = [step for job in yaml.safe_load(block.text).get("jobs", {}).values() for step in job["steps"]]
    given = [set(step["with"]) for step in steps if "builddoctor" in step.get("uses", "")]
    assert all(
        each <= set(inputs) and {name for name in inputs if inputs[name].get("required")} <= each for each in given
    )


@pytest.mark.parametrize("block", of("python"))
def test_python_runs(block: Block) -> None:
    """With this version of ours."""
    exec(compile(block.text, block.where, "exec"), {})


@pytest.mark.parametrize("block", of("sql"))
def test_a_question_to_an_export_is_answered(block: Block, tmp_path: Path) -> None:
    """SQLite knows each table and column, and there are rows."""
    trace = write_trace(tmp_path / "trace.jsonl", Made(units=usual_units()))
    write_sqlite(trace, tmp_path / "trace.sqlite")
    with contextlib.closing(sqlite3.connect(tmp_path / "trace.sqlite")) as database:
        assert database.execute(block.text).fetchall()


@pytest.mark.parametrize("folder", ["adr", "reference", "results"])
def test_the_first_page_of_a_folder_names_all_others(folder: str) -> None:
    """So that none is found by chance alone; on GitHub as on the site."""
    pages = {page.name for page in (ROOT / "docs" / folder).glob("*.md")} - {"README.md"}
    named = set(re.findall(r"\]\(([^)/#]+\.md)\)", (ROOT / "docs" / folder / "README.md").read_text()))
    assert named == pages
