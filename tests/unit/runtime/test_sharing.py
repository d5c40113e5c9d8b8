"""One build's side of sharing: what it tells the others, and that nothing in it can end a build.

In the ledger builds see each other, the dead are removed, and whatever else lies in the folder harms nobody.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builddoctor.core.events import (
    Beside,
    Event,
    GiveUp,
    NoteLevel,
    PhaseEnded,
    Requeue,
    ShareSettled,
)
from builddoctor.core.limits import LevelKind, MemoryLevel, MemoryReading
from builddoctor.core.phase import Outcome
from builddoctor.core.verdict import Verdict
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.gates.protocol import Ended
from builddoctor.runtime.phases import LivePhase
from builddoctor.runtime.sharing import ALONE_S, BESIDE_S, CONTENDED_S, FORGOTTEN_S, NEVER_S, Ledger, open_folder
from builddoctor.scheduler.scheduler import TOO_BIG_SHARE
from builddoctor.scheduler.sharing import MOST_SCOPES, BuildRecord
from support.schedulers import handle, scheduler_of
from unit.builders import asked, ended, phase, sampled
from unit.runtime.gates_played import DONE, Gate, killed
from unit.runtime.sessions import FixedSensor, asks, build_of
from unit.trees import TextRoot, meminfo

LIMIT_MIB = 8192.0
READING = MemoryReading(
    levels=(MemoryLevel(source="/proc/meminfo", kind=LevelKind.HOST, limit_mib=LIMIT_MIB, headroom_mib=LIMIT_MIB),)
)
POOL_MIB = 0.9 * LIMIT_MIB
"""less the reserve"""

BIG_MIB = (TOO_BIG_SHARE + 0.1) * POOL_MIB
"""So much makes a phase that the kernel ends alone too big, and is less than all builds have together."""


class Side:
    """A build with its session, and another one's ledger beside it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.now_s = 0.0
        self.env = {"BUILDDOCTOR_LEDGER_DIR": str(folder / "ledger")}
        self.root = TextRoot(meminfo(8, 8))
        for pid in (1, 2):
            self.root.files[f"/proc/{pid}/stat"] = f"{pid} (a) S 1 " + "0 " * 17 + "100 0"
        self.root.files["/proc/self/ns/pid"] = "pid:[1]"
        self.root.files["/proc/vmstat"] = "oom_kill 5\n"
        self.scheduler = scheduler_of(LearningEstimator(), slots=2, budget_mib=POOL_MIB)
        sensor = FixedSensor(self.root)
        sensor.reading = READING
        self.folder = folder
        self.built = build_of(self.scheduler, self.root, folder, clock=self.clock, sensor=sensor, ledger=self.env)
        self.sharing = self.built.sharing
        stack.callback(self.sharing.close)
        self.peer = Ledger(self.env, self.root, pid=2)
        stack.callback(self.peer.close)

    def clock(self) -> float:
        return self.now_s

    @property
    def told(self) -> list[str]:
        """What a person was told."""
        return [note.text for note in self.built.notes]

    def says(self, **values: Any) -> None:
        """The other build's next word."""
        record = BuildRecord(build_id="0" * 16, scopes=("host",))
        self.peer.write(msgspec.structs.replace(record, **values))

    def look(self) -> float:
        """A look at memory: what our phases may be promised together from then on."""
        self.now_s += 0.1
        self.built.decisions.look()
        return lease_mib(self.settled[-1]) if self.settled else NEVER_S

    @property
    def settled(self) -> list[ShareSettled]:
        """All that the scheduler was told of it."""
        return [event for event in self.built.events if isinstance(event, ShareSettled)]

    @property
    def period_s(self) -> float:
        return self.sharing.period_s(waiting=self.scheduler.waiting > 0)

    def runs(self, phase_id: int, *, rss_mib: float) -> None:
        """A phase of ours runs and holds so much. In a running event loop."""
        live = LivePhase(phase(phase_id), gate_pid=1, trusted=False)
        self.built.session.announce(live)
        assert live.admitted_at_s is not None
        live.rss_mib = rss_mib


def lease_mib(settled: ShareSettled) -> float:
    return NEVER_S if settled.lease_mib is None else settled.lease_mib


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    with ExitStack() as stack:
        yield Side(tmp_path, stack)


