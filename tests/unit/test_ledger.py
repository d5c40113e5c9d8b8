"""The ledger: builds see each other, the dead are removed, and whatever else lies in the folder harms nobody."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from builddoctor.model.build_record import MOST_SCOPES, BuildRecord
from builddoctor.model.limits import MemoryLevel
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.scopes import Scopes, boot_id
from builddoctor.supervise.ledger import Ledger, ledger_folder
from unit.trees import TextRoot

OTHER = "0123456789abcdef"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = ledger_folder({"BUILDDOCTOR_LEDGER_DIR": str(tmp_path / "ledger")})
    assert found is not None
    return found


@pytest.fixture
def two(folder: Path) -> Iterator[tuple[Ledger, Ledger]]:
    with ExitStack() as stack:
        ledgers = Ledger(folder, "boot"), Ledger(folder, "boot")
        for each in ledgers:
            stack.callback(each.close)
        yield ledgers


def record(**values: float) -> BuildRecord:
    return BuildRecord(build_id=OTHER, pid=7, **values)  # type: ignore[arg-type]


def test_builds_see_each_other_and_not_themselves(two: tuple[Ledger, Ledger]) -> None:
    """What one writes, the other reads, the newest; under its writer's name, whatever the record says."""
    one, other = two
    one.write(record(committed_mib=5.0))
    one.write(record(committed_mib=70000.25, claim_mib=3.0))
    (seen,) = other.peers()
    assert (seen.build_id, seen.committed_mib, seen.claim_mib) == (one.build_id, 70000.25, 3.0)
    assert [peer.build_id for peer in one.peers()] == [other.build_id]


def test_a_shorter_record_over_a_longer_one_is_whole(two: tuple[Ledger, Ledger]) -> None:
    """The rest of the old one stays in the file and is not read."""
    one, other = two
    one.write(BuildRecord(build_id=OTHER, pid=1, scopes=tuple(f"cgroup:{n:050}" for n in range(MOST_SCOPES))))
    assert len(other.peers()[0].scopes) == MOST_SCOPES
    one.write(record())
    assert other.peers()[0].scopes == ()


def test_who_ends_well_is_gone_at_once(two: tuple[Ledger, Ledger], folder: Path) -> None:
    """No record and no file is left of it."""
    one, other = two
    gone = Ledger(folder, "boot")
    assert len(other.peers()) == 2
    gone.close()
    assert [peer.build_id for peer in other.peers()] == [one.build_id]
    assert sorted(os.listdir(folder)) == sorted([one.build_id, other.build_id])


def test_a_dead_ones_file_is_removed_by_whoever_looks(two: tuple[Ledger, Ledger], folder: Path) -> None:
    """The kernel lets go of its lock: nobody counts its promises any more."""
    dead = Ledger(folder, "boot")
    dead.write(record(committed_mib=9000.0))
    os.close(dead._descriptor)
    assert [peer.build_id for peer in two[0].peers()] == [two[1].build_id]
    assert not (folder / dead.build_id).exists()
    assert len(two[1].peers()) == 1


def test_a_half_written_record_leaves_the_last_whole_one(two: tuple[Ledger, Ledger], folder: Path) -> None:
    """A checksum that does not fit: what was said before stands."""
    one, other = two
    one.write(record(committed_mib=5.0))
    assert other.peers()[0].committed_mib == 5.0
    with (folder / one.build_id).open("r+b") as file:
        file.seek(40)
        file.write(b"????")
    assert other.peers()[0].committed_mib == 5.0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"00000000 2\n{}",
        b"x" * 5_000_000,
        b"d87f7e0c 99999999999999999999\n{}",
        b"%08x 4\nnull" % 0x2F51C0F2,
        "00000000 \u0663\n{}".encode(),
    ],
)
def test_what_is_no_record_is_no_build(two: tuple[Ledger, Ledger], folder: Path, content: bytes) -> None:
    """Empty, binary, huge, or nonsense, while somebody holds its lock or nobody does: the build goes on without it."""
    held = Ledger(folder, "boot")
    os.truncate(folder / held.build_id, 0)
    os.pwrite(held._descriptor, content, 0)
    (folder / OTHER).write_bytes(content)
    (folder / "notes.txt").write_bytes(content)
    assert [peer.build_id for peer in two[0].peers()] == [two[1].build_id]
    assert (folder / "notes.txt").exists()
    held.close()


