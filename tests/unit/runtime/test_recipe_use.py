"""History or recipe: which of them a build goes by, and what is said where it goes beyond the recipe."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builddoctor.core.errors import RecipeError
from builddoctor.core.past import PastPhase, PastUnit, Seen, UnitKey
from builddoctor.core.phase import PhaseKind
from builddoctor.core.recipe import Fingerprint, Hazard, Origin, Recipe, RecipeProject, Setting
from builddoctor.core.request import RunRequest
from builddoctor.estimation.past import OTHER_OPTIONS, recall
from builddoctor.history.store import History
from builddoctor.recipes import shelf
from builddoctor.recipes.match import Distance, distance
from builddoctor.recipes.recipe_text import dump
from builddoctor.recipes.shelf import PROJECT_FOLDER, Shelved
from builddoctor.runtime.history_recorder import HistoryRecorder
from builddoctor.runtime.recipe_use import (
    MOST_HAZARDS,
    ChosenRecipe,
    RecipeUse,
    choose_recipe,
    heavy_by_recipe,
    joined,
    recipe_lines,
    too_big_lines,
)
from builddoctor.runtime.units import Toolchain
from unit.builders import phase, unit
from unit.demo_recipes import HERE, MADE, figures, recipe, recipe_unit
from unit.recipes.test_match import CICC, KEY, find, key
from unit.runtime.recorded import Recorded

TOOLS = Toolchain(nvcc="13.0.88", host_compiler="12.2.0", host_arch="x86_64")


def past(peak_mib: float, *kinds: PhaseKind, at: UnitKey = KEY) -> PastUnit:
    """What the history has of the unit: two builds."""
    seen = (Seen(input_mib=4.0, peak_mib=peak_mib, wall_s=3.0),) * 2
    return PastUnit(
        key=at,
        phases=tuple(
            PastPhase(kind=kind, arch="sm_90" if kind is PhaseKind.CICC else "", tool=kind.value, seen=seen)
            for kind in kinds or (PhaseKind.CICC,)
        ),
    )


def taken(history: PastUnit | None, made: Recipe, now: UnitKey = KEY) -> tuple[str, float]:
    """Where cicc's figure comes from, and what it is."""
    known = joined(now, history, find(made, unit=now))
    assert known is not None
    recalled = recall(CICC, now, known)
    assert recalled is not None
    return recalled.origin, recalled.peak_mib


def test_the_work_of_all_units_is_known_beforehand() -> None:
    """For the time that is left; a link is no unit that anybody counts."""
    linking = recipe_unit("link lib.so", figures(PhaseKind.LINK), after_all=True)
    made = recipe(recipe_unit("src/a.cu", figures(PhaseKind.CICC), figures(PhaseKind.HOST)), linking)
    works = RecipeUse(chosen(made)).works
    assert works == {("src/a.cu", made.units[0].output): sum(each.cpu_s for each in made.units[0].phases)}
    assert min(works.values()) > 0


@pytest.mark.parametrize(
    ("archs", "work_s"), [((), 17.0), (("sm_90",), 14.0), (("sm_100",), 10.5), (("sm_80", "sm_90", "sm_100"), 23.5)]
)
def test_the_work_is_for_the_architectures_of_this_build(archs: tuple[str, ...], work_s: float) -> None:
    """One that the recipe does not have takes as long as those that it has."""
    device = [figures(PhaseKind.CICC, arch=arch, cpu_s=cpu_s) for arch, cpu_s in (("compute_90", 10.0), ("sm_80", 3.0))]
    both = msgspec.structs.replace(MADE, archs=("sm_80", "sm_90"))
    made = recipe(recipe_unit("src/a.cu", *device, figures(PhaseKind.HOST, cpu_s=4.0)), made=both)
    wanted = msgspec.structs.replace(HERE, archs=archs)
    works = RecipeUse(chosen(made, wanted=wanted)).works
    assert list(works.values()) == [pytest.approx(work_s)]


