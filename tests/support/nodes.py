"""A cluster of real processes, each ended with the test: its meeting point, nodes, and a build whose compiler waits."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from support.fake_toolkit import fake_toolkit
from support.program import PATIENCE_S, Program


class Meeting:
    """`cluster serve`, and workers that joined it."""

    def __init__(
        self,
        folder: Path,
        *,
        keys: Path | None = None,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        serve: Sequence[str] = (),
    ) -> None:
        """``keys``: of TLS; None: without. ``host``: where it listens; ``prefix``: what starts it; ``serve``: further
        options."""
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.keys = keys
        self._running: list[subprocess.Popen[bytes]] = []
        listen = f"{'tls' if keys is not None else 'tcp'}://{host}:0"
        server = Program(folder)
        words = server.argv("cluster", "serve", "--listen", listen, *self.options, *serve)
        self.server = self.start("serve", server, words, prefix=prefix)
        line = self.await_line("serve", "serves at ")
        self.address = line.partition("serves at ")[2].partition(";")[0]

    @property
    def options(self) -> list[str]:
        return ["--keys", str(self.keys)] if self.keys is not None else []

    @property
    def for_builds(self) -> list[str]:
        return ["--cluster", self.address, *self.options]

    def worker(self, name: str, *options: str, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """A node that has joined; ``prefix``: what starts it."""
        program = Program(self.folder / name)
        program.folder.mkdir(exist_ok=True)
        words = ["worker", self.address, *self.options, "--trace", str(program.trace_file), *options]
        process = self.start(name, program, program.argv(*words), prefix=prefix)
        self.await_line(name, "serves ")
        return process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def await_line(self, name: str, words: str) -> str:
        """The first line with these words that it prints."""
        found: list[str] = []

        def said() -> list[int] | None:
            found[:] = [line for line in self.log(name).splitlines() if words in line]
            assert found or self._running[-1].poll() is None, self.log(name)
            return [] if found else None

        await_that(said)
        return found[0]

    def close(self) -> None:
        for process in reversed(self._running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._running:
            process.wait(PATIENCE_S)

    def start(
        self, name: str, program: Program, argv: Sequence[str], *, prefix: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Anything that is to end with us; what it prints is ``log(name)``."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*prefix, *argv],
                cwd=self.folder,
                env=program.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._running.append(process)
        return process


COMPILER = """
import os, sys, time
words = sys.argv[1:]
output = words[words.index("--gen_c_file_name") + 1]
source = open(words[-1]).read()
here = {folder!r}
with open(os.path.join(here, "began-%d" % os.getpid()), "w") as file:
    file.write(output)
while {waits} and not os.path.exists(os.path.join(here, "go")):
    time.sleep(0.02)
held = bytearray({grows_mib} << 20)
held[::4096] = b"x" * len(held[::4096])
with open(output, "w") as file:
    file.write("# 1 \\"%s\\"\\n%s" % (output, source.upper()))
print("made on the way", file=sys.stderr)
"""

SMALL = "400MiB"
SOURCE = "int a;\n" * 400_000
"""What is expected of a front end that reads as much, and of which nothing else is known, does not fit into that."""


class Place:
    """A folder with a toolkit, a source, and a build of it."""

    def __init__(self, folder: Path, *, waits: bool, grows_mib: int = 0) -> None:
        """``waits``: the compiler does, for ``go``; then it takes so much memory."""
        self.folder = folder
        self.signs = folder / "signs"
        self.signs.mkdir()
        self.toolkit = fake_toolkit(
            folder / "cuda", COMPILER.format(folder=str(self.signs), waits=waits, grows_mib=grows_mib)
        )
        self.source = folder / "in.cpp4.ii"
        self.source.write_text(SOURCE)
        self.output = folder / "out.cudafe1.cpp"
        self.program = Program(folder)
        self.command = ("nvcc", "-c", "--gen_c_file_name", str(self.output), str(self.source))

    def build(self, meeting: Meeting, *, memory: str = SMALL) -> list[str]:
        options = [*meeting.for_builds, "--memory", memory, "--toolkit", str(self.toolkit)]
        return self.program.supervised(*self.command, options=options)

    def pair(self, *options: str) -> list[str]:
        """A build of two such sources at a time, of which one fits here."""
        shutil.copy(self.source, self.folder / "in2.cpp4.ii")
        here = self.folder
        words = " & ".join(
            f"nvcc -c --gen_c_file_name {here}/out{n}.cudafe1.cpp {here}/in{n}.cpp4.ii" for n in ("", "2")
        )
        named = ["--memory", SMALL, "--toolkit", str(self.toolkit), *options]
        return self.program.supervised("sh", "-c", f"{words} & wait", options=named)

    def began(self, count: int = 1) -> list[int]:
        """Pids of compilers that began; waits for so many."""
        return await_that(lambda: found if len(found := self._pids()) >= count else None)

    def go(self) -> None:
        (self.signs / "go").touch()

    def check(self) -> None:
        """The answer is what it would have been here."""
        assert self.output.read_text() == f'# 1 "{self.output}"\n{SOURCE.upper()}'
        assert not list(self.folder.glob(".*.new"))

    def _pids(self) -> list[int]:
        return sorted(int(each.name.removeprefix("began-")) for each in self.signs.glob("began-*"))


Found = TypeVar("Found")


def await_that(
    found: Callable[[], list[Found] | None], said: Callable[[], object] = lambda: "it did not happen"
) -> list[Found]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if (result := found()) is not None:
            return result
        time.sleep(0.02)
    raise AssertionError(said())
