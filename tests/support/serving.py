"""A stand-in for a model server: ``serving.py FOLDER MIB`` holds memory, answers over HTTP, and compiles when asked.

As vLLM and SGLang do it: Python, with a worker that it spawns and that gives itself a name; kernels are compiled by a
ninja that is written and called as torch's ``load()`` and flashinfer do; SIGTERM ends it in order, once the file
``drained`` is there. It listens on the loopback interface, on a port that FOLDER/port names.

``/health``; ``/grow?mib=N``, in the worker; ``/compile?source=FILE&nvcc=TEXT`` (several ``source``, and what
build.ninja calls nvcc); ``/environ?name=NAME``.
"""

from __future__ import annotations

import ctypes
import http.server
import json
import mmap
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from multiprocessing.connection import Connection
from pathlib import Path

STEP_MIB = 4
PR_SET_NAME = 15
WORKER = b"VLLM::Worker_TP"


def take(mib: int) -> list[mmap.mmap]:
    """Anonymous memory, step by step."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    held = list[mmap.mmap]()
    for _ in range(mib // STEP_MIB):
        held.append(mmap.mmap(-1, STEP_MIB << 20, flags=flags))
        time.sleep(0.002)
    return held


def work(orders: Connection) -> None:
    """A worker: takes as much as it is told, until the server is gone."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, WORKER, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    held = list[mmap.mmap]()
    while (mib := orders.recv()) is not None:
        held += take(mib)
        orders.send(os.getpid())


def build_ninja(folder: Path, sources: list[str], nvcc: str) -> str:
    """As flashinfer writes it; the same for the same sources, so that ninja makes nothing twice."""
    lines = ["ninja_required_version = 1.3", f"cuda_home = {os.environ.get('CUDA_HOME', '')}", f"nvcc = {nvcc}", ""]
    lines += ["rule cuda_compile", "  command = $nvcc -c $in -o $out", ""]
    lines += [f"build {folder}/{Path(each).stem}.o: cuda_compile {each}" for each in sources]
    return "\n".join([*lines, ""])


class Server(http.server.ThreadingHTTPServer):
    """What it serves with."""

    daemon_threads = True

    def __init__(self, folder: Path, orders: Connection) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.orders = orders


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        url = urllib.parse.urlsplit(self.path)
        asked = urllib.parse.parse_qs(url.query)
        if url.path == "/grow":
            self.server.orders.send(int(asked["mib"][0]))
            self.answer(self.server.orders.recv())
        elif url.path == "/compile":
            self.answer(self.compile(self.server.folder / "kernels", asked["source"], asked["nvcc"][0]))
        elif url.path == "/environ":
            self.answer(os.environ.get(asked["name"][0]))
        else:
            self.answer("well")

    def compile(self, folder: Path, sources: list[str], nvcc: str) -> tuple[int, str]:
        """Exit code and output of ninja."""
        folder.mkdir(exist_ok=True)
        file = folder / "kernels.ninja"
        file.write_text(build_ninja(folder, sources, nvcc))
        jobs = os.environ.get("MAX_JOBS", "")
        command = ["ninja", "-v", "-C", str(folder), "-f", str(file), *(["-j", jobs] if jobs.isdigit() else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it that
        """Nothing is printed."""


def main() -> None:
    folder, mib = Path(sys.argv[1]), int(sys.argv[2])
    spawn = multiprocessing.get_context("spawn")
    orders, theirs = spawn.Pipe()
    worker = spawn.Process(target=work, args=(theirs,))
    worker.start()
    theirs.close()
    server = Server(folder, orders)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    orders.send(mib)
    sys.stdout.write(f"worker {orders.recv()}\n")
    sys.stdout.flush()
    port = folder / "port.new"
    port.write_text(str(server.server_port))
    port.rename(folder / "port")
    while not stopped.wait(0.05):
        pass
    (folder / "draining").touch()
    # What was asked before the signal is answered to its end.
    while not (folder / "drained").exists():
        time.sleep(0.02)
    orders.send(None)
    worker.join()
    server.shutdown()
    server.server_close()
    sys.stdout.write("ended in order\n")
    sys.exit(worker.exitcode and 3)


if __name__ == "__main__":
    main()
