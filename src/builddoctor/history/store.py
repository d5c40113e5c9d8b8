"""The history file: opened, read, written, kept small; never in a build's way.

Covers: one SQLite file shared by all builds of a user. Every failure ends in a sentence in ``problem``, and in a
history that knows nothing and keeps nothing from then on. A file that is no database, or a damaged one, is moved
aside and a new one begun. A file that another build holds just now is no failure for a reader: the answer is "not
known".
Does *not* cover: where the file is (``supervise.folders``), or what figures are worth (``policy.past``).

The journal is SQLite's classic one: its other mode needs shared memory, which folders on a network do not have. A
connection may be used by one thread at a time; each thread of a process opens its own.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from builddoctor.history.damage import alone_with, check, is_damage, move_aside, size_mib
from builddoctor.history.rows import fits_archs, key, past_phase, record, time_of, values, work_of
from builddoctor.history.schema import COLUMNS, EXACTLY, VERSION, bring_up_to_date, version_of
from builddoctor.model.past import FinishedUnit, PastUnit, UnitKey
from builddoctor.model.phase import PhaseKind
from builddoctor.policy.past import unit_distance

BUSY_S = 5.0
"""A writer waits this long for another build's; each holds the file for milliseconds."""

MOST_UNITS = 50_000
MOST_MIB = 64.0
"""Then the units seen longest ago go. A unit of few architectures takes 2 KiB, one of many 20."""

MOVE_WAIT_S = 2.0
"""For another build that moves the damaged file aside, when there is time; in the midst of a build there is none."""

LEAST_GOING = 100

MOST_WORKS = 2000
"""Units whose phases are read at once."""

_UNWRITABLE = "the history {} can be read but not written: this build is not added to it"

_T = TypeVar("_T")


class ProjectRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one project, in numbers."""

    project: str
    units: int
    updated_at: float
    """seconds since 1970, UTC"""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A history, or why there is none. A history may come with a problem, too: a file that was moved aside."""

    history: History | None
    problem: str = ""
    busy: bool = False
    """no history just now: another program holds the file"""


