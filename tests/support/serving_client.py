"""Questions to the stand-in for a model server (``support.serving``)."""

from __future__ import annotations

import json
import select
import time
import urllib.parse
import urllib.request
from typing import Any

from support.program import PATIENCE_S, Program


def answer(program: Program, path: str, **asked: object) -> Any:
    """What the server says, once it listens."""
    port = program.folder / "port"
    deadline = time.monotonic() + PATIENCE_S
    while not port.exists():
        assert time.monotonic() < deadline, "the server does not listen"
        select.select([], [], [], 0.02)
    query = urllib.parse.urlencode(asked, doseq=True)
    with urllib.request.urlopen(f"http://127.0.0.1:{port.read_text()}/{path}?{query}", timeout=PATIENCE_S) as page:
        return json.loads(page.read())
