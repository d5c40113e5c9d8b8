"""What a project calls itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.sensors import build_system
from builddoctor.sensors.project_name import project_name

INFO = "Metadata-Version: 2.1\nName: Flash_Attn\nVersion: 2.8.3\n\nName: another\n"
PYPROJECT = (
    '[build-system]\nrequires = ["x"]\n\n[project] # this one\nversion = "1"\nname = "transformer_engine.torch"\n'
)
POETRY = "[tool.poetry]\nname = 'apex'\n"
SETUP_CFG = "[options]\nname = no\n[metadata]\nversion = 1\nname = vllm\n"
SETUP_PY = "from setuptools import setup\nNAME = 'deepspeed'\nsetup(version='1', name=NAME)\n"
CMAKE = '# project(no)\ncmake_minimum_required(VERSION 3.20)\nproject( "xformers" LANGUAGES CXX CUDA)\n'
GIT = '[core]\n\tbare = false\n[remote "origin"]\n\turl = https://host/owner/Cutlass.git\n\tfetch = x\n'


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("PKG-INFO", INFO, "flash-attn"),
        ("pyproject.toml", PYPROJECT, "transformer-engine-torch"),
        ("pyproject.toml", POETRY, "apex"),
        ("setup.cfg", SETUP_CFG, "vllm"),
        ("setup.py", SETUP_PY, "deepspeed"),
        ("CMakeLists.txt", CMAKE, "xformers"),
        (".git/config", GIT, "cutlass"),
        (".git/config", GIT.replace("https://host/owner/Cutlass.git", "git@host:owner/a.b_c"), "a-b-c"),
        (".git/config", GIT.replace('"origin"', '"fork"'), ""),
        ("pyproject.toml", "[project\nname =", ""),
        ("pyproject.toml", "[project]\nname = 7\n", ""),
        ("setup.py", "setup(name=f'{x}')", ""),
    ],
)
def test_each_file_that_says_it(tmp_path: Path, file: str, text: str, name: str) -> None:
    """As package indexes write it."""
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert project_name(tmp_path) == name


def test_what_a_package_says_goes_before_where_it_was_fetched_from(tmp_path: Path) -> None:
    """A fork is another repository and the same project."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(GIT)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    assert project_name(tmp_path) == "cutlass"
    (tmp_path / "setup.py").write_text(SETUP_PY)
    assert project_name(tmp_path) == "deepspeed"
    (tmp_path / "PKG-INFO").write_text(INFO)
    assert project_name(tmp_path) == "flash-attn"


def test_a_worktree_has_its_repositorys_origin(tmp_path: Path) -> None:
    """Its ``.git`` is a file, and its configuration is shared."""
    own = tmp_path / "main" / ".git" / "worktrees" / "two"
    own.mkdir(parents=True)
    (tmp_path / "main" / ".git" / "config").write_text(GIT)
    (own / "commondir").write_text("../..\n")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / ".git").write_text(f"gitdir: {own}\n")
    assert project_name(tmp_path / "two") == "cutlass"


@pytest.mark.parametrize("text", [PYPROJECT, POETRY])
def test_without_a_reader_of_toml_the_usual_way_of_writing_is_read(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.10 has none."""
    name = build_system.project_table_name(text)
    monkeypatch.setattr(build_system, "_loaded", lambda _: None)
    assert build_system.project_table_name(text) == name


def test_a_folder_that_is_not_there_has_no_name(tmp_path: Path) -> None:
    """And no error."""
    assert project_name(tmp_path / "gone") == ""
    (tmp_path / "setup.py").mkdir()
    (tmp_path / "PKG-INFO").write_bytes(b"Name: \xff\xfe\n")
    assert project_name(tmp_path).isprintable()