class History:
    """An open history file. Use ``History.open``."""

    def __init__(self, path: Path, connection: sqlite3.Connection, *, writable: bool) -> None:
        self.path = path
        self.writable = writable
        self.problem = ""
        """why it no longer answers; empty while all is well"""
        self.busy = False
        """the last question had no answer, since another program held the file"""
        self._connection = connection

    @classmethod
    def open(cls, path: Path, *, busy_s: float = BUSY_S) -> Opened:
        """Open or make the file. A folder or file that may not be written is read, where there is something to read."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return Opened(history=None, problem=f"no history: cannot make {path.parent}: {error.strerror}")
        try:
            history = cls._open(path, busy_s)
            return Opened(history=history, problem="" if history.writable else _UNWRITABLE.format(path))
        except sqlite3.Error as error:
            if _is_busy(error):
                return Opened(history=None, problem=f"no history: {path}: {error}", busy=True)
            if not is_damage(error):
                return cls._read_only(path, busy_s, error)
        try:
            with alone_with(path, wait_s=MOVE_WAIT_S):
                aside = move_aside(path)
                history = cls._open(path, busy_s)
        except (OSError, sqlite3.Error) as error:
            problem = f"no history: {path} is damaged and cannot be moved aside: {error}"
            # Another build that is at it will be done soon.
            return Opened(history=None, problem=problem, busy=isinstance(error, BlockingIOError) or _is_busy(error))
        if aside is None:
            # Another build was first.
            return Opened(history=history)
        return Opened(
            history=history, problem=f"the history {path} was damaged; it is now {aside.name}, and a new one is begun"
        )

    def wait_at_most(self, busy_s: float) -> None:
        """How long a question waits for another build's writing, from now on."""
        self._connection.execute(f"PRAGMA busy_timeout = {int(1000 * busy_s)}")

    @classmethod
    def _open(cls, path: Path, busy_s: float) -> History:
        connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
        try:
            connection.text_factory = _text
            connection.execute("PRAGMA foreign_keys = ON")
            # A power failure may cost the last builds' figures; a killed process costs nothing.
            connection.execute("PRAGMA synchronous = NORMAL")
            if version_of(connection) < VERSION:
                bring_up_to_date(connection)
            check(connection)
        except BaseException:
            connection.close()
            raise
        return cls(path, connection, writable=os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))

    @classmethod
    def _read_only(cls, path: Path, busy_s: float, error: sqlite3.Error) -> Opened:
        problem = f"no history: {path}: {error}"
        try:
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro",
                uri=True,
                timeout=busy_s,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error:
            return Opened(history=None, problem=problem)
        try:
            connection.text_factory = _text
            check(connection)
        except sqlite3.Error as again:
            connection.close()
            return Opened(history=None, problem=f"no history: {path}: {again}", busy=_is_busy(again))
        return Opened(history=cls(path, connection, writable=False), problem=_UNWRITABLE.format(path))

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    # -- reading -------------------------------------------------------------------------------------------

    def lookup(self, unit: UnitKey) -> PastUnit | None:
        """Exactly this unit; None when it was never built so."""
        rows = self._rows(f"SELECT id, {COLUMNS} FROM units WHERE {EXACTLY}", values(unit))  # noqa: S608 - our own names
        return self._unit(rows[0]) if rows else None

    def nearest(self, unit: UnitKey) -> PastUnit | None:
        """The same source of the same project, as nearly as it was ever built like this; the latest of equals.

        One of which nothing is known that can be read is passed over.
        """
        query = f"SELECT id, {COLUMNS} FROM units WHERE project = ? AND place = ? ORDER BY updated_at DESC LIMIT 64"  # noqa: S608
        rows = self._rows(query, (unit.project, unit.place))
        for row in sorted(rows, key=lambda row: unit_distance(unit, key(row))):
            if (past := self._unit(row)).phases:
                return past
        return None

    def find(self, unit: UnitKey) -> PastUnit | None:
        """``lookup``, else ``nearest``."""
        exactly = self.lookup(unit)
        return exactly if exactly is not None and exactly.phases else self.nearest(unit)

    def projects(self) -> list[ProjectRow]:
        """All projects, latest first."""
        query = "SELECT project, COUNT(*), MAX(updated_at) FROM units GROUP BY project ORDER BY MAX(updated_at) DESC"
        rows = self._rows(query, ())
        return [ProjectRow(project=str(name), units=count, updated_at=time_of(at)) for name, count, at in rows]

    def units(self, project: str) -> list[PastUnit]:
        """All units of one project."""
        query = f"SELECT id, {COLUMNS} FROM units WHERE project = ? ORDER BY place, updated_at DESC"  # noqa: S608
        rows = self._rows(query, (project,))
        return [self._unit(row) for row in rows]

    def works(self, project: str, archs: Sequence[str] = ()) -> dict[tuple[str, str], float]:
        """Seconds of all phases of each unit of a project, by place and output; in the latest way it was built whole.

        ``archs``: for these, and for no more than a source of its own adds. Of a large project the latest units only: a
        build waits for the answer. Links are no units that anybody counts.
        """
        query = (
            "SELECT latest.id, place, output, archs, kind, builds, seen FROM "
            "(SELECT * FROM units WHERE project = ? AND place NOT LIKE 'link %' "
            "ORDER BY updated_at DESC LIMIT ?) AS latest "
            "JOIN phases ON phases.unit = latest.id ORDER BY latest.updated_at DESC, latest.id DESC"
        )
        sums: dict[tuple[int, str, str, str], tuple[float, bool]] = {}
        for unit, place, output, made_for, kind, builds, seen in self._rows(query, (project, MOST_WORKS)):
            name = (unit, str(place), str(output), str(made_for))
            work_s, whole = sums.get(name, (0.0, not made_for))
            sums[name] = (work_s + work_of(builds, seen), whole or kind == PhaseKind.HOST.value)
        found: dict[tuple[str, str], float] = {}
        for (_, place, output, made_for), (work_s, whole) in sums.items():
            if whole and fits_archs(made_for, archs):
                found.setdefault((place, output), work_s)
        return found

    def _rows(self, query: str, wanted: Sequence[str | int]) -> list[tuple[Any, ...]]:
        return self._ask(lambda db: db.execute(query, wanted).fetchall(), list[tuple[Any, ...]]())

    def _unit(self, row: Sequence[Any]) -> PastUnit:
        query = "SELECT kind, arch, tool, builds, seen, updated_at FROM phases WHERE unit = ?"
        phases = self._rows(query, (row[0],))
        return PastUnit(key=key(row), phases=tuple(past for each in phases if (past := past_phase(each)) is not None))

    # -- writing -------------------------------------------------------------------------------------------

    def record(self, units: Iterable[FinishedUnit]) -> bool:
        """Add what a build learned, all of it or nothing; False when it could not be: for ever when there is a
        ``problem``, for now when it is ``busy``."""
        if not self.writable:
            return False

        def write(db: sqlite3.Connection) -> bool:
            with _transaction(db):
                for unit in units:
                    record(db, unit)
                _keep_small(db)
            return True

        return self._ask(write, False)

    def clear(self, project: str | None = None) -> int | None:
        """Forget one project, or all; the number of units forgotten. None when it could not be done: see ``problem``,
        and ``busy``."""

        def write(db: sqlite3.Connection) -> int | None:
            with _transaction(db):
                if project is None:
                    gone = db.execute("DELETE FROM units").rowcount
                else:
                    gone = db.execute("DELETE FROM units WHERE project = ?", (project,)).rowcount
            return int(gone)

        return self._ask(write, None)

    def _ask(self, action: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        """Do it; from the first failure on, nothing any more."""
        self.busy = False
        if self.problem:
            return otherwise
        try:
            return action(self._connection)
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if _is_busy(error):
                self.busy = True
                return otherwise
            self.problem = f"the history {self.path} cannot be used any more: {error}"
            if isinstance(error, sqlite3.Error) and is_damage(error):
                self.close()
                with contextlib.suppress(OSError), alone_with(self.path, wait_s=0.0):
                    if (aside := move_aside(self.path)) is not None:
                        self.problem = f"the history {self.path} was damaged; it is now {aside.name}"
            return otherwise


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        # A reader may hold it up until it is too late.
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _keep_small(db: sqlite3.Connection) -> None:
    """Let the oldest go where there are too many, or they take too much; some more at once, so that it is not done
    again by the next build. What has no age goes first."""
    (count,) = db.execute("SELECT COUNT(*) FROM units").fetchone()
    gone = count - MOST_UNITS + min(LEAST_GOING, MOST_UNITS // 10) if count > MOST_UNITS else 0
    while gone or (count and size_mib(db) > MOST_MIB):
        gone = gone or max(1, count // 10)
        db.execute(
            "DELETE FROM units WHERE id IN "
            "(SELECT id FROM units ORDER BY typeof(updated_at) IN ('real', 'integer'), updated_at LIMIT ?)",
            (gone,),
        )
        count, gone = count - gone, 0


def _text(content: bytes) -> str:
    """What is no UTF-8 (a damaged row) must not hide all others."""
    return content.decode(errors="replace")
