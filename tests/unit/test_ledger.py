"""The ledger: builds see each other, the dead are removed, and whatever else lies in the folder harms nobody."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from builddoctor.model.build_record import MOST_SCOPES, BuildRecord
from builddoctor.supervise.ledger import FORGOTTEN_S, Ledger, open_folder
from unit.trees import TextRoot

OTHER = "0123456789abcdef"
RECORD = BuildRecord(build_id=OTHER)


class Machine:
    """Processes and namespaces as /proc shows them, and a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"BUILDDOCTOR_LEDGER_DIR": str(folder)}
        self.root = TextRoot({"/proc/sys/kernel/random/boot_id": "boot\n", "/proc/self/ns/pid": "pid:[4026531836]"})
        self.stack = ExitStack()

    def process(self, pid: int, *, state: str = "S", start_ticks: int = 100) -> None:
        self.root.files[f"/proc/{pid}/stat"] = f"{pid} (a b) c) {state} 1 " + "0 " * 17 + f"{start_ticks} 0"

    def ledger(self, pid: int) -> Ledger:
        self.process(pid)
        found = Ledger(self.env, self.root, pid=pid)
        self.stack.callback(found.close)
        found.write(RECORD)
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path / "ledger")
    with found.stack:
        yield found


@pytest.fixture
def two(machine: Machine) -> tuple[Ledger, Ledger]:
    return machine.ledger(1), machine.ledger(2)


def ids(ledger: Ledger) -> list[str]:
    return [record.build_id for record in ledger.others()]


def test_builds_see_each_other_and_not_themselves(two: tuple[Ledger, Ledger]) -> None:
    """What one writes, the other reads, the newest; under its writer's name, whatever the record says."""
    one, other = two
    one.write(msgspec.structs.replace(RECORD, lease_mib=5.0))
    one.write(msgspec.structs.replace(RECORD, lease_mib=70000.25, claim_mib=3.0))
    (seen,) = other.others()
    assert (seen.build_id, seen.pid, seen.lease_mib, seen.claim_mib) == (one.build_id, 1, 70000.25, 3.0)
    assert ids(one) == [other.build_id]


def test_every_word_is_a_beat(two: tuple[Ledger, Ledger]) -> None:
    """Silence is told by it, though nothing else changes."""
    one, other = two
    before = other.others()[0].beat
    one.write(RECORD)
    assert other.others()[0].beat > before


def test_the_longest_record_is_read(two: tuple[Ledger, Ledger]) -> None:
    """As many limits as there may be, with names as long as they may be."""
    one, other = two
    one.write(msgspec.structs.replace(RECORD, scopes=tuple(f"cgroup:{n:057}" for n in range(MOST_SCOPES))))
    assert len(other.others()[0].scopes) == MOST_SCOPES


def test_who_ends_well_is_gone_at_once(machine: Machine) -> None:
    """No record and no file is left of it."""
    one, gone = machine.ledger(1), Ledger(machine.env, machine.root, pid=2)
    gone.write(RECORD)
    gone.close()
    assert ids(one) == []
    assert os.listdir(machine.folder) == [one.build_id]


@pytest.mark.parametrize("end", ["gone", "zombie", "another"])
def test_a_dead_ones_file_is_removed_by_whoever_looks(machine: Machine, two: tuple[Ledger, Ledger], end: str) -> None:
    """No process, one that has ended and was not waited for, or another one of the same number."""
    one, dead = two
    (machine.folder / f"{dead.build_id}.new").touch()
    if end == "gone":
        del machine.root.files["/proc/2/stat"]
    elif end == "zombie":
        machine.process(2, state="Z")
    else:
        machine.process(2, start_ticks=101)
    assert ids(one) == []
    assert os.listdir(machine.folder) == [one.build_id]


def test_a_stopped_process_is_not_dead(machine: Machine, two: tuple[Ledger, Ledger]) -> None:
    """Its file stays: it may go on."""
    machine.process(2, state="T")
    assert ids(two[0]) == [two[1].build_id]


def test_whose_pid_is_counted_elsewhere_is_not_judged_by_it(machine: Machine, two: tuple[Ledger, Ledger]) -> None:
    """A container that shares the folder: its supervisor's number means nothing here."""
    one, other = two
    machine.root.files["/proc/self/ns/pid"] = "pid:[4026539999]"
    inside = machine.ledger(77)
    del machine.root.files["/proc/77/stat"]
    assert ids(one) == sorted([other.build_id, inside.build_id])


