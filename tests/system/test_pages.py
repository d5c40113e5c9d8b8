"""What the pages tell people to type is typed, page by page, in a folder that has what they name."""

from __future__ import annotations

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


def test_what_the_first_page_shows_is_what_is_printed(tmp_path: Path) -> None:
    """The explanation of the log that comes with the repository, as far as it is shown."""
    found = blocks(ROOT / "docs" / "index.md")
    asked = next(number for number, block in enumerate(found) if "builddoctor explain tests/" in block.text)
    shown = found[asked + 1].text.removesuffix("…\n")
    done = Place(tmp_path).run(found[asked])
    assert done.stdout.startswith(shown)
