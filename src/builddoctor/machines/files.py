"""A machine by name or from a file: what ``machine show`` and ``plan --on`` take.

Covers: files that ``machine probe -o`` or ``machine show --json`` wrote, or that were written by hand like them.
Does *not* cover: probing this machine (``sensors.machine``).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from builddoctor.errors import MachineNotFoundError
from builddoctor.machines.catalogue import find_machine
from builddoctor.machines.profile import nominal
from builddoctor.model.machine import Machine
from builddoctor.model.profile import PROFILE_SCHEMA, MachineProfile, NominalMachine

LARGEST_FILE = 4 * 1024 * 1024
"""A probe of a machine with 34 NUMA nodes is 20 KB."""

_HINT = "a file from `builddoctor machine probe -o FILE` is one; `builddoctor machine list` shows those with a name"


class _Kind(msgspec.Struct):
    """What tells a probed machine from a profile: only the former was found with memory levels."""

    schema: int = PROFILE_SCHEMA
    levels: msgspec.Raw = msgspec.Raw(b"null")


def load_machine(name: str) -> Machine | NominalMachine:
    """A named machine, or one from a file; a name goes before a file that is called so. Raises MachineNotFoundError."""
    if "/" in name or name.endswith(".json"):
        return read_machine(Path(name))
    try:
        return nominal(find_machine(name))
    except MachineNotFoundError:
        if _is_file(Path(name)):
            return read_machine(Path(name))
        raise


def read_machine(path: Path) -> Machine | NominalMachine:
    """The machine in a file. Raises MachineNotFoundError: no such file, not a machine, or of a newer schema."""
    try:
        if path.exists() and not path.is_file():
            raise MachineNotFoundError(f"{path} is no file that holds a machine", hint=_HINT)
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise MachineNotFoundError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}", hint=_HINT
        ) from error
    if len(content) > LARGEST_FILE:
        raise MachineNotFoundError(f"{path} is too big to be a machine", hint=_HINT)
    try:
        kind = msgspec.json.decode(content, type=_Kind)
        if kind.schema > PROFILE_SCHEMA:
            raise MachineNotFoundError(
                f"{path} is of schema {kind.schema}, this builddoctor reads up to {PROFILE_SCHEMA}",
                hint="`pip install -U builddoctor`",
            )
        if bytes(kind.levels) != b"null":
            return msgspec.json.decode(content, type=Machine)
        return nominal(msgspec.json.decode(content, type=MachineProfile))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        # What is in the file may be quoted in the error; nothing of it reaches the terminal as a control sequence.
        said = str(error) if str(error).isprintable() else repr(str(error))
        raise MachineNotFoundError(f"{path} holds no machine: {said}", hint=_HINT) from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
