"""The history file."""

from __future__ import annotations

import fcntl
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from builddoctor.core.past import FinishedPhase, FinishedUnit, Seen, UnitKey
from builddoctor.core.phase import PhaseKind
from builddoctor.history import store
from builddoctor.history.store import History
from builddoctor.history.tables import KEPT_BUILDS, STEPS, VERSION, bring_up_to_date, version_of

KEY = UnitKey(
    project="demo",
    place="src/a.cu",
    output="a.o",
    options="0123",
    nvcc="13.0.88",
    host_compiler="12.2",
    host_arch="x86_64",
    archs=("sm_80", "sm_90"),
)


def key(**fields: Any) -> UnitKey:
    return UnitKey(**{**{name: getattr(KEY, name) for name in KEY.__struct_fields__}, **fields})


def finished(peak_mib: float = 1800.0, unit: UnitKey = KEY, ended_at: float = 1.0) -> FinishedUnit:
    """A unit with one phase."""
    seen = Seen(input_mib=4.0, peak_mib=peak_mib, wall_s=12.0)
    phase = FinishedPhase(kind=PhaseKind.CICC, arch="sm_90", tool="cicc", seen=seen)
    return FinishedUnit(key=unit, phases=(phase,), ended_at=ended_at)


def opened(path: Path) -> History:
    found = History.open(path)
    assert found.history is not None
    assert not found.problem
    return found.history


def test_what_was_recorded_is_found_again_by_another_process_or_none(tmp_path: Path) -> None:
    """Key, phase and figures come back as they were."""
    opened(tmp_path / "h").record([finished()])
    past = opened(tmp_path / "h").lookup(KEY)
    assert past is not None
    assert past.key == KEY
    (phase,) = past.phases
    assert (phase.kind, phase.arch, phase.tool, phase.builds) == (PhaseKind.CICC, "sm_90", "cicc", 1)
    assert phase.seen == (Seen(input_mib=4.0, peak_mib=1800.0, wall_s=12.0),)


def test_courses_are_kept(tmp_path: Path) -> None:
    """As they were recorded."""
    course = ((0.25, 400.0), (0.8, 1800.0), (1.0, 900.5))
    seen = Seen(input_mib=4.0, peak_mib=1800.0, wall_s=12.0, course=course)
    history = opened(tmp_path / "h")
    phases = (FinishedPhase(kind=PhaseKind.CUDAFE, arch="", tool="cudafe++", seen=seen),)
    assert history.record([FinishedUnit(key=KEY, phases=phases, ended_at=1.0)])
    found = history.find(KEY)
    assert found is not None
    assert found.phases[0].seen == (seen,)


def test_the_last_builds_of_a_phase_are_kept(tmp_path: Path) -> None:
    """Of twelve the last eight, oldest first; the count goes on."""
    history = opened(tmp_path / "h")
    for number in range(12):
        assert history.record([finished(peak_mib=100.0 + number)])
    past = history.lookup(KEY)
    assert past is not None
    assert [seen.peak_mib for seen in past.phases[0].seen] == [100.0 + number for number in range(12)][-KEPT_BUILDS:]
    assert past.phases[0].builds == 12


@pytest.mark.parametrize(
    "other", [{"options": "x"}, {"nvcc": "12.8"}, {"archs": ("sm_90",)}, {"host_arch": "aarch64"}, {"output": "b.o"}]
)
def test_a_unit_that_differs_in_anything_is_another_but_is_near(tmp_path: Path, other: dict[str, Any]) -> None:
    """``lookup`` does not find it, ``nearest`` does, ``find`` does."""
    history = opened(tmp_path / "h")
    history.record([finished(unit=key(**other))])
    assert history.lookup(KEY) is None
    near = history.nearest(KEY)
    assert near is not None
    assert near.key == key(**other)
    assert history.find(KEY) == near


