"""Settings of a checkout's own that make git start programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.projects import git_checkout
from builddoctor.projects.git_checkout import program_settings
from unit.trees import plant

CLONE = """[core]
\trepositoryformatversion = 0
\tbare = false
[remote "origin"]
\turl = https://example.org/process/helper.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
[submodule "a"]
\tactive = true
\turl = https://example.org/a.git
\tupdate = none
[gc]
\tauto = 0
"""


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_what_a_clone_writes_is_fine(tmp_path: Path, ending: str) -> None:
    """Nothing of it starts a program, also where a name or an address holds such a word."""
    plant(tmp_path, {".git/config": CLONE.replace("\n", ending), ".git/modules/a/config": CLONE})
    assert program_settings(tmp_path) == []
    assert program_settings(tmp_path / "archive") == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[core]\n\tsshCommand = x", "sshcommand"),
        ("[core]\n\talternateRefsCommand = x", "alternaterefscommand"),
        ("[core] SSHCOMMAND=x", "sshcommand"),
        ("[core]\r\n sshcommand\t =\\\r\n x", "sshcommand"),
        ("\ufeff[core]gitProxy=x", "gitproxy"),
        ('[credential "https://h"]\nhelper = !x', "helper"),
        ('[filter "a]b"]smudge = x', "smudge"),
        ('[filter "x"]\nprocess\n', "process"),
        ('[remote "origin"]\nuploadpack = x', "uploadpack"),
        ('[remote "origin"]\nvcs = x', "vcs"),
        ('[submodule "s"]\nupdate = !x', "update"),
        ('[submodule "s"]\nupdate = "!x"', "update"),
        ('[submodule "s"]\nupdate = \\\n!x', "update"),
        ('[submodule "s"]\nupdate = none\\\n!x', "update"),
        ("[include]\npath = ../evil", "include"),
        ('[ includeIf "gitdir:/"]path = ../evil', "includeif"),
        ('[lfs "customtransfer.x"]\npath = x', "lfs"),
    ],
)
def test_each_way_to_name_a_program_is_found(tmp_path: Path, text: str, name: str) -> None:
    """However it is written; and wherever git reads it."""
    plant(tmp_path, {".git/config": CLONE + text})
    assert program_settings(tmp_path) == [f"{name} in .git/config"]


@pytest.mark.parametrize(
    "files",
    [
        {".git/config.worktree": "EVIL"},
        {".git/modules/a/config": "EVIL"},
        {".git/modules/objects/b/modules/c/config": "EVIL"},
        {".gitmodules": '[submodule "a"]\npath = a\n', "a/.git/config": "EVIL"},
        {".gitmodules": '[submodule "a"]\npath = a\n', "a/.git": "gitdir: ../other", "other/config": "EVIL"},
        {
            ".gitmodules": '[submodule "a"]\npath = a\n',
            "a/.gitmodules": '[submodule "b"]\npath = b\n',
            "a/b/.git/config": "EVIL",
        },
    ],
)
def test_submodules_are_looked_through(tmp_path: Path, files: dict[str, str]) -> None:
    """Fetched or not, in the checkout's .git or in folders of their own."""
    evil = "[core]\nsshCommand = x\n"
    plant(tmp_path, {".git/config": CLONE, **{name: text.replace("EVIL", evil) for name, text in files.items()}})
    (found,) = program_settings(tmp_path)
    assert found.startswith("sshcommand in ")


def test_a_worktree_shares_its_settings(tmp_path: Path) -> None:
    """Its .git is a file, and commondir leads to the rest."""
    plant(
        tmp_path,
        {
            "tree/.git": f"gitdir: {tmp_path}/main/.git/worktrees/tree\n",
            "main/.git/worktrees/tree/commondir": "../..\n",
            "main/.git/config": "[core]\ngitproxy = x\n",
        },
    )
    assert program_settings(tmp_path / "tree") == ["gitproxy in ../main/.git/config"]


def test_links_are_followed_and_end(tmp_path: Path) -> None:
    """As git follows them; one that goes round in circles ends, and is said."""
    plant(tmp_path, {".git/config": CLONE, "elsewhere/config": "[core]\ngitproxy = x\n"})
    (tmp_path / ".git/modules").mkdir()
    (tmp_path / ".git/modules/a").symlink_to(tmp_path / "elsewhere")
    assert program_settings(tmp_path) == ["gitproxy in .git/modules/a/config"]


def test_what_was_not_looked_through_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many folders, too much text: never the same as nothing found."""
    plant(tmp_path, {".git/config": CLONE, ".git/modules/a/b/c/config": CLONE})
    monkeypatch.setattr(git_checkout, "MOST_FOLDERS", 2)
    assert program_settings(tmp_path) == ["more submodules than are looked through"]
    monkeypatch.undo()
    monkeypatch.setattr(git_checkout, "MOST_BYTES", 20)
    assert "more than is read of .git/config" in program_settings(tmp_path)


@pytest.mark.parametrize("content", [b"gitdir: a\0b", b"gitdir:", b"\xff\xfe", b""])
def test_odd_files_are_no_crash(tmp_path: Path, content: bytes) -> None:
    """A .git that leads nowhere."""
    (tmp_path / ".git").write_bytes(content)
    assert program_settings(tmp_path) == []
