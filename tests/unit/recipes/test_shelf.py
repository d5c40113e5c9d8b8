"""Where recipes are found, in which order, and what is said where none is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builddoctor.core.errors import RecipeError
from builddoctor.core.recipe_index import PullSource
from builddoctor.recipes import shelf
from builddoctor.recipes.recipe_text import dump
from builddoctor.recipes.shelf import find_recipe, in_folder, is_safe, listed, shelved
from unit.demo_recipes import recipe

TEXT = dump(recipe())


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A shelf with the same recipe in three places, and others in one each."""
    for folder in ("mine", "data/recipes", "shipped", "work"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "everywhere.toml").write_text(TEXT)
    (tmp_path / "data/recipes/transformer_engine-2.8.toml").write_text(TEXT)
    (tmp_path / "shipped/demo-sm_90.toml").write_text(TEXT)
    (tmp_path / "shipped/README.md").write_text("no recipe")
    (tmp_path / "shipped/.hidden.toml").write_text("no recipe")
    monkeypatch.setattr(shelf, "shipped_folder", lambda: tmp_path / "shipped")
    return {
        "BUILDDOCTOR_RECIPES": f"{tmp_path / 'mine'}:{tmp_path / 'nothing'}",
        "BUILDDOCTOR_DATA_DIR": str(tmp_path / "data"),
    }


def find(wanted: str, env: dict[str, str], tmp_path: Path) -> shelf.Shelved:
    return find_recipe(wanted, env, tmp_path / "work")


def test_the_first_of_several_with_one_name_is_taken(env: dict[str, str], tmp_path: Path) -> None:
    """BUILDDOCTOR_RECIPES, the user's own, the shipped ones."""
    listed = [(each.name, each.origin, each.kept_by_others) for each in shelved(env)]
    assert listed == [
        ("everywhere", "BUILDDOCTOR_RECIPES", False),
        ("everywhere", "yours", False),
        ("transformer_engine-2.8", "yours", False),
        ("demo-sm_90", "shipped", True),
        ("everywhere", "shipped", True),
    ]
    assert find("everywhere", env, tmp_path).path == tmp_path / "mine" / "everywhere.toml"
    found = find("demo-sm_90", env, tmp_path)
    assert (found.origin, found.kept_by_others, found.recipe) == ("shipped", True, recipe())


def test_pulled_ones_and_the_projects_come_between_the_users_and_the_shipped(
    env: dict[str, str], tmp_path: Path
) -> None:
    """Each says where it is from; without a project there are none of its own."""
    pulled = tmp_path / "data/recipes/pulled/example"
    own = tmp_path / "work" / shelf.PROJECT_FOLDER
    for folder in (pulled, own):
        folder.mkdir(parents=True)
        (folder / "everywhere.toml").write_text(TEXT)
    source = PullSource(where="https://example.org/recipes", key="SHA256:" + "A" * 43)
    (pulled / shelf.SOURCE).write_bytes(msgspec.json.encode(source))
    from_there = "pulled from https://example.org/recipes"
    found = [
        (each.origin, each.kept_by_others) for each in shelved(env, tmp_path / "work") if each.name == "everywhere"
    ]
    assert found == [
        ("BUILDDOCTOR_RECIPES", False),
        ("yours", False),
        (from_there, True),
        (shelf.PROJECTS_OWN, True),
        ("shipped", True),
    ]
    assert shelf.PROJECTS_OWN not in {each.origin for each in shelved(env)}
    for path in (tmp_path / "mine/everywhere.toml", tmp_path / "data/recipes/everywhere.toml"):
        path.unlink()
    assert find("everywhere", env, tmp_path).origin == from_there
    (pulled / shelf.SOURCE).write_text("{")
    assert find("everywhere", env, tmp_path).origin == shelf.PULLED
    (pulled / "everywhere.toml").unlink()
    assert find("everywhere", env, tmp_path).origin == shelf.PROJECTS_OWN


def test_a_checkout_brings_fifty_recipes_and_none_from_elsewhere(env: dict[str, str], tmp_path: Path) -> None:
    """Links that lead out of it are not followed, neither of a file nor of the folder; links within are."""
    folder = tmp_path / "work" / shelf.PROJECT_FOLDER
    folder.mkdir()
    (folder / "out.toml").symlink_to(tmp_path / "mine" / "everywhere.toml")
    (folder / "in.toml").symlink_to("../everywhere.toml")
    (folder / "loop.toml").symlink_to("loop.toml")
    (folder / "README.md").write_text("no recipe")

    def names() -> list[str]:
        return [each.name for each in shelved(env, tmp_path / "work") if each.origin == shelf.PROJECTS_OWN]

    assert "out" not in names()
    assert "in" in names()
    for number in range(shelf.MOST_OF_A_PROJECT + 10):
        (folder / f"r{number}.toml").write_text("")
    assert len(names()) == shelf.MOST_OF_A_PROJECT
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    assert names() == []


def test_a_name_may_be_spelled_with_dashes_or_capitals(env: dict[str, str], tmp_path: Path) -> None:
    """As packages may."""
    assert find("Transformer-Engine-2.8", env, tmp_path).name == "transformer_engine-2.8"


