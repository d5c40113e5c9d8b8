"""Units' names across builds, written into the trace, so that a recipe can be made from it without the source tree.

Covers: the target as the build tool calls it, and a digest of the source file. Does *not* cover: the name itself
(``supervise.unit_keys``), or recipes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from builddoctor.model.past import UnitKey
from builddoctor.model.phase import Unit
from builddoctor.sensors.source_digest import source_digest
from builddoctor.trace.records import UnitNamed
from builddoctor.units import printable


class Naming:
    """``write``: into the trace."""

    def __init__(self, write: Callable[[UnitNamed], None], at_s: Callable[[], float]) -> None:
        self._write = write
        self._at_s = at_s

    def unit_named(self, unit: Unit, key: UnitKey, cwd: str) -> None:
        self._write(
            UnitNamed(
                at_s=self._at_s(),
                unit_id=unit.unit_id,
                project=key.project,
                place=key.place,
                output=key.output,
                target=printable(_target(unit.output, cwd)),
                options=key.options,
                source_digest=source_digest(Path(cwd, unit.source)) if unit.source else "",
            )
        )


def _target(output: str, cwd: str) -> str:
    """Below ``cwd`` where it is; Ninja's own files name it so, or by its whole path."""
    path = os.path.normpath(os.path.join(cwd, output)) if output else ""
    below = os.path.relpath(path, cwd) if path else ""
    return below if not below.startswith("..") else path
