"""The history file: opened, read, written, kept small; never in a build's way.

Covers: one SQLite file shared by all builds of a user. Every failure ends in a sentence in ``problem``, and in a
history that knows nothing and keeps nothing from then on. A file that is no database, or a damaged one, is moved
aside, once however many builds find it, and a new one begun. A file that another program holds just now, or that a
newer version wrote, is sound; a reader that finds it busy is answered "not known".
Does *not* cover: where the file is (``runtime.folders``), or what figures are worth (``estimation.past``).

The journal is SQLite's classic one: its other mode needs shared memory, which folders on a network do not have. A
connection may be used by one thread at a time; each thread of a process opens its own.

A file is never moved aside while a build of ours opens or uses it. SQLite finds a journal by the name of its file: a
connection to the file that was moved takes the new file's journal for its own, and rolls it back
(https://www.sqlite.org/howtocorrupt.html, 4.2). So each use holds a lock file shared, and moving aside holds it alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from builddoctor.core.past import FinishedUnit, PastUnit, UnitKey
from builddoctor.core.phase import PhaseKind
from builddoctor.core.units import MIB
from builddoctor.estimation.past import unit_distance
from builddoctor.history.tables import (
    COLUMNS,
    EXACTLY,
    VERSION,
    bring_up_to_date,
    fits_archs,
    key,
    past_phase,
    record,
    time_of,
    values,
    version_of,
    work_of,
)

BUSY_S = 5.0
"""A writer waits this long for another build's; each holds the file for milliseconds."""

MOST_UNITS = 50_000
MOST_MIB = 64.0
"""Then the units seen longest ago go. A unit of few architectures takes 2 KiB, one of many 20."""

MOVE_WAIT_S = 2.0
"""How long opening waits for another build that moves the damaged file aside. During a build nothing waits."""

LEAST_GOING = 100

MOST_WORKS = 2000
"""Units whose phases are read at once."""

CHECKED_WHOLE_MIB = 2.0
"""A larger file is not read through when it is opened: 1.3 ms a MiB, and what it takes to get it from the disk."""

AGAIN_S = 0.02
"""Between two attempts to get the lock."""

