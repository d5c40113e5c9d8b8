"""The site is built strictly, of all pages, and loads nothing from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from support.site import ROOT, build_site

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""What a browser fetches by itself, and where the address of it is."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As it is published."""
    folder = tmp_path_factory.mktemp("site")
    assert build_site(folder) == ""
    return folder


def small_site(folder: Path, text: str) -> Path:
    """The configuration of a site of one page, as ours but for that. ``docs`` is its folder, as it is in ours."""
    (folder / "docs").mkdir()
    (folder / "docs/index.md").write_text(text)
    configuration = folder / "mkdocs.yml"
    configuration.write_text(
        f"INHERIT: {ROOT}/mkdocs.yml\ndocs_dir: docs\nnav: [index.md]\nhooks: [{ROOT}/scripts/site_hook.py]\n"
    )
    return configuration


class Addresses(HTMLParser):
    """Of all that a page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if LOADED.get(tag) == name and value]


@pytest.mark.slow
def test_each_page_is_built_without_a_warning(site: Path) -> None:
    """Every page of docs/ has its place; README.md of a folder is its first page."""
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).with_suffix(".html") for page in docs.rglob("*.md")}
    assert len(pages) > 60
    built = {page.relative_to(site) for page in site.rglob("*.html")} - {Path("404.html")}
    assert {page.with_name("index.html") if page.name == "README.html" else page for page in pages} == built


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """Scripts, pictures, fonts and styles are files of the site."""
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    loaded = {page: Addresses(page.read_text()).found for page in pages}
    assert all(loaded.values())
    for page, addresses in loaded.items():
        missing = [each for each in addresses if not (page.parent / each.split("#")[0]).exists()]
        assert missing == [], page
    assert not [sheet for sheet in site.rglob("*.css") if "url(http" in sheet.read_text()]


def test_what_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    """A page, a heading, a file of the repository."""
    text = "# One\n\n[a](two.md) [b](#three) [c](../scripts/four)\n"
    complaints = build_site(tmp_path / "site", small_site(tmp_path, text))
    assert all(each in complaints for each in ("two.md", "#three", "../scripts/four")), complaints


@pytest.mark.parametrize(
    ("repository", "shown"),
    [
        ("https://git.example/us/it", 'see <a href="https://git.example/us/it/blob/HEAD/scripts/test">tests</a>.'),
        ("", "see tests."),
    ],
)
def test_a_link_to_the_sources_leads_to_the_repository(repository: str, shown: str, tmp_path: Path) -> None:
    """Where one is known; it is text where none is."""
    configuration = small_site(tmp_path, "# One\n\nsee [tests](../scripts/test).\n")
    assert build_site(tmp_path / "site", configuration, repository) == ""
    assert shown in (tmp_path / "site/index.html").read_text()


def test_code_reads_as_on_github(tmp_path: Path) -> None:
    """A bar in a table is a bar, and short code stays on one line."""
    text = "# One\n\n| a |\n| --- |\n| `PATH\\|URL` |\n\n`" + "long " * 9 + "code`\n"
    assert build_site(tmp_path / "site", small_site(tmp_path, text)) == ""
    page = (tmp_path / "site/index.html").read_text()
    assert '<td><code class="short">PATH|URL</code></td>' in page
    assert "<code>long long" in page
