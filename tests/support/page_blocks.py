"""Code blocks of README.md and docs/*.md, with what the comment before each says of it, and a folder in which they run.

A comment is ``<!-- not run: REASON -->`` or ``<!-- exit: 0, 1 -->``, the codes that a block may end with.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from support.example import EXAMPLE
from support.made_traces import Made, usual_units, write_trace
from support.program import clean_environment

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name != "CHANGELOG.md"),
]
"""The changelog tells of commands that are gone."""
CHECKED = ("toml", "yaml", "python", "sql")
"""Languages that ``tests/unit/docs`` looks into."""
NOT_RUN = re.compile(r"<!-- not run: (\S.*?) -->")
EXIT = re.compile(r"<!-- exit: ([\d, ]+) -->")
TRACE_ID = "4c010b"


@dataclass(frozen=True)
class Block:
    """``line`` counts from 1. ``reason``: why it is not run."""

    page: Path
    line: int
    language: str
    text: str
    reason: str
    exits: tuple[int, ...]

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, text: str | None = None) -> list[Block]:
    """Fenced and indented, in their order. ``text``: of a page that is not there."""
    found = []
    before: Token | None = None
    for token in MarkdownIt().enable("table").parse(page.read_text() if text is None else text):
        if token.type in ("fence", "code_block"):
            comment = before.content if before is not None and before.type == "html_block" else ""
            reason, exits = NOT_RUN.search(comment), EXIT.search(comment)
            codes = tuple(int(code) for code in exits[1].split(",")) if exits else (0,)
            line = (token.map or [0])[0] + 1
            found.append(Block(page, line, token.info.strip(), token.content, reason[1] if reason else "", codes))
        before = token
    return found


def inline_code(page: Path) -> Iterator[tuple[int, str]]:
    """Line and text of what is set as code in sentences and tables."""
    for token in MarkdownIt().enable("table").parse(page.read_text()):
        for child in token.children or ():
            if child.type == "code_inline":
                yield (token.map or [0])[0] + 1, child.content


class Place:
    """A folder that has what the pages name, with a home of its own: the example, a log, a build folder, a trace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        home = folder / "home"
        self.env = clean_environment() | {"HOME": str(home), "XDG_RUNTIME_DIR": str(folder), "SHELL": "/bin/bash"}
        self.env = {name: value for name, value in self.env.items() if name not in ("XDG_CACHE_HOME", "XDG_STATE_HOME")}
        self.env["BUILDDOCTOR_LEDGER_DIR"] = str(folder / "ledger")
        traces = home / ".local/state/builddoctor/traces"
        traces.mkdir(parents=True)
        write_trace(traces / f"20261121-040649.708-{TRACE_ID}.jsonl", Made(units=usual_units()))
        example = self.folder / "examples" / EXAMPLE.name
        shutil.copytree(EXAMPLE, example, ignore=shutil.ignore_patterns("build", "dist", "*.egg-info"))
        (self.folder / "path/to").mkdir(parents=True)
        (self.folder / "path/to/project").symlink_to(example)
        (self.folder / "tests").symlink_to(ROOT / "tests")
        shutil.copyfile(ROOT / "tests/corpus/failing/cudafe-signal9-j8.log", self.folder / "build.log")
        self._make_build()

    def _make_build(self) -> None:
        """One unit of plain C++: what a page says of a build holds for it, and it takes a blink."""
        build = self.folder / "build"
        build.mkdir()
        (self.folder / "unit.cpp").write_text("int answer() { return 42; }\n")
        rules = "rule cxx\n  command = g++ -c $in -o $out\nbuild unit.o: cxx ../unit.cpp\n"
        (build / "build.ninja").write_text(rules)

    def run(self, block: Block) -> subprocess.CompletedProcess[str]:
        """As a person pastes it, but that it ends at the first line that fails."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