def test_the_nearest_is_the_one_that_differs_least(tmp_path: Path) -> None:
    """Another minor release of nvcc is nearer than other options, whichever was built last."""
    history = opened(tmp_path / "h")
    history.record([finished(unit=key(nvcc="13.1.2"), ended_at=1.0), finished(unit=key(options="x"), ended_at=2.0)])
    near = history.nearest(KEY)
    assert near is not None
    assert near.key.nvcc == "13.1.2"


def test_another_source_or_project_is_not_near(tmp_path: Path) -> None:
    """However alike the rest is."""
    history = opened(tmp_path / "h")
    history.record([finished(unit=key(place="src/b.cu")), finished(unit=key(project="other"))])
    assert history.find(KEY) is None


def test_projects_and_their_units_are_listed(tmp_path: Path) -> None:
    """The latest first, with the number of units."""
    history = opened(tmp_path / "h")
    history.record([finished(ended_at=1.0), finished(unit=key(place="b.cu"), ended_at=3.0)])
    history.record([finished(unit=key(project="late"), ended_at=9.0)])
    assert [(row.project, row.units, row.updated_at) for row in history.projects()] == [
        ("late", 1, 9.0),
        ("demo", 2, 3.0),
    ]
    assert [unit.key.place for unit in history.units("demo")] == ["b.cu", "src/a.cu"]


def test_clearing_forgets_one_project_or_all(tmp_path: Path) -> None:
    """And says how many units went, phases and all."""
    history = opened(tmp_path / "h")
    history.record([finished(), finished(unit=key(project="other"))])
    assert history.clear("demo") == 1
    assert history.lookup(KEY) is None
    assert history.clear() == 1
    assert history.projects() == []
    assert sqlite3.connect(tmp_path / "h").execute("SELECT COUNT(*) FROM phases").fetchone() == (0,)


def test_the_file_stays_bounded_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 units in a file for 50, the latest 45 remain."""
    monkeypatch.setattr(store, "MOST_UNITS", 50)
    history = opened(tmp_path / "h")
    for number in range(60):
        history.record([finished(unit=key(place=f"{number:02}.cu"), ended_at=float(number))])
    places = [unit.key.place for unit in history.units("demo")]
    assert len(places) <= 50
    assert places[-1] == "59.cu"
    assert places == [f"{number:02}.cu" for number in range(60 - len(places), 60)]


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_file_that_is_no_history_is_moved_aside_or_taken_as_new(tmp_path: Path, content: bytes) -> None:
    """An empty file is a new one; anything else is kept under another name, with a word about it."""
    path = tmp_path / "history.sqlite"
    path.write_bytes(content)
    found = History.open(path)
    assert found.history is not None
    assert found.history.record([finished()])
    assert found.history.lookup(KEY) is not None
    aside = [each for each in tmp_path.iterdir() if "damaged" in each.name]
    assert [each.read_bytes() for each in aside] == ([content] if content else [])
    assert bool(found.problem) == bool(content)
    if content:
        assert aside[0].name in found.problem
        assert not History.open(path).problem


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_truncated_file_is_moved_aside(tmp_path: Path, share: float) -> None:
    """A file that lost its end holds a part of its pages; none of it is believed."""
    path = tmp_path / "history.sqlite"
    history = opened(path)
    history.record(finished(unit=key(place=f"{number}.cu")) for number in range(300))
    history.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    found = History.open(path)
    assert found.history is not None
    assert "damaged" in found.problem
    assert found.history.projects() == []


def test_a_file_damaged_while_it_is_open_ends_the_history_and_nothing_else(tmp_path: Path) -> None:
    """Look-ups find nothing any more, records say no, and the reason is there once."""
    path = tmp_path / "history.sqlite"
    history = opened(path)
    history.record(finished(unit=key(place=f"{number}.cu")) for number in range(300))
    with path.open("r+b") as file:
        file.write(b"\xff" * 200_000)
    assert not history.record([finished()])
    assert history.find(KEY) is None
    assert "damaged" in history.problem
    assert not History.open(path).problem


def test_rows_of_a_newer_program_are_passed_over(tmp_path: Path) -> None:
    """A kind of phase that is not known yet, and figures that are none, hide no others."""
    path = tmp_path / "h"
    history = opened(path)
    history.record([finished()])
    other = sqlite3.connect(path)
    for kind, seen in (("quantum", "[[1,2,3]]"), ("ptxas", "what"), ("host", '[["a",1,2]]')):
        other.execute("INSERT INTO phases VALUES (1, ?, '', '', 1, ?, 0)", (kind, seen))
    other.commit()
    past = history.lookup(KEY)
    assert past is not None
    assert [phase.kind for phase in past.phases] == [PhaseKind.CICC]


def test_a_file_of_the_first_schema_is_brought_up_to_date_with_its_rows(tmp_path: Path) -> None:
    """What it held is still there; its version is today's."""
    path = tmp_path / "h"
    old = sqlite3.connect(path, isolation_level=None)
    bring_up_to_date(old, STEPS[:1])
    assert version_of(old) == 1
    old.execute(
        "INSERT INTO units VALUES (1, 'demo', 'src/a.cu', 'a.o', '0123', '13.0.88', '12.2', 'x86_64', 'sm_80,sm_90', 5)"
    )
    old.execute("INSERT INTO phases VALUES (1, 'cicc', 'sm_90', 'cicc', 3, '[[4,900,7]]', 5)")
    old.close()
    past = opened(path).lookup(KEY)
    assert past is not None
    assert past.phases[0].seen[0].peak_mib == 900
    assert version_of(sqlite3.connect(path)) == VERSION


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """All steps or none."""
    old = sqlite3.connect(tmp_path / "h", isolation_level=None)
    bring_up_to_date(old, STEPS[:1])
    with pytest.raises(sqlite3.Error):
        bring_up_to_date(old, (*STEPS[:1], ("CREATE TABLE more (x)", "no such statement")))
    assert version_of(old) == 1
    assert old.execute("SELECT COUNT(*) FROM sqlite_master WHERE name = 'more'").fetchone() == (0,)


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    """No history, a reason, and the file as it was."""
    path = tmp_path / "h"
    opened(path).close()
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {VERSION + 1}")
    newer.close()
    content = path.read_bytes()
    found = History.open(path)
    assert found.history is None
    assert f"version {VERSION + 1}" in found.problem
    assert path.read_bytes() == content
    assert {each.name for each in tmp_path.iterdir()} == {"h", "h.lock"}


