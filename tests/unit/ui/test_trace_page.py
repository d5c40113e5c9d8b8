"""The pages and tables of traces: what they say, how wide they are, and what they never pass on."""

from __future__ import annotations

import msgspec
import pytest

from builddoctor.core.events import BuildEnded, BuildResult, Note, NoteLevel
from builddoctor.core.phase import STORE
from builddoctor.diagnose.from_trace import judge
from builddoctor.trace.analysis import Peek
from builddoctor.trace.compare import compare
from builddoctor.trace.report import PhaseRow, TraceReport, UnitRow
from builddoctor.ui.layout import ASCII, UNICODE
from builddoctor.ui.trace_page import (
    comparison_page,
    failure_lines,
    headline,
    off,
    phase_rows,
    trace_page,
    trace_rows,
    unit_rows,
)
from support import trace_events as tr
from support.pages import plain
from unit.builders import header, summary
from unit.small_traces import admitted, asked, ended, read, tick, unit
from unit.trace.test_compare import build

EVIL = "\x1b]0;owned\x07\x9b2J\r\n\u202e<script>alert(1)</script>"


def given_up(name: str = "/src/a.cu", **fields: object) -> TraceReport:
    """A build that failed for a phase that does not fit, with a bit of everything."""
    told = summary(
        result=BuildResult.FAILED, exit_code=2, verdict="too-big", wall_s=20.0, trace="/t/20250101-abc123.jsonl"
    )
    end = BuildEnded(at_s=20.0, summary=told)
    records: list[tr.Events] = [
        unit(source=name, output=name),
        *(asked(1), admitted(1), tick(2.5, 500), tr.killed(at_s=3.0, phase_id=1, reason=f"90 MiB left {name}")),
        *(ended(1, 3.0, "killed-by-us", 900, signal=9), tick(3.5, 2900)),
        tr.requeued(at_s=3.1, phase_id=1, reserve_mib=1350, solo=True, lost_s=1.0),
        Note(at_s=3.2, text=f"careful with {name}", level=NoteLevel.WARNING),
        Note(at_s=3.3, text=f"waits: {name}", level=NoteLevel.HOLD),
        *(admitted(1, 4.0), tick(8.0, 3500), ended(1, 9.0, "killed-by-kernel", 3900, signal=9, cause="cgroup")),
        tr.gave_up(at_s=9.0, phase_id=1, verdict="too-big", reason="alone"),
        *(tick(15.0, 10), end),
    ]
    return read(*records, **fields)


def page(report: TraceReport, width: int = 100, *, unicode: bool = True) -> list[str]:
    signs = UNICODE if unicode else ASCII
    return [line.plain for line in trace_page(report, judge(report), width=width, signs=signs)]


def test_a_page_says_what_died_and_why_and_what_to_do() -> None:
    """And shows memory over time, the worst phases and what happened when."""
    lines = page(given_up())
    assert lines[0] == "✗ demo · sm_90 failed with exit code 2 after 0:20"
    text = "\n".join(lines)
    for words in (
        "died    cicc sm_90 of a.cu, killed by the kernel at 3.8 GiB",
        "next    7 GiB or more: ",
        "K killed",
        "E ended by builddoctor",
        "X given up",
        "worst phases",
        "   0:03  builddoctor ends cicc sm_90 of a.cu: 90 MiB left",
        "   0:03  cicc sm_90 of a.cu is run again, alone, with 1.3 GiB; 1 s lost",
        "and 1 waits for memory or a core",
        "what to do, cheapest first",
        "evidence for too-big (high confidence)",
        "more: builddoctor trace units abc123",
    ):
        assert words in text.replace("/src/", "")


def test_a_good_build_has_no_verdict_and_no_advice() -> None:
    """The page begins with what counts and ends with where there is more."""
    end = BuildEnded(at_s=10.0, summary=summary())
    report = read(unit(), asked(1), admitted(1), tick(2.0, 90), ended(1), tick(9.5, 0), end)
    lines = page(report)
    assert lines[0] == "✓ demo · sm_90 in 12:41"
    assert not any(word in line for line in lines for word in ("died", "what to do", "evidence", "last seconds"))


