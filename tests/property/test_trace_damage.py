"""Damaged and hostile traces, all the way to what a person sees: a clear error or a partial answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builddoctor.cli.output import json_text
from builddoctor.core.errors import TraceError
from builddoctor.core.events import BuildEnded, BuildEvent, BuildResult, Note, NoteLevel, PhaseStarted, UnitEnded
from builddoctor.diagnose.from_trace import judge
from builddoctor.trace.analysis import peek, read_build
from builddoctor.trace.compare import compare
from builddoctor.trace.report import TraceReport
from builddoctor.ui.layout import UNICODE
from builddoctor.ui.trace_page import comparison_page, failure_lines, phase_rows, trace_page, trace_rows, unit_rows
from support import trace_events as tr
from unit.builders import header, summary
from unit.small_traces import admitted, asked, ended, tick, unit

BOOT = "49de88c5"

SMALL: list[BuildEvent] = tr.events(
    header(boot_id=BOOT),
    unit(),
    asked(1),
    admitted(1),
    tick(2.5, 500),
    PhaseStarted(at_s=2.1, phase_id=1, pid=7),
    tr.sampled(at_s=3.0, phase_id=1, rss_mib=600.5),
    tr.killed(at_s=4.0, phase_id=1, reason="200 MiB left"),
    ended(1, 5.0, "killed-by-us", 900, signal=9),
    tr.requeued(at_s=5.1, phase_id=1, reserve_mib=1350, solo=True, lost_s=3.0),
    Note(at_s=5.2, text="careful", level=NoteLevel.WARNING),
    admitted(1, 6.0),
    tr.sampled(at_s=7.0, phase_id=1, rss_mib=800.5),
    tick(7.5, 800, headroom_mib=40),
    ended(1, 9.0, "killed-by-kernel", 3900, signal=9, cause="cgroup"),
    tr.gave_up(at_s=9.0, phase_id=1, verdict="too-big", reason="alone"),
    UnitEnded(at_s=9.1, unit_id="u1"),
    BuildEnded(at_s=9.5, summary=summary(result=BuildResult.FAILED, exit_code=2, verdict="too-big")),
)
LINES = [msgspec.json.encode(record) + b"\n" for record in SMALL]
WHOLE = b"".join(LINES)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage") / "t.jsonl"


def seen(file: Path, content: bytes, *, width: int = 100, picture: bool = True) -> TraceReport | None:
    """Ask everything of a file with this content; None where it is said to be no trace.

    Whatever is printed has no character that a terminal acts upon.
    """
    file.write_bytes(content)
    try:
        report, ends = read_build(file, points=20), peek(file)
    except TraceError:
        return None
    verdicts = [judge(report), judge(report, boot_id=BOOT, idle_s=1.0), judge(report, boot_id="other", idle_s=1e9)]
    shown = [*trace_rows([ends], width=width), *unit_rows(report.units, width=width)]
    shown += [*phase_rows(report.phases, width=width), *comparison_page(compare(report, report), width=width)]
    lines = [line.plain for line in shown]
    for verdict in verdicts:
        lines += failure_lines(report, verdict, width=width)
        lines += [command for fix in verdict.fixes if (command := fix.command)]
    if picture:
        lines += [line.plain for line in trace_page(report, verdicts[0], width=width, signs=UNICODE)]
    assert [line for line in lines if not line.isprintable()] == []
    for value in (report, verdicts[0], ends):
        text = json_text(value)
        assert not any(char < " " or "\x7f" <= char <= "\x9f" for char in text)
        msgspec.json.decode(text)
    return report


def test_a_small_trace_cut_at_every_byte_is_a_partial_answer(file: Path) -> None:
    """Or is no trace, where the header itself is cut."""
    for size in range(len(WHOLE) + 1):
        report = seen(file, WHOLE[:size], picture=size % 23 == 0)
        assert (report is None) == (size < len(LINES[0]) - 1)
        if report is not None:
            assert report.whole == (size >= len(WHOLE) - 1)
            assert len(report.phases) == (size >= len(b"".join(LINES[:3])) - 1)


@given(start=st.integers(0, len(WHOLE)), size=st.integers(0, 900), hole=st.binary(max_size=80))
def test_a_hole_with_anything_in_it_is_a_partial_answer(file: Path, start: int, size: int, hole: bytes) -> None:
    """Everything is still asked of it, and answered."""
    report = seen(file, WHOLE[:start] + hole + WHOLE[start + size :], picture=False)
    assert report is not None or start < len(LINES[0])


@given(order=st.permutations(range(1, len(LINES))), dropped=st.sets(st.integers(1, len(LINES) - 1)))
def test_lines_in_any_order_are_answered(file: Path, order: list[int], dropped: set[int]) -> None:
    """Ends before beginnings, kills of phases that nobody announced."""
    content = b"".join([LINES[0], *(LINES[number] for number in order if number not in dropped)])
    assert seen(file, content, picture=False) is not None


@given(content=st.binary(max_size=300))
def test_random_bytes_are_no_trace(file: Path, content: bytes) -> None:
    """Nor are they behind a header more than lines that cannot be read."""
    assert seen(file, content) is None
    report = seen(file, LINES[0] + content, picture=False)
    assert report is not None
    assert report.units == []


HOSTILE = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "\x1b]0;owned\x07",
            "\x1b[2J\x9b31m",
            "</script><img src=x onerror=alert(1)>",
            "\r\n\u2028\u202e\u0085",
            "'; rm -rf ~ #",
            "$(touch x)`id`",
            "=cmd|' /C calc'!A0",
            "a" * 5000,
            "\U000e0001\ufeff",
        ]
    ),
)
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(10**30), 10**30),
    st.sampled_from([0, -0.0, 1e-320, 1e12, -1e12, 1e9, -1e9, 2**53, 2**64, 1e308]),
)


def replaced(value: Any, choose: Any) -> Any:
    """The same structure with texts and numbers chosen anew here and there."""
    if isinstance(value, dict):
        return {name: each if name in ("t", "schema") else replaced(each, choose) for name, each in value.items()}
    if isinstance(value, list):
        return [replaced(each, choose) for each in value]
    if isinstance(value, bool) or value is None:
        return value
    return choose(HOSTILE if isinstance(value, str) else NUMBERS, value)


@settings(max_examples=60)
@given(data=st.data(), rate=st.sampled_from([1, 3, 10]), width=st.sampled_from([40, 60, 100, 200]))
def test_hostile_texts_and_numbers_are_answered_without_being_passed_on(
    file: Path, data: st.DataObject, rate: int, width: int
) -> None:
    """In any field of any record, as many as one likes."""

    def choose(strategy: st.SearchStrategy[Any], value: Any) -> Any:
        return data.draw(strategy) if data.draw(st.integers(0, rate)) == 0 else value

    lines = [replaced(msgspec.json.decode(line), choose) for line in LINES]
    content = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    seen(file, content, width=width)


def test_hostile_texts_in_every_field_at_once(file: Path) -> None:
    """The worst of them, everywhere."""
    for hostile in ("\x1b]0;owned\x07\x9b2J\r\n\u202e", "<script>" * 50, "", "a" * 100_000):

        def choose(_: object, value: Any, text: str = hostile) -> Any:
            return text if isinstance(value, str) else value

        everywhere = [replaced(msgspec.json.decode(line), choose) for line in LINES]
        content = b"".join(msgspec.json.encode(line) + b"\n" for line in everywhere)
        for width in (60, 200):
            assert seen(file, content, width=width) is not None


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"1" * 5000, b"NaN", b"Infinity", b"1e999999999"])
def test_numbers_that_are_none_cost_their_line(file: Path, number: bytes) -> None:
    """Whatever the decoder makes of them."""
    report = seen(file, WHOLE + b'{"t":"note","at_s":' + number + b',"text":"x"}\n')
    assert report is not None
    assert (report.skipped, report.last_at_s) == (1, 9.5)


def test_deep_nesting_costs_its_line(file: Path) -> None:
    """A million brackets are one line that cannot be read."""
    assert seen(file, WHOLE + b"[" * 1_000_000 + b"\n" + b'{"t":' * 100_000 + b"\n") is not None
