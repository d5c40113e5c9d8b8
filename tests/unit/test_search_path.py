"""Programs on PATH."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.intercept.build_python import build_python_path
from builddoctor.intercept.host_probe import handed_over, spares
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.search_path import first_program, path_folders, programs
from builddoctor.sensors.toolkits import candidates


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is a source tree that brings programs along."""
    for name in ("git", "python", "gcc", "g++-13", "nvcc"):
        for place in (tmp_path, tmp_path / "bin"):
            place.mkdir(exist_ok=True)
            (place / name).write_text("")
            (place / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", [".", "", ":", "bin", "./bin", "..:bin:.", "~/bin"])
def test_entries_that_stand_for_the_current_folder_are_passed_over(tree: Path, path: str) -> None:
    """What came with the sources is not asked what it is: it would be run for that."""
    env = {"PATH": f"{path}:/nowhere", "CC": "gcc", "CUDAHOSTCXX": "gcc", "CUDACXX": "nvcc"}
    assert path_folders(env) == ["/nowhere"]
    assert first_program("git", env) == build_python_path(env) == ""
    assert spares(env) == handed_over(env) == []
    assert list(candidates(SystemRoot(tree), env, wanted="", site_folders=[])) == []


def test_all_programs_of_a_name_in_order(tree: Path) -> None:
    """By absolute folders; a name with a slash is itself; a plain file is no program."""
    (tree / "plain").mkdir()
    (tree / "plain/git").write_text("")
    env = {"PATH": f"{tree}/plain:{tree}/bin:{tree}"}
    assert list(programs("git", env)) == [f"{tree}/bin/git", f"{tree}/git"]
    assert first_program(f"{tree}/bin/git", {}) == f"{tree}/bin/git"
    assert first_program(f"{tree}/plain/git", env) == ""


def test_without_a_path_it_is_the_systems_own() -> None:
    """As execvp does."""
    assert path_folders({}) == path_folders({"PATH": ""}) == os.defpath.split(":")
