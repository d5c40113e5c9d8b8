"""What the doctor is asked about: a name, a folder, nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.errors import NoBuildSystemError, ProjectNotFoundError, UsageError
from builddoctor.doctor.examine import find_subject
from builddoctor.projects.archs import parse_archs


def test_without_a_name_the_folder_here_is_meant_when_it_is_a_project(tmp_path: Path) -> None:
    """An empty folder is none: then the machine alone is examined."""
    assert find_subject(None, tmp_path, ()).folder is None
    (tmp_path / "CMakeLists.txt").touch()
    assert find_subject(None, tmp_path, ()).folder == tmp_path


def test_a_deleted_folder_is_no_obstacle_to_a_full_path(tmp_path: Path) -> None:
    """Without a name the machine alone is examined; a relative path is in no folder."""
    assert find_subject(None, None, ()).folder is None
    assert find_subject(str(tmp_path), None, ()).folder == tmp_path
    assert find_subject("flash-attn", None, ()).known is not None
    with pytest.raises(ProjectNotFoundError, match="has been deleted"):
        find_subject("sub", None, ())


def test_an_empty_name_is_a_mistake(tmp_path: Path) -> None:
    """`doctor "$UNSET"` is not the folder here."""
    with pytest.raises(UsageError, match="empty"):
        find_subject("", tmp_path, ())


def test_a_file_is_named_with_its_folder(tmp_path: Path) -> None:
    """As `build` does."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "setup.py").touch()
    with pytest.raises(NoBuildSystemError, match="is a file") as caught:
        find_subject("sub/setup.py", tmp_path, ())
    assert caught.value.hint == "builddoctor doctor sub"


def test_a_path_is_a_folder(tmp_path: Path) -> None:
    """Relative to here; archs go along."""
    (tmp_path / "sub").mkdir()
    subject = find_subject("sub", tmp_path, parse_archs("sm_90"))
    assert (subject.folder, subject.title, subject.archs[0].sm) == (tmp_path / "sub", "sub", "sm_90")


@pytest.mark.parametrize("name", ["transformer_engine", "Transformer-Engine", "flash-attn"])
def test_a_known_name_needs_no_folder(tmp_path: Path, name: str) -> None:
    """Dashes and case make no difference."""
    subject = find_subject(name, tmp_path, ())
    assert subject.folder is None
    assert subject.known is not None


def test_a_name_inside_its_own_checkout_means_the_checkout(tmp_path: Path) -> None:
    """TransformerEngine holds a package of its own name; the project is what is meant."""
    (tmp_path / "setup.py").write_text('setuptools.setup(\n    name="transformer_engine",\n)\n')
    (tmp_path / "transformer_engine").mkdir()
    subject = find_subject("transformer_engine", tmp_path, ())
    assert subject.folder == tmp_path


def test_a_wrong_name_suggests_the_nearest(tmp_path: Path) -> None:
    """One that is close by name, else all of them."""
    with pytest.raises(ProjectNotFoundError) as close:
        find_subject("flash_atn", tmp_path, ())
    assert "flash_attn" in close.value.hint
    with pytest.raises(ProjectNotFoundError) as far:
        find_subject("qqqqqqqq", tmp_path, ())
    assert "transformer_engine" in far.value.hint
