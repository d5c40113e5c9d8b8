"""The builddoctor program as a child process, with folders of its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from builddoctor.core.events import BuildEvent
from builddoctor.core.request import RunRequest
from builddoctor.runtime.sampler import Rules
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.replay import replay

PATIENCE_S = 60.0


class Program:
    """Runs ``builddoctor`` with cache and state below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = clean_environment()
        self.env["BUILDDOCTOR_CACHE_DIR"] = str(folder / "cache")
        self.env["BUILDDOCTOR_STATE_DIR"] = str(folder / "state")
        self.env["BUILDDOCTOR_DATA_DIR"] = str(folder / "data")
        self.env["BUILDDOCTOR_LEDGER_DIR"] = str(folder / "ledger")
        self.env["XDG_RUNTIME_DIR"] = str(folder)
        self.summary_file = folder / "summary.json"
        self.trace_file = folder / "trace.jsonl"

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "builddoctor", *arguments]

    def supervised(self, *command: str, options: Sequence[str] = ()) -> list[str]:
        """``builddoctor run`` of a command, with summary and trace in our files."""
        files = ["--summary", str(self.summary_file), "--trace", str(self.trace_file)]
        return self.argv("run", *files, *options, "--", *command)

    def with_rules(self, rules: Rules, *command: str, toolkit: str = "", zero: bool = False) -> list[str]:
        """``builddoctor run`` of a command with other thresholds (``support.short_rules``)."""
        request = RunRequest(
            command=command,
            cwd=str(self.folder),
            title="demo",
            toolkit=toolkit,
            trace=str(self.trace_file),
            summary=str(self.summary_file),
        )
        script = str(Path(__file__).with_name("short_rules.py"))
        words = [msgspec.json.encode(each).decode() for each in (rules, request)]
        return [sys.executable, script, *words, *(["zero"] if zero else [])]

    def run(
        self, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        return subprocess.run(
            self.argv(*arguments),
            cwd=cwd or self.folder,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, argv: Sequence[str], *, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start and go on."""
        return subprocess.Popen(
            argv,
            cwd=cwd or self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def summary(self) -> dict[str, Any]:
        return json.loads(self.summary_file.read_text())

    def records(self) -> list[BuildEvent]:
        return list(TraceReader(self.trace_file))

    def check_traces(self) -> None:
        """Each trace that a build wrote to its end decides the same when it is replayed."""
        for path in (self.trace_file, *self.folder.glob("state/traces/*.jsonl")):
            if path.is_file() and path.stat().st_size and '"settings"' in path.read_text(errors="replace")[:4096]:
                reader = TraceReader(path)
                found = replay(reader)
                assert found.agrees or reader.skipped, found.difference

    def await_record(self, kind: type[BuildEvent], process: subprocess.Popen[str], **wanted: object) -> BuildEvent:
        """Wait until the trace has a record of this kind with these values: the handshake with a running build.

        A value may be a function that says whether the record's will do.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            # Asked first: what it wrote last counts.
            has_ended = process.poll() is not None
            if self.trace_file.exists() and self.trace_file.stat().st_size:
                for record in TraceReader(self.trace_file):
                    if isinstance(record, kind) and all(_is(_value(record, k), v) for k, v in wanted.items()):
                        return record
            assert not has_ended, f"builddoctor ended early: {process.communicate()[0]}"
            select.select([], [], [], 0.05)
        raise AssertionError(f"no {kind.__name__} {wanted} in the trace")


def _value(event: BuildEvent, name: str) -> object:
    """Of the event, or of the phase or unit that it is about."""
    about = next((inner for each in ("phase", "unit") if (inner := getattr(event, each, None)) is not None), event)
    return getattr(event, name) if hasattr(event, name) else getattr(about, name)


def _is(value: object, wanted: object) -> bool:
    return bool(wanted(value)) if callable(wanted) else value == wanted


def clean_environment() -> dict[str, str]:
    """This environment without what would change a build, with our Python's programs first."""
    changing = (
        "BUILDDOCTOR_",
        "NVCC_",
        "MAX_JOBS",
        "NVTE_",
        "CMAKE_BUILD_PARALLEL",
        "CUDAARCHS",
        "CUDACXX",
        "CI",
        "CXX",
        # What a terminal is said to be: a test that wants one says which.
        "TERM",
        "COLORTERM",
        "COLUMNS",
        "LINES",
        "NO_COLOR",
        "FORCE_COLOR",
        "LC_",
        "LANG",
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith(changing)}
    # The Python that has pip and setuptools, and one ninja for all: two versions rebuild each other's work.
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    return env
