"""``builddoctor recipe pull|push`` as a newcomer types them: what is said, what is written, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builddoctor.cli.app import main
from builddoctor.core.errors import FolderNotWritableError, RecipeError
from builddoctor.core.recipe import RecipeProject
from builddoctor.recipes.recipe_text import dump
from builddoctor.recipes.signing import make_key, print_of_line
from support.signed_index import new_key, signed_folder
from unit.demo_recipes import recipe

Capture = pytest.CaptureFixture[str]
PULLED = Path("../data/recipes/pulled")


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with two recipes; nothing of this user's is read."""
    folder = tmp_path / "desk"
    folder.mkdir()
    for name in ("CONFIG", "STATE", "CACHE", "DATA"):
        monkeypatch.setenv(f"BUILDDOCTOR_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.delenv("BUILDDOCTOR_RECIPES", raising=False)
    monkeypatch.chdir(folder)
    Path("demo.toml").write_text(f"# measured on a quiet day\n{dump(recipe())}")
    Path("flash.toml").write_text(dump(recipe(project=RecipeProject(name="flash-attn", version="2.8.3"))))
    return folder


def ran(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    code = main(["recipe", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def pushed(capsys: Capture, *recipes: str) -> str:
    """Into ``kept``; gives the fingerprint that pulls it."""
    code, out, err = ran(capsys, "push", "kept", *(recipes or ("demo.toml", "flash.toml")))
    assert (code, out) == (0, "")
    return err.rsplit("--key ", 1)[1].strip()


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_one_pushes_another_pulls_lists_and_plans_with(capsys: Capture) -> None:
    """By the commands that each prints; comments come along."""
    code, _, err = ran(capsys, "push", "kept", "demo.toml")
    assert code == 0
    assert "made a key of your own" in err
    assert files(Path("kept")) == ["demo.toml", "index.json", "index.json.sig"]
    command = err.strip().rsplit("builddoctor recipe ", 1)[1]
    code, out, err = ran(capsys, *command.split())
    assert code == 0
    assert out == "new        demo  (demo 2.8 sm_90 x86_64)\n"
    assert "from now on SHA256:" in err
    (path,) = PULLED.glob("*/demo.toml")
    assert path.read_bytes() == Path("demo.toml").read_bytes()
    Path("demo.toml").unlink()
    code, out, _ = ran(capsys, "list", "--json")
    assert [each["origin"] for each in json.loads(out) if each["name"] == "demo"] == [f"pulled from {Path.cwd()}/kept"]
    assert ran(capsys, "show", "demo")[0] == 0
    assert main(["plan", "demo", "--cores", "2", "--memory", "8GiB"]) == 0


def test_without_a_key_nothing_is_taken_and_the_command_is_told(capsys: Capture) -> None:
    """That command then works, and the key need not be said again."""
    key = pushed(capsys)
    code, out, err = ran(capsys, "pull", "kept", "demo")
    assert (code, out) == (RecipeError.exit_code, "")
    assert err.strip().endswith(f"builddoctor recipe pull kept demo --key {key}")
    assert not PULLED.exists()
    assert ran(capsys, "pull", "kept", "demo", "--key", key)[0] == 0
    code, out, err = ran(capsys, "pull", "kept")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()] == [["unchanged", "demo"], ["new", "flash"]]
    assert err == "builddoctor: 1 recipe came, 1 unchanged; next: builddoctor recipe list\n"


def test_a_dry_run_writes_nothing(capsys: Capture) -> None:
    """Not even whom to trust."""
    key = pushed(capsys)
    code, out, err = ran(capsys, "pull", "kept", "--dry-run", "--key", key)
    assert code == 0
    assert len(out.splitlines()) == 2
    assert "2 recipes would come, 0 unchanged; nothing was written" in err
    assert not PULLED.exists()


def test_a_renewed_recipe_replaces_the_old_one(capsys: Capture) -> None:
    """The user's own of the same name stays."""
    own = Path("../data/recipes/demo.toml")
    own.parent.mkdir(parents=True)
    own.write_text(dump(recipe()))
    key = pushed(capsys)
    ran(capsys, "pull", "kept", "--key", key)
    new = recipe(project=RecipeProject(name="demo", version="2.9"))
    Path("demo.toml").write_text(dump(new))
    pushed(capsys, "demo.toml")
    code, out, _ = ran(capsys, "pull", "kept", "--json")
    assert code == 0
    assert {each["name"]: each["state"] for each in json.loads(out)["recipes"]} == {
        "demo": "renewed",
        "flash": "unchanged",
    }
    assert own.read_text() == dump(recipe())
    (path,) = PULLED.glob("*/demo.toml")
    assert path.read_text() == dump(new)


def test_another_key_takes_nothing_until_it_is_named(capsys: Capture, tmp_path: Path) -> None:
    """Then it takes the place of the old one, in words."""
    old = pushed(capsys)
    ran(capsys, "pull", "kept", "--key", old)
    before = {path: path.read_bytes() for path in PULLED.rglob("*") if path.is_file()}
    other = new_key(tmp_path / "other")
    signed_folder(Path("kept"), other, demo=recipe(project=RecipeProject(name="demo", version="3")))
    code, out, err = ran(capsys, "pull", "kept")
    assert (code, out) == (RecipeError.exit_code, "")
    assert "the key trusted there until now is" in err
    assert {path: path.read_bytes() for path in PULLED.rglob("*") if path.is_file()} == before
    code, _, err = ran(capsys, "pull", "kept", "--key", f"{other.path}.pub")
    assert code == 0
    assert f"from now on {other.print} is trusted for {Path.cwd()}/kept, in place of {old}" in err
    assert ran(capsys, "pull", "kept")[0] == 0
    assert ran(capsys, "push", "kept", "demo.toml")[0] == RecipeError.exit_code


def test_a_bad_recipe_leaves_no_part_of_it(capsys: Capture) -> None:
    """Those before it are there, whole; the old one of its name stays as it was."""
    key = pushed(capsys)
    ran(capsys, "pull", "kept", "flash", "--key", key)
    pushed(capsys, "demo.toml")
    Path("flash.toml").write_text(dump(recipe(project=RecipeProject(name="flash-attn", version="3"))))
    pushed(capsys, "flash.toml")
    Path("kept/flash.toml").write_text(Path("kept/flash.toml").read_text()[:-10])
    (old,) = PULLED.glob("*/flash.toml")
    before = old.read_bytes()
    code, out, err = ran(capsys, "pull", "kept")
    assert code == RecipeError.exit_code
    assert out.startswith("new        demo  ")
    assert "flash.toml is not what was signed" in err
    assert files(old.parent) == ["demo.toml", "flash.toml", "source.json"]
    assert old.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["pull"], 64, "missing argument 'WHERE'"),
        (["pull", "nothing"], 89, "nothing/index.json: No such file or directory"),
        (["pull", "example.org/recipes"], 89, "an address begins with https://"),
        (["pull", "."], 89, "is that the folder of an index?"),
        (["pull", "demo.toml"], 64, "is one recipe"),
        (["pull", "https://example.org/recipes/demo.toml"], 64, "--recipe FILE|https://….toml"),
        (["pull", ""], 64, "the folder's name is empty"),
        (["pull", "kept", "--key", "SHA256:short"], 64, "neither a fingerprint nor a file"),
        (["pull", "kept", "--key", "demo.toml"], 64, "no public key of the kind ssh-ed25519"),
        (["pull", "kept", "dmeo", "--key", "KEY"], 89, "did you mean `demo`?"),
        (["pull", "http://example.org/recipes"], 89, "recipes come over https"),
        (["pull", "https://example.org/recipes?x"], 64, "is the address of one page"),
        (["push"], 64, "missing argument 'FOLDER'"),
        (["push", "kept"], 64, "missing argument 'RECIPE…'"),
        (["push", "https://example.org/recipes", "demo.toml"], 64, "push into a folder that is served"),
        (["push", "kept", "dmeo.toml"], 89, "dmeo.toml"),
        (["push", "kept", "demo.toml", "./demo.toml"], 89, "two of them are called demo"),
        (["push", "kept", "demo.toml", "--key", "nothing"], 64, "cannot read the key"),
        (["push", "demo.toml", "flash.toml"], 64, "is one recipe"),
        (["push", "../desk/key", "flash.toml"], 76, "cannot write"),
        (["push", "kept", "a b.toml"], 89, "is no name for others"),
    ],
)
def test_a_slip_is_told_in_a_line_with_what_to_do(capsys: Capture, words: list[str], code: int, said: str) -> None:
    """And changes nothing."""
    key = pushed(capsys)
    Path("a b.toml").write_text(dump(recipe()))
    Path("key").write_text("a file where the folder would be")
    before = {path: path.read_bytes() for path in Path("..").rglob("*") if path.is_file()}
    got, out, err = ran(capsys, *(key if word == "KEY" else word for word in words))
    assert (got, out) == (code, "")
    assert said in err
    assert "\nhint: " in err
    assert {path: path.read_bytes() for path in Path("..").rglob("*") if path.is_file()} == before


