"""Why a build failed, from its trace: what died, why, how sure, and what to do."""

from __future__ import annotations

import pytest

from builddoctor.core.events import BuildEnded, BuildEvent, BuildResult
from builddoctor.core.verdict import Diagnosis, Verdict
from builddoctor.core.word import Confidence
from builddoctor.diagnose.from_trace import judge
from support import trace_events as tr
from unit.builders import header, summary
from unit.small_traces import admitted, asked, ended, read, tick, unit


def failed(*records: BuildEvent, verdict: str | None = None, **fields: object) -> Diagnosis:
    end = BuildEnded(at_s=20.0, summary=summary(result=BuildResult.FAILED, exit_code=2, verdict=verdict, **fields))
    return judge(read(unit(), *records, end))


def given_up(verdict: str, outcome: str, peak_mib: float = 3900.0, **more: object) -> Diagnosis:
    return failed(
        asked(1),
        admitted(1),
        ended(1, 9.0, outcome, peak_mib, exit_code=None, signal=9, **more),
        tr.gave_up(at_s=9.0, phase_id=1, verdict=verdict, reason="as it was"),
        verdict=verdict,
    )


@pytest.mark.parametrize(
    ("result", "words"), [(BuildResult.OK, "went well"), (BuildResult.INTERRUPTED, "interrupted after 12:41")]
)
def test_a_build_that_did_not_fail_has_no_verdict(result: BuildResult, words: str) -> None:
    """Nothing died, and nothing is to be done."""
    told = judge(read(BuildEnded(at_s=9.0, summary=summary(result=result))))
    assert (told.verdict, told.died, told.fixes) == (None, "", [])
    assert words in told.why


@pytest.mark.parametrize(
    ("verdict", "outcome", "died", "why"),
    [
        (Verdict.TOO_BIG, "killed-by-kernel", "killed by the kernel at 3.8 GiB", "Fewer jobs cannot help"),
        (Verdict.RUNAWAY, "killed-by-us", "ended by builddoctor for want of memory", "Fewer jobs cannot help"),
        (Verdict.EXTERNAL_KILL, "killed-outside", "killed from outside", "it was not this memory limit"),
        (Verdict.NOT_REDOABLE, "killed-by-kernel", "killed by the kernel", "cannot be run again"),
    ],
)
def test_what_was_given_up_is_named_with_its_reason(verdict: Verdict, outcome: str, died: str, why: str) -> None:
    """Phase, unit, size, and whether fewer jobs would have helped."""
    told = given_up(verdict, outcome)
    assert told.verdict == verdict
    assert told.died.startswith("cicc sm_90 of /src/a.cu, ")
    assert died in told.died
    assert why in told.why
    assert any("as it was" in line for line in told.evidence)
    assert any(line.startswith("run 1, alone") for line in told.evidence)


def test_what_no_node_could_hold_is_measured_by_the_node() -> None:
    """This machine's own limit is not what ended it."""
    told = failed(
        asked(1),
        tr.admitted(at_s=2.0, phase_id=1, reserve_mib=150, node="gpu-07"),
        ended(1, 9.0, "killed-there", 3900.0, exit_code=None, signal=9, node="gpu-07"),
        tr.gave_up(at_s=9.0, phase_id=1, verdict=Verdict.TOO_BIG, reason="as it was"),
        verdict=Verdict.TOO_BIG,
    )
    assert "gpu-07 ended it at 3.8 GiB, and no other node has more memory" in told.why
    assert told.fixes[0].text == "7 GiB or more: start a node that has it"
    assert told.fixes[0].command == "builddoctor worker --help"


def test_for_a_runaway_nobody_advises_fewer_jobs_or_more_memory() -> None:
    """Lowering -j for it cost a user days (TransformerEngine#1996); each way out changes what is built."""
    told = given_up(Verdict.RUNAWAY, "killed-by-us")
    assert all(fix.changes_binary for fix in told.fixes)
    assert "another minor version of nvcc" in told.fixes[0].text
    text = " ".join(fix.text + fix.command for fix in told.fixes)
    for words in ("-j", "MAX_JOBS", "memory limit", "--cores"):
        assert words not in text


def test_what_is_too_big_wants_more_memory_first() -> None:
    """The cheapest way comes first, and says how much; an architecture less is a way only where there are two."""
    told = given_up(Verdict.TOO_BIG, "killed-by-kernel")
    assert told.fixes[0].text.startswith("7 GiB or more: ")
    assert not told.fixes[0].changes_binary
    assert not any("architectures" in fix.text for fix in told.fixes)
    two = tr.unit_began(at_s=0.1, unit_id="u2", source="b.cu", archs=["sm_90", "sm_100"])
    gave_up = tr.gave_up(at_s=9.0, phase_id=1, verdict=Verdict.TOO_BIG, reason="alone")
    told = failed(two, asked(1), admitted(1), ended(1, 9.0, "killed-by-kernel"), gave_up, verdict=Verdict.TOO_BIG)
    assert any("architectures" in fix.text and "sm_100, sm_90" in fix.text for fix in told.fixes)


