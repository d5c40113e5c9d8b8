"""Recipes from traces: which units are in them, under which names, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.errors import RecipeError, TraceError
from builddoctor.core.events import UnitEnded
from builddoctor.recipes.from_trace import recipe_from_traces
from builddoctor.recipes.recipe_file import parse_recipe
from builddoctor.recipes.recipe_text import dump
from support import trace_events as tr
from support.made_traces import Made, usual_units, write_trace
from unit.recipe_builds import WHOLE, Traced


def test_a_trace_gives_units_phases_and_where_they_are_from(tmp_path: Path) -> None:
    """Names from the trace; machine without its host's name; the link after all else."""
    build = Traced(trace_id="3f2a01", cores=72, limit_mib=24 * 1024.0, started_at="2025-06-01T10:00:00+00:00")
    build.unit("src/a.cu").unit("src/b.cpp", (("host", 250.0),)).unit("link demo.so", (("link", 600.0),))
    made = recipe_from_traces([build.write(tmp_path / "t.jsonl")])
    recipe = made.recipe
    assert made.left_out == ()
    assert made.complete
    assert (recipe.project.name, recipe.project.version) == ("demo", "1.2")
    origin = recipe.origin
    assert (origin.provenance, origin.runs, origin.date, origin.traces) == ("measured", 1, "2025-06-01", ("3f2a01",))
    assert origin.machine == "72 cores, 24.0 GiB of memory, x86_64"
    assert origin.how == "the trace of one build"
    made_with = recipe.fingerprint
    assert (made_with.archs, made_with.nvcc, made_with.host_compiler) == (("sm_90",), "13.0.88", "12.2.0")
    assert (made_with.host_arch, made_with.page_kib) == ("x86_64", 4)
    first, second, link = recipe.units
    assert (first.place, first.output, first.target, first.archs) == ("src/a.cu", "a.cu.o", "obj/a.cu.o", ("sm_90",))
    assert (first.options, first.source_digest) == ("0badcafe", "feedbeef")
    assert [(phase.kind.value, phase.peak_mib) for phase in first.phases] == list(WHOLE)
    assert [phase.arch for phase in first.phases] == ["", "", "", "sm_90", "sm_90", ""]
    assert second.archs == ()
    assert (link.place, link.output, link.after_all) == ("link demo.so", "demo.so", True)
    assert not first.after_all


def test_what_is_made_can_be_written_and_read(tmp_path: Path) -> None:
    """The same recipe comes back."""
    made = recipe_from_traces([Traced().unit("a.cu").write(tmp_path / "t.jsonl")])
    assert parse_recipe(dump(made.recipe), "x.toml") == made.recipe


def test_a_phase_that_was_killed_and_run_again_counts_as_it_ended(tmp_path: Path) -> None:
    """The killed run is counted, and nothing else of it."""
    build = Traced().unit("a.cu", (("cicc", 400.0),), outcome="killed-by-kernel")
    build.end(1, 900.0, "ok")
    made = recipe_from_traces([build.write(tmp_path / "t.jsonl")])
    assert [phase.peak_mib for phase in made.recipe.units[0].phases] == [900]
    assert made.left_out == ("1 run of phases that were ended and run again",)
    assert made.complete


def test_what_a_phase_held_while_it_ran_is_in_the_recipe(tmp_path: Path) -> None:
    """In thousandths, as the run that ended well went; a trace without looks has none."""
    build = Traced().unit("a.cu", (("cicc", 1000.0),), done=False)
    last = build.events.pop()
    looks = ((1, 100), (5, 100), (10, 250), (15, 1000), (19, 300))
    build.events += [tr.admitted(2, 1, 1000.0), *(tr.sampled(2.0 + at, 1, mib) for at, mib in looks), last]
    build.events.append(UnitEnded(at_s=30, unit_id="u1"))
    made = recipe_from_traces([build.write(tmp_path / "t.jsonl")])
    assert made.recipe.units[0].phases[0].course == "250:100 500:250 950:1000 1000:300"
    assert (
        recipe_from_traces([Traced().unit("a.cu").write(tmp_path / "n.jsonl")]).recipe.units[0].phases[3].course == ""
    )


def test_a_phase_that_was_made_to_take_less_memory_is_left_out(tmp_path: Path) -> None:
    """Its unit would look lighter than it is."""
    build = Traced().unit("a.cu").unit("big.cu", (("cicc", 700.0),), done=False)
    last = build.events.pop()
    build.events += [tr.admitted(2, build.phases, 700.0, thrift=True), last, UnitEnded(at_s=9, unit_id="u2")]
    made = recipe_from_traces([build.write(tmp_path / "t.jsonl")])
    assert [unit.place for unit in made.recipe.units] == ["a.cu"]
    assert made.left_out == ("big.cu: its cicc sm_90 was made to take less memory than it does (`--auto-remedy`)",)
    assert not made.complete