def test_alone_everything_is_ours_and_looks_are_rare(side: Side) -> None:
    """Nothing is said of it; a newcomer reads that all is taken."""
    assert side.look() == NEVER_S
    assert side.scheduler.allowed_mib == pytest.approx(POOL_MIB, abs=1)
    assert side.period_s == ALONE_S
    assert side.peer.others()[0].lease_mib > LIMIT_MIB
    assert side.told == []
    assert side.settled == []


def test_beside_another_the_share_is_what_its_promises_leave(side: Side) -> None:
    """Looks come more often, and again more often while one of the builds waits."""
    side.look()
    side.says(lease_mib=5000.0, wants_mib=5000.0, running=1)
    handle(side.scheduler, asked(1), 0.0)
    handle(side.scheduler, asked(2), 0.0)
    handle(side.scheduler, ended(1, Outcome.FAILED), 0.0)
    assert side.look() == pytest.approx(POOL_MIB - 5000, abs=1)
    assert side.scheduler.allowed_mib == pytest.approx(POOL_MIB - 5000, abs=1)
    assert side.period_s == BESIDE_S
    side.says(claim_mib=5000.0, wants_mib=5000.0)
    side.look()
    assert side.period_s == CONTENDED_S


def test_a_phase_that_waits_for_another_build_is_said_once(side: Side) -> None:
    """Who shares, and that looks come often meanwhile."""
    side.says(lease_mib=POOL_MIB, wants_mib=POOL_MIB, running=1)
    assert side.look() == 0
    assert side.told == []
    handle(side.scheduler, asked(1), side.now_s)
    assert side.scheduler.waiting == 1
    for _ in range(3):
        side.look()
    assert side.told == ["shares memory with another build (pid 2): each of the 2 has its part"]
    assert side.period_s == CONTENDED_S


def test_what_is_as_it_was_is_not_said_again(side: Side) -> None:
    """Twenty looks a second: the log has only what changed."""
    side.says(lease_mib=5000.0, wants_mib=5000.0, running=1)
    for _ in range(5):
        side.says(lease_mib=5000.0, wants_mib=5000.0, running=1)
        side.look()
    count = len(side.settled)
    for _ in range(5):
        side.says(lease_mib=5000.0, wants_mib=5000.0, running=1)
        side.look()
    assert len(side.settled) == count


def test_an_error_switches_sharing_off_and_the_build_goes_on(side: Side) -> None:
    """The folder is gone and cannot be made again: said once, and from then on it is as if there were nobody else."""
    side.says(lease_mib=5000.0, wants_mib=5000.0)
    assert side.look() < LIMIT_MIB
    folder = Path(side.env["BUILDDOCTOR_LEDGER_DIR"])
    shutil.rmtree(folder)
    folder.touch()
    assert [side.look(), side.look()] == [NEVER_S, NEVER_S]
    assert side.scheduler.allowed_mib == pytest.approx(POOL_MIB, abs=1)
    assert side.sharing.phase_ended(0.0, side.now_s) is None
    assert side.period_s == NEVER_S
    (note,) = side.built.notes
    assert "does not share memory with other builds" in note.text
    assert note.level is NoteLevel.WARNING


def test_an_error_as_a_phase_ends_switches_sharing_off_too(side: Side) -> None:
    """What the others have leased keeps nothing back any more."""
    side.says(lease_mib=5000.0, wants_mib=5000.0)
    assert side.look() < LIMIT_MIB
    folder = Path(side.env["BUILDDOCTOR_LEDGER_DIR"])
    shutil.rmtree(folder)
    folder.touch()
    said = side.sharing.phase_ended(0.0, side.now_s)
    assert said is not None
    assert lease_mib(said) == NEVER_S
    assert len(side.told) == 1


def test_without_a_place_for_a_ledger_a_build_goes_on(side: Side, tmp_path: Path) -> None:
    """It is said, at the start."""
    (tmp_path / "file").touch()
    env = {"BUILDDOCTOR_LEDGER_DIR": str(tmp_path / "file")}
    alone = build_of(side.scheduler, side.root, tmp_path, clock=side.clock, ledger=env)
    alone.decisions.look()
    assert [event for event in alone.events if isinstance(event, ShareSettled)] == []
    (note,) = alone.notes
    assert "does not share memory with other builds" in note.text
    assert note.level is NoteLevel.WARNING


