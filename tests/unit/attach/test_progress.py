"""How far a build is, by ninja's own files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.attach.progress import Ninja, Progress
from builddoctor.core.events import UnitBegan, UnitEnded
from builddoctor.core.phase import Unit
from builddoctor.gates.fronts import Edge
from builddoctor.system.process import TreeProcess
from builddoctor.system.root import SystemRoot
from builddoctor.toolchain.ninja_log import NinjaLog

PID, BEGAN_S, WALL_S = 30, 100.0, 1_700_000_000.0
"""``WALL_S``: the time of day at which the build began; ninja began 100 s later."""


class Folder:
    """A build folder with a ninja that runs in it."""

    def __init__(self, path: Path) -> None:
        self.now_s = 200.0
        self.path = path / "build"
        self.path.mkdir()
        self.words: tuple[str, ...] = ("ninja", "-C", "build", "-j4")
        self.units = ["a", "b", "c", "d"]
        self.asked: list[tuple[str, ...]] = []
        (self.path / "build.ninja").write_text("rule cc\n")
        os.utime(self.path / "build.ninja", (WALL_S, WALL_S))
        self.proc = path / "proc" / str(PID)
        self.proc.mkdir(parents=True)
        (self.proc / "cmdline").write_text("".join(f"{word}\0" for word in self.words))
        (self.proc / "cwd").symlink_to(self.path)
        self.progress = Progress(
            root=SystemRoot(path),
            now_s=lambda: self.now_s,
            time_of_day=lambda: WALL_S + self.now_s,
            edges_of=self._edges,
        )
        self.told: list[str] = []
        self.outputs: dict[str, str] = {}

    def _edges(self, program: str, words: Sequence[str], cwd: str) -> list[Edge]:
        self.asked.append((program, *words, cwd))
        return [Edge(cwd, f"cc -c {name}.c", f"{name}.o", f"{name}.c") for name in self.units]

    def output(self, name: str) -> str:
        return str(self.path / f"{name}.o")

    def makes(self, name: str, end_s: float, *, start_s: float = 0.0, at_s: float | None = None) -> None:
        """ninja's time; ``at_s``: that of the output, since the build began."""
        Path(self.output(name)).touch()
        made_s = WALL_S + (BEGAN_S + end_s if at_s is None else at_s)
        os.utime(self.output(name), (made_s, made_s))
        with (self.path / ".ninja_log").open("a") as log:
            log.write(f"{start_s * 1000:.0f}\t{end_s * 1000:.0f}\t1\t{name}.o\tabc\n")

    def begins(self, name: str) -> None:
        """It is seen to compile."""
        self.outputs[self.output(name)] = f"seen-{name}"
        self.progress.saw(UnitBegan(at_s=self.now_s, unit=Unit(unit_id=f"seen-{name}", source=f"{name}.c")))

    def ends(self, name: str) -> None:
        self.progress.saw(UnitEnded(at_s=self.now_s, unit_id=f"seen-{name}"))

    def look(self, *, runs: bool = True) -> list[str]:
        """Sources that ended unseen."""
        ninja = TreeProcess(
            pid=PID,
            parent=1,
            name="ninja",
            state="S",
            start_ticks=1,
            cpu_s=0,
            anon_mib=0,
            leads_session=False,
            is_leaf=False,
        )
        found = self.progress.look([ninja] if runs else [], self.outputs, lambda _: BEGAN_S)
        for event in found:
            self.progress.saw(event)
        return [event.unit.source for event in found if isinstance(event, UnitBegan)]

    @property
    def counts(self) -> tuple[int | None, int]:
        return self.progress.planned, self.progress.undone


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_what_was_done_before_we_came_counts(folder: Folder) -> None:
    """With the times of ninja's log, and each once."""
    folder.makes("a", 20.0)
    folder.makes("b", 30.0, start_s=5.0)
    assert folder.look() == ["a.c", "b.c"]
    assert folder.look() == []
    assert folder.counts == (4, 2)
    folder.makes("c", 90.0)
    assert folder.look() == ["c.c"]
    assert folder.counts == (4, 1)