_DAMAGED = ("not a database", "malformed", "corrupt", "disk image", "no such table", "no such column")
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

    def __init__(
        self, path: Path, connection: sqlite3.Connection, *, busy_s: float, writable: bool, inode: int
    ) -> None:
        self.path = path
        self.writable = writable
        self.problem = ""
        """why it no longer answers; empty while all is well"""
        self.busy = False
        """the last question had no answer, since another program held the file"""
        self._connection = connection
        self._busy_s = busy_s
        self._inode = inode

    @classmethod
    def open(cls, path: Path, *, busy_s: float = BUSY_S) -> Opened:
        """Open or make the file. A folder or file that may not be written is read, where there is something to read."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return Opened(history=None, problem=f"no history: cannot make {path.parent}: {error.strerror}")
        try:
            with _held(path, fcntl.LOCK_SH, wait_s=MOVE_WAIT_S):
                history = cls._open(path, busy_s)
            return Opened(history=history, problem="" if history.writable else _UNWRITABLE.format(path))
        except BlockingIOError:
            return Opened(history=None, problem=f"no history: another build moves {path} aside just now", busy=True)
        except sqlite3.Error as error:
            if _is_busy(error):
                return Opened(history=None, problem=f"no history: {path}: {error}", busy=True)
            if not _is_damage(error):
                return cls._read_only(path, busy_s, error)
        try:
            with _held(path, fcntl.LOCK_EX, wait_s=MOVE_WAIT_S):
                aside = _move_aside(path)
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
        self._busy_s = busy_s
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
            _check(connection)
        except BaseException:
            connection.close()
            raise
        writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
        return cls(path, connection, busy_s=busy_s, writable=writable, inode=path.stat().st_ino)

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
            _check(connection)
        except sqlite3.Error as again:
            connection.close()
            return Opened(history=None, problem=f"no history: {path}: {again}", busy=_is_busy(again))
        history = cls(path, connection, busy_s=busy_s, writable=False, inode=path.stat().st_ino)
        return Opened(history=history, problem=_UNWRITABLE.format(path))

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
        """All projects, latest first. Links are no units that anybody counts."""
        query = (
            "SELECT project, SUM(place NOT LIKE 'link %'), MAX(updated_at) FROM units "
            "GROUP BY project ORDER BY MAX(updated_at) DESC"
        )
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
        """The action's answer; after the first failure ``otherwise``, always."""
        self.busy = False
        if self.problem:
            return otherwise
        try:
            with _held(self.path, fcntl.LOCK_SH, wait_s=self._busy_s):
                if self.path.stat().st_ino == self._inode:
                    return action(self._connection)
            self.problem = f"the history {self.path} was damaged, and another build began a new one"
        except BlockingIOError:
            self.busy = True
        except OSError as error:
            self.problem = f"the history {self.path} cannot be used any more: {error.strerror}"
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if _is_busy(error):
                self.busy = True
                return otherwise
            self.problem = f"the history {self.path} cannot be used any more: {error}"
            if isinstance(error, sqlite3.Error) and _is_damage(error):
                self.close()
                with contextlib.suppress(OSError), _held(self.path, fcntl.LOCK_EX, wait_s=0.0):
                    if (aside := _move_aside(self.path)) is not None:
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
    """Delete the oldest units where there are too many, or they take too much; those without an age first.

    Some more go at once, so that the next build need not do it again.
    """
    (count,) = db.execute("SELECT COUNT(*) FROM units").fetchone()
    gone = count - MOST_UNITS + min(LEAST_GOING, MOST_UNITS // 10) if count > MOST_UNITS else 0
    while gone or (count and _size_mib(db) > MOST_MIB):
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


# -- damage --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _held(path: Path, how: int, *, wait_s: float) -> Iterator[None]:
    """Hold the history shared (``LOCK_SH``, to use it) or alone (``LOCK_EX``, to move it aside); the kernel lets go
    when we end.

    By a lock file beside it, which stays. Where there can be none (a folder that is only read, a disk without locks)
    nobody moves the history aside either: it is used without. Raises OSError when it is to be held alone and cannot be,
    also (EAGAIN) when others hold it for longer than ``wait_s``: one may be stopped, or its disk may hang.
    """
    with contextlib.ExitStack() as held:
        try:
            descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            held.callback(os.close, descriptor)
            _lock(descriptor, how, wait_s)
        except BlockingIOError:
            raise
        except OSError:
            if how == fcntl.LOCK_EX:
                raise
        yield


def _lock(descriptor: int, how: int, wait_s: float) -> None:
    until_s = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(AGAIN_S)


def _move_aside(path: Path) -> Path | None:
    """Rename a damaged file, and its journal, which belongs to it; None when it is sound by now. Raises OSError.

    Another process may have found the same damage first: then the file is a new one, and stays.
    """
    if _is_sound(path):
        return None
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    with contextlib.suppress(OSError):
        # First: once the file is gone, a journal of that name is the new file's.
        os.replace(f"{path}-journal", f"{aside}-journal")
    os.replace(path, aside)
    return aside


def _is_sound(path: Path) -> bool:
    """A whole history, or one that another process is about to begin."""
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)
        if version_of(connection) >= VERSION:
            _check(connection, whole=True)
    except sqlite3.Error as error:
        return not _is_damage(error)
    else:
        return True
    finally:
        if connection is not None:
            connection.close()


def _check(connection: sqlite3.Connection, *, whole: bool = False) -> None:
    """Raise an error for a file that is torn, not ours, or of another version.

    A file that lost its end shows at the first question, whatever its size. A damaged page of a large one shows when
    it is read, unless the ``whole`` is read now.
    """
    version = version_of(connection)
    if version != VERSION:
        raise sqlite3.OperationalError(f"its schema has version {version}, this builddoctor's has {VERSION}")
    if whole or _size_mib(connection) <= CHECKED_WHOLE_MIB:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found is None or found[0] != "ok":
            raise sqlite3.DatabaseError("database disk image is malformed")
    connection.execute("SELECT kind, arch, tool, builds, seen, updated_at FROM phases LIMIT 1").fetchone()
    connection.execute(f"SELECT id, {COLUMNS}, updated_at FROM units LIMIT 1").fetchone()  # noqa: S608


def _size_mib(connection: sqlite3.Connection) -> float:
    """What the file holds, without pages that are free to be used again."""
    (pages,), (free,), (page_bytes,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
    )
    return float((pages - free) * page_bytes) / MIB


def _is_damage(error: sqlite3.Error) -> bool:
    return any(word in str(error) for word in _DAMAGED)
