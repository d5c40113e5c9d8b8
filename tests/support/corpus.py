"""The corpus of logs (``tests/corpus``): its labels, and how verdicts about it are counted.

Covers: reading the labels, and precision, recall and false alarms of any judge. Does *not* cover: the judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from builddoctor.core.verdict import Verdict

CORPUS = Path(__file__).parents[1] / "corpus"

Judge = Callable[[bytes], Verdict | None]


class Label(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person says of an excerpt (the head of labels.toml tells the rules)."""

    shows: str
    shape: str = ""
    verdict: Verdict | None = None
    also: tuple[Verdict, ...] = ()
    heldout: bool = False
    note: str = ""


class Labels(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Labels by the excerpt's name."""

    failing: dict[str, Label]
    innocent: dict[str, Label]


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """One log, its label and what was said of it."""

    name: str
    label: Label
    said: Verdict | None

    @property
    def claims(self) -> bool:
        """A cause is named; ``unknown`` and no verdict name none."""
        return self.said not in (None, "unknown")

    @property
    def right(self) -> bool:
        """Whether what was said is what the label says, or may be said as well."""
        return self.said == self.label.verdict or self.said in self.label.also


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over failing excerpts."""

    claims: int
    right_claims: int
    labelled: int
    """excerpts with a cause that can be told"""
    found: int
    """of these, those whose cause was told right"""

    @property
    def precision(self) -> float:
        """Right claims of all claims; 1 without any."""
        return self.right_claims / self.claims if self.claims else 1.0

    @property
    def recall(self) -> float:
        """Found of labelled; 1 without any."""
        return self.found / self.labelled if self.labelled else 1.0


def read_labels(folder: Path = CORPUS) -> Labels:
    """All labels."""
    return msgspec.toml.decode((folder / "labels.toml").read_bytes(), type=Labels)


def judged(kind: str, labels: dict[str, Label], judge: Judge, folder: Path = CORPUS) -> list[Excerpt]:
    """Every excerpt of a kind (``failing``, ``innocent``) with what the judge says of it."""
    return [
        Excerpt(name=name, label=label, said=judge((folder / kind / f"{name}.log").read_bytes()))
        for name, label in labels.items()
    ]


def score(excerpts: Iterable[Excerpt]) -> Score:
    """Precision counts every claim, also about excerpts labelled ``unknown``; recall leaves these out."""
    every = list(excerpts)
    claims = [each for each in every if each.claims]
    labelled = [each for each in every if each.label.verdict != "unknown"]
    return Score(
        claims=len(claims),
        right_claims=sum(each.right for each in claims),
        labelled=len(labelled),
        found=sum(each.claims and each.right for each in labelled),
    )