def test_a_ninja_that_runs_is_in_its_folder_already(folder: Folder) -> None:
    """``-C build`` is left out: there is no build/build."""
    folder.look()
    assert folder.asked == [("ninja", "-j4", str(folder.path))]


def test_a_run_before_this_one_does_not_count(folder: Folder) -> None:
    """Its objects are there: they count once they are made again, and tell how long each takes."""
    folder.makes("a", 10.0, at_s=-500.0)
    folder.makes("b", 40.0, at_s=-460.0)
    assert folder.look() == []
    assert folder.counts == (2, 2)
    folder.begins("a")
    folder.look()
    assert folder.counts == (3, 3)


def test_a_unit_that_failed_is_not_done(folder: Folder) -> None:
    """Its compiler has gone, and ninja's log does not have it; whether its old object is there or not."""
    folder.makes("b", 10.0, at_s=-500.0)
    folder.look()
    for name in ("a", "b"):
        folder.begins(name)
        folder.look()
        folder.ends(name)
    folder.makes("c", 60.0)
    folder.makes("d", 61.0)
    folder.look(runs=False)
    assert folder.counts == (4, 2)


def test_a_log_that_ninja_has_written_anew_tells_nothing_twice(folder: Folder) -> None:
    """It does so as it starts, which may be after we came: what is old stays old."""
    for name in ("a", "b"):
        folder.makes(name, 10.0, at_s=-500.0)
    folder.look()
    folder.makes("c", 50.0)
    assert folder.look() == ["c.c"]
    anew = folder.path / "recompacted"
    anew.write_bytes((folder.path / ".ninja_log").read_bytes())
    anew.replace(folder.path / ".ninja_log")
    assert folder.look() == []
    folder.makes("d", 60.0)
    assert folder.look() == ["d.c"]


def test_build_files_that_are_written_anew_are_read_anew(folder: Folder) -> None:
    """ninja runs cmake first where it has to, and begins again: with other units, and its clock at zero."""
    folder.units = ["a"]
    folder.look()
    assert folder.counts == (1, 1)
    folder.units = ["a", "b", "c"]
    os.utime(folder.path / "build.ninja", (WALL_S + 150.0, WALL_S + 150.0))
    folder.makes("a", 10.0, at_s=160.0)
    folder.look()
    assert folder.counts == (3, 2)
    assert len(folder.asked) == 2


def test_two_ninjas_in_one_folder_have_one_plan(folder: Folder) -> None:
    """``cmake --build`` twice: what the first has done the second has not to do."""
    folder.makes("a", 20.0)
    folder.look()
    ninja = TreeProcess(
        pid=PID,
        parent=1,
        name="ninja",
        state="S",
        start_ticks=2,
        cpu_s=0,
        anon_mib=0,
        leads_session=False,
        is_leaf=False,
    )
    folder.progress.look([ninja], {}, lambda _: 150.0)
    assert folder.counts == (4, 3)


def test_a_folder_that_is_closed_to_us_is_said(folder: Folder) -> None:
    """Another user's, or another container's: what that name is here is something else."""
    (folder.proc / "cwd").unlink()
    (folder.proc / "cwd").symlink_to("/nowhere/at/all")
    folder.look()
    assert folder.counts == (None, 0)
    assert folder.asked == []
    assert "cannot be read" in folder.progress.unread


