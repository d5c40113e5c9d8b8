"""ninja's log, read while ninja writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

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
