"""Which version a source tree says that it is, and what its files are told apart by."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.sensors.project_version import project_version
from builddoctor.sensors.source_digest import MOST_BYTES, source_digest

COMMIT, OTHER = "1" * 40, "2" * 40


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("PKG-INFO", "Metadata-Version: 2.1\nName: x\nVersion: 1.7.0.post1\n", "1.7.0.post1"),
        ("pyproject.toml", '[project]\nname = "x"\nversion = "0.3.1"\n', "0.3.1"),
        ("pyproject.toml", '[project]\nname = "x"\ndynamic = ["version"]\n', ""),
        ("build_tools/VERSION.txt", "2.8.0\n", "2.8.0"),
        ("VERSION", "v2.9.0rc1\n", "2.9.0rc1"),
        ("VERSION", "$Format:%H$\n", ""),
        ("VERSION", "1.2\nand a story\n", ""),
    ],
)
def test_files_that_say_it(tmp_path: Path, name: str, text: str, version: str) -> None:
    """Each of them alone is enough; what is no version is none."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert project_version(tmp_path) == version


@pytest.mark.parametrize(
    ("refs", "version"),
    [
        (f"{COMMIT} refs/tags/v2.8\n", "2.8"),
        (f"{OTHER} refs/tags/v2.8\n^{COMMIT}\n", "2.8"),
        (f"{OTHER} refs/tags/v2.8\n^{OTHER}\n{COMMIT} refs/heads/v3.0\n", ""),
        (f"{COMMIT} refs/tags/nightly\n{COMMIT} refs/tags/v2.9.1\n", "2.9.1"),
        ("", ""),
    ],
)
def test_the_tag_of_the_commit_that_is_checked_out(tmp_path: Path, refs: str, version: str) -> None:
    """Plain and annotated tags; a branch that is called like a version is none."""
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs" / "heads" / "main").write_text(f"{COMMIT}\n")
    (git / "packed-refs").write_text(f"# pack-refs with: peeled fully-peeled sorted\n{refs}")
    assert project_version(tmp_path) == version


def test_the_same_file_elsewhere_has_the_same_digest(tmp_path: Path) -> None:
    """By content alone; another content has another one."""
    one, two, three = (tmp_path / name for name in ("a.cu", "b.cu", "c.cu"))
    one.write_text("__global__ void f() {}")
    two.write_text("__global__ void f() {}")
    three.write_text("__global__ void g() {}")
    assert source_digest(one) == source_digest(two) != source_digest(three)
    assert len(source_digest(one)) == 16


def test_what_is_no_source_file_has_none(tmp_path: Path) -> None:
    """A folder, a pipe (which would block), a file too large, none at all."""
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    names = (".", "pipe", "large", "gone")
    assert [source_digest(tmp_path / name) for name in names] == ["", "", "", ""]
    assert source_digest(Path("nul\0")) == ""
