"""The site in a real browser, from a server: it fits its window, it is found by its search, and it keeps to itself."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support.chromium import Chromium
from support.site import build_site

pytestmark = pytest.mark.needs_chromium

SHOWN = ("index", "containers", "architecture", "reference/commands")
"""The start, a how-to page with tables, one with a picture, one that is long."""


class Silent(SimpleHTTPRequestHandler):
    """Files of a folder."""

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address on this machine."""
    folder = tmp_path_factory.mktemp("site")
    assert build_site(folder) == ""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with contextlib.ExitStack() as stack:
            stack.callback(server.shutdown)
            yield f"http://127.0.0.1:{server.server_port}"


def too_wide(browser: Chromium) -> int:
    return int(browser.js("return document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 1280, 1920])
def test_the_site_fits_its_window_and_keeps_to_itself(width: int, scheme: str, browser: Chromium, site: str) -> None:
    """Nothing is wider than the window, every picture is there, the console is silent, nobody else is asked."""
    browser.size(width)
    browser.prefer(scheme)
    for page in SHOWN:
        browser.visit(f"{site}/{page}.html")
        assert too_wide(browser) == 0
        assert browser.js("return [...document.images].every((picture) => picture.naturalWidth > 0)")
        assert [each for each in browser.requests() if not each.startswith(site)] == []
        assert browser.console() == []
        browser.screenshot(f"site-{page.replace('/', '-')}-{width}-{scheme}")


def test_every_page_fits_a_phone(browser: Chromium, site: str) -> None:
    """Long words and wide tables scroll in their own boxes."""
    browser.size(420)
    browser.visit(f"{site}/index.html")
    pages = browser.js("return [...document.querySelectorAll('nav a')].map((link) => link.href.split('#')[0])")
    pages = sorted({page for page in pages if page.startswith(site)})
    assert len(pages) > 60
    # Each page would read the index of all of them.
    browser.cdp("Network.enable")
    browser.cdp("Network.setBlockedURLs", urls=["*search_index.json"])
    wide = []
    for page in pages:
        browser.visit(page)
        if too_wide(browser):
            wide.append(page)
    assert wide == []


def test_the_search_finds_a_page(browser: Chromium, site: str) -> None:
    """Typed, as a person does."""
    browser.visit(f"{site}/index.html")
    # As its shortcut opens it: beside the title there is a field or a button, as the window is wide.
    browser.find("body").send_keys("/")
    browser.until("return document.activeElement.name === 'query'")
    browser.driver.switch_to.active_element.send_keys("runaway")
    found = browser.until("return [...document.querySelectorAll('.md-search-result__link')].map((link) => link.href)")
    assert any("gb200" in link or "runaway" in link for link in found)