def test_records_of_another_boot_are_not_counted(machine: Machine, two: tuple[Ledger, Ledger]) -> None:
    """A folder may outlive the machine's boot, or be another machine's too."""
    machine.root.files["/proc/sys/kernel/random/boot_id"] = "another"
    machine.ledger(3)
    assert ids(two[0]) == [two[1].build_id]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"{}",
        b"null",
        b"[" * 4000,
        b"x" * 5_000_000,
        b'{"build_id":"fedcba9876543210"}',
        b'{"build_id":"0123456789abcdef","lease_mib":-1}',
        b'{"build_id":"0123456789abcdef","lease_mib":1e300}',
        b'{"build_id":"0123456789abcdef","lease_mib":NaN}',
        b'{"build_id":"0123456789abcdef","use_mib":"5"}',
        b'{"build_id":"0123456789abcdef\\n"}',
    ],
)
def test_what_is_no_record_is_no_build(machine: Machine, two: tuple[Ledger, Ledger], content: bytes) -> None:
    """Empty, binary, huge, or nonsense, a figure that could turn arithmetic around: the build goes on without it."""
    (machine.folder / OTHER).write_bytes(content)
    (machine.folder / "notes.txt").write_bytes(content)
    assert ids(two[0]) == [two[1].build_id]
    assert (machine.folder / "notes.txt").exists()


def test_links_and_pipes_are_not_followed(machine: Machine, two: tuple[Ledger, Ledger], tmp_path: Path) -> None:
    """A link to a file elsewhere, one to a device, a pipe, a folder: none is read, none is removed, none blocks."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes((machine.folder / two[1].build_id).read_bytes())
    (machine.folder / "00000000000000aa").symlink_to(elsewhere)
    (machine.folder / "00000000000000ab").symlink_to("/dev/zero")
    os.mkfifo(machine.folder / "00000000000000ac")
    (machine.folder / "00000000000000ad").mkdir()
    (machine.folder / "00000000000000ae").hardlink_to(elsewhere)
    assert ids(two[0]) == [two[1].build_id]
    assert len(os.listdir(machine.folder)) == 7


def test_what_nobody_can_ask_about_is_removed_after_a_day(machine: Machine, two: tuple[Ledger, Ledger]) -> None:
    """Half a file of somebody who died while he wrote; nothing with another kind of name."""
    long_ago = time.time() - 2 * FORGOTTEN_S
    for name in (OTHER, f"{OTHER}.new", "notes.txt"):
        (machine.folder / name).touch()
        os.utime(machine.folder / name, (long_ago, long_ago))
    (machine.folder / "fedcba9876543210").touch()
    two[0].others()
    kept = {"notes.txt", "fedcba9876543210", two[0].build_id, two[1].build_id}
    assert set(os.listdir(machine.folder)) == kept


@pytest.mark.parametrize("how", ["emptied", "removed"])
def test_a_folder_that_is_cleaned_up_is_entered_again(machine: Machine, two: tuple[Ledger, Ledger], how: str) -> None:
    """At its next word each is seen again."""
    one, other = two
    shutil.rmtree(machine.folder)
    if how == "emptied":
        machine.folder.mkdir(0o700)
    for each in (one, other):
        each.write(RECORD)
    assert ids(one) == [other.build_id]
    assert ids(other) == [one.build_id]


def test_a_folder_that_cannot_be_made_again_is_an_error(machine: Machine, two: tuple[Ledger, Ledger]) -> None:
    """Whoever shares hears of it, and shares no more."""
    shutil.rmtree(machine.folder)
    machine.folder.touch()
    with pytest.raises(OSError, match="ledger"):
        two[0].write(RECORD)


def test_no_descriptor_is_left_open(machine: Machine) -> None:
    """Many builds come and go, and strange files lie about: all that was opened is closed."""
    before = len(os.listdir("/proc/self/fd"))
    watcher = Ledger(machine.env, machine.root, pid=1)
    for number in range(20):
        passing = Ledger(machine.env, machine.root, pid=1)
        (machine.folder / f"{number:016x}").write_bytes(b"?" * (number * 1000))
        passing.write(RECORD)
        watcher.others()
        passing.close()
    watcher.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_is_not_ours_alone_is_not_used(tmp_path: Path) -> None:
    """Open to others, a link, or a file: no ledger rather than one that somebody else may write to."""
    place = tmp_path / "ledger"
    found, descriptor = open_folder({"BUILDDOCTOR_LEDGER_DIR": str(place)})
    os.close(descriptor)
    assert found == place
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o770)
    with pytest.raises(PermissionError, match="not this user's alone"):
        open_folder({"BUILDDOCTOR_LEDGER_DIR": str(place)})
    place.chmod(0o700)
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(place)
    file.touch(0o600)
    for each in (link, file, tmp_path / "no" / "such"):
        with pytest.raises(OSError, match=str(each)):
            open_folder({"BUILDDOCTOR_LEDGER_DIR": str(each)})
