"""The summary of a CI job."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builddoctor.core.events import BuildResult
from builddoctor.diagnose.from_trace import judge
from builddoctor.trace.analysis import read_build
from builddoctor.trace.report import TraceReport
from builddoctor.ui.markdown import job_summary

TRACE = Path(__file__).parents[2] / "data" / "schema1" / "redone.jsonl"


@pytest.fixture
def report() -> TraceReport:
    return read_build(TRACE)


def test_it_says_how_it_went_and_what_would_do(report: TraceReport) -> None:
    text = job_summary(report, judge(report))
    assert text.startswith("### ✓ ")
    assert "| peak of all compilers at once | " in text
    assert "**Largest units**" in text
    assert "The largest compiler takes " in text
    assert "a runner of 7 GiB builds this" in text
    assert "The next run of the same takes about " in text


def test_what_is_left_is_said(report: TraceReport) -> None:
    assert report.summary is not None
    left_s = 3.5 * report.summary.wall_s
    report.summary = msgspec.structs.replace(
        report.summary, result=BuildResult.INTERRUPTED, exit_code=75, left_s=left_s
    )
    text = job_summary(report, judge(report))
    assert "is to be continued" in text
    assert "4 more runs" in text


def test_names_are_no_markup(report: TraceReport) -> None:
    """A file's or project's name may hold anything."""
    report.header = msgspec.structs.replace(report.header, title="<img src=x> [a](b) | `c`")
    report.units[0].unit = "a`b|<script>\nc.cu"
    text = job_summary(report, judge(report))
    assert "\\<img src=x\\>" in text
    assert "`a'b¦<script>" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} <= {3, 5}


def test_a_build_without_a_compiler(report: TraceReport) -> None:
    report.units = []
    assert job_summary(report, judge(report)).endswith("No compiler was seen.\n")
