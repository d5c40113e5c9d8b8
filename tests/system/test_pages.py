"""What the pages tell people to type is typed, page by page, in a folder that has what they name."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from support.page_blocks import PAGES, ROOT, Place, blocks

RUN = {page: [block for block in blocks(page) if block.language == "sh" and not block.reason] for page in PAGES}


@pytest.mark.slow
@pytest.mark.needs_nvcc
@pytest.mark.needs_cmake
@pytest.mark.parametrize("page", [page for page in PAGES if RUN[page]], ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_says_works(page: Path, tmp_path: Path) -> None:
    """Block after block; each ends as the page says."""
    place = Place(tmp_path)
    for block in RUN[page]:
        done = place.run(block)
        assert done.returncode in block.exits, (
            f"{block.where}: {done.returncode}\n{block.text}{done.stdout}{done.stderr}"
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as it is published: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    argv = ["mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_each_page_is_in_the_site(site: Path) -> None:
    """README.md is GitHub's start page; every other has a place."""
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / place).exists() or (site / place.with_name("index.html")).exists(), place


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """No script, style, font or picture of another server; links may lead there."""
    loads = re.compile(
        r"""<(?:script|img|iframe)[^>]*src="?(?:https?:)?//|<link[^>]*href="?(?:https?:)?//(?![^>]*canonical)"""
    )
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    assert [page.name for page in pages if loads.search(page.read_text())] == []


def test_a_bar_in_code_and_a_link_out_of_the_pages_are_as_on_github(site: Path) -> None:
    """What the hook is for."""
    assert "<code>PROJECT|PATH</code>" in (site / "reference/commands.html").read_text()
    assert "../examples" not in (site / "containers.html").read_text()
    assert "flowchart TD" not in (site / "architecture.html").read_text()


def test_what_the_first_page_shows_is_what_is_printed(tmp_path: Path) -> None:
    """The explanation of the log that comes with the repository, as far as it is shown."""
    found = blocks(ROOT / "docs" / "index.md")
    asked = next(number for number, block in enumerate(found) if "builddoctor explain tests/" in block.text)
    shown = found[asked + 1].text.removesuffix("…\n")
    done = Place(tmp_path).run(found[asked])
    assert done.stdout.startswith(shown)
