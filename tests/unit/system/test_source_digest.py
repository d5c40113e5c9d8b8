"""Digests of source files."""

from __future__ import annotations

import os
from pathlib import Path

from builddoctor.system.source_files import MOST_DIGEST_BYTES, source_digest


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
        file.truncate(MOST_DIGEST_BYTES + 1)
    names = (".", "pipe", "large", "gone")
    assert [source_digest(tmp_path / name) for name in names] == ["", "", "", ""]
    assert source_digest(Path("nul\0")) == ""
