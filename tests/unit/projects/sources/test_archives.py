"""Archives that are not trusted: what is in them, and nothing outside."""

from __future__ import annotations

import importlib.util
import io
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from builddoctor.core.errors import SourceUnsafeError
from builddoctor.projects.sources import archives
from builddoctor.projects.sources.archives import is_archive, unpack


def tar(path: Path, *members: tuple[str, str, str]) -> Path:
    """An archive of (name, kind, content or target)."""
    with tarfile.open(path, "w:gz") as packed:
        for name, kind, text in members:
            info = tarfile.TarInfo(name)
            info.mtime = 1_600_000_000
            content = None
            if kind == "file":
                info.size, content = len(text), io.BytesIO(text.encode())
                info.mode = 0o755 if name.endswith(".sh") else 0o600
            elif kind == "folder":
                info.type = tarfile.DIRTYPE
            elif kind == "link":
                info.type, info.linkname = tarfile.SYMTYPE, text
            elif kind == "hard":
                info.type, info.linkname = tarfile.LNKTYPE, text
            else:
                info.type = tarfile.FIFOTYPE
            packed.addfile(info, content)
    return path


def unpacked(archive: Path) -> Path:
    into = archive.parent / "into"
    into.mkdir()
    return unpack(archive, into)


def test_a_source_distribution_comes_out_as_it_is(tmp_path: Path) -> None:
    """Its one folder is the project; programs stay programs, and times are those of the archive."""
    members = [
        ("p-1/setup.py", "file", "x"),
        ("p-1/run.sh", "file", "y"),
        ("p-1/l", "link", "setup.py"),
        ("p-1/h", "hard", "p-1/setup.py"),
    ]
    project = unpacked(tar(tmp_path / "p-1.tar.gz", *members))
    assert project.name == "p-1"
    assert (project / "l").read_text() == (project / "h").read_text() == "x"
    assert os.access(project / "run.sh", os.X_OK)
    assert not os.access(project / "setup.py", os.X_OK)
    assert (project / "setup.py").stat().st_mtime == 1_600_000_000


def test_without_one_folder_for_all_the_top_is_the_project(tmp_path: Path) -> None:
    """Some archives are packed so."""
    assert (unpacked(tar(tmp_path / "a.tgz", ("setup.py", "file", ""), ("src/a", "file", ""))) / "src" / "a").exists()


@pytest.mark.parametrize(
    "members",
    [
        [("../out", "file", "x")],
        [("p/../../out", "file", "x")],
        [("/tmp/out", "file", "x")],
        [("p/l", "link", "/etc")],
        [("p/l", "link", "../../out")],
        [("p/l", "link", ".."), ("p/l/out", "file", "x")],
        [("p/l", "link", "d"), ("p/d", "folder", ""), ("p/l/out", "file", "x")],
        [("p/h", "hard", "../out")],
        [("p/h", "hard", "/etc/passwd")],
        [("p/pipe", "pipe", "")],
    ],
)
def test_what_reaches_out_of_its_folder_is_refused(tmp_path: Path, members: list[tuple[str, str, str]]) -> None:
    """Absolute, upwards, through links, devices; nothing is there afterwards that was not in the folder."""
    before = set(tmp_path.parent.iterdir())
    with pytest.raises(SourceUnsafeError):
        unpacked(tar(tmp_path / "evil.tar.gz", *members))
    assert not (tmp_path / "out").exists()
    assert set(tmp_path.parent.iterdir()) == before


def test_zip_files_are_held_to_the_same(tmp_path: Path) -> None:
    """Also where a member is a link, or the name has a backslash."""
    for number, (name, mode) in enumerate([("../out", 0), ("a/l", 0o120777), ("a\\..\\..\\out", 0)]):
        archive = tmp_path / str(number) / "evil.zip"
        archive.parent.mkdir()
        with zipfile.ZipFile(archive, "w") as packed:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            packed.writestr(info, "/etc")
        with pytest.raises(SourceUnsafeError):
            unpacked(archive)
    good = tmp_path / "good.zip"
    with zipfile.ZipFile(good, "w") as packed:
        packed.writestr("p/setup.py", "x")
    assert (unpacked(good) / "setup.py").read_text() == "x"


def test_a_bomb_is_refused_by_what_it_says_and_by_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Number of files, and bytes."""
    monkeypatch.setattr(archives, "MOST_FILES", 3)
    with pytest.raises(SourceUnsafeError, match="more than 3 files"):
        unpacked(tar(tmp_path / "b.tar.gz", *[(f"p/{n}", "file", "") for n in range(5)]))


def test_a_file_takes_the_place_of_a_link_of_its_name(tmp_path: Path) -> None:
    """It is not written through the link."""
    members = [("p/a", "file", "first"), ("p/b", "link", "a"), ("p/b", "file", "second")]
    project = unpacked(tar(tmp_path / "p.tar.gz", *members))
    assert ((project / "a").read_text(), (project / "b").read_text()) == ("first", "second")
    assert not (project / "b").is_symlink()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="each such Python has the filter, and needs no backport")
def test_a_python_without_the_filter_takes_its_backport(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3.11.2, Debian 12's, is one: what others unpack comes out, and what others refuse is refused."""
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    spec = importlib.util.spec_from_file_location("older", archives.__file__)
    assert spec is not None
    assert spec.loader is not None
    older = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(older)
    for name in ("into", "again"):
        (tmp_path / name).mkdir()
    project = older.unpack(tar(tmp_path / "p.tar.gz", ("p/a", "file", "x")), tmp_path / "into")
    assert (project / "a").read_text() == "x"
    with pytest.raises(SourceUnsafeError):
        older.unpack(tar(tmp_path / "q.tar.gz", ("p/a", "link", "/etc")), tmp_path / "again")


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00"])
def test_what_is_no_archive_is_said_so(tmp_path: Path, content: bytes) -> None:
    """And what was cut off on its way."""
    for name in ("a.tar.gz", "a.zip"):
        (tmp_path / name).write_bytes(content)
        into = tmp_path / f"into {name}"
        into.mkdir()
        with pytest.raises(SourceUnsafeError, match="cannot be unpacked"):
            unpack(tmp_path / name, into)
    assert is_archive("A.TAR.GZ")
    assert not is_archive("repo.git")