def test_a_program_of_another_user_is_not_run(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root looks at anyone's build: what calls itself ninja there may be anything."""
    program = folder.path / "ninja"
    program.touch()
    (folder.proc / "exe").symlink_to(program)
    folder.look()
    assert folder.asked[-1][0] == str(program)
    monkeypatch.setattr(os, "geteuid", lambda: folder.proc.stat().st_uid + 1)
    os.utime(folder.path / "build.ninja")
    folder.look()
    assert folder.asked[-1][0] == "ninja"


def test_before_the_first_look_nothing_is_known(folder: Folder) -> None:
    assert folder.counts == (None, 0)
    assert folder.progress.left() is None


def test_time_left_is_a_range_that_narrows_where_an_earlier_run_is_known(tmp_path: Path) -> None:
    """The same four units, with and without a record of them."""

    def left(known: bool) -> tuple[float, float]:
        path = tmp_path / str(known)
        path.mkdir()
        folder = Folder(path)
        if known:
            for end, name in enumerate(folder.units):
                folder.makes(name, 20.0 * (end + 1), start_s=20.0 * end, at_s=-500.0)
                Path(folder.output(name)).unlink()
        folder.now_s = BEGAN_S + 1
        folder.look()
        for end, name in enumerate(folder.units[:3]):
            folder.makes(name, 20.0 * (end + 1), start_s=20.0 * end)
        folder.now_s = BEGAN_S + 60
        folder.look()
        time_left = folder.progress.left()
        assert time_left is not None
        return time_left.low_s, time_left.high_s

    (low_s, high_s), (known_low_s, known_high_s) = left(False), left(True)
    assert low_s <= known_low_s <= 20 <= known_high_s <= high_s


def test_the_last_units_that_nobody_knows_may_end_at_once(folder: Folder) -> None:
    """Seen with `scripts/bench attach`: 1.5 s were left where 1.5 to 46 was said."""
    folder.look()
    for end, name in enumerate(folder.units[:3]):
        folder.makes(name, 20.0 * (end + 1), start_s=20.0 * end)
    folder.begins(folder.units[3])
    folder.now_s += 60
    folder.look()
    left = folder.progress.left()
    assert left is not None
    assert left.low_s == 0 < left.high_s


steps = st.lists(
    st.tuples(st.sampled_from(["make", "begin", "end", "anew", "look", "wait"]), st.sampled_from("abcdef")), max_size=40
)


@given(steps)
def test_counts_only_rise_and_ranges_are_ordered(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]
) -> None:
    """Whatever comes between two looks."""
    folder = Folder(tmp_path_factory.mktemp("build"))
    folder.units = [*"abcdef"]
    clock_s, planned, done = 0.0, 0, 0
    for what, name in steps:
        clock_s += 1.0
        folder.now_s = BEGAN_S + clock_s
        if what == "make":
            folder.makes(name, clock_s, start_s=clock_s - 1)
        elif what == "begin" and folder.output(name) not in folder.outputs:
            folder.begins(name)
        elif what == "end":
            folder.ends(name)
        elif what == "anew" and (folder.path / ".ninja_log").exists():
            (folder.path / "new").write_bytes((folder.path / ".ninja_log").read_bytes())
            (folder.path / "new").replace(folder.path / ".ninja_log")
        elif what == "wait":
            clock_s += 30.0
        folder.look()
        now, undone = folder.progress.planned, folder.progress.undone
        assert now is not None
        assert 0 <= undone <= now <= 6
        assert now >= planned
        assert now - undone >= done
        planned, done = now, now - undone
        left = folder.progress.left()
        if left is not None:
            assert 0 <= left.low_s <= left.high_s


def test_of_two_lines_of_one_output_the_later_is_this_runs(tmp_path: Path) -> None:
    """The one before may be of a run that the log's times do not tell apart."""
    log = NinjaLog(tmp_path / ".ninja_log")
    log.path.write_text("0\t1000\t1\ta.o\tx\n500\t4000\t1\ta.o\ty\n")
    (tmp_path / "a.o").touch()
    ninja = Ninja([Edge(str(tmp_path), "cc", "a.o")], log, began_s=0.0, age_s=5.0, wall_s=0.0)
    assert [(done.start_s, done.end_s) for _, done in ninja.first] == [(0.5, 4.0)]
