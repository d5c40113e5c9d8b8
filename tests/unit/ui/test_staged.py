"""Files of a staged build: the table of stages, the lists of targets, and programs that are the same for all plans."""

from __future__ import annotations

from builddoctor.ui.staged import MARK, MOST_JOBS, staging_data, staging_files, staging_programs
from support.staged import a_plan, a_stage, rest


def texts(*stages: object) -> dict[str, str]:
    return {file.name: file.text for file in staging_data(a_plan(*stages))}  # type: ignore[arg-type]


def test_each_stage_has_a_line_and_a_list() -> None:
    """Number, jobs, threads, name, between tabs; targets one a line in the plan's order; the rest comes last."""
    found = texts(
        a_stage("light", 4, ["a.o", "b b.o"]),
        rest(3),
        a_stage("heavy sm_90", 2, ["c.o"], weight="heavy", threads=2),
    )
    assert found == {
        "stages": "# demo on this machine: number, jobs, nvcc's threads, name\n"
        "1\t4\t1\tlight\n2\t2\t2\theavy sm_90\nrest\t3\t1\trest\n",
        "stage-1": "a.o\nb b.o\n",
        "stage-2": "c.o\n",
    }


def test_without_a_stage_for_the_rest_it_gets_the_fewest_jobs() -> None:
    """What the plan says nothing of may be as large as its largest unit."""
    found = texts(a_stage("light", 4, ["a.o"], threads=2), a_stage("solo", 1, ["b.o"], weight="solo"))
    assert found["stages"].endswith("rest\t1\t1\trest\n")
    assert texts()["stages"].endswith("rest\t1\t1\trest\n")


def test_a_stage_without_targets_is_left_out() -> None:
    """Units of which nobody knows what ninja calls them are built with the rest."""
    assert "stage-1" not in texts(a_stage("light", 4), rest())


def test_text_that_is_no_line_gets_into_no_file() -> None:
    """A plan need not come from a checked recipe: what would be read as another line or column is left out."""
    evil = a_stage("a\n9\t9\t9\tb", 10**9, ["a.o\n/etc/x", "", "-C/", "#x", "b\t.o", "\x1b[2J.o", "good.o"])
    found = texts(evil, rest(-5))
    assert found["stage-1"] == "good.o\n"
    assert found["stages"].splitlines()[1:] == [f"1\t{MOST_JOBS}\t1\ta 9 9 9 b", "rest\t1\t1\trest"]


def test_programs_hold_nothing_of_a_plan() -> None:
    """The same text for every plan, so that no recipe gets into a shell; and told from a real ninja by their start."""
    plan = a_plan(a_stage("light", 4, ["$(touch x).o"]), rest())
    programs = [file for file in staging_files(plan) if file.executable]
    assert tuple(programs) == staging_programs()
    assert [file.name for file in programs] == ["ninja", "ninja-build"]
    for file in programs:
        assert MARK in file.text.encode()[:128]
        assert file.text.startswith("#!/bin/sh\n")
