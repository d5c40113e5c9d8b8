"""The cache of wheels, and wheels that are not trusted: what is refused before anything is written or while it is."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

import pytest

from builddoctor.core.errors import PackageDamagedError
from builddoctor.toolkits import wheels as reading
from builddoctor.toolkits.wheels import WheelCache, read_wheel, write_entries
from support.made_wheels import AARCH64, X86_64, digest_of, make_wheel

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "linux_x86_64")
HEADER = "nvidia/cu13/include/x.h"


def made(folder: Path, files: dict[str, bytes | str], **options: object) -> Path:
    return make_wheel(folder, "nvidia-x", "1.0", files, **options)  # type: ignore[arg-type]


def test_a_good_wheel_says_what_is_in_it(tmp_path: Path) -> None:
    """Name, version, metadata, every file with its size; what is asked for is written, and nothing else."""
    wheel = read_wheel(made(tmp_path, {HEADER: "int x;\n", "nvidia/cu13/bin/tool": "tool"}))
    assert (wheel.name, wheel.version) == ("nvidia-x", "1.0")
    assert {entry.name: entry.size for entry in wheel.entries}[HEADER] == 7
    assert "Name: nvidia-x" in wheel.metadata
    write_entries(wheel, {HEADER: tmp_path / "out" / "x.h"})
    assert (tmp_path / "out" / "x.h").read_text() == "int x;\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["x.h"]


@pytest.mark.parametrize(
    "name",
    [
        *("../x", "nvidia/../../x", "/etc/x", "nvidia//x", "./x", "nvidia/./x", "nvidia\\..\\x", "C:x"),
        *("nvidia/a\nb", "nvidia/\x1b[2J"),
    ],
)
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    """Whatever way it is written."""
    with pytest.raises(PackageDamagedError, match="a file in it is called"):
        read_wheel(made(tmp_path, {name: "x"}))


def test_a_name_that_is_cut_at_a_nul_is_refused(tmp_path: Path) -> None:
    """Python shows only what is before the NUL."""
    path = made(tmp_path, {"nvidia/abcdefg": "x"})
    path.write_bytes(path.read_bytes().replace(b"nvidia/abcdefg", b"nvidia/abc\0efg"))
    with pytest.raises(PackageDamagedError):
        read_wheel(path)


@pytest.mark.parametrize("mode", [0o120777, 0o010644, 0o020644, 0o060644])
def test_links_and_special_files_are_refused(tmp_path: Path, mode: int) -> None:
    """A symbolic link, a pipe, devices, as ``external_attr`` names them."""
    path = made(tmp_path, {HEADER: "x"})
    info = zipfile.ZipInfo("nvidia/cu13/lib/link.so")
    info.external_attr = mode << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(PackageDamagedError, match="link or a special file"):
        read_wheel(path)


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """Which one would count?"""
    path = made(tmp_path, {HEADER: "x"})
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(HEADER, "y")
    with pytest.raises(PackageDamagedError, match="twice"):
        read_wheel(path)


def test_what_unpacks_to_far_more_than_it_is_is_refused(tmp_path: Path) -> None:
    """4 MiB of zeroes from 4 KB; before a byte of it is unpacked."""
    with pytest.raises(PackageDamagedError, match="unpacks to 4 MiB from next to nothing"):
        read_wheel(made(tmp_path, {HEADER: bytes(4 * 1024 * 1024)}))


def test_a_wheel_that_lies_about_a_size_writes_no_more_than_it_says(tmp_path: Path) -> None:
    """A directory that says 1 KiB of a file of 2 MiB: refused, and never more than that on the disk."""
    data = bytes(range(256)) * 8192
    path = made(tmp_path, {HEADER: data})
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\x01\x02")
    assert raw[at + 46 : at + 46 + len(HEADER)].decode() == HEADER
    struct.pack_into("<I", raw, at + 24, 1024)
    path.write_bytes(raw)
    wheel = read_wheel(path)
    with pytest.raises(PackageDamagedError):
        write_entries(wheel, {HEADER: tmp_path / "x.h"})
    assert (tmp_path / "x.h").stat().st_size <= 1024


def test_too_many_files_or_bytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds are far above any package of CUDA's."""
    path = made(tmp_path, {HEADER: "x", "nvidia/y": "y"})
    monkeypatch.setattr(reading, "MOST_BYTES", 50)
    with pytest.raises(PackageDamagedError, match="unpacks to more"):
        read_wheel(path)
    monkeypatch.setattr(reading, "MOST_FILES", 3)
    with pytest.raises(PackageDamagedError, match="it holds 6 files"):
        read_wheel(path)