@pytest.mark.parametrize(
    ("half", "said"),
    [
        ({"outcome": "killed-by-kernel"}, "big.cu: its host did not end well (killed-by-kernel)"),
        ({"outcome": "failed"}, "big.cu: its host did not end well (failed)"),
        ({"outcome": ""}, "big.cu: its host did not end"),
        ({"done": False}, "big.cu: it did not end"),
        ({"phases": WHOLE[:4]}, "big.cu: it was ended before its host code was compiled"),
    ],
)
def test_half_a_unit_is_left_out_of_a_failed_build(tmp_path: Path, half: dict[str, object], said: str) -> None:
    """It would look lighter than it is; the rest is a recipe that says it is partial."""
    made = recipe_from_traces([Traced().unit("a.cu").unit("big.cu", **half).write(tmp_path / "t.jsonl", "failed")])
    assert [unit.place for unit in made.recipe.units] == ["a.cu"]
    assert made.left_out == (said, "the build failed with exit code 1: a part of it")
    assert not made.complete
    assert made.recipe.origin.how == "the trace of one build; partial: some units are not in it"


def test_a_torn_trace_gives_what_is_whole_in_it(tmp_path: Path) -> None:
    """And says what was cut off."""
    build = Traced().unit("a.cu").unit("b.cu", outcome="", done=False)
    made = recipe_from_traces([build.write(tmp_path / "t.jsonl", torn=True)])
    assert [unit.place for unit in made.recipe.units] == ["a.cu"]
    assert made.left_out == (
        "b.cu: its host did not end",
        "the trace was cut off: a part of the build",
        "1 unreadable line of the trace",
    )


def test_a_build_in_which_nothing_ended_is_no_recipe(tmp_path: Path) -> None:
    """The reason is there, and where to read more."""
    with pytest.raises(RecipeError, match=r"no unit was built to its end; a.cu: its host did not end") as refused:
        recipe_from_traces([Traced().unit("a.cu", outcome="", done=False).write(tmp_path / "t.jsonl", torn=True)])
    assert "trace show" in refused.value.hint


def test_what_configure_steps_compiled_is_no_part_of_the_project(tmp_path: Path) -> None:
    """Neither what they compile nor what they link."""
    build = Traced().unit("a.cu").unit("link cmTC_334d3", (("link", 20.0),), named=False)
    assert [unit.place for unit in recipe_from_traces([build.write(tmp_path / "t.jsonl")]).recipe.units] == ["a.cu"]


@pytest.mark.parametrize(
    "place", ["a\nb.cu", "../up.cu", "/abs.cu", "-rf.cu", "$(id).cu", "`id`.cu", "é.cu", "\x1b[2J.cu", "", "x" * 500]
)
def test_a_name_that_no_recipe_may_hold_is_left_out_and_said(tmp_path: Path, place: str) -> None:
    """In a line that a terminal can show; the recipe of the others can be read."""
    made = recipe_from_traces([Traced().unit("good.cu").unit(place).write(tmp_path / "t.jsonl")])
    assert [unit.place for unit in made.recipe.units] == ["good.cu"]
    assert len(made.left_out) == 1
    assert made.left_out[0].isprintable()
    assert not made.complete
    assert parse_recipe(dump(made.recipe), "x.toml").units


def test_many_units_of_one_trouble_are_named_in_part(tmp_path: Path) -> None:
    """Five by name, the others counted."""
    build = Traced().unit("good.cu")
    for number in range(12):
        build.unit(f"{number}$.cu")
    made = recipe_from_traces([build.write(tmp_path / "t.jsonl")])
    assert len(made.left_out) == 6
    assert made.left_out[-1].startswith("7 more units")


def test_a_target_elsewhere_is_nobodys_in_another_folder(tmp_path: Path) -> None:
    """The unit stays, without it."""
    build = Traced().unit("a.cu", target="/tmp/build/a.o").unit("b.cu", target="../b.o").unit("c.cu", target="x/$c.o")
    units = recipe_from_traces([build.write(tmp_path / "t.jsonl")]).recipe.units
    assert [(unit.place, unit.target) for unit in units] == [("a.cu", ""), ("b.cu", ""), ("c.cu", "")]


def test_names_of_projects_and_tools_become_words(tmp_path: Path) -> None:
    """What no file name should hold becomes a dash."""
    build = Traced(
        project="my work/the project", project_version="1.0 beta", archs=["native"], page_kib=0, started_at="2025-13-41"
    )
    build.unit("a.cu", project="my work/the project")
    recipe = recipe_from_traces([build.write(tmp_path / "t.jsonl")]).recipe
    assert (recipe.project.name, recipe.project.version) == ("my-work-the-project", "1.0-beta")
    assert recipe.fingerprint.nvcc == "13.0.88"
    assert recipe.fingerprint.archs == ("sm_90",)
    assert recipe.origin.date == ""


def test_a_trace_from_before_units_had_names_gives_paths_below_its_folder(tmp_path: Path) -> None:
    """Its project is that of its title."""
    path = write_trace(tmp_path / "old.jsonl", Made(units=usual_units()))
    made = recipe_from_traces([path])
    assert made.recipe.project.name == "demo"
    assert made.recipe.units[0].place == "fused_attn/fused_attn_fp8.cu"
    assert made.complete
    outside = Traced(project="", title="", cwd="/home/me/demo/build", host_arch="").unit("x/y/z/a.cu", named=False)
    made = recipe_from_traces([outside.write(tmp_path / "t.jsonl")])
    assert made.recipe.project.name == "build"
    assert made.recipe.units[0].place == "y/z/a.cu"


