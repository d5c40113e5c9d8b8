"""What flags bought: the rows that were measured, and the nearest of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from builddoctor.diagnose import flag_effects
from builddoctor.diagnose.flag_effects import (
    LINE_INFO,
    NO_LINE_INFO,
    NONE,
    OBJTEMP,
    TWO_ARCHS,
    TWO_AT_ONCE,
    UNIT,
    FlagRow,
    effects,
    fewer_archs_text,
    flag_rows,
    nearest_effect,
    one_at_a_time_text,
    temporary_text,
)


def row(project: str, flag: str, tool: str = "ptxas", peak_mib: float = 100.0, **more: object) -> FlagRow:
    known = {"version": "1.0", "place": "csrc/a.cu", "arch": "sm_90", "nvcc": "13.0.88"}
    sizes = {"cpu_s": 10.0, "object_kib": 1.0, "temporary_mib": 7.0}
    return FlagRow(project=project, flag=flag, tool=tool, peak_mib=peak_mib, **{**known, **sizes, **more})


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    measured = (
        row("small", NONE, peak_mib=100.0),
        row("small", "-Xptxas -O1", peak_mib=50.0, cpu_s=5.0),
        row("small", LINE_INFO, peak_mib=150.0),
        row("large", NONE, peak_mib=1000.0, temporary_mib=70.0),
        row("large", "-Xptxas -O1", peak_mib=1010.0),
        row("large", NO_LINE_INFO, peak_mib=500.0, object_kib=0.4),
        row("large", NONE, UNIT, peak_mib=1200.0, cpu_s=20.0, wall_s=20.0),
        row("large", TWO_ARCHS, UNIT, peak_mib=1200.0, cpu_s=38.0, wall_s=38.0, object_kib=1.9),
        row("large", TWO_AT_ONCE, UNIT, peak_mib=2300.0, cpu_s=40.0, wall_s=22.0, object_kib=1.9),
        row("strict", NONE, peak_mib=5.0),
        row("strict", "-Xptxas -O1", tool="", peak_mib=0.0, error="ptxas error : no"),
    )
    monkeypatch.setattr(flag_effects, "flag_rows", lambda: measured)
    effects.cache_clear()
    yield
    effects.cache_clear()


def text(flag: str, project: str = "", peak_mib: float | None = None, tool: str = "ptxas") -> str:
    found = nearest_effect(flag, tool=tool, project=project, peak_mib=peak_mib)
    return found.text() if found is not None else ""


@pytest.mark.usefixtures("rows")
def test_the_projects_own_goes_before_what_is_as_large() -> None:
    halved = "measured with nvcc 13.0.88: ptxas of small 1.0's a.cu, 100 to 50 MiB, 0.5 times the processor time"
    assert text("-Xptxas -O1", "small", 2000.0) == halved
    assert text("-Xptxas -O1", "another", 120.0) == halved
    assert "large 1.0's a.cu, 1000 MiB as before, 1.0 times" in text("-Xptxas -O1", "another", 2000.0)
    assert "large 1.0's a.cu" in text("-Xptxas -O1")


@pytest.mark.usefixtures("rows")
def test_what_does_not_compile_is_said_with_the_compilers_words() -> None:
    assert text("-Xptxas -O1", "strict") == ("tried with nvcc 13.0.88: strict 1.0's a.cu fails so (ptxas error : no)")


@pytest.mark.usefixtures("rows")
def test_a_flag_that_was_added_says_what_it_would_bring_to_leave_it_out() -> None:
    assert "150 to 100 MiB" in text(NO_LINE_INFO, "small")
    assert text(NO_LINE_INFO, "large").endswith(
        "1000 to 500 MiB, 1.0 times the processor time, an object of 0.4 times the size"
    )


@pytest.mark.usefixtures("rows")
def test_what_was_not_tried_is_not_told() -> None:
    assert text("-Xptxas -O1", tool="cudafe++") == ""
    assert text("-Xcicc -O7") == ""


@pytest.mark.usefixtures("rows")
def test_two_architectures_one_after_the_other_and_one_in_place_of_two() -> None:
    """Of another project, too; what is compared is what was measured with as many architectures."""
    where = "measured with nvcc 13.0.88: large 1.0's a.cu"
    assert one_at_a_time_text("small") == (
        f"{where} for two architectures, 2300 to 1200 MiB at one moment, 1.7 times the time on 2 cores"
    )
    assert fewer_archs_text("large") == (
        f"{where} for one architecture in place of two, 0.5 times the processor time, an object of 0.5 times the size"
    )


@pytest.mark.usefixtures("rows")
def test_temporary_files_of_the_project_or_of_the_most() -> None:
    assert "7 MiB for one file and architecture, small 1.0's a.cu" in temporary_text("small")
    assert "70 MiB for one file and architecture, large 1.0's a.cu" in temporary_text("another")


def test_the_file_is_whole() -> None:
    """Each unit was measured as it is, too; at least eleven projects; only what failed names no program."""
    rows = flag_rows()
    plain = {(each.unit, each.tool) for each in rows if each.flag == NONE}
    units = {unit for unit, _ in plain}
    assert len({each.project for each in rows}) >= 11
    for each in rows:
        assert each.unit in units
        assert bool(each.error) != bool(each.tool)
        assert each.error or (each.unit, each.tool) in plain
        assert each.error or min(each.peak_mib, each.cpu_s, each.object_kib) > 0
        assert each.error or each.temporary_mib > 0 or each.flag == OBJTEMP
        assert (each.wall_s > 0) is (each.tool == UNIT)
    for flag in {each.flag for each in rows} - {NONE}:
        assert effects(flag)
