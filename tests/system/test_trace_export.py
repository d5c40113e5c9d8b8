"""`builddoctor trace export`: every format from the command line, and what cannot be."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

from support.chrome_events import checked
from support.made_traces import Made, usual_units, write_trace
from support.program import Program


@pytest.fixture
def trace(program: Program) -> Path:
    return write_trace(program.folder / "build.jsonl", Made(units=usual_units(), stop_at_s=60.0))


@pytest.mark.parametrize("output", [[], ["-o", "-"], ["-o", "out.json"]])
def test_perfetto_goes_to_a_file_or_to_stdout(program: Program, trace: Path, output: list[str]) -> None:
    """The same events; a file is named, and where to open it."""
    done = program.run("trace", "export", str(trace), "--to", "perfetto", *output)
    assert done.returncode == 0, done.stderr
    if output[1:] == ["out.json"]:
        assert checked((program.folder / "out.json").read_bytes())
        assert "written out.json; open it at https://ui.perfetto.dev" in done.stderr
        assert done.stdout == ""
    else:
        assert checked(done.stdout)


def test_tables_go_where_they_are_wanted(program: Program, trace: Path) -> None:
    """CSV on stdout, all of them in one database, Parquet in a file; an old file is replaced."""
    done = program.run("trace", "export", str(trace), "--to", "csv", "--table", "units")
    assert done.stdout.startswith("unit_id,unit,output,")
    (program.folder / "t.sqlite").write_text("something else")
    assert program.run("trace", "export", str(trace), "--to", "sqlite", "-o", "t.sqlite").returncode == 0
    database = sqlite3.connect(program.folder / "t.sqlite")
    assert database.execute("select count(*) from phases").fetchone()[0] > 10
    database.close()
    done = program.run("trace", "export", str(trace), "--to", "parquet", "-o", "t.parquet", "--table", "samples")
    assert done.returncode == 0, done.stderr
    assert (program.folder / "t.parquet").read_bytes()[:4] == b"PAR1"


@pytest.mark.parametrize(("to", "begins"), [("html", b"<!doctype html>"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_page_and_its_picture_can_be_exported(program: Program, trace: Path, to: str, begins: bytes) -> None:
    """As `trace view` makes them."""
    done = program.run("trace", "export", str(trace), "--to", to, "-o", f"out.{to}")
    assert done.returncode == 0, done.stderr
    assert (program.folder / f"out.{to}").read_bytes()[: len(begins)].lower() == begins.lower()


@pytest.mark.parametrize(("name", "begins"), [("x.HTML", "<!doctype html>"), ("x.csv", "phase_id,"), ("x.json", "{")])
def test_the_files_name_says_the_format(program: Program, trace: Path, name: str, begins: str) -> None:
    """Perfetto's, where it says none."""
    assert program.run("trace", "export", str(trace), "-o", name).returncode == 0
    assert (program.folder / name).read_text().startswith(begins)


def test_no_trace_is_poured_on_a_terminal(program: Program, trace: Path) -> None:
    """It is said how to get a file; `-o -` prints it all the same."""
    ours, theirs = os.openpty()
    argv = program.argv("trace", "export", str(trace))
    done = subprocess.run(argv, stdout=theirs, stderr=subprocess.PIPE, text=True, env=program.env, check=False)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 64
    assert "this is a terminal" in done.stderr
    assert "-o build.perfetto.json" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--to", "excel"], 64, "--to perfetto | csv"),
        (["--to", "csv", "--table", "nosuch"], 64, "--table phases | units"),
        (["--to", "sqlite"], 64, "-o build.sqlite"),
        (["--to", "parquet", "-o", "-"], 64, "cannot go to stdout"),
        (["--to", "sqlite", "-o", "nosuch/t.sqlite"], 76, "cannot write nosuch/t.sqlite"),
        (["--to", "csv", "-o", "."], 76, "cannot write ."),
        (["--to", "csv", "-o", "build.jsonl"], 64, "the trace itself"),
    ],
)
def test_what_cannot_be_is_said(program: Program, trace: Path, words: list[str], code: int, said: str) -> None:
    """Nothing is left behind, and the trace is as it was."""
    before = trace.read_bytes()
    done = program.run("trace", "export", str(trace), *words)
    assert said in done.stderr
    assert done.returncode == code
    assert trace.read_bytes() == before
    assert [path.name for path in program.folder.iterdir() if path.name.endswith(".part")] == []


def test_a_full_disk_is_said(program: Program, trace: Path) -> None:
    """As an error of ours, with a hint."""
    done = program.run("trace", "export", str(trace), "--to", "csv", "-o", "/dev/full")
    assert done.returncode == 76
    assert "No space left" in done.stderr