def test_a_file_that_record_does_not_list_is_refused(tmp_path: Path) -> None:
    """It was put in after the wheel was made."""
    with pytest.raises(PackageDamagedError, match="is not mentioned in RECORD"):
        read_wheel(made(tmp_path, {HEADER: "x"}, record={HEADER: None}))


def test_a_file_that_record_lists_has_to_be_there(tmp_path: Path) -> None:
    """RECORD names a file that is missing."""
    path = made(tmp_path, {HEADER: "x", "nvidia/gone.h": "y"})
    kept = tmp_path / "kept" / path.name
    kept.parent.mkdir()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(kept, "w") as new:
        for info in old.infolist():
            if info.filename != "nvidia/gone.h":
                new.writestr(info, old.read(info))
    with pytest.raises(PackageDamagedError, match="is missing"):
        read_wheel(kept)


def test_contents_that_record_contradicts_are_refused(tmp_path: Path) -> None:
    """Seen while the file is written; the caller throws its folder away."""
    wheel = read_wheel(made(tmp_path, {HEADER: "x"}, record={HEADER: digest_of(b"other")}))
    with pytest.raises(PackageDamagedError, match="is not what its RECORD says"):
        write_entries(wheel, {HEADER: tmp_path / "x.h"})


@pytest.mark.parametrize("said", ["md5=abc", "sha256=!", "sha256=abc"])
def test_a_record_with_other_hashes_is_refused(tmp_path: Path, said: str) -> None:
    """Only whole sha256 hashes count."""
    path = made(tmp_path, {HEADER: "x"}, record={HEADER: said})

    def unpack() -> None:
        write_entries(read_wheel(path), {HEADER: tmp_path / "x.h"})

    with pytest.raises(PackageDamagedError):
        unpack()


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x05\x06" + bytes(18), b"\xff" * 5000])
def test_what_is_no_wheel_is_refused(tmp_path: Path, content: bytes) -> None:
    """Nothing, a torso, an empty archive, noise."""
    path = tmp_path / "nvidia_x-1.0-py3-none-any.whl"
    path.write_bytes(content)
    with pytest.raises(PackageDamagedError):
        read_wheel(path)


def test_a_wheel_with_another_packages_papers_is_refused(tmp_path: Path) -> None:
    """Its dist-info has to be of the name that the file has."""
    path = made(tmp_path, {HEADER: "x"})
    with pytest.raises(PackageDamagedError, match=r"does.*match wheel filename"):
        read_wheel(path.rename(tmp_path / "nvidia_y-1.0-py3-none-any.whl"))


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    """Files are new, always: what lies there already ends it."""
    wheel = read_wheel(made(tmp_path, {HEADER: "x"}))
    (tmp_path / "x.h").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        write_entries(wheel, {HEADER: tmp_path / "x.h"})
    assert not (tmp_path / "elsewhere").exists()


def test_the_cache_takes_the_newest_that_fits(tmp_path: Path) -> None:
    """By version and not by name, of this processor, by the older names of platforms too."""
    for version, tag in (("9.2", X86_64), ("9.10", X86_64), ("9.11", AARCH64), ("10.0", X86_64)):
        make_wheel(tmp_path, "nvidia-x", version, {}, tag=tag)
    make_wheel(tmp_path, "nvidia-old", "1.0", {}, tag="py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64")
    (tmp_path / "nvidia_x-9.99-junk.whl").write_text("")
    cache = WheelCache(tmp_path, PLATFORMS)
    best = cache.best("nvidia-x<10")
    assert best is not None
    assert best.name.startswith("nvidia_x-9.10-")
    assert cache.best("nvidia-old") is not None
    assert cache.best("nvidia-x==9.11.*") is None
    assert WheelCache(tmp_path / "none", PLATFORMS).best("nvidia-x") is None


def test_a_cached_wheel_without_its_hash_does_not_count(tmp_path: Path) -> None:
    """It may have been copied half; it goes, and is fetched again."""
    fetched = make_wheel(tmp_path / "new", "nvidia-x", "1.0", {})
    cache = WheelCache(tmp_path / "cache", PLATFORMS)
    cache.folder.mkdir()
    kept = cache.add(fetched)
    assert len(cache.checked(kept)) == 64
    kept.write_bytes(kept.read_bytes() + b"x")
    assert cache.checked(kept) == ""
    assert os.listdir(cache.folder) == []
