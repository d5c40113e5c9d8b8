"""Phases whose results an earlier build has kept: looked for before they ask, written where they would have been.

Covers: one build's use of a store, in threads: looking, taking, keeping. What cannot be read or written costs time and
no more: the phase runs. Does *not* cover: keys and files (``phase_store``), or the decision (``scheduler``: a phase
that is stored is admitted at once, since it needs no memory).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from builddoctor.cluster.parcels import ProgramDigests, content_of, pack_file, place
from builddoctor.core.errors import ClusterError
from builddoctor.core.phase import Outcome
from builddoctor.phase_store.likeness import Likeness
from builddoctor.phase_store.result import Result, Store
from builddoctor.runtime.sent_phases import LOST, Load, Returned

THREADS = 2
"""What a store takes of the processors: reading and packing a phase's files is some 0.05 s."""


class Sought(msgspec.Struct, frozen=True):
    """A phase that was looked for."""

    load: Load
    likeness: Likeness
    result: Result | None


class StoredPhases:
    """The store of one build. Its methods are called in the event loop."""

    def __init__(self, store: Store, *, tell: Callable[[str], None]) -> None:
        """``tell``: a warning for the user."""
        self._store = store
        self._tell = tell
        self._programs = ProgramDigests()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="store")
        self._problem = ""
        if store.problem:
            tell(
                f"no store at {store.problem}. The build goes on, and asks again later; is "
                "`builddoctor cluster serve --store FOLDER` running there, with the keys that are here?"
            )

    @property
    def resting(self) -> bool:
        """Nothing is to be prepared for it now."""
        return self._store.resting

    async def look_up(self, load: Load) -> Sought | None:
        """The phase's result, if there is one; None where its files cannot be read."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._look_up, load)

    def _look_up(self, load: Load) -> Sought | None:
        try:
            program = self._programs.of(load.program)
            inputs = [Path(load.cwd, file.path).read_bytes() for file in load.phase.inputs]
        except OSError:
            return None
        likeness = Likeness(load.phase, program, inputs)
        return Sought(load, likeness, self._store.find(likeness.key))

    async def take(self, sought: Sought) -> Returned:
        """Write what the phase would have written."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._take, sought)

    def _take(self, sought: Sought) -> Returned:
        load, likeness, result = sought.load, sought.likeness, sought.result
        assert result is not None, "only what was found is taken"
        files = load.phase.outputs
        try:
            contents = {
                file.name: likeness.show(number, content_of(packed))
                for number, (file, packed) in enumerate(zip(files, result.outputs, strict=True))
                if packed is not None
            }
            printed = likeness.show_printed(result.printed)
        except (ClusterError, KeyError, ValueError):
            contents, printed = {}, b""
        if load.phase.needed not in contents:
            self._store.refuse(likeness.key)
            return LOST
        try:
            place({Path(load.cwd, file.path): contents[file.name] for file in files if file.name in contents})
        except OSError as error:
            self._problem = self._problem or str(error)
            return LOST
        return Returned(
            outcome=Outcome.OK,
            printed=printed,
            peak_mib=result.peak_mib,
            wall_s=result.cpu_s,
            back_mib=sum(len(each.packed) for each in result.outputs if each is not None) / 2**20,
        )

    async def keep(self, sought: Sought, returned: Returned) -> None:
        """It has ended well: what it wrote is read now, before anything else has it, and put into the store later."""
        if self.resting or not sought.likeness.may_be_kept:
            return
        loop = asyncio.get_running_loop()
        contents = await loop.run_in_executor(self._threads, _read_outputs, sought.load)
        if contents is not None:
            self._threads.submit(self._put, sought.likeness, contents, returned)

    def _put(self, likeness: Likeness, contents: list[bytes | None], returned: Returned) -> None:
        try:
            # It may have failed since what was written was read; packing is what costs.
            if not self.resting and (result := _result(likeness, contents, returned)) is not None:
                self._store.put(result)
        except OSError as error:
            self._problem = self._problem or str(error)

    def close(self) -> None:
        """Wait for what is being written, make room, and say what went wrong."""
        self._threads.shutdown(wait=True)
        self._store.close()
        if self._problem:
            self._tell(f"some phases could not be kept or taken: {self._problem}")
        if times := self._store.unanswered:
            self._tell(
                f"the store gave no answer {_times(times)}, and was left alone for a while: {self._store.problem}"
            )
        if self._store.refused:
            self._tell(f"{self._store.refused} of the store's files were torn or altered: none was used")


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _read_outputs(load: Load) -> list[bytes | None] | None:
    """What it wrote, by place; None for what it did not. None in all where one that there is cannot be read."""
    found: list[bytes | None] = []
    for file in load.phase.outputs:
        try:
            found.append(Path(load.cwd, file.path).read_bytes())
        except FileNotFoundError:
            found.append(None)
        except OSError:
            return None
    return found


def _result(likeness: Likeness, contents: list[bytes | None], returned: Returned) -> Result | None:
    """As it is kept; None where something in it is this build's alone."""
    printed = likeness.hide_printed(returned.printed)
    hidden = [None if content is None else likeness.hide(number, content) for number, content in enumerate(contents)]
    if printed is None or [each is None for each in hidden] != [each is None for each in contents]:
        return None
    return Result(
        key=likeness.key,
        outputs=tuple(
            None if content is None else pack_file(str(number), content) for number, content in enumerate(hidden)
        ),
        printed=printed,
        peak_mib=returned.peak_mib,
        cpu_s=returned.cpu_s,
    )