def test_a_key_of_ones_own_is_given_by_its_file(capsys: Capture) -> None:
    """And no other is made."""
    make_key(Path("signing"))
    code, out, _ = ran(capsys, "push", "kept", "demo.toml", "--key", "signing", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["key"] == print_of_line(Path("signing.pub").read_text())
    assert [each["name"] for each in told["index"]["recipes"]] == ["demo"]
    assert not Path("../config").exists()


def test_a_recipe_that_was_taken_away_leaves_the_index(capsys: Capture) -> None:
    pushed(capsys)
    Path("kept/flash.toml").unlink()
    code, out, err = ran(capsys, "push", "kept", "demo.toml", "--json")
    assert code == 0
    assert json.loads(out)["gone"] == ["flash"]
    assert "flash is no longer there" in err


def test_a_projects_folder_may_be_an_index_itself(capsys: Capture) -> None:
    """Its recipes are pushed onto themselves."""
    own = Path("builddoctor-recipes")
    own.mkdir()
    Path("demo.toml").rename(own / "demo.toml")
    before = (own / "demo.toml").read_bytes()
    assert ran(capsys, "push", str(own), str(own / "demo.toml"))[0] == 0
    assert (own / "demo.toml").read_bytes() == before
    code, out, _ = ran(capsys, "list", "--json")
    assert code == 0
    assert next(each["origin"] for each in json.loads(out) if each["name"] == "demo") == "the project's own"


def test_where_nothing_can_be_written_that_is_said(capsys: Capture, tmp_path: Path) -> None:
    """With the code for it."""
    key = pushed(capsys)
    (tmp_path / "data").write_text("a file where the folder would be")
    code, out, err = ran(capsys, "pull", "kept", "--key", key)
    assert (code, out) == (FolderNotWritableError.exit_code, "")
    assert "cannot write" in err