# -- a phase ends beside another build -------------------------------------------------------------------------


def ends(side: Side, last: Ended, *steps: Callable[[], object]) -> list[Event]:
    """A phase asks, is admitted, these steps happen, it ends; all events since it asked."""
    before = len(side.built.events)
    asyncio.run(side.built.session.converse(Gate(asks(), *steps, last)))
    return side.built.events[before:]


def ended_by_kernel(side: Side, *steps: Callable[[], object]) -> list[Event]:
    """The same, and the kernel ends it at a size that would be too big for one that was alone."""

    def kernel_kills() -> None:
        side.root.files["/proc/vmstat"] = "oom_kill 6\n"

    return ends(side, killed(BIG_MIB), *steps, kernel_kills)


def excused(found: Sequence[Event]) -> bool:
    """What was told of the end, and made of it."""
    told = next(event for event in found if isinstance(event, PhaseEnded))
    assert told.outcome is Outcome.KILLED_BY_KERNEL
    (decided,) = [event for event in found if isinstance(event, Requeue | GiveUp)]
    assert isinstance(decided, Requeue) or decided.verdict is Verdict.TOO_BIG
    assert isinstance(decided, Requeue) == (Beside.OTHER_BUILDS in told.beside)
    return isinstance(decided, Requeue)


@pytest.mark.parametrize(
    ("peer", "excuses"),
    [
        ({"running": 1}, True),
        ({"changes": 9}, True),
        ({"running": 1, "scopes": ("cgroup:1:2",)}, False),
        ({"changes": 1}, False),
    ],
)
def test_a_kill_beside_another_builds_phases_does_not_prove_that_one_is_too_big(
    side: Side, peer: dict[str, Any], excuses: bool
) -> None:
    """Only if they ran since it was let start, under the limit that is tightest."""
    side.says(lease_mib=100.0, changes=1)
    side.look()
    assert excused(ended_by_kernel(side, lambda: side.says(**peer), side.look)) is excuses


def test_phases_that_had_ended_before_had_no_part_in_a_kill(side: Side) -> None:
    """The other build ran, and stopped before this phase was let start."""
    side.says(running=1, changes=1)
    side.look()
    side.says(changes=1)
    side.look()
    assert not excused(ended_by_kernel(side, side.look))


def test_an_end_is_told_before_another_phase_starts(side: Side) -> None:
    """The other reads that the memory is back; and what it has taken meanwhile is not promised a second time."""

    def holds() -> None:
        (live,) = side.built.phases.values()
        live.rss_mib = 2000.0
        side.look()
        assert side.peer.others()[0].use_mib == 2000
        side.says(lease_mib=POOL_MIB - 300, wants_mib=8000.0)

    side.says()
    found = ends(side, DONE, holds)
    told = next(place for place, event in enumerate(found) if isinstance(event, PhaseEnded))
    settled = found[told - 1]
    assert isinstance(settled, ShareSettled)
    assert lease_mib(settled) == pytest.approx(2300, abs=2)
    assert side.peer.others()[0].use_mib == 0


@pytest.mark.parametrize(("faster", "yields"), [(0.0, True), (100.0, False)])
def test_the_build_that_was_served_longer_is_the_one_that_gives_way(side: Side, faster: float, yields: bool) -> None:
    """Each says how it stands, and all come to the same answer. ``faster``: the other's service by ours."""

    def other() -> None:
        says = {"lease_mib": 1000.0, "use_mib": 900.0, "yields_mib": 900.0, "wants_mib": 1000.0}
        side.says(running=1, served_s=faster * side.now_s, **says)

    async def run() -> None:
        other()
        side.look()
        side.runs(1, rss_mib=200.0)
        for _ in range(3):
            other()
            handle(side.scheduler, sampled({1: 200.0}, headroom_mib=4000.0, budget_mib=POOL_MIB), side.now_s)
            side.look()

    asyncio.run(run())
    assert side.settled[-1].yields is yields


# -- the ledger --------------------------------------------------------------------------------------------


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
    # What earlier tests left to the collector is not to go meanwhile.
    gc.collect()
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