def test_what_a_source_is_compiled_for_in_any_case_counts() -> None:
    """TransformerEngine's grouped GEMM is for 90a whatever is asked."""
    device = [figures(PhaseKind.CICC, arch=arch, cpu_s=cpu_s) for arch, cpu_s in (("sm_90", 10.0), ("sm_90a", 35.0))]
    works = RecipeUse(chosen(recipe(recipe_unit("src/a.cu", *device)))).works
    assert list(works.values()) == [45.0]


def test_the_history_of_exactly_this_unit_wins() -> None:
    """However near the recipe is: it was measured here."""
    assert taken(past(800.0), recipe()) == ("history", 800)


def test_a_history_that_is_only_near_loses_to_a_recipe_that_is_nearer() -> None:
    """Other options then, the same options in the recipe."""
    assert taken(past(800.0, at=key(options="f" * 16)), recipe()) == ("recipe", 1000)


def test_a_history_that_is_nearer_wins_over_a_recipe_that_is_far() -> None:
    """Another output is nearer than derived figures."""
    derived = recipe(origin=Origin(provenance="derived", runs=2))
    assert taken(past(800.0, at=key(output="b.o")), derived) == ("history", 800)


def test_without_a_history_the_recipe_counts_and_the_other_way_round() -> None:
    """And without both there is nothing."""
    assert taken(None, recipe()) == ("recipe", 1000)
    assert joined(KEY, past(800.0), None) == past(800.0)
    assert joined(KEY, None, None) is None


def test_phases_that_the_history_lacks_come_from_the_recipe() -> None:
    """A build that failed in the front end has left the history with that alone; distances are kept."""
    made = recipe(recipe_unit("src/a.cu", figures(PhaseKind.CUDAFE), figures(), options="f" * 16))
    known = joined(KEY, past(800.0, PhaseKind.CUDAFE), find(made))
    assert known is not None
    found = {each.kind: (each.origin, each.seen[0].peak_mib, each.distance) for each in known.phases}
    assert found == {
        PhaseKind.CUDAFE: ("history", 800, 0.0),
        PhaseKind.CICC: ("recipe", 1000, OTHER_OPTIONS),
    }


def test_a_history_of_other_architectures_gives_way_to_a_recipe_of_these() -> None:
    """Its cicc is not waited for: that never comes. Where the recipe has none either, it stays."""
    now = key(archs=("sm_100",))
    made = recipe(recipe_unit("src/a.cu", figures(arch="sm_100"), archs=("sm_100",)))
    known = joined(now, past(800.0), find(made, unit=now))
    assert known is not None
    assert [(each.kind, each.arch) for each in known.phases] == [(PhaseKind.CICC, "sm_100")]
    front_end = recipe(recipe_unit("src/a.cu", figures(PhaseKind.CUDAFE)))
    known = joined(now, past(800.0), find(front_end, unit=now))
    assert known is not None
    assert [(each.kind, each.arch) for each in known.phases] == [(PhaseKind.CICC, "sm_90"), (PhaseKind.CUDAFE, "")]


# -- in a build --------------------------------------------------------------------------------------------


def chosen(made: Recipe, **fields: Any) -> ChosenRecipe:
    far = distance(made, HERE)
    return ChosenRecipe(
        **{"name": "demo-2.8", "wanted": HERE, "distance": far, "new_file": Path("/r/demo-2.8.toml"), **fields},
        recipe=made,
    )


def build(
    path: Path | None, made: Recipe | None, peak_mib: float, unit_name: str = "src/a.cu"
) -> tuple[str, float, list[str]]:
    """One build of one unit: where the front end's estimate came from, what it was, what was said at the end."""
    recall_of = RecipeUse(chosen(made)) if made is not None else None
    built = Recorded(HistoryRecorder(path, cwd="/home/me/demo", tools=TOOLS, gather_s=0.0, recipe=recall_of))
    began = unit(source=unit_name, output="a.o")
    front_end = phase(kind=PhaseKind.CUDAFE, input_mib=4.0, tool="cudafe++")
    built.unit_began(began, ["-c", "-O3"])
    guess = built.ran(front_end, peak_mib=peak_mib, wall_s=3.0)
    built.unit_ended(began)
    built.recorder.close()
    return guess.source, guess.peak_mib, built.recorder.beyond_recipe(Path("/t/trace one.jsonl"))


