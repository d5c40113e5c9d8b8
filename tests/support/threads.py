"""Logs in the shape of public threads (``tests/corpus/threads``): labels, and how answers are counted.

Covers: reading one half, and what an answer is worth against its label. Does *not* cover: the judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from builddoctor.core.verdict import Diagnosis, Verdict
from builddoctor.core.word import Word
from builddoctor.diagnose.log_lines import text_of

FOLDER = Path(__file__).parents[1] / "corpus" / "threads"


class Half(Word):
    """Split by the hash of the repository's name, before any log was looked at."""

    LEARN = "learn"
    SCORED = "scored"


class ThreadLabel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the thread found out."""

    repo: str
    number: int
    verdict: Verdict
    also: tuple[Verdict, ...] = ()
    root: str
    """part of the line that is the innermost failing layer's first error"""
    cause: str
    remedy: tuple[str, ...]
    """patterns: a first advice that one of them finds would have helped"""
    sure: bool
    """False: the thread did not settle it, and a person read the log"""


class _Labels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    threads: dict[str, ThreadLabel]


class Worth(Word):
    """Of an answer."""

    RIGHT = "right"
    PARTLY = "partly"
    """the cause is right, the first advice is not"""
    ROOT = "unknown with root line"
    NO_ROOT = "unknown without"
    WRONG = "wrong"
    """another cause, or "nothing failed\""""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One log, its label, and what was said of it."""

    name: str
    label: ThreadLabel
    told: Diagnosis
    worth: Worth
    root: bool
    """it was shown as such, or, where the cause is unknown, next to the other in the first sentence: what counts"""
    anywhere: bool
    """it stood somewhere in the answer: as such, next to it, or among the other errors"""


def answers(half: Half, explain: Callable[[bytes], Diagnosis]) -> list[Answer]:
    """All of one half."""
    folder = FOLDER / half
    labels = msgspec.toml.decode((folder / "labels.toml").read_bytes(), type=_Labels).threads
    return [_answer(name, label, explain((folder / f"{name}.log").read_bytes())) for name, label in labels.items()]


def _answer(name: str, label: ThreadLabel, told: Diagnosis) -> Answer:
    wanted = _plain(label.root), _plain(text_of(label.root.encode()))
    first = told.root + (told.why if told.verdict is Verdict.UNKNOWN else "")
    root = any(each in _plain(first) for each in wanted)
    anywhere = root or any(each in _plain(line) for line in told.evidence for each in wanted)
    return Answer(name=name, label=label, told=told, worth=_worth(label, told, root=root), root=root, anywhere=anywhere)


def _worth(label: ThreadLabel, told: Diagnosis, *, root: bool) -> Worth:
    if told.verdict is None:
        return Worth.WRONG
    if told.verdict is Verdict.UNKNOWN:
        if not root:
            return Worth.NO_ROOT
        return Worth.RIGHT if Verdict.UNKNOWN in (label.verdict, *label.also) else Worth.ROOT
    if told.verdict not in (label.verdict, *label.also):
        return Worth.WRONG
    first = f"{told.fixes[0].text} {told.fixes[0].command}" if told.fixes else ""
    fits = any(re.search(pattern, first, re.IGNORECASE) for pattern in label.remedy)
    return Worth.RIGHT if fits or not label.remedy else Worth.PARTLY


def _plain(text: str) -> str:
    """Without blanks, which a cleaned line has lost in part."""
    return re.sub(r"\s+", "", text)
