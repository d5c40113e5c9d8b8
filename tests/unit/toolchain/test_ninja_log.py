"""ninja's log, read while ninja writes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.toolchain.ninja_log import Done, NinjaLog, of_this_run

HEAD = "# ninja log v7\n"
ONE = "0\t1500\t1700000000\tone.o\tabc\n"
TWO = "100\t2500\t1700000001\ttwo.o\tdef\n"


@pytest.fixture
def log(tmp_path: Path) -> NinjaLog:
    return NinjaLog(tmp_path / ".ninja_log")


def test_each_line_is_told_once(log: NinjaLog) -> None:
    """In seconds since ninja began; a line that is half written is told when it is whole."""
    assert log.new() == []
    log.path.write_text(HEAD + ONE + TWO[:12])
    assert log.new() == [Done(0.0, 1.5, "one.o")]
    assert log.new() == []
    with log.path.open("a") as file:
        file.write(TWO[12:])
    assert log.new() == [Done(0.1, 2.5, "two.o")]


def test_a_log_that_ninja_wrote_anew_is_read_from_its_beginning(log: NinjaLog, tmp_path: Path) -> None:
    """It does so when its log has grown by three."""
    log.path.write_text(HEAD + ONE + TWO)
    assert len(log.new()) == 2
    (tmp_path / "recompacted").write_text(HEAD + TWO)
    (tmp_path / "recompacted").replace(log.path)
    assert log.new() == [Done(0.1, 2.5, "two.o")]


@pytest.mark.parametrize("line", ["", "words", "a\tb\tc\td\te", "1\t2\t3\t4", "1\t2\t3\t4\t5\t6", "\xff\t\t\t\t"])
def test_other_lines_are_passed_over(log: NinjaLog, line: str) -> None:
    log.path.write_bytes(f"{HEAD}{line}\n{ONE}".encode("latin-1"))
    assert log.new() == [Done(0.0, 1.5, "one.o")]


def test_lines_of_this_run_are_the_last_in_which_ends_only_rise() -> None:
    """ninja counts from its own start: a fall is where a run began. What ends after now is of another run."""
    earlier = [Done(0, 5, "a"), Done(1, 80, "b")]
    now = [Done(0, 3, "a"), Done(2, 9, "c")]
    assert of_this_run(earlier + now, running_s=10) == now
    assert of_this_run(earlier, running_s=10) == []
    assert of_this_run([], running_s=10) == []


times = st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), max_size=12)


@pytest.mark.parametrize("version", [5, 6, 7])
@given(times=times, cuts=st.lists(st.integers(0, 400), max_size=8))
def test_it_may_be_read_at_any_byte(
    tmp_path_factory: pytest.TempPathFactory, version: int, times: list[tuple[int, int]], cuts: list[int]
) -> None:
    """All lines, each once and in order, wherever it was cut; the last may lack its end."""
    lines = [f"{start}\t{end}\t{9 * 10**18}\td/{at}.o\t{at:x}\n" for at, (start, end) in enumerate(times)]
    text = f"# ninja log v{version}\n{''.join(lines)}7\t8".encode()
    log = NinjaLog(tmp_path_factory.mktemp("log") / ".ninja_log")
    found = []
    for cut in [*sorted(cuts), len(text)]:
        log.path.write_bytes(text[:cut])
        found += log.new()
        assert not log.anew
    assert found == [Done(start / 1000, end / 1000, f"d/{at}.o") for at, (start, end) in enumerate(times)]


def test_a_log_that_was_cut_is_read_anew(log: NinjaLog) -> None:
    """In its place: a file of the same number that is shorter now."""
    log.path.write_text(HEAD + ONE + TWO)
    log.new()
    assert not log.anew
    log.path.write_text(HEAD + TWO)
    assert log.new() == [Done(0.1, 2.5, "two.o")]
    assert log.anew


@given(earlier=times, ends=st.lists(st.integers(0, 900), max_size=12))
def test_no_line_of_this_run_is_taken_for_an_earlier_one(earlier: list[tuple[int, int]], ends: list[int]) -> None:
    """Whatever ran before, in whatever order."""
    before = [Done(start / 1000, end / 1000, "old") for start, end in earlier]
    now = [Done(0.0, float(end), "new") for end in sorted(ends)]
    found = of_this_run(before + now, running_s=900)
    assert found[len(found) - len(now) :] == now
