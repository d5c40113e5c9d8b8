"""Files of the system under a root folder."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from builddoctor.system.root import SystemRoot, page_size
from unit.trees import plant


def test_system_paths_lie_below_the_root(tmp_path: Path) -> None:
    """The production root changes nothing."""
    assert SystemRoot(tmp_path).at("/proc/meminfo") == tmp_path / "proc" / "meminfo"
    assert SystemRoot().at("/proc/meminfo") == Path("/proc/meminfo")


@pytest.mark.parametrize("absolute", ["/missing", "/folder", "/nul\0byte", "/" + "x" * 300])
def test_what_cannot_be_read_is_none(tmp_path: Path, absolute: str) -> None:
    """Missing, a folder, or a name that no file can have: never an error."""
    assert plant(tmp_path, {"/folder/file": ""}).text(absolute) is None


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    """Kernel files may hold names in any encoding."""
    assert plant(tmp_path, {"/file": b"a\xffb"}).text("/file") == "a\ufffdb"


def test_an_empty_file_is_not_a_missing_one(tmp_path: Path) -> None:
    """Empty text and None are different answers."""
    assert plant(tmp_path, {"/file": ""}).text("/file") == ""


def test_pages_are_as_big_as_this_kernels() -> None:
    """What statm counts in."""
    assert page_size() == resource.getpagesize()
