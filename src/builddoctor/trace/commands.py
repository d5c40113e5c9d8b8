"""Command lines of units in a trace: of units that are compiled alike, the common words are written once. Pure.

A project's units differ in a handful of words (source, object, dependency file). Covers: which earlier unit a command
is written as a change of, and putting it together again. Does *not* cover: masking (``trace.masking``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from builddoctor.core.events import UnitCommand

MOST_BYTES = 64 * 1024
"""Of one command line. Longer ones go into a file of options in practice, and are not written otherwise."""

BASES_KEPT = 16
"""Whole command lines that a later one is compared with."""

MOST_CHANGED = 0.5
"""Share of words: above, it is written whole."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a compiler driver."""

    tool: str
    cwd: str
    argv: tuple[str, ...]
    """without the driver itself"""


class CommandWriter:
    """Makes records of one build's commands, in order."""

    def __init__(self) -> None:
        self._bases: deque[tuple[str, Command]] = deque(maxlen=BASES_KEPT)

    def record(self, at_s: float, unit_id: str, command: Command) -> UnitCommand | None:
        """The record of a unit's command; None for one that is too long to be written."""
        if sum(map(len, command.argv)) > MOST_BYTES:
            return None
        best: tuple[str, list[tuple[int, str]]] | None = None
        for base_id, base in self._bases:
            changed = _changed(base, command)
            if changed is not None and (best is None or len(changed) < len(best[1])):
                best = (base_id, changed)
        if best is not None and len(best[1]) <= MOST_CHANGED * len(command.argv):
            return UnitCommand(at_s=at_s, unit_id=unit_id, like=best[0], changed=best[1])
        self._bases.append((unit_id, command))
        return UnitCommand(at_s=at_s, unit_id=unit_id, tool=command.tool, cwd=command.cwd, argv=list(command.argv))


def command_of(commands: Mapping[str, UnitCommand], unit_id: str) -> Command | None:
    """A unit's command; None where the trace does not have it, or not all of it."""
    record = commands.get(unit_id)
    if record is None:
        return None
    if not record.like:
        return Command(tool=record.tool, cwd=record.cwd, argv=tuple(record.argv)) if record.tool else None
    base = commands.get(record.like)
    if base is None or base.like or not base.tool:
        return None
    words = list(base.argv)
    for place, word in record.changed:
        if not 0 <= place < len(words):
            return None
        words[place] = word
    return Command(tool=base.tool, cwd=base.cwd, argv=tuple(words))


def _changed(base: Command, command: Command) -> list[tuple[int, str]] | None:
    """Words in which it differs; None where they cannot be put side by side."""
    if (base.tool, base.cwd, len(base.argv)) != (command.tool, command.cwd, len(command.argv)):
        return None
    pairs: Sequence[tuple[str, str]] = list(zip(base.argv, command.argv, strict=True))
    return [(place, word) for place, (before, word) in enumerate(pairs) if before != word]