def test_a_compiler_that_failed_by_itself_is_no_matter_of_memory() -> None:
    """The first one counts: the others were ended for it. How sure that is depends on the memory that was free."""
    told = failed(
        *(asked(1), admitted(1), asked(2), admitted(2), tick(5.0, 500)),
        *(ended(2, 6.0, "failed", 120, exit_code=2), ended(1, 7.0, "failed", 90, exit_code=4)),
    )
    assert (told.verdict, told.confidence) == (Verdict.SOURCE, Confidence.MEDIUM)
    assert told.died == "cicc sm_90 of /src/a.cu, with exit code 2 after 0:05"
    full = failed(asked(1), admitted(1), tick(5.0, 500, headroom_mib=100), ended(1, 7.0, "failed", exit_code=1))
    assert (full.verdict, full.confidence) == (Verdict.SOURCE, Confidence.LOW)


def test_a_compiler_that_crashed_points_at_the_toolchain() -> None:
    """A signal that nobody sent."""
    told = failed(asked(1), admitted(1), ended(1, 6.0, "failed", exit_code=None, signal=11))
    assert told.verdict == Verdict.TOOLCHAIN
    assert "signal 11" in told.died


def test_what_configure_steps_try_out_may_fail() -> None:
    """It explains a failure only where nothing else does."""
    trial = tr.unit_began(at_s=0.2, unit_id="t", source="try.c", counted=False)
    records = [trial, asked(1, unit_id="t"), admitted(1), ended(1, 3.0, "failed", exit_code=1)]
    told = failed(*records, asked(2), admitted(2), ended(2, 9.0, "failed", exit_code=7))
    assert told.died.endswith("code 7 after 0:05")
    assert failed(*records).verdict == Verdict.SOURCE


def test_a_build_that_failed_without_a_compiler_is_not_explained() -> None:
    """A test, a script, a linker script: what was printed says which."""
    told = failed()
    assert (told.verdict, told.confidence) == (Verdict.UNKNOWN, Confidence.LOW)
    assert "exit code 2" in told.died


BOOT = "49de88c5-d54f-4011-a6cb-e3d1f1806bf6"


def cut(*records: BuildEvent, boot_id: str = BOOT, idle_s: float | None = 3600.0) -> Diagnosis:
    return judge(read(*records, boot_id=BOOT), boot_id=boot_id, idle_s=idle_s)


def test_a_trace_that_is_still_written_is_a_build_that_runs() -> None:
    """It is not judged. On another machine, or after a boot, nobody writes it any more."""
    assert cut(tick(5.0, 100), idle_s=1.0).verdict is None
    assert "still runs" in cut(tick(5.0, 100), idle_s=1.0).why
    assert cut(tick(5.0, 100), boot_id="another", idle_s=1.0).verdict == Verdict.UNKNOWN
    assert cut(tick(5.0, 100), idle_s=None).verdict == Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("boot_id", "words"),
    [
        (BOOT, "has not been started anew since"),
        ("another", "was started anew since, or the trace is of another one"),
        ("", "ended all at once"),
    ],
)
def test_a_trace_that_stops_short_says_what_may_have_ended_it(boot_id: str, words: str) -> None:
    """The supervisor alone, its container, or the machine."""
    told = cut(tick(4.0, 100), tick(5.0, 110), boot_id=boot_id)
    assert (told.verdict, told.confidence) == (Verdict.UNKNOWN, Confidence.LOW)
    assert words in told.why
    assert "at 0:05" in told.died
    assert "Memory was short" not in told.why


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([tick(5.0, 3900, headroom_mib=50)], "50 MiB of 4.0 GiB left"),
        ([tick(4.0, 100, headroom_mib=3600), tick(5.0, 2600, headroom_mib=1100)], "left, and 2500 MiB/s growing"),
    ],
    ids=["full", "filling"],
)
def test_memory_that_was_short_at_the_end_is_said_first(records: list[BuildEvent], words: str) -> None:
    """The last seconds say it; then a lower limit of our own is what to try."""
    told = cut(*records)
    assert words in told.why
    assert told.confidence == Confidence.MEDIUM
    assert "--memory 3.2GiB" in told.fixes[0].command


def test_commands_to_paste_are_quoted() -> None:
    """Whatever the trace has as folder and command: one word stays one word, and no control character is left."""
    evil = "x'; rm -rf ~ #\x1b[2J\n"
    told = judge(read(boot_id=BOOT, cwd=evil, command=["ninja", evil]), boot_id=BOOT)
    command = told.fixes[-1].command
    assert command.isprintable()
    assert command.startswith("cd $'x\\'; rm -rf ~ #\\x1b[2J\\x0a' && builddoctor run -- ninja $'")


def test_a_killed_phase_that_was_given_up_tells_all_its_runs() -> None:
    """Beside whom it ran, and why builddoctor ended it."""
    told = failed(
        *(asked(1), admitted(1, 2.0, running=3), tr.killed(at_s=4.0, phase_id=1, reason="90 MiB left")),
        *(ended(1, 4.0, "killed-by-us", 500, signal=9), admitted(1, 5.0), ended(1, 9.0, "killed-by-kernel", 800)),
        tr.gave_up(at_s=9.0, phase_id=1, verdict=Verdict.TOO_BIG, reason="alone"),
        verdict=Verdict.TOO_BIG,
    )
    first, second = (line for line in told.evidence if line.startswith("run "))
    assert "beside 2 others" in first
    assert first.endswith("90 MiB left")
    assert "alone" in second


def test_the_header_says_who_set_the_limit() -> None:
    """Evidence of every verdict."""
    told = failed()
    assert any(header().limited_by in line for line in told.evidence)
