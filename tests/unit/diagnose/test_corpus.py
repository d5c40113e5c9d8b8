"""The corpus of logs: its own rules, and how well verdicts of text alone do on it."""

from __future__ import annotations

import msgspec
import pytest

from builddoctor.core.verdict import Verdict
from support.corpus import CORPUS, Excerpt, Label, judged, read_labels, score
from support.told import explain

LABELS = read_labels()
PRECISION, RECALL = 0.97, 0.9


def said_of(text: bytes) -> Verdict | None:
    return explain([text]).diagnosis.verdict


@pytest.fixture(scope="module")
def failing() -> list[Excerpt]:
    return judged("failing", LABELS.failing, said_of)


@pytest.fixture(scope="module")
def innocent() -> list[Excerpt]:
    return judged("innocent", LABELS.innocent, said_of)


def table(excerpts: list[Excerpt]) -> str:
    return "\n".join(f"{each.name}: {each.label.verdict}, said {each.said}" for each in excerpts)


# -- its own rules -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "least"), [("failing", 120), ("innocent", 60)])
def test_every_excerpt_has_a_label_and_every_label_an_excerpt(kind: str, least: int) -> None:
    """Names of files and of labels are the same, and there are enough of them."""
    names = {path.name.removesuffix(".log") for path in (CORPUS / kind).iterdir()}
    assert names == set(getattr(LABELS, kind))
    assert len(names) >= least


def test_labels_of_failures_are_complete() -> None:
    """Each has a verdict, what it shows and where its shape is from, and allows nothing twice."""
    for name, label in LABELS.failing.items():
        assert all((label.verdict, label.shows, label.shape)), name
        assert len({label.verdict, *label.also}) == 1 + len(label.also), name
        assert Verdict.UNKNOWN not in label.also, f"{name}: it is never wrong, and never a find"


def test_innocent_excerpts_have_no_verdict() -> None:
    """What did not fail has no cause, and none that may be said."""
    assert [name for name, label in LABELS.innocent.items() if label.verdict or label.also or not label.shows] == []


def test_every_verdict_that_a_text_can_show_is_there() -> None:
    """Verdicts that only a trace can give aside, each has at least three excerpts."""
    of_traces_only = {Verdict.NOT_REDOABLE}
    for verdict in set(Verdict) - of_traces_only:
        assert sum(label.verdict == verdict for label in LABELS.failing.values()) >= 3, verdict


def test_a_third_is_held_out() -> None:
    """Enough that a figure of it says something."""
    every = [*LABELS.failing.values(), *LABELS.innocent.values()]
    assert 0.3 < sum(label.heldout for label in every) / len(every) < 0.4


def test_bytes_are_kept_as_they_are() -> None:
    """CRLF, escapes, NUL, bytes that are not UTF-8 and ends without a line feed did survive version control."""
    every = {path.name: path.read_bytes() for kind in ("failing", "innocent") for path in (CORPUS / kind).iterdir()}
    assert b"\r\n" in every["crlf-signal9.log"]
    assert b"\x1b[01;31m" in every["ansi-fatal-red.log"]
    assert b"\0" * 300 in every["nul-bytes-killed.log"]
    assert not every["truncated-end-mid-word.log"].endswith(b"\n")
    assert every["empty.log"] == b""
    for name in ("fr-latin1-make-137.log", "utf8-cut-multibyte.log", "ru-cc1plus-ubito-cp1251.log"):
        with pytest.raises(UnicodeDecodeError):
            every[name].decode()


# -- counting ----------------------------------------------------------------------------------------------------


def of(label: Verdict, said: Verdict | None, *also: Verdict) -> Excerpt:
    return Excerpt(name="x", label=Label(shows="x", verdict=label, also=also), said=said)


def test_a_wrong_claim_costs_precision_and_silence_costs_recall() -> None:
    """One right, one allowed, one wrong, one silent: precision 2 of 3, recall 2 of 4."""
    counts = score(
        [
            of(Verdict.TMPFS, Verdict.TMPFS),
            of(Verdict.PARALLEL, Verdict.TOO_BIG, Verdict.TOO_BIG),
            of(Verdict.SOURCE, Verdict.OOMD),
            of(Verdict.OOMD, Verdict.UNKNOWN),
        ]
    )
    assert (counts.precision, counts.recall) == (pytest.approx(2 / 3), 0.5)


def test_a_claim_about_what_cannot_be_told_is_wrong_but_nothing_is_missed() -> None:
    """An excerpt labelled unknown counts for precision alone, unless its label allows what was said."""
    counts = score(
        [
            of(Verdict.UNKNOWN, Verdict.PARALLEL),
            of(Verdict.UNKNOWN, Verdict.UNKNOWN),
            of(Verdict.UNKNOWN, Verdict.TMPFS, Verdict.TMPFS),
        ]
    )
    assert (counts.claims, counts.right_claims, counts.labelled) == (2, 1, 0)


# -- verdicts ----------------------------------------------------------------------------------------------------


def test_precision_over_the_corpus(failing: list[Excerpt]) -> None:
    """Of a hundred causes that are named, ninety-seven are right: unknown rather than wrong."""
    wrong = [each for each in failing if each.claims and not each.right]
    assert score(failing).precision >= PRECISION, table(wrong)


def test_recall_over_the_corpus(failing: list[Excerpt]) -> None:
    """Of ten failures whose cause their text tells, nine are told right."""
    missed = [each for each in failing if each.label.verdict != Verdict.UNKNOWN and not (each.claims and each.right)]
    assert score(failing).recall >= RECALL, table(missed)


def test_innocent_logs_get_no_verdict(innocent: list[Excerpt]) -> None:
    """Builds that went well, documents and sources about failures, training, noise: nothing is said to have failed."""
    assert table([each for each in innocent if each.said is not None]) == ""


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("name", ["crlf-signal9", "buildkit-tty-redraw", "ansi-fatal-red", "truncated-end-mid-word"])
def test_how_a_log_is_cut_into_chunks_changes_nothing(name: str, size: int) -> None:
    """The same words for any size of what is read at once."""
    text = (CORPUS / "failing" / f"{name}.log").read_bytes()
    whole = explain([text])
    assert explain(text[at : at + size] for at in range(0, len(text), size)) == whole
    assert msgspec.json.encode(whole)
