"""Programs of a staged build that stand in front of a real ninja (``render.staged``), told by their first lines."""

from __future__ import annotations

MARK = b"builddoctor's stand-in for ninja"
_HEAD_BYTES = 128


def is_stand_in(path: str) -> bool:
    """This file is one. A gate must not call it: it would look for a ninja on PATH, where the gate is."""
    try:
        with open(path, "rb") as file:
            return MARK in file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return False
