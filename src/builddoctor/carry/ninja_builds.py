"""Folders that ninja builds in, on their way to another place: its files, and the commands that they stand for.

Does *not* cover: how the files are written (``ninja_files``), the build's other files (``moves``).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from builddoctor.carry.command_hash import hash_of
from builddoctor.carry.moves import Moves
from builddoctor.carry.ninja_files import Changes, changed_deps, changed_log, hashes_of, log_version, times_in
from builddoctor.gates.fronts import every_edge
from builddoctor.runtime.prepare import own_ninja

LOG = ".ninja_log"
DEPS = ".ninja_deps"


class NinjaBuilds:
    """As they were saved, until ``go_on``."""

    def __init__(self, folders: Sequence[Path], env: Mapping[str, str]) -> None:
        self._ninja = shutil.which("ninja", path=env.get("PATH")) or f"{own_ninja()}/ninja"
        self._before = {folder: self._commands(folder) for folder in folders}

    def times(self) -> set[int]:
        """All that the logs hold, in ns."""
        return {each for folder in self._before for each in times_in(_read(folder / LOG), _read(folder / DEPS))}

    def go_on(self, moves: Moves, times: Mapping[int, int]) -> None:
        """The logs say what they said, of the paths and times that hold now. The build files have moved already."""
        if not moves and not times:
            return
        for folder, before in self._before.items():
            log = _read(folder / LOG)
            known = hash_of(log_version(log))
            after = self._commands(folder) if moves and known else {}
            pairs = [(command, after[output]) for output, command in before.items() if output in after]
            changes = Changes(path=moves, hashes=hashes_of(pairs, known, moves) if known else {}, times=times)
            (folder / LOG).write_bytes(changed_log(log, changes))
            if deps := _read(folder / DEPS):
                (folder / DEPS).write_bytes(changed_deps(deps, changes))

    def _commands(self, folder: Path) -> dict[str, str]:
        """Of each output; none where ninja does not say."""
        return {edge.output: edge.command for edge in every_edge(self._ninja, ["-C", str(folder)], "") or ()}


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