@pytest.mark.parametrize("size", ["5", "-1", "1e300", "null", '"5"', "NaN"])
def test_an_absurd_figure_is_no_record(two: tuple[Ledger, Ledger], size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative, endless, or no number: a record that could turn arithmetic around is not read."""
    one, other = two
    body = f'{{"build_id":"{one.build_id}","pid":1,"boot_id":"boot","rss_mib":{size}}}'

    class Raw:
        def encode(self, _: object) -> bytes:
            return body.encode()

    monkeypatch.setattr("builddoctor.supervise.ledger._ENCODER", Raw())
    one.write(record())
    assert [peer.rss_mib for peer in other.peers()] == ([5.0] if size == "5" else [])


def test_links_and_pipes_are_not_followed(two: tuple[Ledger, Ledger], folder: Path, tmp_path: Path) -> None:
    """A link to a file elsewhere, one to a device, a pipe, a folder: none is read, none is removed, none blocks."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (folder / "00000000000000aa").symlink_to(elsewhere)
    (folder / "00000000000000ab").symlink_to("/dev/zero")
    os.mkfifo(folder / "00000000000000ac")
    (folder / "00000000000000ad").mkdir()
    (folder / "00000000000000ae").hardlink_to(elsewhere)
    assert [peer.build_id for peer in two[0].peers()] == [two[1].build_id]
    assert elsewhere.read_text() == "mine"
    assert len(os.listdir(folder)) == 7


def test_records_of_another_boot_or_machine_are_not_counted(two: tuple[Ledger, Ledger], folder: Path) -> None:
    """A folder on a network may be another machine's too."""
    elsewhere = Ledger(folder, "another boot")
    assert [peer.build_id for peer in two[0].peers()] == [two[1].build_id]
    elsewhere.close()


def test_an_emptied_folder_is_entered_again(two: tuple[Ledger, Ledger], folder: Path) -> None:
    """Somebody cleans up: at its next word each is seen again."""
    one, other = two
    for name in os.listdir(folder):
        os.unlink(folder / name)
    assert other.peers() == ()
    one.write(record(committed_mib=5.0))
    assert [peer.committed_mib for peer in other.peers()] == [5.0]


def test_a_file_on_its_way_to_its_name_is_left_alone(two: tuple[Ledger, Ledger], folder: Path) -> None:
    """Made and not yet locked: its owner is at work; filled and without a lock, he died on the way."""
    (folder / f"new-{OTHER}").touch()
    assert len(two[0].peers()) == 1
    assert (folder / f"new-{OTHER}").exists()
    (folder / f"new-{OTHER}").write_text("filled")
    assert len(two[0].peers()) == 1
    assert not (folder / f"new-{OTHER}").exists()


def test_no_descriptor_is_left_open(folder: Path) -> None:
    """Many builds come and go, and strange files lie about: all that was opened is closed."""
    before = len(os.listdir("/proc/self/fd"))
    watcher = Ledger(folder, "boot")
    for number in range(20):
        passing = Ledger(folder, "boot")
        (folder / f"{number:016x}").write_bytes(b"?" * (number * 1000))
        watcher.peers()
        passing.close()
        watcher.peers()
    watcher.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_is_not_ours_alone_is_not_used(tmp_path: Path) -> None:
    """Open to others, a link, or a file: no ledger rather than one that somebody else may write to."""
    place = tmp_path / "ledger"
    assert ledger_folder({"BUILDDOCTOR_LEDGER_DIR": str(place)}) == place
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o770)
    assert ledger_folder({"BUILDDOCTOR_LEDGER_DIR": str(place)}) is None
    place.chmod(0o700)
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(place)
    file.touch(0o600)
    for each in (link, file, tmp_path / "no" / "such"):
        assert ledger_folder({"BUILDDOCTOR_LEDGER_DIR": str(each)}) is None


def test_a_cgroup_has_one_name_however_it_is_reached(tmp_path: Path) -> None:
    """By device and inode: two mounts of one hierarchy name the same directory differently."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").symlink_to("one")
    scopes = Scopes(SystemRoot(tmp_path))

    def level(source: str, kind: str = "cgroup-v2") -> MemoryLevel:
        return MemoryLevel(source=source, kind=kind, limit_mib=1.0, headroom_mib=1.0)  # type: ignore[arg-type]

    assert scopes.of(level("/one/memory.max")) == scopes.of(level("/two/memory.high")) != ""
    assert scopes.of(level("/one/memory.stat hierarchical_memory_limit")) == scopes.of(level("/one/memory.max"))
    assert scopes.of(level("/none/memory.max")) == ""
    assert scopes.of(level("--memory", "flag")) == scopes.of(level("SLURM_MEM_PER_NODE", "scheduler")) == ""
    assert scopes.of(level("/proc/meminfo", "host")) == scopes.of(level("x", "overcommit")) == "host"


def test_the_boot_is_known_by_its_number() -> None:
    """Empty when it cannot be read: then all records without one belong together."""
    assert boot_id(TextRoot({"/proc/sys/kernel/random/boot_id": "abc-def\n"})) == "abc-def"
    assert boot_id(TextRoot({})) == ""
