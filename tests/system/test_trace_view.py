"""``builddoctor trace view`` as a user runs it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from support.made_traces import Made, usual_units, write_trace
from support.program import Program

NO_SCREEN = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": ""}


def _trace(program: Program) -> Path:
    return write_trace(program.folder / "some build.jsonl", Made(units=usual_units(), stop_at_s=30.0))


def test_page_goes_into_the_cache_and_its_path_to_stdout(program: Program) -> None:
    """One file a trace, made anew each time; without a screen a line says how to look at it elsewhere."""
    trace = _trace(program)
    for _ in range(2):
        done = program.run("trace", "view", str(trace), env=NO_SCREEN)
        assert done.returncode == 0, done.stderr
        page = Path(done.stdout.rstrip("\n"))
        assert page == program.folder / "cache" / "pages" / "some_build.html"
        assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
        assert [each.name for each in page.parent.iterdir()] == ["some_build.html"]
        assert "scp" in done.stderr


def test_page_goes_where_it_is_told_to(program: Program) -> None:
    """``-o FILE``, with the rights that a new file has, and nothing beside it."""
    done = program.run("trace", "view", str(_trace(program)), "-o", "page.html", "--no-open")
    assert done.returncode == 0, done.stderr
    page = program.folder / "page.html"
    assert done.stdout == f"{page}\n"
    assert done.stderr == ""
    mask = os.umask(0)
    os.umask(mask)
    assert page.stat().st_mode & 0o777 == 0o666 & ~mask


def test_browser_is_started_on_the_page(program: Program) -> None:
    """$BROWSER gets the address; what it prints does not come between the path and who reads it."""
    seen = program.folder / "seen"
    browser = program.folder / "browser"
    browser.write_text(f'#!/bin/sh\necho noise\necho "$1" > {seen}.new && mv {seen}.new {seen}\n')
    browser.chmod(0o755)
    done = program.run("trace", "view", str(_trace(program)), env={**NO_SCREEN, "BROWSER": str(browser)})
    page = Path(done.stdout.rstrip("\n"))
    deadline = time.monotonic() + 60
    while not seen.exists() and time.monotonic() < deadline:
        os.sched_yield()
    assert seen.read_text().strip() == page.as_uri()
    assert done.stderr == ""


def test_what_cannot_be_written_or_read_is_said(program: Program) -> None:
    """A folder that is not there, and a file that is no trace: own codes, nothing on stdout, nothing left."""
    refused = program.run("trace", "view", str(_trace(program)), "-o", "no/such/folder.html", "--no-open")
    assert (refused.returncode, refused.stdout) == (76, "")
    assert "no/such/folder.html" in refused.stderr
    other = program.folder / "other.jsonl"
    other.write_text("no trace\n")
    unread = program.run("trace", "view", str(other), "-o", "page.html", "--no-open")
    assert (unread.returncode, unread.stdout) == (78, "")
    assert not (program.folder / "page.html").exists()