def test_the_users_folder_follows_home_and_xdg(tmp_path: Path) -> None:
    """As that of toolkits does."""
    assert shelf.user_folder({"HOME": "/home/me"}) == Path("/home/me/.local/share/builddoctor/recipes")
    assert shelf.user_folder({"HOME": "/home/me", "XDG_DATA_HOME": "/data"}) == Path("/data/builddoctor/recipes")
    assert shelf.user_folder({"BUILDDOCTOR_DATA_DIR": "/x", "HOME": "/home/me"}) == Path("/x/recipes")


def test_the_shipped_ones_are_in_the_checkout_or_in_the_package() -> None:
    """Whichever this is; the wheel is told to hold them."""
    folder = shelf.shipped_folder()
    top = Path(__file__).parents[3]
    assert folder in (top / "recipes", Path(shelf.__file__).parent / "shipped")
    settings = msgspec.toml.decode((top / "pyproject.toml").read_text())
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"recipes": "builddoctor/recipes/shipped"}


@pytest.mark.parametrize(
    "wanted", ["./everywhere.toml", "everywhere.toml", "../{name}/everywhere.toml", "file://{work}/everywhere.toml"]
)
def test_a_path_is_below_the_folder_where_it_was_named(env: dict[str, str], tmp_path: Path, wanted: str) -> None:
    """Not below the shelf."""
    found = find(wanted.format(work=tmp_path / "work", name="work"), env, tmp_path)
    assert found.path is not None
    assert found.path.resolve() == tmp_path / "work" / "everywhere.toml"


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("transformer_engine", "did you mean `transformer_engine-2.8`?"),
        ("transfromer_engine-2.8", "did you mean `transformer_engine-2.8`?"),
        ("everywher", "did you mean `everywhere`?"),
        ("zzz", "`builddoctor recipe list` shows those there are"),
        ("", "`builddoctor recipe list`"),
        ("\x1b[2J", "`builddoctor recipe list`"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(env: dict[str, str], tmp_path: Path, wanted: str, hint: str) -> None:
    """Those that begin so, else those that are spelled nearly so; in a line that a terminal can show."""
    with pytest.raises(RecipeError) as refused:
        find(wanted, env, tmp_path)
    assert refused.value.exit_code == 89
    assert hint in refused.value.hint
    assert f"{refused.value}{refused.value.hint}".isprintable()


def test_a_file_that_is_there_is_read_whatever_it_is_called(env: dict[str, str], tmp_path: Path) -> None:
    """Where no recipe has that name."""
    (tmp_path / "work" / "kept").write_text(TEXT)
    assert find("kept", env, tmp_path).recipe == recipe()
    (tmp_path / "work" / "README.md").write_text("# Demo\n")
    with pytest.raises(RecipeError, match=r"README\.md"):
        find("README.md", env, tmp_path)


def test_a_broken_recipe_is_listed_with_what_is_wrong(env: dict[str, str], tmp_path: Path) -> None:
    """The others are there all the same; asked for by name it is an error."""
    (tmp_path / "shipped" / "broken.toml").write_text("schema = 1\n[project\n")
    (tmp_path / "shipped" / "folder.toml").mkdir()
    broken = {each.name: each for each in shelved(env) if each.recipe is None}
    assert sorted(broken) == ["broken", "folder"]
    assert "broken.toml:2" in broken["broken"].problem
    with pytest.raises(RecipeError, match=r"broken\.toml:2"):
        find("broken", env, tmp_path)


def test_a_folder_is_listed_and_is_no_recipe(env: dict[str, str], tmp_path: Path) -> None:
    """Each by its own command."""
    assert [each.name for each in in_folder(tmp_path / "shipped")] == ["demo-sm_90", "everywhere"]
    assert [each.name for each in listed("../shipped", env, tmp_path / "work")] == ["demo-sm_90", "everywhere"]
    assert [each.name for each in listed("everywhere.toml", env, tmp_path / "work")] == ["everywhere"]
    with pytest.raises(RecipeError, match="is no folder"):
        in_folder(tmp_path / "nothing")
    with pytest.raises(RecipeError) as refused:
        find("../shipped", env, tmp_path)
    assert "is a folder" in str(refused.value)
    assert "recipe list FOLDER" in refused.value.hint


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("https://example.org/x.toml", True),
        ("http://example.org/x.toml", False),
        ("http://127.0.0.1:8000/x.toml", True),
        ("http://localhost/x.toml", True),
        ("http://[::1]/x.toml", True),
        ("http://127.0.0.1.example.org/x.toml", False),
        ("http://127.0.0.1@example.org/x.toml", False),
        ("ftp://127.0.0.1/x.toml", False),
        ("file:///etc/passwd", False),
        ("https:///x.toml", False),
        ("https://[bad/x.toml", False),
    ],
)
def test_recipes_come_over_https_or_from_this_machine(url: str, fine: bool) -> None:
    """Redirects are held to the same."""
    assert is_safe(url) is fine


def test_an_unsafe_address_is_refused_before_it_is_asked(env: dict[str, str], tmp_path: Path) -> None:
    """No socket is opened; the password in it is not shown."""
    with pytest.raises(RecipeError, match="over https") as refused:
        find("http://me:secret@example.org/x.toml", env, tmp_path)
    assert "secret" not in str(refused.value)