@pytest.mark.parametrize("place", ["file/history.sqlite", "folder"])
def test_a_place_where_no_file_can_be_is_no_history(tmp_path: Path, place: str) -> None:
    """Below a file, or where a folder is: a sentence, no error."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    found = History.open(tmp_path / place)
    assert found.history is None
    assert found.problem.startswith("no history")


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    """While another holds the file, nothing is known; afterwards all of it is."""
    path = tmp_path / "h"
    opened(path).record([finished()])
    found = History.open(path, busy_s=0.01)
    assert found.history is not None
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    assert found.history.find(KEY) is None
    writer.execute("ROLLBACK")
    assert found.history.find(KEY) is not None
    assert not found.history.problem


def test_a_phase_that_nobody_can_read_does_not_hide_a_unit_that_is_near(tmp_path: Path) -> None:
    """What is known under another unit's name is better than nothing known."""
    path = tmp_path / "h"
    history = opened(path)
    history.record([finished(), finished(unit=key(options="x"), peak_mib=900.0)])
    for seen in ("what", "[]"):
        sqlite3.connect(path, isolation_level=None).execute("UPDATE phases SET seen = ? WHERE unit = 1", (seen,))
        past = history.find(KEY)
        assert past is not None
        assert past.key.options == "x"


def test_rows_that_make_no_sense_are_put_right_by_the_next_build(tmp_path: Path) -> None:
    """Text where numbers belong, and bytes that are no text: an edited or a damaged file heals."""
    path = tmp_path / "h"
    history = opened(path)
    history.record([finished()])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("UPDATE phases SET builds = 'many', updated_at = 'never', seen = x'ff00'")
    other.execute("UPDATE units SET updated_at = 'long ago'")
    assert [row.updated_at for row in history.projects()] == [0]
    assert history.record([finished(ended_at=7.0)])
    past = history.lookup(KEY)
    assert past is not None
    assert [(phase.builds, len(phase.seen), phase.updated_at) for phase in past.phases] == [(2, 1, 7.0)]
    assert [row.updated_at for row in history.projects()] == [7]
    assert not history.problem