FRONT_END = recipe(recipe_unit("src/a.cu", figures(PhaseKind.CUDAFE), options=""))


def test_a_first_build_with_a_recipe_expects_what_it_says(tmp_path: Path) -> None:
    """Options that the recipe does not give leave it not quite the same; the second build goes by its own history."""
    source, peak_mib, _ = build(tmp_path / "h", FRONT_END, 1000.0)
    assert source == "recipe, not quite the same"
    assert peak_mib == pytest.approx(1000, rel=0.05)
    source, peak_mib, _ = build(tmp_path / "h", FRONT_END, 700.0)
    assert source == "history"
    assert build(tmp_path / "h", None, 700.0)[0] == "history"


def test_a_recipe_needs_no_history_file() -> None:
    """Nor does it bring one."""
    assert build(None, FRONT_END, 1000.0)[0] == "recipe, not quite the same"
    assert build(None, None, 1000.0)[0] not in ("recipe, not quite the same", "recipe")


def test_a_build_that_went_beyond_its_recipe_says_so_and_how_to_renew_it() -> None:
    """One line: how many units, the worst, and a command that can be pasted."""
    (said,) = build(None, FRONT_END, 1500.0)[2]
    assert said.startswith("1 unit took more than the recipe demo-2.8 says (most of all src/a.cu: cudafe++ 1.5 GiB")
    assert "not 1000 MiB" in said
    assert said.endswith("builddoctor recipe from-trace '/t/trace one.jsonl' -o /r/demo-2.8.toml")


def test_a_build_within_its_recipe_says_nothing() -> None:
    """Nor one that is a little above, by less than the recipe's distance from it."""
    assert build(None, FRONT_END, 1000.0)[2] == []
    assert build(None, FRONT_END, 1050.0)[2] == []
    assert build(None, FRONT_END, 400.0)[2] == []


def test_a_build_of_a_part_offers_no_recipe_of_it() -> None:
    """One made of its trace would lack the other units."""
    two = recipe(*FRONT_END.units, recipe_unit("src/b.cu", output="b.o"))
    (said,) = build(None, two, 1500.0)[2]
    assert "from-trace" not in said
    assert "the history has learned it" in said


def test_a_unit_counts_once_with_its_worst_phase() -> None:
    """Two phases of two units beyond: two units, the worst first."""
    phases = (figures(PhaseKind.CUDAFE, peak_mib=100.0), figures(peak_mib=100.0))
    made = recipe(recipe_unit("a.cu", *phases), recipe_unit("b.cu", *phases, output="b.o"))
    beyond = RecipeUse(chosen(made))
    for unit_id, place, more in (("u1", "a.cu", 1.0), ("u2", "b.cu", 2.0)):
        now = key(place=place, output=f"{place[0]}.o")
        beyond.unit_began(unit_id, now, None)
        for kind, arch, peak_mib in ((PhaseKind.CUDAFE, "", 150.0), (PhaseKind.CICC, "sm_90", 300.0)):
            tool = "cudafe++" if kind is PhaseKind.CUDAFE else "cicc"
            asked = phase(kind=kind, arch=arch, input_mib=4.0, tool=tool, unit_id=unit_id)
            beyond.phase_ended(asked, more * peak_mib)
        beyond.unit_ended(unit_id)
    assert [(each.place, each.tool, each.peak_mib) for each in beyond.over] == [
        ("b.cu", "cicc", 600),
        ("a.cu", "cicc", 300),
    ]
    assert beyond.whole


