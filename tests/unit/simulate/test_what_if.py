"""The recorded build at other limits and cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.plan import WhatIf
from builddoctor.simulate.what_if import MOST_WORK, what_if
from builddoctor.trace.analysis import take_picture
from builddoctor.trace.reader import TraceReader
from builddoctor.ui.page.sections import what_if_in_words, what_if_table
from support.made_traces import Made, many_units, usual_units, write_trace


def _of(folder: Path, build: Made) -> WhatIf | None:
    return what_if(take_picture(TraceReader(write_trace(folder / "t.jsonl", build))))


def test_more_memory_and_cores_are_never_said_to_be_slower_by_much(tmp_path: Path) -> None:
    """A table of five limits and three numbers of cores, what was among them; the ends are in the right order."""
    told = _of(tmp_path, Made(units=usual_units()))
    assert told is not None
    assert len(told.scenarios) == 15
    (was,) = [each for each in told.scenarios if each.as_it_was]
    assert (was.cores, was.limit_mib) == (4, 8192.0)
    by_place = {(each.cores, each.limit_mib): each.makespan_s for each in told.scenarios}
    least, most = by_place[2, 4096.0], by_place[8, 16384.0]
    assert least is not None
    assert most is not None
    assert most < least
    assert "as it was" in what_if_table(told)


def test_what_was_killed_alone_needs_more_than_there_was(tmp_path: Path) -> None:
    """The recorded limit is never enough for it; the next may be, and is said to be a guess."""
    units = usual_units(cutlass_grouped_gemm={"cicc": "too-big"})
    told = _of(tmp_path, Made(units=units, limit_mib=4096, budget_mib=3686))
    assert told is not None
    (was,) = [each for each in told.scenarios if each.as_it_was]
    assert was.makespan_s is None
    assert was.problem == "cicc of cutlass_grouped_gemm.cu does not fit"
    assert told.at_least == 1
    assert what_if_in_words(told) == "It fails within 4.0 GiB and 4 cores; 6.0 GiB would be enough."
    assert "may need more" in what_if_table(told)


def test_no_limit_helps_a_runaway(tmp_path: Path) -> None:
    """No table is made up where a phase grows without end."""
    told = _of(tmp_path, Made(units=usual_units(gelu={"cudafe": "runaway"})))
    assert told is not None
    assert told.scenarios == ()
    assert "No other limit" in what_if_table(told)


def test_large_builds_get_a_smaller_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Phases times scenarios stay bounded; what was is always among them. Here with a tenth of the bound."""
    monkeypatch.setattr("builddoctor.simulate.what_if.MOST_WORK", MOST_WORK // 10)
    told = _of(tmp_path, Made(units=list(many_units(48)), cores=6, limit_mib=16384, budget_mib=15000))
    assert told is not None
    assert len(told.scenarios) < 15
    assert told.phases * len(told.scenarios) <= MOST_WORK // 10
    assert any(each.as_it_was for each in told.scenarios)


def test_a_trace_without_any_phase_has_no_table(tmp_path: Path) -> None:
    """There is nothing to run again, and the page says so."""
    assert _of(tmp_path, Made(units=[])) is None
    assert "nothing in this trace that could run again" in what_if_table(None)
