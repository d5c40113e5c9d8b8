"""``builddoctor recipe``: data on stdout, everything else on stderr, files written whole."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from builddoctor.cli.app import main
from builddoctor.core.errors import FolderNotWritableError, RecipeError, TraceError, UsageError
from builddoctor.core.recipe import Hazard, Recipe, Setting
from builddoctor.recipes.recipe_file import parse_recipe, read_recipe
from builddoctor.recipes.recipe_text import dump
from unit.demo_recipes import figures, recipe, recipe_unit
from unit.recipe_builds import Traced

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a recipe and traces; nothing of this user's is read."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("STATE", "CACHE", "DATA"):
        monkeypatch.setenv(f"BUILDDOCTOR_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.delenv("BUILDDOCTOR_RECIPES", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(folder)
    Path("demo.toml").write_text(dump(recipe()))
    Traced(trace_id="aaa111").unit("a.cu").unit("link x", (("link", 50.0),)).write(Path("1.jsonl"))
    Traced(trace_id="bbb222").unit("a.cu", scale=1.2).unit("$b.cu").write(Path("2.jsonl"))
    kept = tmp_path / "state" / "traces"
    kept.mkdir(parents=True)
    Traced(trace_id="3f2a01").unit("kept.cu").write(kept / "20250101-000000.000-3f2a01.jsonl")
    return folder


def ran(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    code = main(["recipe", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_trace_becomes_a_recipe_on_stdout(capsys: Capture) -> None:
    """What is said about it goes to stderr, with the next step."""
    code, out, err = ran(capsys, "from-trace", "1.jsonl")
    assert code == 0
    assert [unit.place for unit in parse_recipe(out, "x").units] == ["a.cu", "link x"]
    assert err == "builddoctor: 1 unit, 7 phases; next: keep it with -o demo.toml\n"


def test_a_trace_is_found_by_its_id_or_as_the_last(capsys: Capture) -> None:
    """As by `trace show`."""
    for name in ("3f2a", "last"):
        code, out, _ = ran(capsys, "from-trace", name)
        assert code == 0
        assert 'place = "kept.cu"' in out
    assert ran(capsys, "from-trace", "zzz")[0] == TraceError.exit_code


def test_what_is_left_out_is_said_on_stderr(capsys: Capture) -> None:
    """And the recipe says itself that it is partial."""
    code, out, err = ran(capsys, "from-trace", "1.jsonl", "2.jsonl")
    assert code == 0
    assert "left out: $b.cu: " in err
    assert "the recipe is incomplete" in err
    assert parse_recipe(out, "x").origin.how.endswith("partial: some units are not in it")


def test_a_recipe_is_written_and_nothing_but_words_is_said(capsys: Capture) -> None:
    """stdout stays empty; the file can be read."""
    code, out, err = ran(capsys, "from-trace", "1.jsonl", "-o", "new.toml", "--name", "other")
    assert (code, out) == (0, "")
    assert err.startswith("builddoctor: wrote new.toml: 1 unit, 7 phases; next: builddoctor recipe show new.toml")
    assert read_recipe(Path("new.toml")).project.name == "other"


def test_a_recipe_that_is_there_grows_and_keeps_its_comments(capsys: Capture) -> None:
    """Runs are counted, hazards stay; the same trace again changes nothing."""
    ran(capsys, "from-trace", "1.jsonl", "-o", "new.toml")
    hazards = '\n# seen twice\n[[hazards]]\nkind = "runaway"\ntext = "grows"\n\n[[units]]'
    text = Path("new.toml").read_text().replace("\n[[units]]", hazards, 1)
    Path("new.toml").write_text(text)
    code, _, err = ran(capsys, "from-trace", "1.jsonl", "2.jsonl", "-o", "new.toml")
    assert code == 0
    assert "1.jsonl is in the recipe already" in err
    now = read_recipe(Path("new.toml"))
    assert (now.origin.runs, now.origin.traces) == (2, ("aaa111", "bbb222"))
    assert now.hazards == (Hazard(kind="runaway", text="grows"),)
    assert "# seen twice\n[[hazards]]" in Path("new.toml").read_text()
    before = Path("new.toml").read_bytes()
    code, out, err = ran(capsys, "from-trace", "2.jsonl", "-o", "new.toml")
    assert (code, out) == (0, "")
    assert "nothing new: 1 unit, 7 phases as before" in err
    assert Path("new.toml").read_bytes() == before


def test_a_recipe_of_another_project_is_left_as_it_is(capsys: Capture) -> None:
    """Whoever names its file meant another."""
    Traced(trace_id="ccc", project="other").unit("a.cu", project="other").write(Path("3.jsonl"))
    before = Path("demo.toml").read_bytes()
    code, _, err = ran(capsys, "from-trace", "3.jsonl", "-o", "demo.toml")
    assert code == RecipeError.exit_code
    assert "different projects" in err
    assert Path("demo.toml").read_bytes() == before


def test_a_file_that_is_no_recipe_is_not_written_over(capsys: Capture) -> None:
    """With the line that is wrong in it."""
    Path("notes.txt").write_text("hello\n")
    code, _, err = ran(capsys, "from-trace", "1.jsonl", "-o", "notes.txt")
    assert code == RecipeError.exit_code
    assert "notes.txt:1" in err
    assert Path("notes.txt").read_text() == "hello\n"


def test_a_folder_that_is_not_there_is_an_error_of_folders(capsys: Capture) -> None:
    """Nothing is left behind."""
    code, _, err = ran(capsys, "from-trace", "1.jsonl", "-o", "nothing/new.toml")
    assert code == FolderNotWritableError.exit_code
    assert "-o recipe.toml" in err


def test_json_of_a_made_recipe_is_the_recipe_and_what_is_said(capsys: Capture) -> None:
    """On stdout, whether or not it was written too."""
    code, out, _ = ran(capsys, "from-trace", "2.jsonl", "--json", "-o", "new.toml")
    assert code == 0
    told = msgspec.json.decode(out)
    assert (told["file"], told["complete"], told["totals"]["units"]) == ("new.toml", False, 1)
    assert any("$b.cu" in note for note in told["notes"])
    assert msgspec.convert(told["recipe"], Recipe) == read_recipe(Path("new.toml"))


def test_check_says_ok_with_numbers(capsys: Capture) -> None:
    """One file; with names for several, names from the shelf too."""
    assert ran(capsys, "check", "demo.toml") == (0, "ok: 1 unit, 1 phase\n", "")
    code, out, _ = ran(capsys, "check", "demo.toml", "./demo.toml")
    assert (code, out) == (0, "demo.toml: ok: 1 unit, 1 phase\n./demo.toml: ok: 1 unit, 1 phase\n")


def test_check_names_file_and_line_of_what_is_wrong(capsys: Capture) -> None:
    """All files are looked at; one that is wrong is enough for the exit code."""
    Path("bad.toml").write_text(Path("demo.toml").read_text().replace("schema = 2", "schema = 2\ncolour = 3"))
    code, out, err = ran(capsys, "check", "bad.toml", "demo.toml")
    assert code == 89
    assert out == "demo.toml: ok: 1 unit, 1 phase\n"
    assert re.search(r"^builddoctor: .*bad\.toml:\d+: .*colour.*\nhint: ", err)
    code, out, _ = ran(capsys, "check", "bad.toml", "demo.toml", "--json")
    assert code == 89
    assert [(each["file"], each["ok"]) for each in msgspec.json.decode(out)] == [
        ("bad.toml", False),
        ("demo.toml", True),
    ]


def test_show_is_a_page_that_can_be_read(capsys: Capture) -> None:
    """Project, tools, figures, settings, hazards, totals, the heaviest units with their phases."""
    whole = recipe(
        *(recipe_unit(f"src/u{n}.cu", figures(peak_mib=100.0 * n), output=f"u{n}.o") for n in range(1, 13)),
        hazards=(Hazard(kind="runaway", text="grows without end", tool="cudafe++", host_arch="aarch64"),),
        environment=(Setting(name="NVCC_THREADS", value="1", why="less at once"),),
    )
    Path("big.toml").write_text(dump(whole))
    code, out, err = ran(capsys, "show", "big.toml")
    assert (code, err) == (0, "")
    for words in (
        "big (that file): demo 2.8",
        "archs      sm_90",
        "made with  nvcc 13.0.88, gcc 12.2.0, x86_64, 4 KiB pages",
        "set        NVCC_THREADS=1   less at once",
        "hazard     runaway (aarch64 cudafe++): grows without end",
        "in all     12 units, 12 phases, largest 1.2 GiB, 2:00 on one core",
        "1.2 GiB  0:10   1.2 GiB  src/u12.cu",
        "and 2 lighter units",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 100


def test_show_as_json_holds_the_recipe(capsys: Capture) -> None:
    """And where it is."""
    code, out, _ = ran(capsys, "show", "demo.toml", "--json")
    told = msgspec.json.decode(out)
    assert code == 0
    assert (told["name"], told["path"].rpartition("/")[2], told["totals"]["phases"]) == ("demo", "demo.toml", 1)
    assert msgspec.convert(told["recipe"], Recipe) == recipe()


def test_an_unknown_name_is_89_with_a_hint(capsys: Capture) -> None:
    """Nothing on stdout."""
    code, out, err = ran(capsys, "show", "nosuch")
    assert (code, out) == (89, "")
    assert err.splitlines()[0] == "builddoctor: no recipe is called 'nosuch'"
    assert err.splitlines()[1].startswith("hint: ")


def test_list_shows_a_folder_and_what_is_wrong_in_it(capsys: Capture) -> None:
    """One line a recipe; names that would move a terminal's cursor do not."""
    Path("bad\x1b[2J.toml").write_text("nonsense")
    code, out, err = ran(capsys, "list", ".")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    lines = out.splitlines()
    assert lines[0].split() == ["recipe", "units", "largest", "core", "time", "figures", "from"]
    assert any(line.startswith("demo ") and "1000 MiB" in line and "measured, 2 runs" in line for line in lines)
    assert any("cannot be read" in line for line in lines)
    code, out, _ = ran(capsys, "list", ".", "--json")
    rows = {each["name"]: each for each in msgspec.json.decode(out)}
    assert rows["demo"]["units"] == 1
    assert rows["bad\x1b[2J"]["problem"]