def test_phases_of_units_that_the_recipe_does_not_know_are_not_counted() -> None:
    """Nor such that came after their unit's end."""
    beyond = RecipeUse(chosen(recipe()))
    beyond.phase_ended(CICC, 1e6)
    beyond.unit_began("u1", KEY, None)
    beyond.unit_ended("u1")
    beyond.phase_ended(CICC, 1e6)
    beyond.unit_ended("u1")
    assert beyond.over == []


# -- which recipe, and what is said of it ------------------------------------------------------------------


def choose(folder: Path, named: Shelved | None = None, **asked: Any) -> ChosenRecipe | None:
    """For a build of a project called demo; recipes of the user's own are in ``folder/data/recipes``."""
    project = folder / "demo"
    project.mkdir(exist_ok=True)
    (project / "pyproject.toml").write_text('[project]\nname = "demo"\nversion = "2.8"\n')
    request = RunRequest(command=("true",), cwd=str(project), archs=("sm_90",), **asked)
    return choose_recipe(request, named, TOOLS, {"BUILDDOCTOR_DATA_DIR": str(folder / "data")})


def keep(folder: Path, name: str, made: Recipe) -> Path:
    """A recipe of the user's."""
    path = folder / "data" / "recipes" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump(made))
    return path


def test_build_takes_the_nearest_by_itself_and_run_does_not(tmp_path: Path) -> None:
    """And ``none`` is none for both."""
    keep(tmp_path, "a", recipe(project=RecipeProject(name="other")))
    keep(tmp_path, "b", recipe(made=Fingerprint(nvcc="12.9.41")))
    path = keep(tmp_path, "mine", recipe())
    near = choose(tmp_path, nearest_recipe=True)
    assert near is not None
    assert near.name == "mine"
    assert near.new_file == path
    assert choose(tmp_path) is None
    assert choose(tmp_path, nearest_recipe=True, recipe="none") is None


def test_the_doctor_knows_the_largest_phase_of_the_nearest_recipe(tmp_path: Path) -> None:
    """By its version where there are sources; with whose figure it is."""
    env = {"BUILDDOCTOR_DATA_DIR": str(tmp_path / "data")}
    assert heavy_by_recipe("demo", None, ("sm_90",), env) is None
    keep(tmp_path, "mine", recipe())
    heavy = heavy_by_recipe("demo", None, ("sm_90",), env)
    assert heavy is not None
    largest = max(phase.peak_mib for unit in recipe().units for phase in unit.phases)
    assert heavy.heavy_mib == largest
    assert heavy.source.endswith("recipe mine")
    keep(tmp_path, "mine", recipe()).write_text("schema = 1\n[project\n")
    assert heavy_by_recipe("demo", None, ("sm_90",), env) is None


def test_one_that_is_named_is_taken_whatever_it_is_of(tmp_path: Path) -> None:
    """A mismatch is said, and never fails a build."""
    path = keep(tmp_path, "far", recipe(project=RecipeProject(name="other")))
    for name in ("far", str(path)):
        far = choose(tmp_path, recipe=name)
        assert far is not None
        assert "of other, this is demo" in far.distance.words


def test_one_that_cannot_be_read_is_passed_over_and_named_is_an_error(tmp_path: Path) -> None:
    """Nobody asked for it, and the build goes on without; or somebody did."""
    keep(tmp_path, "broken", recipe()).write_text("schema = 1\n[project\n")
    assert choose(tmp_path, nearest_recipe=True) is None
    for name in ("broken", "missing"):
        with pytest.raises(RecipeError):
            choose(tmp_path, recipe=name)


def bring(folder: Path, name: str, made: Recipe) -> Path:
    """A recipe of the project's own."""
    path = folder / "demo" / PROJECT_FOLDER / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump(made))
    return path