def test_the_project_with_the_most_units_is_meant_where_none_is_the_folders_own(tmp_path: Path) -> None:
    """``pip install`` from a home folder builds something else; its version nobody knows then."""
    build = Traced(project="me").unit("a.cu", project="flash_attn").unit("b.cu", project="flash_attn")
    made = recipe_from_traces([build.unit("c.cu", project="ninja").write(tmp_path / "t.jsonl")])
    assert (made.recipe.project.name, made.recipe.project.version) == ("flash_attn", "")
    assert len(made.recipe.units) == 2
    assert made.left_out == ("1 unit of other projects, built with it",)


def test_two_builds_give_medians_highs_and_runs(tmp_path: Path) -> None:
    """In any order of their names; the later day counts."""
    one = Traced(trace_id="aaa").unit("a.cu").write(tmp_path / "1.jsonl")
    two = (
        Traced(trace_id="bbb", started_at="2025-03-01T00:00:00+00:00")
        .unit("a.cu", scale=1.2)
        .write(tmp_path / "2.jsonl")
    )
    recipe = recipe_from_traces([one, two]).recipe
    assert (recipe.origin.runs, recipe.origin.date, recipe.origin.traces) == (2, "2025-03-01", ("aaa", "bbb"))
    assert recipe.origin.how == "the traces of 2 builds"
    cicc = recipe.units[0].phases[3]
    assert (cicc.peak_mib, cicc.high_mib, cicc.runs) == (990, 1080, 0)


def test_a_build_that_was_gone_on_with_is_whole_with_both_traces(tmp_path: Path) -> None:
    """Each unit was measured once; what failed the first time is complete in the second."""
    one = (
        Traced(trace_id="aaa")
        .unit("a.cu")
        .unit("b.cu", outcome="killed-by-kernel")
        .write(tmp_path / "1.jsonl", "failed")
    )
    two = Traced(trace_id="bbb").unit("b.cu").unit("link x", (("link", 50.0),)).write(tmp_path / "2.jsonl")
    made = recipe_from_traces([one, two])
    assert [unit.place for unit in made.recipe.units] == ["a.cu", "b.cu", "link x"]
    assert {phase.runs for unit in made.recipe.units for phase in unit.phases} == {1}
    assert made.recipe.origin.runs == 2
    assert made.complete
    assert "partial" not in made.recipe.origin.how


def test_a_trace_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    """Also where it lies there under two names."""
    build = Traced(trace_id="aaa").unit("a.cu")
    made = recipe_from_traces([build.write(tmp_path / "1.jsonl"), build.write(tmp_path / "2.jsonl")])
    assert made.recipe.origin.runs == 1
    assert made.left_out == ("2.jsonl: the trace of the same build as 1.jsonl, counted once",)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"project": "other"}, "project demo and other"),
        ({"archs": ["sm_100"]}, "architectures sm_90 and sm_100"),
        ({"host_arch": "aarch64"}, "processor x86_64 and aarch64"),
    ],
)
def test_traces_of_different_builds_are_refused(tmp_path: Path, other: dict[str, object], said: str) -> None:
    """Their figures have no mean."""
    one = Traced(trace_id="aaa").unit("a.cu").write(tmp_path / "1.jsonl")
    two = (
        Traced(trace_id="bbb", **other)
        .unit("a.cu", project=str(other.get("project", "demo")))
        .write(tmp_path / "2.jsonl")
    )
    with pytest.raises(RecipeError, match=said):
        recipe_from_traces([one, two])


def test_tools_that_differ_are_said_and_the_firsts_are_kept(tmp_path: Path) -> None:
    """Another nvcc is no other project."""
    one = Traced(trace_id="aaa").unit("a.cu").write(tmp_path / "1.jsonl")
    two = Traced(trace_id="bbb", nvcc="13.1.10").unit("a.cu").write(tmp_path / "2.jsonl")
    made = recipe_from_traces([one, two])
    assert made.differs == ("nvcc 13.0.88 in 1.jsonl, 13.1.10 in 2.jsonl",)
    assert made.recipe.fingerprint.nvcc == "13.0.88"


def test_a_unit_that_was_compiled_twice_counts_as_the_last_time(tmp_path: Path) -> None:
    """One build is one run."""
    build = Traced().unit("a.cu").unit("a.cu", scale=2.0)
    made = recipe_from_traces([build.write(tmp_path / "t.jsonl")])
    assert [unit.phases[3].peak_mib for unit in made.recipe.units] == [1800]
    assert made.left_out == ("1 unit compiled more than once in this build: the last time counts",)


def test_what_is_no_trace_is_an_error_of_traces(tmp_path: Path) -> None:
    """As for `trace show`."""
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(TraceError):
        recipe_from_traces([tmp_path / "x"])
    with pytest.raises(RecipeError, match="no trace was named"):
        recipe_from_traces([])