def test_list_begins_with_the_users_own(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their folders, and then what comes with builddoctor."""
    (tmp_path / "data" / "recipes").mkdir(parents=True)
    (tmp_path / "data" / "recipes" / "own.toml").write_text(dump(recipe()))
    monkeypatch.setenv("BUILDDOCTOR_RECIPES", str(tmp_path / "work"))
    code, out, _ = ran(capsys, "list", "--json")
    assert code == 0
    found = [(each["name"], each["origin"]) for each in msgspec.json.decode(out)]
    assert found[:2] == [("demo", "BUILDDOCTOR_RECIPES"), ("own", "yours")]
    assert {origin for _, origin in found[2:]} <= {"shipped"}


def test_diff_sets_two_side_by_side(capsys: Capture) -> None:
    """Lines for a person, or figures."""
    other = recipe(recipe_unit(phase := "src/a.cu", figures(peak_mib=2000.0)), recipe_unit("new.cu", output="new.o"))
    Path("other.toml").write_text(dump(other))
    code, out, _ = ran(capsys, "diff", "demo.toml", "other.toml")
    assert code == 0
    assert re.search(rf"1000 MiB +2\.0 GiB +\+100% .*{phase}", out)
    assert "new:" in out
    assert "0 units as before" in out
    told = msgspec.json.decode(ran(capsys, "diff", "demo.toml", "other.toml", "--json")[1])
    assert [each["place"] for each in told["added"]] == ["new.cu"]
    assert told["changed"][0]["memory"] == "grew"


def test_merge_puts_recipes_together(capsys: Capture) -> None:
    """On stdout or in a file; what differs and what is counted twice is said."""
    ran(capsys, "from-trace", "1.jsonl", "-o", "one.toml")
    ran(capsys, "from-trace", "1.jsonl", "2.jsonl", "-o", "both.toml")
    code, out, err = ran(capsys, "merge", "one.toml", "both.toml")
    assert code == 0
    assert parse_recipe(out, "x").origin.runs == 3
    assert "both has builds that one has: aaa111 count twice" in err
    code, out, err = ran(capsys, "merge", "one.toml", "both.toml", "-o", "merged.toml")
    assert (code, out) == (0, "")
    assert "wrote merged.toml" in err
    assert read_recipe(Path("merged.toml")).origin.runs == 3


def test_merge_refuses_another_project(capsys: Capture) -> None:
    """Nothing is written."""
    ran(capsys, "from-trace", "1.jsonl", "-o", "other.toml", "--name", "other")
    code, out, err = ran(capsys, "merge", "demo.toml", "other.toml", "-o", "merged.toml")
    assert (code, out) == (89, "")
    assert "different projects" in err
    assert not Path("merged.toml").exists()


@pytest.mark.parametrize("arguments", ["from-trace", "check", "diff demo.toml", "merge", "show"])
def test_without_its_arguments_a_command_says_so(capsys: Capture, arguments: str) -> None:
    """A usage error, with where to read more."""
    code, out, err = ran(capsys, *arguments.split())
    assert (code, out) == (UsageError.exit_code, "")
    assert "--help" in err
