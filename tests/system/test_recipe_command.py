"""Recipes of real builds, and recipes from addresses."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from builddoctor.core.errors import RecipeError
from builddoctor.recipes.recipe_file import read_recipe
from builddoctor.recipes.recipe_text import dump
from builddoctor.recipes.shelf import find_recipe
from support.program import Program
from unit.demo_recipes import recipe

BUILD_NINJA = """
rule cxx
  command = g++ -O1 -fPIC -c $in -o $out
rule link
  command = g++ -shared $in -o $out
build obj/heavy.o: cxx src/heavy.cpp
build obj/light.o: cxx src/light.cpp
build libdemo.so: link obj/heavy.o obj/light.o
"""


def project(folder: Path) -> Path:
    """A library of two sources, one of which takes more memory than the other."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "heavy.cpp").write_text("#include <map>\n#include <string>\nstd::map<std::string, int> table;\n")
    (folder / "src" / "light.cpp").write_text("int light() { return 1; }\n")
    (folder / "build.ninja").write_text(BUILD_NINJA)
    (folder / "pyproject.toml").write_text('[project]\nname = "demo"\nversion = "1.2"\n')
    return folder


def build(program: Program, folder: Path, trace: str) -> Path:
    """All of it anew, under builddoctor."""
    subprocess.run(["ninja", "-t", "clean"], cwd=folder, env=program.env, check=True, stdout=subprocess.DEVNULL)
    done = program.run("run", "--trace", str(folder / trace), "--", "ninja", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / trace


@pytest.mark.slow
def test_a_build_becomes_a_recipe_that_can_be_checked_and_shown(program: Program, tmp_path: Path) -> None:
    """Units under their places, with Ninja's targets, digests and measured phases; built twice, it has two runs."""
    folder = project(tmp_path / "project")
    build(program, folder, "1.jsonl")
    made = program.run("recipe", "from-trace", "1.jsonl", "-o", "demo.toml", cwd=folder)
    assert made.returncode == 0, made.stderr
    checked = program.run("recipe", "check", "demo.toml", cwd=folder)
    assert checked.stdout.startswith("ok: 2 units, "), checked.stderr
    one = read_recipe(folder / "demo.toml")
    assert (one.project.name, one.project.version, one.origin.runs) == ("demo", "1.2", 1)
    units = {unit.place: unit for unit in one.units}
    assert set(units) == {"src/heavy.cpp", "src/light.cpp", "link libdemo.so"}
    assert units["src/heavy.cpp"].target == "obj/heavy.o"
    assert units["link libdemo.so"].after_all
    peaks = {place: max(phase.peak_mib for phase in unit.phases) for place, unit in units.items()}
    assert peaks["src/heavy.cpp"] > peaks["src/light.cpp"] > 5
    for place in ("src/heavy.cpp", "src/light.cpp"):
        assert units[place].options
        assert units[place].source_digest
    assert one.fingerprint.host_arch
    assert one.fingerprint.source
    build(program, folder, "2.jsonl")
    again = program.run("recipe", "from-trace", "2.jsonl", "-o", "demo.toml", cwd=folder)
    assert again.returncode == 0, again.stderr
    two = read_recipe(folder / "demo.toml")
    assert two.origin.runs == 2
    assert len(two.origin.traces) == 2
    assert {phase.runs for unit in two.units for phase in unit.phases} == {0}
    assert (two.fingerprint, len(two.units)) == (one.fingerprint, 3)
    shown = program.run("recipe", "show", "demo.toml", cwd=folder)
    assert "demo 1.2" in shown.stdout
    assert "measured, 2 runs" in shown.stdout
    told = json.loads(program.run("recipe", "diff", "demo.toml", "demo.toml", "--json", cwd=folder).stdout)
    assert (told["same"], told["changed"]) == (3, [])


def test_a_build_that_was_gone_on_with_is_whole_with_both_traces(program: Program, tmp_path: Path) -> None:
    """The first fails at one source; the second builds that one and the link, and nothing else."""
    folder = project(tmp_path / "project")
    good = (folder / "src" / "heavy.cpp").read_text()
    (folder / "src" / "heavy.cpp").write_text(good + "#error not yet\n")
    failed = program.run("run", "--trace", "1.jsonl", "--", "ninja", "-k", "0", cwd=folder)
    assert failed.returncode != 0
    half = program.run("recipe", "from-trace", "1.jsonl", "-o", "half.toml", cwd=folder)
    assert "src/heavy.cpp: its host did not end well (failed)" in half.stderr
    assert [unit.place for unit in read_recipe(folder / "half.toml").units] == ["src/light.cpp"]
    (folder / "src" / "heavy.cpp").write_text(good)
    assert program.run("run", "--trace", "2.jsonl", "--", "ninja", cwd=folder).returncode == 0
    assert program.run("recipe", "from-trace", "1.jsonl", "2.jsonl", "-o", "whole.toml", cwd=folder).returncode == 0
    whole = read_recipe(folder / "whole.toml")
    assert {unit.place for unit in whole.units} == {"src/heavy.cpp", "src/light.cpp", "link libdemo.so"}
    assert {phase.runs for unit in whole.units for phase in unit.phases} == {1}
    assert "partial" not in whole.origin.how


class Redirecting(BaseHTTPRequestHandler):
    """Sends everybody to a page of plain http elsewhere."""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", "http://example.invalid/demo.toml")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing is said."""


class Files(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing is said."""


@contextlib.contextmanager
def served(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server with this handler."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_recipe_is_read_from_an_address(tmp_path: Path) -> None:
    """What is no recipe, too large, or not there is refused as one that is wrong."""
    (tmp_path / "demo.toml").write_text(dump(recipe()))
    (tmp_path / "page.html").write_text("<html>")
    (tmp_path / "bad.toml").write_text("schema = 1\n")
    with (tmp_path / "huge.toml").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with served(partial(Files, directory=str(tmp_path))) as address:
        found = find_recipe(f"{address}/demo.toml", {}, tmp_path)
        assert (found.name, found.path, found.recipe) == ("demo", None, recipe())
        for name, said in (
            ("page.html", "is a web page"),
            ("bad.toml", "bad.toml"),
            ("huge.toml", "larger than 16 MiB"),
            ("nothing.toml", "there is no such page"),
        ):
            with pytest.raises(RecipeError, match=said):
                find_recipe(f"{address}/{name}", {}, tmp_path)


def test_no_redirect_leads_to_plain_http_elsewhere(tmp_path: Path) -> None:
    """It is refused before anybody there is asked."""
    with served(Redirecting) as address, pytest.raises(RecipeError, match=r"it leads to http://example\.invalid"):
        find_recipe(f"{address}/demo.toml", {}, tmp_path)
