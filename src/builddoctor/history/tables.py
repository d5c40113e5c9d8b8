"""The history file inside: its tables, the steps from one version of them to the next, and its rows as ``core.past``.

``PRAGMA user_version`` counts the steps that a file has seen. A step is never changed once it has shipped; a new one is
added at the end. A row that no build of ours wrote (a newer version, a damaged or edited file) hides no other row: it
is read as what it says, or as nothing, and written over by the next build that has the unit.
Does *not* cover: opening the file (``history.store``).
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from builddoctor.core.past import Course, FinishedPhase, FinishedUnit, PastPhase, Seen, UnitKey
from builddoctor.core.phase import PhaseKind

STEPS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE units (
            id INTEGER PRIMARY KEY,
            project TEXT NOT NULL,
            place TEXT NOT NULL,
            output TEXT NOT NULL,
            options TEXT NOT NULL,
            nvcc TEXT NOT NULL,
            host_compiler TEXT NOT NULL,
            host_arch TEXT NOT NULL,
            archs TEXT NOT NULL,
            updated_at REAL NOT NULL,
            UNIQUE (project, place, output, options, nvcc, host_compiler, host_arch, archs)
        )
        """,
        """
        CREATE TABLE phases (
            unit INTEGER NOT NULL REFERENCES units (id) ON DELETE CASCADE,
            kind TEXT NOT NULL,
            arch TEXT NOT NULL,
            tool TEXT NOT NULL,
            builds INTEGER NOT NULL,
            seen TEXT NOT NULL,
            updated_at REAL NOT NULL,
            PRIMARY KEY (unit, kind, arch, tool)
        ) WITHOUT ROWID
        """,
    ),
    ("CREATE INDEX units_by_age ON units (updated_at)",),
)

VERSION = len(STEPS)

COLUMNS = "project, place, output, options, nvcc, host_compiler, host_arch, archs"
"""What names a unit."""

EXACTLY = " AND ".join(f"{column.strip()} = ?" for column in COLUMNS.split(","))


LARGEST_MIB = 1e9

LONGEST_S = 1e6
"""What is larger was not measured: a pebibyte, eleven days."""

KEPT_BUILDS = 8
"""Builds whose figures are kept of each phase."""

MOST_SEEN = 64
"""Figures kept of one phase, however often it ran in one build."""

MOST_BUILDS = 1_000_000

OWN_ARCHS = 2
"""Architectures that a source is compiled for whatever is asked (TransformerEngine's 90a beside 100)."""


def version_of(connection: sqlite3.Connection) -> int:
    """Steps that this file has seen; 0 for a new one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def bring_up_to_date(connection: sqlite3.Connection, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Take the steps that are missing, all or none. Of two processes that try, the second finds nothing to do."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statements in steps[version_of(connection) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {max(len(steps), version_of(connection))}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def values(key: UnitKey) -> tuple[str, ...]:
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


def key(row: Sequence[Any]) -> UnitKey:
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


def past_phase(row: Sequence[Any]) -> PastPhase | None:
    """One row; None for one that a newer version wrote, or that makes no sense."""
    kind, arch, tool, builds, seen, updated_at = row
    try:
        past = PastPhase(
            kind=PhaseKind(kind),
            arch=str(arch),
            tool=str(tool),
            builds=_count(builds),
            seen=seen_of(str(seen)),
            updated_at=time_of(updated_at),
        )
    except (ValueError, msgspec.MsgspecError):
        return None
    return past if past.seen else None


def time_of(value: object) -> float:
    """Seconds since 1970; 0 for what is no time."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0


def _count(value: object) -> int:
    """Builds that a phase was seen in; 1 for what is no count."""
    return value if isinstance(value, int) and 0 < value <= MOST_BUILDS else 1


class _Row(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One ``Seen`` as it is kept."""

    input_mib: float
    peak_mib: float
    wall_s: float
    course: Course = ()
    at_least: bool = False


def seen_of(text: str) -> tuple[Seen, ...]:
    return tuple(
        Seen(
            input_mib=row.input_mib,
            peak_mib=row.peak_mib,
            wall_s=row.wall_s,
            course=row.course if _can_be(row.course) else (),
            at_least=row.at_least,
        )
        for row in msgspec.json.decode(text, type=list[_Row])
        # A damaged or edited file: figures that no compiler has.
        if 0 <= row.input_mib <= LARGEST_MIB and 0 < row.peak_mib <= LARGEST_MIB and 0 <= row.wall_s <= LONGEST_S
    )


def _can_be(course: Course) -> bool:
    """Shares rise from above 0 to 1, and something was held."""
    shares = [0.0, *(until for until, _ in course)]
    rises = all(since < until for since, until in pairwise(shares)) and shares[-1] == 1.0
    return rises and all(0 <= mib <= LARGEST_MIB for _, mib in course) and any(mib > 0 for _, mib in course)


def fits_archs(made_for: str, archs: Sequence[str]) -> bool:
    """A unit that was built for ``made_for`` takes as much in a build for ``archs`` (empty: not known)."""
    then = set(filter(None, made_for.split(",")))
    return not then or not archs or (then >= set(archs) and len(then) <= len(archs) + OWN_ARCHS)


def work_of(builds: object, seen: object) -> float:
    """Seconds that one phase takes in a build, however often it runs in it; 0 for a row that makes no sense."""
    walls_s = [each.wall_s for each in _seen_or_nothing(seen)]
    return sum(walls_s) / min(_count(builds), KEPT_BUILDS, len(walls_s)) if walls_s else 0.0


def record(db: sqlite3.Connection, unit: FinishedUnit) -> None:
    marks = ", ".join("?" * 9)
    db.execute(
        f"INSERT INTO units ({COLUMNS}, updated_at) VALUES ({marks}) "  # noqa: S608
        f"ON CONFLICT ({COLUMNS}) DO UPDATE SET updated_at = excluded.updated_at",
        (*values(unit.key), unit.ended_at),
    )
    (unit_id,) = db.execute(f"SELECT id FROM units WHERE {EXACTLY}", values(unit.key)).fetchone()  # noqa: S608
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
    builds, seen = (1, []) if known is None else (_count(known[0]) + 1, _seen_or_nothing(known[1]))
    seen = _still_true(seen, [each.seen for each in phases])
    seen = seen[-min(MOST_SEEN, KEPT_BUILDS * len(phases)) :]
    db.execute(
        "INSERT OR REPLACE INTO phases (unit, kind, arch, tool, builds, seen, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (unit_id, *place, builds, msgspec.json.encode([_row(each) for each in seen]).decode(), ended_at),
    )


def _still_true(before: list[Seen], now: list[Seen]) -> list[Seen]:
    """That it did not fit stands until it has come to its end; that, until it takes more than there is."""
    if any(each.at_least for each in now):
        return [each for each in now if each.at_least]
    return [*(each for each in before if not each.at_least), *now]


def _row(seen: Seen) -> _Row:
    return _Row(round(seen.input_mib, 6), round(seen.peak_mib, 2), round(seen.wall_s, 3), seen.course, seen.at_least)


def _seen_or_nothing(text: object) -> list[Seen]:
    try:
        return list(seen_of(str(text)))
    except (ValueError, msgspec.MsgspecError):
        return []
