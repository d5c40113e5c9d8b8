"""A real terminal for tests: a shell in tmux, typed into and looked at."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

PATIENCE_S = 60.0
PROMPT = "ready$ "


class Tmux:
    """One server with one window: an interactive bash of the given size."""

    def __init__(self, folder: Path, env: Mapping[str, str], *, columns: int, rows: int, name: str = "tmux") -> None:
        self._socket = folder / name
        self._folder = folder
        self._prompts = folder / f"{name}.prompts"
        self._prompts_before = 0
        start = folder / f"{name}.bashrc"
        kept = {key: value for key, value in env.items() if key.isidentifier() and key not in ("TMUX", "_")}
        counts = f"PROMPT_COMMAND={shlex.quote(f'echo >> {shlex.quote(str(self._prompts))}')}"
        lines = [f"export {key}={shlex.quote(value)}" for key, value in kept.items()]
        start.write_text("\n".join([*lines, f"PS1={shlex.quote(PROMPT)}", counts, ""]))
        # tmux itself has to know of Unicode, whatever the programs in it are told. Its shell begins with what tmux has,
        # so that is ours and not that of whoever runs the tests (CI=true, NO_COLOR).
        server_env = {**kept, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
        size = ["-x", str(columns), "-y", str(rows)]
        shell = f"exec bash --noprofile --rcfile {shlex.quote(str(start))} -i"
        limit = ["set-option", "-g", "history-limit", "300000", ";"]
        self._run("-f", os.devnull, *limit, "new-session", "-d", *size, "-c", str(folder), shell, env=server_env)
        self.wait_for(lambda text: PROMPT.strip() in text)

    def _run(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *words], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout

    def type(self, line: str) -> None:
        """A line, and Enter."""
        self._prompts_before = self._prompts.stat().st_size
        self._run("send-keys", "-l", line)
        self._run("send-keys", "Enter")

    def key(self, *keys: str) -> None:
        """Keys as tmux names them: ``q``, ``C-c``."""
        self._run("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    def tell_size(self, columns: int, rows: int) -> None:
        """What programs are told of the size, which stays as it is."""
        tty = self._run("display-message", "-p", "#{pane_tty}").strip()
        subprocess.run(["stty", "-F", tty, "cols", str(columns), "rows", str(rows)], check=True)

    def screen(self) -> list[str]:
        """The lines one sees, without blanks at their ends; empty ones at the foot left out."""
        return self._run("capture-pane", "-p").rstrip("\n").split("\n")

    def styled(self) -> str:
        """What one sees, with its colours."""
        return self._run("capture-pane", "-p", "-e")

    def everything(self) -> list[str]:
        """All lines since the beginning, long ones put together again."""
        return [line.rstrip() for line in self._run("capture-pane", "-p", "-J", "-S", "-").rstrip("\n").split("\n")]

    def cursor(self) -> bool:
        """The cursor can be seen."""
        return self._run("display-message", "-p", "#{cursor_flag}").strip() == "1"

    def wait_for(self, seen: Callable[[str], bool]) -> str:
        """Look until this is so; the text of the screen then."""
        deadline = time.monotonic() + PATIENCE_S
        text = ""
        while time.monotonic() < deadline:
            text = "\n".join(self.screen())
            if seen(text):
                return text
            select.select([], [], [], 0.05)
        raise AssertionError(f"not on the screen:\n{text}")

    def wait_for_prompt(self) -> str:
        """The command that was typed last has ended."""

        def ended(text: str) -> bool:
            another = self._prompts.stat().st_size > self._prompts_before
            return another and text.split("\n")[-1].strip() == PROMPT.strip()

        return self.wait_for(ended)

    def modes(self) -> str:
        """The terminal's modes, asked from the shell when it has the foreground."""
        file = self._folder / "modes"
        self.type(f"stty -g > {shlex.quote(str(file))}; echo asked")
        self.wait_for(lambda text: "\nasked" in text)
        self.type("clear")
        self.wait_for_prompt()
        # An interactive bash changes some while it edits a line; these are what programs see.
        return file.read_text()

    def end(self) -> None:
        """End the server; whatever ran in it hears of that, and has time to end."""
        with contextlib.suppress(subprocess.CalledProcessError):
            server = psutil.Process(int(self._run("display-message", "-p", "#{pid}")))
            everything = [server, *server.children(recursive=True)]
            self._run("kill-server")
            psutil.wait_procs(everything, timeout=PATIENCE_S)


@contextlib.contextmanager
def terminal(
    folder: Path, env: Mapping[str, str], *, columns: int = 100, rows: int = 30, name: str = "tmux"
) -> Iterator[Tmux]:
    """A terminal that is gone afterwards, with whatever runs in it."""
    tmux = Tmux(
        folder,
        {"LC_ALL": "C.UTF-8", **env, "TERM": env.get("TERM", "xterm-256color")},
        columns=columns,
        rows=rows,
        name=name,
    )
    try:
        yield tmux
    finally:
        tmux.end()
