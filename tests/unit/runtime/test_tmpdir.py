"""TMPDIR before a build."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.errors import FolderNotWritableError
from builddoctor.runtime.tmpdir import require_tmpdir
from builddoctor.system.root import SystemRoot


def test_a_tmpdir_that_can_be_written_is_enough(tmp_path: Path) -> None:
    """Nothing is said of it here."""
    require_tmpdir({"TMPDIR": str(tmp_path)}, SystemRoot())


def test_a_missing_tmpdir_is_named_with_a_line_that_makes_it(tmp_path: Path) -> None:
    """Quoted where it has to be."""
    with pytest.raises(FolderNotWritableError, match="does not exist") as caught:
        require_tmpdir({"TMPDIR": f"{tmp_path}/no where"}, SystemRoot())
    assert caught.value.hint == f"mkdir -p '{tmp_path}/no where'"


def test_a_tmpdir_that_cannot_be_made_gets_another(tmp_path: Path) -> None:
    """A file of that name is in the way."""
    (tmp_path / "file").touch()
    with pytest.raises(FolderNotWritableError) as caught:
        require_tmpdir({"TMPDIR": f"{tmp_path}/file"}, SystemRoot())
    assert caught.value.hint.startswith("export ")


def test_nvcc_that_writes_beside_its_objects_needs_none() -> None:
    """``-objtemp``, as the doctor advises where all is memory."""
    require_tmpdir({"TMPDIR": "/nowhere", "NVCC_APPEND_FLAGS": "-O2 -objtemp"}, SystemRoot())
