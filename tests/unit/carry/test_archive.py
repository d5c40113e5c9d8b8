"""A saved build: exact times, changed sources, and archives that are not what they seem."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import msgspec
import pytest

from builddoctor.carry.archive import FORMAT, MANIFEST, Manifest, Stamp, build_folders, restore, save
from builddoctor.core.errors import UsageError

OLD_NS = 1_700_000_000_123_456_789


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"BUILDDOCTOR_STATE_DIR": str(tmp_path / "state")}


def write(path: Path, text: str, *, mtime_ns: int = OLD_NS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(mtime_ns, mtime_ns))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    write(folder / "a.cu", "a")
    write(folder / "b.cu", "b")
    write(folder / ".git" / "index", "no source")
    write(folder / "build" / "build.ninja", "rules")
    write(folder / "build" / "sub" / "a.o", "object", mtime_ns=OLD_NS + 1)
    (folder / "build" / "lib.so").symlink_to("sub/a.o")
    return folder


def test_a_fresh_checkout_gets_its_build_and_its_times(project: Path, tmp_path: Path, env: dict[str, str]) -> None:
    """To the nanosecond: ninja compares them. What has changed keeps its new time."""
    saved = save(tmp_path / "b.tar.gz", project, ["build"], env)
    assert (saved.files, saved.sources) == (3, 2)
    fresh = tmp_path / "fresh"
    write(fresh / "a.cu", "a", mtime_ns=OLD_NS + 10**12)
    write(fresh / "b.cu", "B", mtime_ns=OLD_NS + 10**12)
    done = restore(tmp_path / "b.tar.gz", fresh, env)
    assert (done.files, done.sources_as_before, done.sources_changed) == (3, 1, 1)
    assert done.moved_from == str(project)
    assert (fresh / "a.cu").stat().st_mtime_ns == OLD_NS
    assert (fresh / "b.cu").stat().st_mtime_ns == OLD_NS + 10**12
    assert (fresh / "build/sub/a.o").stat().st_mtime_ns == OLD_NS + 1
    assert os.readlink(fresh / "build/lib.so") == "sub/a.o"


def test_the_history_comes_along_where_there_is_none(project: Path, tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "state" / "history.sqlite", "then")
    save(tmp_path / "b.tar.gz", project, ["build"], env)
    other = {"BUILDDOCTOR_STATE_DIR": str(tmp_path / "other")}
    assert restore(tmp_path / "b.tar.gz", project, other).history
    assert (tmp_path / "other" / "history.sqlite").read_text() == "then"
    assert not restore(tmp_path / "b.tar.gz", project, other).history


def test_build_folders_are_found(project: Path) -> None:
    write(project / "out" / "release" / "CMakeCache.txt", "")
    write(project / "out" / "release" / "x" / "build.ninja", "")
    assert build_folders(project) == ["build", "out/release"]


@pytest.mark.parametrize("builds", [[], ["nothing"], ["../elsewhere"]])
def test_there_must_be_something_to_save(project: Path, tmp_path: Path, env: dict[str, str], builds: list[str]) -> None:
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(UsageError):
        save(tmp_path / "b.tar.gz", project, builds, env)
    assert not (tmp_path / "b.tar.gz").exists()


def archive_of(path: Path, *members: tarfile.TarInfo, built: list[Stamp] | None = None) -> Path:
    """An archive with these members, each file of the content ``x``."""
    manifest = Manifest(
        format=FORMAT, folder="/x", home="", cache="/c", builds=["build"], built=built or [], sources=[], outside=[]
    )
    with tarfile.open(path, "w:gz") as tar:
        first = tarfile.TarInfo(MANIFEST)
        text = msgspec.json.encode(manifest)
        first.size = len(text)
        tar.addfile(first, io.BytesIO(text))
        for member in members:
            member.size = 1 if member.isfile() else 0
            tar.addfile(member, io.BytesIO(b"x") if member.isfile() else None)
    return path


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


@pytest.mark.parametrize("name", ["tree/../out", "tree//etc/out", "tree/build/../../out"])
def test_no_file_is_written_outside(tmp_path: Path, env: dict[str, str], name: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    with pytest.raises(UsageError, match="outside"):
        restore(archive_of(tmp_path / "b.tar.gz", tarfile.TarInfo(name)), folder, env)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["../..", "/etc", "../../out"])
def test_no_link_leads_outside(tmp_path: Path, env: dict[str, str], target: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    archive = archive_of(tmp_path / "b.tar.gz", link("tree/build/away", target))
    assert restore(archive, folder, env).files == 0
    assert not (folder / "build" / "away").is_symlink()


def test_a_link_that_is_there_is_not_followed(tmp_path: Path, env: dict[str, str]) -> None:
    folder = tmp_path / "in"
    (tmp_path / "out").mkdir()
    folder.mkdir()
    (folder / "build").symlink_to(tmp_path / "out")
    with pytest.raises(UsageError, match="outside"):
        restore(archive_of(tmp_path / "b.tar.gz", tarfile.TarInfo("tree/build/a")), folder, env)
    assert list((tmp_path / "out").iterdir()) == []


def test_times_are_set_inside_alone(tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "out", "theirs")
    (tmp_path / "in").mkdir()
    archive = archive_of(tmp_path / "b.tar.gz", built=[Stamp("../out", 1)])
    with pytest.raises(UsageError, match="outside"):
        restore(archive, tmp_path / "in", env)
    assert (tmp_path / "out").stat().st_mtime_ns == OLD_NS


@pytest.mark.parametrize("content", [b"", b"not an archive", b"\x1f\x8b\x08\x00broken"])
def test_what_is_no_archive_is_refused(tmp_path: Path, env: dict[str, str], content: bytes) -> None:
    (tmp_path / "b.tar.gz").write_bytes(content)
    with pytest.raises(UsageError):
        restore(tmp_path / "b.tar.gz", tmp_path, env)


def test_another_archive_is_refused(tmp_path: Path, env: dict[str, str]) -> None:
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("README"))
    with pytest.raises(UsageError, match="no saved build"):
        restore(tmp_path / "b.tar.gz", tmp_path, env)
