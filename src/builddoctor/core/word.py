"""What all enums of words are made of, and the one that several parts share: how sure something is."""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """An enum of words, each written and shown as its value on every Python."""

    __hash__ = str.__hash__
    """Enum's own is a call in Python, and kinds of phases are looked up thousands of times a second."""

    def __str__(self) -> str:
        return str(self.value)


class Confidence(Word):
    """How sure a verdict or a limit is."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
