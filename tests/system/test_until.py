"""``--until``: a build that has to end by a time is stopped in order, and says that it is to be continued."""

from __future__ import annotations

from support.program import Program


def test_a_build_that_is_not_done_in_time_gives_75(program: Program) -> None:
    done = program.run("run", "--until", "1s", "--summary", str(program.summary_file), "--", "sleep", "60")
    assert done.returncode == 75
    assert "is to be continued" in done.stderr
    summary = program.summary()
    assert (summary["result"], summary["exit_code"], summary["verdict"]) == ("interrupted", 75, None)
    assert summary["left_s"] == 0.0
    assert summary["wall_s"] < 30


def test_a_unit_that_failed_is_named_by_the_run_that_saw_it(program: Program) -> None:
    """The next one comes an hour later, or tomorrow."""
    (program.folder / "bad.c").write_text("int main(void) { return moon; }\n")
    done = program.run("run", "--until", "3s", "--", "sh", "-c", "gcc -c bad.c; exec sleep 60")
    assert done.returncode == 75
    assert "1 unit failed (bad.c), with the error above: the next run compiles it again" in done.stderr


def test_a_build_that_is_done_gives_its_own_code(program: Program) -> None:
    assert program.run("run", "--until", "2h", "--", "true").returncode == 0
    assert program.run("run", "--until", "2h", "--", "false").returncode == 1


def test_a_time_that_is_none_is_refused(program: Program) -> None:
    done = program.run("run", "--until", "soon", "--", "true")
    assert done.returncode == 64
    assert "--until 5h20m" in done.stderr
