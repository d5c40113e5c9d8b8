"""A verdict on a screen: in a sentence, what to do with commands that survive copy and paste, and the evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builddoctor.core.verdict import Diagnosis, Fix, Verdict
from builddoctor.core.word import Confidence
from builddoctor.ui.verdict import IN_WORDS, explain_page, gitlab_report

LONG = "builddoctor run --toolkit 13.0 -- env " + "A=b " * 60 + "make"


def verdict(name: Verdict | None = Verdict.TOO_BIG, **fields: object) -> Diagnosis:
    usual: dict[str, object] = {"confidence": Confidence.MEDIUM, "died": "cicc of gelu.cu", "why": "it does not fit"}
    usual["evidence"] = ["line 4: Killed " + "x" * 2000]
    other = Fix(text="another nvcc", changes_binary=True, effect="6 GiB less")
    usual["fixes"] = [Fix(text="more memory", command=LONG), other]
    return Diagnosis(verdict=name, **{**usual, **fields})  # type: ignore[arg-type]


def page(told: Diagnosis, width: int = 100) -> list[str]:
    return [line.plain for line in explain_page("build.log", told, lines=7, width=width)]


def test_every_verdict_has_words() -> None:
    """A name is for programs; a person reads a sentence."""
    assert set(IN_WORDS) == set(Verdict)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_only_what_is_to_be_pasted_is_longer_than_a_line(width: int) -> None:
    """A command is never wrapped: it would not be one any more."""
    lines = page(verdict(), width)
    assert [line for line in lines if len(line) > width] == ["     " + LONG.rstrip()]


def test_each_way_out_says_whether_the_binary_changes() -> None:
    """And what to expect of it, where that was measured."""
    text = "\n".join(page(verdict(), 200))
    assert "1. more memory (changes nothing in the binary)" in text
    assert "2. another nvcc (changes the binary; 6 GiB less)" in text


def test_where_nothing_is_built_no_binary_is_spoken_of() -> None:
    """Of a GPU that is full, what matters is whether results change."""
    text = "\n".join(
        page(verdict(Verdict.GPU_OOM, fixes=[Fix(text="a smaller batch", effect="changes no results")]), 200)
    )
    assert "1. a smaller batch (changes no results)" in text
    assert "binary" not in text


def test_without_a_verdict_two_lines_are_enough() -> None:
    """Nothing died, nothing is to be done, and no evidence is needed."""
    lines = page(verdict(None, why="it went well", died="", evidence=[], fixes=[]))
    assert lines == ["· build.log: nothing to explain in 7 lines", "  why     it went well"]


def test_a_log_that_does_not_say_how_it_went_is_told_by_its_last_line() -> None:
    """Whoever asks mostly has a build that failed: the rest of the log may be elsewhere."""
    nothing = verdict(None, why="nothing in it says that anything failed", root="line 7: 40 %", evidence=[], fixes=[])
    lines = page(nothing, 120)
    assert lines[1:3] == ["  why     nothing in it says that anything failed", "  last    line 7: 40 %"]
    assert "2>&1 | tee build.log" in " ".join(map(str.strip, lines[3:]))


def test_nothing_moves_the_cursor() -> None:
    """Texts of anybody: escape sequences, ends of lines and marks of direction are shown as nothing or as words."""
    odd = "a\x1b[31mb\nc\r\u202ed\x07"
    told = verdict(died=odd, why=odd, evidence=[odd], fixes=[Fix(text=odd, command=odd)])
    assert all(char.isprintable() for line in page(told) for char in line)


@pytest.mark.parametrize(
    ("root", "path", "line"),
    [
        ("src/a.cu(7): error: no", "src/a.cu", 7),
        ("../src/a.cu:7:1: error: no", "src/a.cu", 7),
        ("{folder}/src/a.cu:7: error: no", "src/a.cu", 7),
        ("/usr/include/b.h:7: error: no", ".gitlab-ci.yml", 1),
        ("src/gone.cu:7: error: no", ".gitlab-ci.yml", 1),
        ("Killed", ".gitlab-ci.yml", 1),
    ],
)
def test_a_finding_for_gitlab_stands_at_a_file_of_the_checkout(tmp_path: Path, root: str, path: str, line: int) -> None:
    """As it is called there, from wherever the compiler was started; what is nowhere in it is about the CI file."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.cu").touch()
    (finding,) = json.loads(gitlab_report(verdict(root=root.format(folder=tmp_path)), tmp_path))
    assert finding["location"] == {"path": path, "lines": {"begin": line}}
    assert finding["description"].startswith("it does not fit")
    assert finding["description"].endswith("First: more memory")


def test_what_went_well_is_no_finding(tmp_path: Path) -> None:
    assert gitlab_report(verdict(None), tmp_path) == "[]"
