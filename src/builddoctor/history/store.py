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

from builddoctor.history.damage import alone_in, check, is_damage, move_aside
from builddoctor.history.schema import COLUMNS, EXACTLY, VERSION, bring_up_to_date, version_of
from builddoctor.model.past import FinishedPhase, FinishedUnit, PastPhase, PastUnit, Seen, UnitKey
from builddoctor.model.phase import PhaseKind
from builddoctor.policy.past import unit_distance

BUSY_S = 5.0
"""A writer waits this long for another build's; each holds the file for milliseconds."""

LARGEST_MIB = 1e9
LONGEST_S = 1e6
"""What is larger was not measured: a pebibyte, eleven days."""

KEPT_BUILDS = 8
"""Builds whose figures are kept of each phase."""

MOST_SEEN = 64
"""Figures kept of one phase, however often it ran in one build."""

MOST_UNITS = 50_000
"""Then the units seen longest ago go."""

LEAST_GOING = 100

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


class History:
    """An open history file. Use ``History.open``."""

    def __init__(self, path: Path, connection: sqlite3.Connection, *, writable: bool) -> None:
        self.path = path
        self.writable = writable
        self.problem = ""
        """why it no longer answers; empty while all is well"""
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
            if not is_damage(error):
                return cls._read_only(path, busy_s, error)
        try:
            with alone_in(path.parent):
                aside = move_aside(path)
                history = cls._open(path, busy_s)
        except (OSError, sqlite3.Error) as error:
            return Opened(history=None, problem=f"no history: {path} is damaged and cannot be moved aside: {error}")
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
            check(connection)
        except sqlite3.Error as again:
            connection.close()
            return Opened(history=None, problem=f"no history: {path}: {again}")
        return Opened(history=cls(path, connection, writable=False), problem=_UNWRITABLE.format(path))

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    # -- reading -------------------------------------------------------------------------------------------

    def lookup(self, key: UnitKey) -> PastUnit | None:
        """Exactly this unit; None when it was never built so."""
        rows = self._rows(f"SELECT id, {COLUMNS} FROM units WHERE {EXACTLY}", _values(key))  # noqa: S608 - our own names
        return self._unit(rows[0]) if rows else None

    def nearest(self, key: UnitKey) -> PastUnit | None:
        """The same source of the same project, as nearly as it was ever built like this; the latest of equals."""
        query = f"SELECT id, {COLUMNS} FROM units WHERE project = ? AND place = ? ORDER BY updated_at DESC LIMIT 64"  # noqa: S608
        rows = self._rows(query, (key.project, key.place))
        return self._unit(min(rows, key=lambda row: unit_distance(key, _key(row)))) if rows else None

    def find(self, key: UnitKey) -> PastUnit | None:
        """``lookup``, else ``nearest``."""
        return self.lookup(key) or self.nearest(key)

    def projects(self) -> list[ProjectRow]:
        """All projects, latest first."""
        query = "SELECT project, COUNT(*), MAX(updated_at) FROM units GROUP BY project ORDER BY MAX(updated_at) DESC"
        rows = self._rows(query, ())
        return [ProjectRow(project=name, units=count, updated_at=updated_at) for name, count, updated_at in rows]

    def units(self, project: str) -> list[PastUnit]:
        """All units of one project."""
        query = f"SELECT id, {COLUMNS} FROM units WHERE project = ? ORDER BY place, updated_at DESC"  # noqa: S608
        rows = self._rows(query, (project,))
        return [self._unit(row) for row in rows]

    def _rows(self, query: str, values: Sequence[str | int]) -> list[tuple[Any, ...]]:
        return self._ask(lambda db: db.execute(query, values).fetchall(), list[tuple[Any, ...]]())

    def _unit(self, row: Sequence[Any]) -> PastUnit:
        query = "SELECT kind, arch, tool, builds, seen, updated_at FROM phases WHERE unit = ?"
        phases = self._rows(query, (row[0],))
        return PastUnit(key=_key(row), phases=tuple(past for each in phases if (past := _past_phase(each)) is not None))

    # -- writing -------------------------------------------------------------------------------------------

    def record(self, units: Iterable[FinishedUnit]) -> bool:
        """Add what a build learned, all of it or nothing; False when it could not be."""
        if not self.writable:
            return False

        def write(db: sqlite3.Connection) -> bool:
            with _transaction(db):
                for unit in units:
                    _record(db, unit)
                _forget_oldest(db)
            return True

        return self._ask(write, False)

    def clear(self, project: str | None = None) -> int:
        """Forget one project, or all; the number of units forgotten. ``problem`` says when it could not be done."""

        def write(db: sqlite3.Connection) -> int:
            with _transaction(db):
                if project is None:
                    gone = db.execute("DELETE FROM units").rowcount
                else:
                    gone = db.execute("DELETE FROM units WHERE project = ?", (project,)).rowcount
            return int(gone)

        return self._ask(write, 0)

    def _ask(self, action: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        """Do it; from the first failure on, nothing any more."""
        if self.problem:
            return otherwise
        try:
            return action(self._connection)
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if _is_busy(error):
                return otherwise
            self.problem = f"the history {self.path} cannot be used any more: {error}"
            if isinstance(error, sqlite3.Error) and is_damage(error):
                self.close()
                with contextlib.suppress(OSError), alone_in(self.path.parent):
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
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _values(key: UnitKey) -> tuple[str, ...]:
    return (
        key.project,
        key.place,
        key.output,
        key.options,
        key.nvcc,
        key.host_compiler,
        key.host_arch,
        ",".join(key.archs),
    )


def _key(row: Sequence[Any]) -> UnitKey:
    project, place, output, options, nvcc, host_compiler, host_arch, archs = map(str, row[1:9])
    return UnitKey(
        project=project,
        place=place,
        output=output,
        options=options,
        nvcc=nvcc,
        host_compiler=host_compiler,
        host_arch=host_arch,
        archs=tuple(filter(None, archs.split(","))),
    )


def _past_phase(row: Sequence[Any]) -> PastPhase | None:
    """One row; None for one that a newer version wrote, or that makes no sense."""
    kind, arch, tool, builds, seen, updated_at = row
    try:
        return PastPhase(
            kind=PhaseKind(kind),
            arch=str(arch),
            tool=str(tool),
            builds=int(str(builds)),
            seen=_seen(str(seen)),
            updated_at=float(str(updated_at)),
        )
    except (ValueError, msgspec.MsgspecError):
        return None


def _seen(text: str) -> tuple[Seen, ...]:
    rows = msgspec.json.decode(text, type=list[tuple[float, float, float]])
    return tuple(
        Seen(input_mib=input_mib, peak_mib=peak_mib, wall_s=wall_s)
        for input_mib, peak_mib, wall_s in rows
        # A damaged or edited file: figures that no compiler has.
        if 0 <= input_mib <= LARGEST_MIB and 0 < peak_mib <= LARGEST_MIB and 0 <= wall_s <= LONGEST_S
    )


def _record(db: sqlite3.Connection, unit: FinishedUnit) -> None:
    marks = ", ".join("?" * 9)
    db.execute(
        f"INSERT INTO units ({COLUMNS}, updated_at) VALUES ({marks}) "  # noqa: S608
        f"ON CONFLICT ({COLUMNS}) DO UPDATE SET updated_at = max(updated_at, excluded.updated_at)",
        (*_values(unit.key), unit.ended_at),
    )
    (unit_id,) = db.execute(f"SELECT id FROM units WHERE {EXACTLY}", _values(unit.key)).fetchone()  # noqa: S608
    grouped: dict[tuple[str, str, str], list[FinishedPhase]] = {}
    for phase in unit.phases:
        grouped.setdefault((phase.kind.value, phase.arch, phase.tool), []).append(phase)
    for place, phases in grouped.items():
        _record_phases(db, unit_id, place, phases, unit.ended_at)


def _record_phases(
    db: sqlite3.Connection,
    unit_id: int,
    place: tuple[str, str, str],
    phases: Sequence[FinishedPhase],
    ended_at: float,
) -> None:
    known = db.execute(
        "SELECT builds, seen FROM phases WHERE unit = ? AND kind = ? AND arch = ? AND tool = ?", (unit_id, *place)
    ).fetchone()
    builds, seen = (1, []) if known is None else (known[0] + 1, _seen_or_nothing(known[1]))
    seen += [
        (round(each.seen.input_mib, 6), round(each.seen.peak_mib, 2), round(each.seen.wall_s, 3)) for each in phases
    ]
    seen = seen[-min(MOST_SEEN, KEPT_BUILDS * len(phases)) :]
    db.execute(
        "INSERT OR REPLACE INTO phases (unit, kind, arch, tool, builds, seen, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (unit_id, *place, builds, msgspec.json.encode(seen).decode(), ended_at),
    )


def _seen_or_nothing(text: str) -> list[tuple[float, float, float]]:
    try:
        return [(each.input_mib, each.peak_mib, each.wall_s) for each in _seen(text)]
    except msgspec.MsgspecError:
        return []


def _forget_oldest(db: sqlite3.Connection) -> None:
    (count,) = db.execute("SELECT COUNT(*) FROM units").fetchone()
    if count > MOST_UNITS:
        # Some more at once, so that it is not done again by the next build.
        gone = count - MOST_UNITS + min(LEAST_GOING, MOST_UNITS // 10)
        db.execute("DELETE FROM units WHERE id IN (SELECT id FROM units ORDER BY updated_at LIMIT ?)", (gone,))