def test_a_name_that_is_no_text_hides_no_other(tmp_path: Path) -> None:
    """Nor does it end the history."""
    path = tmp_path / "h"
    history = opened(path)
    history.record([finished(), finished(unit=key(place="b.cu"))])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute(
        "UPDATE units SET options = CAST(x'ff61' AS TEXT), project = CAST(x'fe' AS TEXT) WHERE place = 'b.cu'"
    )
    other.execute("UPDATE units SET output = CAST(x'ff61' AS TEXT) WHERE place = 'src/a.cu'")
    assert sorted(row.project for row in history.projects()) == ["demo", "\ufffd"]
    assert history.find(KEY) is not None
    assert not history.problem


def test_a_file_that_grows_too_large_loses_its_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few units of many phases count as much as many of few: the bound is in bytes."""
    monkeypatch.setattr(store, "MOST_MIB", 0.5)
    path = tmp_path / "h"
    history = opened(path)
    for number in range(40):
        units = [finished(unit=key(place=f"{number:02}/{'x' * 2000}{each}.cu"), ended_at=number) for each in range(10)]
        assert history.record(units)
    places = [unit.key.place for unit in history.units("demo")]
    assert path.stat().st_size < 1024**2
    assert places[-1].startswith("39/")
    assert len(places) > 50
    assert places[0] > "20/"


def test_a_large_file_is_not_read_through_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage in the midst of it shows when it is met, and then the file is moved aside as ever."""
    path = tmp_path / "history.sqlite"
    history = opened(path)
    history.record(finished(unit=key(place=f"{number}.cu")) for number in range(300))
    history.close()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - 8192)
        file.write(b"\xff" * 8192)
    copy = tmp_path / "copy" / "history.sqlite"
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    assert "damaged" in History.open(copy).problem
    monkeypatch.setattr(store, "CHECKED_WHOLE_MIB", 0.0)
    large = opened(path)
    for number in range(300):
        large.find(key(place=f"{number}.cu"))
    assert "damaged" in large.problem
    assert not History.open(path).problem


def test_a_file_in_use_is_not_moved_aside(tmp_path: Path) -> None:
    """Its user would take the new file's journal for its own, and roll it back."""
    path = tmp_path / "h"
    path.write_bytes(b"no database" * 1000)
    with store._held(path, fcntl.LOCK_SH, wait_s=0.0):
        found = History.open(path)
    assert found.history is None
    assert found.busy
    assert {each.name for each in tmp_path.iterdir()} == {"h", "h.lock"}


def test_a_history_that_was_moved_aside_is_not_used_any_more(tmp_path: Path) -> None:
    """Another build found it damaged: what is in the new one is not touched by way of the old."""
    path = tmp_path / "h"
    old = opened(path)
    path.rename(tmp_path / "aside")
    new = opened(path)
    assert new.record([finished(900)])
    assert not old.record([finished(100)])
    assert "another build began a new one" in old.problem
    assert [row.units for row in new.projects()] == [1]


