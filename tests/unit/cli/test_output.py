"""What commands print: notes, errors, JSON."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builddoctor.cli.output import json_text, print_error, print_notes
from builddoctor.core.board import EventRow
from builddoctor.core.check import Check, Report, Status, Topic
from builddoctor.core.errors import BuildDoctorError
from builddoctor.trace.analysis import Peek
from builddoctor.ui.progress import event_line
from builddoctor.ui.trace_page import trace_rows
from unit.builders import header

EVIL = "\x1b]0;owned\x07\x9b2J\r\u202eno"


def test_notes_keep_their_lines_and_nothing_that_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Help has many lines; names of files may hold anything, also bytes that are no UTF-8."""
    print_notes([f"one\n\ttwo {EVIL}", "name \udcff"])
    said = capsys.readouterr().err
    assert said.splitlines() == ["one", "\ttwo \\x1b]0;owned\\x07\\x9b2J\\r\\u202eno", "name \\udcff"]


def test_errors_are_as_clean(capsys: pytest.CaptureFixture[str]) -> None:
    """Message and hint alike."""
    print_error(BuildDoctorError(f"no such path: {EVIL}", hint=f"cd {EVIL}"))
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 2
    assert "\x1b" not in said
    assert "no such path: \\x1b]0;" in said


def test_events_and_traces_name_files_of_somebodys() -> None:
    """Without a terminal's control sequences in them."""
    peek = Peek(path="t", header=msgspec.structs.replace(header(), title=EVIL), last_at_s=1.0, exit_code=0)
    assert event_line(EventRow(at_s=1.0, text=EVIL)).isprintable()
    assert all(row.plain.isprintable() for row in trace_rows([peek]))


@pytest.mark.parametrize("pretty", [True, False])
def test_a_name_that_is_no_utf_8_stands_in_json_as_an_escape(pretty: bool) -> None:
    """Everything else is as it was."""
    check = Check(name="n", topic=Topic.DISK, status=Status.WARNING, text="/p/\udcff is full", hint="ünï")
    report = Report(
        status=Status.WARNING,
        project="\udcff",
        archs=("sm_90",),
        cores=1,
        limit_mib=1.0,
        headroom_mib=1.0,
        budget_mib=1.0,
        limited_by=str(Path("/sys/\udcff")),
        checks=(check,),
    )
    again = msgspec.json.decode(json_text(report, pretty=pretty), type=Report)
    assert (again.project, again.limited_by) == ("\\udcff", "/sys/\\udcff")
    assert again.checks == (msgspec.structs.replace(check, text="/p/\\udcff is full"),)
