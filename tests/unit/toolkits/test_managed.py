"""The folder of managed toolkits."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from builddoctor.core.errors import FolderNotWritableError, ToolkitNotFoundError
from builddoctor.toolkits import managed
from builddoctor.toolkits.managed import Manifest, write_manifest


def planted(folder: Path, version: str, arch: str = "x86_64") -> Path:
    home = folder / f"cuda-{version}-{arch}"
    home.mkdir(parents=True)
    manifest = Manifest(name=home.name, version=version, release=version, arch=arch, components=(), packages=())  # type: ignore[arg-type]
    write_manifest(home, manifest)
    return home


def test_a_managed_toolkit_is_found_by_name_or_version(tmp_path: Path) -> None:
    """The version as far as it is said, when only one has it."""
    old, new = planted(tmp_path, "13.0.88"), planted(tmp_path, "13.5.37")
    (tmp_path / "mine").mkdir()
    assert [path for path, _ in managed.manifests(tmp_path)] == [new, old]
    assert managed.named(tmp_path, "13.0") == managed.named(tmp_path, old.name) == old
    for name in ("13", "13.05", "mine", "", "..", "cuda-13"):
        with pytest.raises(ToolkitNotFoundError, match=new.name):
            managed.named(tmp_path, name)


def test_a_copy_under_another_name_is_not_ours(tmp_path: Path) -> None:
    """What is removed has to be what it says that it is."""
    planted(tmp_path, "13.0.88").rename(tmp_path / "my-cuda")
    assert managed.manifests(tmp_path) == []


def test_a_toolkit_takes_anothers_place(tmp_path: Path) -> None:
    """The path stays, the contents are the new one's, nothing else is left."""
    home, new = tmp_path / "cuda", tmp_path / ".new-cuda"
    for folder, text in ((home, "old"), (new, "new")):
        folder.mkdir()
        (folder / "file").write_text(text)
    managed.put_in_place(new, home)
    assert (home / "file").read_text() == "new"
    assert os.listdir(tmp_path) == ["cuda"]


def test_who_holds_the_lock_tidies_up(tmp_path: Path) -> None:
    """What an interrupted run left goes; the lock is free again afterwards, and nobody had to wait."""
    for name in (f"{managed.NEW}x", f"{managed.OLD}x", f"{managed.FETCH}x"):
        (tmp_path / name).mkdir()
    (tmp_path / ".new-mine").mkdir()
    said: list[str] = []
    with managed.locked(tmp_path, said.append):
        assert sorted(os.listdir(tmp_path)) == [managed.LOCK, ".new-mine"]
    with (tmp_path / managed.LOCK).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert said == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """With ``--into``."""
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderNotWritableError) as raised:
        managed.make_folder(tmp_path / "file" / "toolkits")
    assert "--into" in raised.value.hint
