"""A store's files: whole or not at all, checked on reading, bounded."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from builddoctor.cluster.parcels import content_of, pack_file
from builddoctor.core.errors import FolderNotWritableError, UsageError
from builddoctor.phase_store.folder import StoreFolder
from builddoctor.phase_store.result import Result


def result(number: int, size: int = 1000) -> Result:
    content = random.Random(number).randbytes(size)
    return Result(
        key=f"{number:064x}", outputs=(pack_file("0", content), None), printed=b"said", peak_mib=900.0, cpu_s=12.0
    )


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def store(folder: Path, most_mib: float = 100.0) -> StoreFolder:
    return StoreFolder(folder, most_mib=most_mib)


def test_what_was_put_is_found(tmp_path: Path) -> None:
    store(tmp_path / "store").put(result(1))
    found = store(tmp_path / "store").find(result(1).key)
    assert found == result(1)
    assert found is not None
    assert found.outputs[0] is not None
    assert content_of(found.outputs[0]) == random.Random(1).randbytes(1000)
    assert store(tmp_path / "store").find(result(2).key) is None


def test_of_a_hundred_torn_or_altered_files_none_is_used(tmp_path: Path) -> None:
    chance = random.Random(7)
    kept = store(tmp_path)
    for number in range(100):
        kept.put(result(number))
    for number, path in enumerate(files(tmp_path)):
        body = bytearray(path.read_bytes())
        if number % 4 == 0:
            del body[chance.randrange(len(body)) :]
        elif number % 4 == 1:
            body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        elif number % 4 == 2:
            body += b"more"
        else:
            body = bytearray(result((number + 1) % 100).key.encode())
        path.write_bytes(body)
    assert [kept.find(result(number).key) for number in range(100)] == [None] * 100
    assert kept.refused == 100
    assert files(tmp_path) == []


def test_a_result_in_another_ones_place_is_refused(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.put(result(1))
    kept.put(result(2))
    one, two = files(tmp_path)
    one.write_bytes(two.read_bytes())
    assert kept.find(result(1).key) is None
    assert kept.find(result(2).key) == result(2)


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    kept = store(tmp_path, most_mib=0.1)
    for number in range(20):
        kept.put(result(number, size=10_000))
        os.utime(files(tmp_path / "00")[-1], (number, number))
    assert kept.find(result(0).key) is not None
    assert kept.make_room() <= 0.09
    left = [number for number in range(20) if kept.find(result(number).key) is not None]
    assert left == [0, *range(20 - len(left) + 1, 20)]
    assert kept.make_room() <= 0.09


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    kept = store(tmp_path)
    (tmp_path / "00").write_bytes(b"a file where a folder should be")
    with pytest.raises(OSError, match="exists"):
        kept.put(result(1))
    assert kept.find(result(1).key) is None
    assert [path.name for path in files(tmp_path)] == ["00"]


def test_a_store_that_anybody_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match="anybody may write") as caught:
        store(tmp_path)
    assert "chmod o-w" in caught.value.hint


def test_a_store_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FolderNotWritableError, match="no store in"):
        store(tmp_path / "file" / "store")