def test_a_good_build_says_what_its_time_went_for() -> None:
    """Where memory was what cores waited for; where one unit was what all waited for."""

    def told(*phases: tuple[int, float, float, float], wall_s: float) -> str:
        records = [
            record
            for number, asks_s, starts_s, ends_s in phases
            for record in (
                unit(unit_id=f"u{number}", source=f"/src/{number}.cu"),
                asked(number, asks_s, unit_id=f"u{number}"),
                admitted(number, starts_s),
                ended(number, ends_s, wall_s=ends_s - starts_s, cpu_s=ends_s - starts_s),
            )
        ]
        end = BuildEnded(at_s=wall_s, summary=summary(wall_s=wall_s))
        return " ".join(" ".join(page(read(*records, end, cores=2))).split())

    short = told((1, 0.0, 0.0, 30.0), (2, 0.0, 0.0, 10.0), (3, 0.0, 30.0, 60.0), wall_s=60.0)
    assert "time 2 cores busy for 0:10 of 1:00, some idle for want of memory for 0:20, some with nothing to do" in short
    assert "with twice the cores 0:30 at best, with twice the memory 0:35 · longest unit 0:30" in short
    alone = told((1, 0.0, 0.0, 55.0), (2, 0.0, 0.0, 10.0), wall_s=60.0)
    assert "1.cu alone takes 0:55: more cores or memory buy little" in alone


def test_a_trace_that_stops_short_shows_its_last_seconds() -> None:
    """What was in use, who ran, how large and for how long."""
    report = read(unit(), asked(1), admitted(1), tick(8.0, 700, headroom_mib=50), tick(9.0, 740, headroom_mib=12))
    text = "\n".join(page(report))
    assert "✗ demo · sm_90: the trace stops short after 0:09" in text
    assert "the last seconds, up to 0:09" in text
    assert "0:09  4.0 GiB of 4.0 GiB in use, 740 MiB by 1 phases, 2 waiting" in text
    assert "running  cicc sm_90 a.cu: 0 MiB of ~100 MiB, for 0:07" in text
    assert "Memory was short: 12 MiB of 4.0 GiB left" in " ".join(text.split())


def test_a_build_that_still_runs_is_shown_as_such() -> None:
    """No cross, no advice."""
    report = read(tick(5.0, 10), boot_id="b")
    verdict = judge(report, boot_id="b", idle_s=0.5)
    assert headline(report, verdict) == "· demo · sm_90 runs since 0:05"


def test_the_last_words_of_a_failed_build_are_what_matters() -> None:
    """What died, why, what next, and the command that shows more, in this order and last."""
    report = given_up()
    lines = failure_lines(report, judge(report), width=200)
    assert [line.split()[0] for line in lines] == ["died", "why", "next", "more"]
    assert lines[-1] == "  more    builddoctor trace show abc123   (the evidence and 2 more ways)"


def test_a_trace_elsewhere_is_named_by_its_file_on_the_page_and_in_the_last_words() -> None:
    """An id is looked up in builddoctor's own folder alone."""
    report = given_up()
    assert report.summary is not None
    report.summary = msgspec.structs.replace(report.summary, trace="/b/my build.jsonl")
    assert failure_lines(report, judge(report), width=200)[-1].startswith(
        "  more    builddoctor trace show '/b/my build.jsonl' "
    )
    assert "builddoctor trace view '/b/my build.jsonl'" in page(report)[-1]


