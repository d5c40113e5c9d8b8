"""Pages name files, functions and other pages: each of them is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "src" / "builddoctor"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NAMED = ("architecture.md", "CONTRIBUTING.md")
"""Pages on the code: every path in them that is set as code is one of the repository."""

_PLACE = re.compile(r"`((?:\w[\w.-]*/)+[\w.-]*|\w+\.py)(?::([\w.]+))?`")
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


@cache
def names_in(file: Path) -> frozenset[str]:
    """Functions, classes, their methods and constants, as ``name`` or ``Class.name``."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        found |= _names(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for each in node.body for name in _names(each)}
    return frozenset(found)


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets if isinstance(node, ast.Assign) else []
    return {ast.unparse(target) for target in targets}


def place(path: str) -> Path | None:
    """A path of the repository, or below the sources."""
    return next((base / path for base in (SOURCES, ROOT) if (base / path).exists()), None)


@pytest.mark.parametrize("page", NAMED)
def test_what_a_page_names_is_there(page: str) -> None:
    """Every path is a file or a folder, and every ``file:function`` is defined in that file."""
    missing = []
    for path, name in _PLACE.findall((ROOT / "docs" / page).read_text()):
        file = place(path)
        if file is None or (name and name not in names_in(file)):
            missing.append(f"{path}:{name}" if name else path)
    assert missing == []


def test_the_architecture_names_every_package() -> None:
    """Each package has a line that says what it does."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text[text.index("| package | what it does |") : text.index("Imports point downward only")]
    packages = {file.parent.name for file in SOURCES.glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == packages


def test_the_architecture_names_functions() -> None:
    """The search for names finds some: a page without any would pass every other test."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert sum(bool(name) for _, name in _PLACE.findall(text)) > 40


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file of the repository."""
    missing = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []
