"""A package index on loopback: wheels of a folder, with hashes, and a gate at which one of them can be held."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename

HELD_S = 60.0


class PackageIndex:
    """What is asked of it is in ``fetched``, wheels by name; ``lies`` maps a wheel's name to the hash to claim."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fetched: list[str] = []
        self.lies: dict[str, str] = {}
        self.held = ""
        """a part of the name of the wheel that waits half-way until ``go``"""
        self.reached = threading.Event()
        self.go = threading.Event()
        self.url = ""

    def env(self) -> dict[str, str]:
        """What makes pip ask here and nowhere else."""
        return {
            "PIP_INDEX_URL": f"{self.url}/simple",
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": "",
            "PIP_RETRIES": "0",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def page(self, project: str) -> bytes | None:
        links = []
        for wheel in sorted(self.folder.glob("*.whl")):
            if parse_wheel_filename(wheel.name)[0] == project:
                digest = self.lies.get(wheel.name) or hashlib.sha256(wheel.read_bytes()).hexdigest()
                links.append(f'<a href="/files/{wheel.name}#sha256={digest}">{wheel.name}</a>')
        return ("<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>").encode() if links else None


@contextmanager
def serving(folder: Path) -> Iterator[PackageIndex]:
    """An index of the wheels in ``folder``."""
    index = PackageIndex(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, kind, name = self.path.rstrip("/").split("/", 2)
            body = index.page(name) if kind == "simple" else (index.folder / name).read_bytes()
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if kind == "simple" else "application/octet-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if kind == "files":
                index.fetched.append(parse_wheel_filename(name)[0])
            half = len(body) // 2 if kind == "files" and index.held and index.held in name else 0
            if half:
                self.wfile.write(body[:half])
                self.wfile.flush()
                index.reached.set()
                index.go.wait(HELD_S)
            with suppress(OSError):
                self.wfile.write(body[half:])

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    index.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        index.go.set()
        server.shutdown()
        server.server_close()
        thread.join()