def test_who_moves_a_damaged_file_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He may be stopped: then there is no history, a reason, and no build that hangs for it."""
    monkeypatch.setattr(store, "MOVE_WAIT_S", 0.05)
    path = tmp_path / "h"
    path.write_bytes(b"no database" * 1000)
    with store._held(path, fcntl.LOCK_EX, wait_s=0.0):
        found = History.open(path)
        assert found.history is None
        assert found.busy
        assert "moves" in found.problem
    assert History.open(path).history is not None


def test_clearing_a_file_that_is_held_is_not_clearing_nothing(tmp_path: Path) -> None:
    """Nor is reading it knowing nothing: both say that it is held just now."""
    path = tmp_path / "h"
    opened(path).record([finished()])
    found = History.open(path, busy_s=0.01)
    assert found.history is not None
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    assert found.history.clear() is None
    assert found.history.busy
    assert found.history.projects() == []
    assert found.history.busy
    assert History.open(path, busy_s=0.01).busy
    writer.execute("ROLLBACK")
    assert found.history.clear() == 1
    assert not found.history.busy


def test_a_reader_that_holds_up_a_writer_does_not_end_it(tmp_path: Path) -> None:
    """What could not be committed is taken back, and written the next time."""
    path = tmp_path / "h"
    opened(path).record([finished()])
    found = History.open(path, busy_s=0.01)
    assert found.history is not None
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM units").fetchone()
    assert not found.history.record([finished(unit=key(place="b.cu"))])
    assert found.history.busy
    reader.execute("ROLLBACK")
    assert found.history.record([finished(unit=key(place="b.cu"))])
    assert found.history.projects()[0].units == 2


def test_the_work_of_a_projects_units_is_added_up(tmp_path: Path) -> None:
    """Of the latest way each was built; a phase that runs several times in a build counts as often."""
    history = opened(tmp_path / "h")

    def built(unit: UnitKey, walls_s: list[float], ended_at: float) -> FinishedUnit:
        seen = [Seen(input_mib=1.0, peak_mib=50.0, wall_s=each) for each in walls_s]
        phases = [FinishedPhase(kind=PhaseKind.CICC, arch="sm_90", tool="cicc", seen=each) for each in seen]
        host = Seen(input_mib=1.0, peak_mib=50.0, wall_s=5.0)
        last = FinishedPhase(kind=PhaseKind.HOST, arch="", tool="cc1plus", seen=host)
        return FinishedUnit(key=unit, phases=(*phases, last), ended_at=ended_at)

    history.record([built(KEY, [1.0, 3.0], 10.0), built(key(project="other"), [9.0], 30.0)])
    history.record([built(KEY, [2.0, 4.0], 20.0)])
    assert history.works(KEY.project) == {(KEY.place, KEY.output): 10.0}
    history.record([built(key(nvcc="13.1.0"), [20.0], 40.0), built(key(output="b.o"), [7.0], 40.0)])
    assert history.works(KEY.project) == {(KEY.place, KEY.output): 25.0, (KEY.place, "b.o"): 12.0}
    assert history.works("nothing") == {}


def test_the_work_of_links_and_of_half_built_units_is_not_counted(tmp_path: Path) -> None:
    """Nobody counts a link among the units to come; a unit that failed in its host compile took less than it takes."""
    history = opened(tmp_path / "h")
    whole = finished(unit=key(output="a.o"))
    linking = FinishedUnit(key=key(place="link lib.so", output="lib.so", archs=()), phases=whole.phases, ended_at=1.0)
    host = FinishedPhase(
        kind=PhaseKind.HOST, arch="", tool="cc1plus", seen=Seen(input_mib=1.0, peak_mib=50.0, wall_s=2.0)
    )
    history.record([whole, linking])
    assert history.works(KEY.project) == {}
    history.record([FinishedUnit(key=key(output="a.o"), phases=(*whole.phases, host), ended_at=2.0)])
    assert list(history.works(KEY.project)) == [(KEY.place, "a.o")]


@pytest.mark.parametrize(
    ("archs", "fits"),
    [((), True), (KEY.archs, True), ((*KEY.archs, "sm_120"), False), (("sm_120",), False)],
)
def test_the_work_for_other_architectures_is_another(tmp_path: Path, archs: tuple[str, ...], fits: bool) -> None:
    """Yesterday for one, today for two."""
    history = opened(tmp_path / "h")
    host = FinishedPhase(
        kind=PhaseKind.HOST, arch="", tool="cc1plus", seen=Seen(input_mib=1.0, peak_mib=50.0, wall_s=2.0)
    )
    history.record([FinishedUnit(key=KEY, phases=(host,), ended_at=1.0)])
    assert bool(history.works(KEY.project, archs)) == fits