def test_of_equally_near_ones_the_users_is_taken_and_of_others_the_nearest(tmp_path: Path) -> None:
    """The user's, then what was pulled, then the project's own, then the shipped: only where they are equally near."""
    near, far = recipe(), recipe(made=Fingerprint(nvcc="12.9.41"))
    bring(tmp_path, "theirs", near)
    pulled = keep(tmp_path, "pulled/somewhere/pulled", near)
    mine = keep(tmp_path, "mine", near)

    def chosen() -> str:
        found = choose(tmp_path, nearest_recipe=True)
        return found.name if found is not None else ""

    assert chosen() == "mine"
    mine.write_text(dump(far))
    assert chosen() == "pulled"
    pulled.write_text(dump(far))
    assert chosen() == "theirs"


def test_a_projects_own_says_so_and_goes_before_a_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the build learns goes to the user's folder, and not into the checkout."""
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "demo.toml").write_text(dump(recipe()))
    monkeypatch.setattr(shelf, "shipped_folder", lambda: tmp_path / "shipped")
    bring(tmp_path, "theirs", recipe())
    found = choose(tmp_path, nearest_recipe=True)
    assert found is not None
    assert found.lines[0].startswith("recipe    theirs (measured, 2 runs, the project's own)")
    assert found.new_file == tmp_path / "data" / "recipes" / "theirs.toml"
    by_name = choose(tmp_path, recipe="theirs")
    assert by_name is not None
    assert by_name.recipe == recipe()


def test_a_checkouts_recipe_sets_no_variable_and_a_hostile_one_is_passed_over(tmp_path: Path) -> None:
    """It comes from whoever wrote the checkout: the settings are words, and the next recipe is taken for a bad one."""
    setting = Setting(name="NVTE_FRAMEWORK", value="jax")
    bring(tmp_path, "a", recipe(environment=(setting,)))
    found = choose(tmp_path, nearest_recipe=True)
    assert found is not None
    assert found.lines[-1].endswith("and does not get: NVTE_FRAMEWORK=jax")
    good = dump(recipe(environment=(setting,)))
    for evil in (good.replace("NVTE_FRAMEWORK", "LD_PRELOAD"), good.replace("src/a.cu", "../../a.cu"), "command = 'x'"):
        bring(tmp_path, "a", recipe()).write_text(evil)
        assert choose(tmp_path, nearest_recipe=True) is None


def test_a_new_recipe_goes_in_place_of_the_users_own_and_never_into_the_package(tmp_path: Path) -> None:
    """One that was shipped, or came from an address, is renewed in the user's folder."""
    shipped = Shelved(name="demo", origin="", recipe=recipe(), kept_by_others=True, path=Path("/usr/lib/demo.toml"))
    web = Shelved(name="demo", origin="", recipe=recipe())
    for named in (shipped, web):
        found = choose(tmp_path, named, recipe="demo")
        assert found is not None
        assert found.new_file == tmp_path / "data" / "recipes" / "demo.toml"


@pytest.mark.parametrize(
    ("room_mib", "archs", "far", "said"),
    [
        (math.inf, ("sm_90",), 0.0, ""),
        (4000.0, ("sm_90",), 0.0, ""),
        (
            2999.0,
            ("sm_90",),
            0.0,
            "cicc sm_90 of src/b.cu takes 2.9 GiB, more than the 2.9 GiB that are there for it: ",
        ),
        (
            800.0,
            ("sm_90",),
            0.0,
            "more than the 800 MiB that are there for it (and 1 more): unless they are",
        ),
        (2999.0, ("sm_80",), 0.0, ""),
        (2999.0, ("sm_100",), 0.0, "cicc sm_90 of src/b.cu takes 2.9 GiB"),
        (2999.0, ("sm_90",), 0.2, ""),
    ],
)
def test_what_cannot_fit_by_the_recipe_is_said_before_anything_starts(
    room_mib: float, archs: tuple[str, ...], far: float, said: str
) -> None:
    """For these architectures, the recipe's distance allowed for; nothing where another machine may have the room."""
    device = [figures(PhaseKind.CICC, arch="sm_80", peak_mib=500.0), figures(arch="sm_90", peak_mib=3000.0)]
    both = msgspec.structs.replace(MADE, archs=("sm_80", "sm_90"))
    made = recipe(recipe_unit("src/a.cu", figures(peak_mib=900.0)), recipe_unit("src/b.cu", *device), made=both)
    lines = too_big_lines(made, Distance(value=far), archs, room_mib)
    assert (len(lines) == 1) == bool(said)
    assert not said or (lines[0].startswith("too big   ") and said in lines[0] and lines[0].endswith("give it 4 GiB"))