@pytest.mark.parametrize("width", [40, 60, 100, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_nothing_but_what_is_to_be_pasted_is_wider_than_the_terminal(width: int, unicode: bool) -> None:
    """On narrow terminals columns are left out, and names keep their end."""
    report = given_up(name="/src/" + "deep/" * 30 + "gelu.cu")
    lines = [line for line in page(report, width, unicode=unicode) if "builddoctor " not in line]
    lines += plain([*unit_rows(report.units, width=width), *phase_rows(report.phases, width=width)])
    known = Peek(path="t", header=header(title="t" * 300), last_at_s=1.0, exit_code=0)
    lines += plain(trace_rows([known], width=width))
    peaks = {f"{'deep/' * 30}k{number}.cu": 1000.0 for number in range(9)}
    grown = compare(build(peaks), build({**peaks, "k.cu": 1.0}, nvcc="13", cwd="/elsewhere" * 30))
    lines += [line.plain for line in comparison_page(grown, width=width)]
    # Tables have columns that cannot be left out.
    assert max(len(line) for line in lines) <= max(width, 58)


@pytest.mark.parametrize("width", [60, 100, 200])
def test_hostile_names_never_reach_the_terminal_as_they_are(width: int) -> None:
    """Title, command, folder, sources, reasons, notes and ids come from whoever wrote the trace."""
    report = given_up(
        name=EVIL, title=EVIL, command=[EVIL], cwd=EVIL, trace_id=EVIL, archs=[EVIL], limited_by=EVIL, started_at=EVIL
    )
    other = given_up(nvcc=EVIL, builddoctor=EVIL)
    peek = Peek(path=EVIL, header=report.header, last_at_s=1.0, exit_code=None)
    lines = [
        *page(report, width),
        *failure_lines(report, judge(report), width=width),
        *plain(unit_rows(report.units, width=width)),
        *plain(phase_rows(report.phases, width=width)),
        *plain(trace_rows([peek], width=width)),
        *(line.plain for line in comparison_page(compare(report, other), width=width)),
        *(line.plain for line in comparison_page(compare(other, report), width=width)),
    ]
    assert [line for line in lines if not line.isprintable()] == []


def test_a_torn_page_is_as_clean() -> None:
    """The last seconds name what ran."""
    admit = tr.admitted(at_s=2.0, phase_id=1, reserve_mib=1, waited_s=0, running=1)
    ask = asked(1)
    report = read(tr.unit_began(at_s=0.0, unit_id="u1", source=EVIL), ask, admit, tick(3.0, 1), tick(4.0, 1), cwd=EVIL)
    report.phases[0].source = report.phases[0].kind = report.phases[0].arch = EVIL
    assert [line for line in page(report) if not line.isprintable()] == []


@pytest.mark.parametrize(
    ("estimate", "peak", "words"),
    [(100, 112, "+12%"), (100, 60, "-40%"), (0, 60, ""), (60, 0, ""), (100, 2000, "x20"), (1e-9, 1e12, ">x9999")],
)
def test_estimate_and_truth_are_compared_in_few_characters(estimate: float, peak: float, words: str) -> None:
    """By how much the truth was above; absurd ratios stay short."""
    assert off(estimate, peak) == words


def test_wide_tables_tell_the_peaks_of_each_kind() -> None:
    """Narrow ones name the worst phase, or nothing."""
    report = given_up()
    assert "ptxas" in plain(unit_rows(report.units, width=150))[0]
    assert "worst phase" in plain(unit_rows(report.units, width=100))[0]
    assert "worst phase" not in plain(unit_rows(report.units, width=60))[0]
    assert "cicc sm_90" in plain(unit_rows(report.units, width=100))[1]


def test_a_list_tells_running_builds_from_those_that_were_cut_off() -> None:
    """Result, peak and limit, architectures and project."""
    known = {"path": "t", "header": header(), "last_at_s": 61.0, "limit_mib": 4096.0}
    good = Peek(**known, exit_code=0, result=BuildResult.OK, peak_mib=2048.0)
    runs = Peek(**known, exit_code=None, still_written=True)
    cut, failed = Peek(**known, exit_code=None), Peek(**known, exit_code=3, result=BuildResult.FAILED)
    rows = plain(trace_rows([good, runs, cut, failed]))
    assert "1:01  ok       2.0 GiB of 4.0 GiB  sm_90  src      demo" in rows[1]
    assert [row.split()[4] for row in rows[2:]] == ["running", "cut", "exit"]


def test_a_comparison_marks_only_what_stands_out() -> None:
    """The rest is summed up."""
    peaks = {f"k{number}.cu": 1000.0 for number in range(10)}
    grown = comparison_page(compare(build(peaks), build({**peaks, "k3.cu": 2000.0}, nvcc="13.0")), width=100)
    text = "\n".join(line.plain for line in grown)
    assert text.startswith("one src → one src\n")
    assert "k3.cu" in text
    assert "+100%" in text
    assert "k4.cu" not in text
    assert "nvcc" in text
    same = "\n".join(line.plain for line in comparison_page(compare(build(peaks), build(peaks)), width=100))
    assert "no unit stands out" in same
    assert "toolchain, machine and command are the same" in same


def test_traces_are_listed_with_how_they_ended() -> None:
    """Id, start, time, exit code or that it was cut off, and the title or else the command."""
    whole = Peek(path="/t", header=header(), last_at_s=761, exit_code=0)
    cut = Peek(path="/t", header=header(title="", command=["ninja", "-C", "b"]), last_at_s=5, exit_code=None)
    rows = plain(trace_rows([whole, cut]))
    assert len(rows) == 3
    assert all(words in rows[1] for words in ("abc123", "2025-01-01", "12:41", "exit 0", "demo"))
    assert all(words in rows[2] for words in ("cut off", "ninja -C b"))
    assert plain(trace_rows([])) == ["no traces yet"]


def test_units_are_listed_with_their_worst_phase() -> None:
    """Long names keep their end, which tells them apart; a unit without phases is listed too."""
    phases = [
        PhaseRow(phase_id=1, kind="cudafe++", arch="", reserve_mib=1, peak_mib=300),
        PhaseRow(phase_id=2, kind="cicc", arch="sm_90", reserve_mib=1, peak_mib=900),
    ]
    worst = UnitRow(unit="x" * 99 + "/gelu.cu", peak_mib=900, wall_s=62, phases=phases)
    units = [worst, UnitRow(unit="a.cu")]
    rows = plain(unit_rows(units, width=100))
    assert all(words in rows[1] for words in ("900 MiB", "1:02", "…", "/gelu.cu", "cicc sm_90"))
    assert "cudafe++" not in rows[1]
    assert rows[2].split() == ["0", "MiB", "0:00", "0:00", "a.cu"]


def test_what_ran_on_other_machines_is_told() -> None:
    """How many phases, where, what went there and back; their memory is no part of this machine's peak."""
    report = read(
        unit(),
        *(asked(1), tr.admitted(1.0, 1, 9000, node="gpu2")),
        tr.phase_ended(5.0, 1, "node-lost", peak_mib=0, wall_s=0, cpu_s=0, node="gpu2", transfer_s=4.0),
        tr.requeued(at_s=5.0, phase_id=1, reserve_mib=9000, solo=False, lost_s=4.0),
        tr.admitted(5.0, 1, 9000, node="gpu3"),
        tr.phase_ended(
            65.0, 1, peak_mib=8000, wall_s=58, cpu_s=58, node="gpu3", sent_mib=12, back_mib=3, transfer_s=2.0
        ),
        *(asked(2), admitted(2, 66.0), ended(2, 70.0, "ok", 300)),
        BuildEnded(at_s=71.0, summary=summary(wall_s=71.0)),
    )
    text = " ".join(" ".join(page(report, 120)).split())
    for words in (
        "2 phases on gpu2, gpu3",
        "0:58 of compiling",
        "12 MiB there, 3 MiB back",
        "0:06 on the way",
        "1 lost",
    ):
        assert words in text
    told = [each.text for each in report.events]
    assert any("is run again" in text for text in told)


def test_what_came_from_the_store_is_told() -> None:
    """Apart from what other machines ran: how many phases, and the time that they would have taken."""
    report = read(
        unit(),
        *(asked(1), tr.admitted(1.0, 1, 9000, node=STORE)),
        tr.phase_ended(1.1, 1, peak_mib=8000, wall_s=58, cpu_s=0, node=STORE, back_mib=3, transfer_s=0.1),
        *(asked(2), tr.admitted(2.0, 2, 9000, node=STORE)),
        tr.phase_ended(2.1, 2, "node-lost", peak_mib=0, wall_s=0, cpu_s=0, node=STORE),
        tr.requeued(at_s=2.1, phase_id=2, reserve_mib=900, solo=False, lost_s=0.1),
        *(admitted(2, 3.0), ended(2, 70.0, "ok", 300)),
        BuildEnded(at_s=71.0, summary=summary(wall_s=71.0)),
    )
    text = " ".join(" ".join(page(report, 120)).split())
    assert "1 phase, 0:58 of compiling" in text
    assert "on the way" not in text
