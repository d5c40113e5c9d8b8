"""``cache show|clean`` and ``trace prune``: what goes, what stays."""

from __future__ import annotations

import json
import os
import subprocess

from builddoctor.trace.writer import TraceWriter
from support.program import Program

MIB = 1024**2


def parts(program: Program) -> dict[str, dict]:
    return {part["name"]: part for part in json.loads(program.run("cache", "show", "--json").stdout)}


def fill(program: Program) -> None:
    for name in ("pages", "sources"):
        (program.folder / "cache" / name).mkdir(parents=True)
        (program.folder / "cache" / name / "file").write_bytes(b"x" * 2 * MIB)


def trace(program: Program, name: str, *, days: float, mib: int) -> None:
    folder = program.folder / "state" / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_bytes(b"x" * mib * MIB)
    then_s = path.stat().st_mtime - days * 86400
    os.utime(path, (then_s, then_s))
    (folder / f"{name}.repro").mkdir()


def left(program: Program) -> list[str]:
    return sorted(path.name for path in (program.folder / "state" / "traces").iterdir())


def test_what_is_made_again_goes_and_nothing_else(program: Program) -> None:
    fill(program)
    assert parts(program)["pages"]["size_mib"] >= 2
    done = program.run("cache", "clean")
    assert done.stdout == "2 MiB freed: pages\n"
    assert list(parts(program)) == ["sources"]


def test_by_name_and_all(program: Program) -> None:
    fill(program)
    refused = program.run("cache", "clean", "page")
    assert refused.returncode == 64
    assert "it has: pages, sources" in refused.stderr
    assert program.run("cache", "clean", "--all").returncode == 0
    assert parts(program) == {}


def test_the_page_says_what_each_costs(program: Program) -> None:
    fill(program)
    shown = program.run("cache", "show").stdout
    assert "sources of projects built by name" in shown
    assert "2 MiB" in shown


def test_old_traces_go_and_then_the_oldest_beyond_a_size(program: Program) -> None:
    """With what they keep; a dry run only says so."""
    trace(program, "20260101-a", days=200, mib=1)
    trace(program, "20261101-b", days=20, mib=3)
    trace(program, "20261120-c", days=2, mib=3)
    said = program.run("trace", "prune", "--gib", "0.004", "--dry-run").stdout
    assert said == "2 traces would go, 4 MiB; 1 left, 3 MiB\n"
    assert len(left(program)) == 6
    assert json.loads(program.run("trace", "prune", "--json").stdout)["traces"] == 1
    assert left(program) == ["20261101-b.jsonl", "20261101-b.repro", "20261120-c.jsonl", "20261120-c.repro"]


def test_a_trace_that_a_build_still_writes_stays(program: Program) -> None:
    trace(program, "20261120-c", days=0, mib=1)
    writer = TraceWriter(program.folder / "state" / "traces" / "20261120-d.jsonl")
    try:
        assert program.run("trace", "prune", "--days", "0").stdout.startswith("1 traces removed")
        assert left(program) == ["20261120-d.jsonl"]
    finally:
        writer.close()


def test_shells_are_told_what_can_be_typed() -> None:
    """The completion of bash is asked as bash asks it."""
    env = {**os.environ, "_BUILDDOCTOR_COMPLETE": "complete_bash", "COMP_WORDS": "builddoctor tra", "COMP_CWORD": "1"}
    asked = subprocess.run(["builddoctor"], env=env, capture_output=True, text=True, check=False)
    assert asked.stdout.split() == ["trace"]