def test_what_starts_the_compilers_has_its_share_of_the_room() -> None:
    """A Python with torch holds 390 MiB."""
    made = recipe(recipe_unit("src/a.cu", figures(peak_mib=1500.0)), project=RecipeProject(name="mamba-ssm"))
    assert too_big_lines(made, Distance(value=0.0), (), 1900.0) == ()
    (line,) = too_big_lines(made, Distance(value=0.0), (), 1800.0)
    assert "more than the 1.4 GiB that are there for it: unless they are built already, give it 3 GiB" in line


def test_a_recipe_of_the_next_version_goes_beside_the_one_before(tmp_path: Path) -> None:
    """Where the file's name says the version: that of 2.7 stays."""
    made = recipe(project=RecipeProject(name="demo", version="2.7"))
    keep(tmp_path, "demo-2.7-sm_90", made)
    found = choose(tmp_path, recipe="demo-2.7-sm_90")
    assert found is not None
    assert found.new_file == tmp_path / "data" / "recipes" / "demo-2.8-sm_90.toml"


def test_the_line_says_provenance_and_distance() -> None:
    """In words that end with what it means."""
    made = recipe(made=Fingerprint(archs=("sm_90",), nvcc="12.9.41", host_compiler="12.2.0", host_arch="x86_64"))
    (line,) = recipe_lines("demo", made, distance(made, HERE), "x86_64", {})
    assert line == ("recipe    demo (measured, 2 runs); made with nvcc 12.9.41, this build has 13.0.88: trusted less")


def test_hazards_of_this_kind_of_machine_are_said_and_not_too_many() -> None:
    """Those for another processor are left out; of many the first, and where the rest is."""
    hazards = [Hazard(kind="runaway", text=f"it runs away {n}", place="a.cu", source="measured") for n in range(7)]
    other = Hazard(kind="build", text="only there", host_arch="aarch64")
    own = Hazard(kind="build", text="only here", host_arch="x86_64")
    made = recipe(hazards=(other, own, *hazards))
    lines = recipe_lines("my demo", made, Distance(value=0.0), "x86_64", {})
    assert lines[1] == "hazard    only here"
    assert lines[2] == "hazard    a.cu: it runs away 0 (measured)"
    assert len(lines) == 1 + MOST_HAZARDS + 1
    assert lines[-1] == "hazard    4 more are known: builddoctor recipe show 'my demo'"
    assert not any("only there" in line for line in lines)


def test_settings_are_shown_where_they_differ() -> None:
    """What builddoctor sets itself is left out; so is what is set the same."""
    settings = (("MAX_JOBS", "1"), ("NVTE_FRAMEWORK", "pytorch"), ("NVTE_USE_CCACHE", "0"), ("CMAKE_ARGS", "-DA=1 -DB"))
    made = recipe(environment=tuple(Setting(name=name, value=value) for name, value in settings))
    lines = recipe_lines("demo", made, Distance(value=0.0), "x86_64", {"NVTE_USE_CCACHE": "0"})
    assert lines[1].endswith(": NVTE_FRAMEWORK=pytorch CMAKE_ARGS='-DA=1 -DB'")


def test_figures_of_a_recipe_are_not_written_into_the_history(tmp_path: Path) -> None:
    """It keeps what was seen here alone."""
    build(tmp_path / "h", FRONT_END, 1234.0)
    opened = History.open(tmp_path / "h")
    assert opened.history is not None
    (unit_,) = opened.history.units("demo")
    assert [[seen.peak_mib for seen in each.seen] for each in unit_.phases] == [[1234.0]]
    assert unit_.phases[0].origin == "history"
