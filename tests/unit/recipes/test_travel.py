"""An index and its recipes: exactly what a trusted key signed, or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builddoctor.core.errors import RecipeError, UsageError
from builddoctor.core.recipe import LARGEST_FILE, RecipeProject
from builddoctor.core.recipe_index import MOST_RECIPES, PullSource, RecipeIndex
from builddoctor.recipes.recipe_text import dump
from builddoctor.recipes.signing import SigningKey
from builddoctor.recipes.travel import (
    INDEX,
    LARGEST_INDEX,
    SIGNATURE,
    Place,
    choose,
    entry_of,
    extended,
    fetch,
    index_there,
    key_named,
    pulled_folder,
    read_index,
    trusted,
)
from support.signed_index import entries_of, new_key, sign_bytes, sign_index, signed_folder
from unit.demo_recipes import recipe

OTHER = recipe(project=RecipeProject(name="flash-attn", version="2.8.3"))


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return new_key(tmp_path_factory.mktemp("keys") / "key")


@pytest.fixture
def folder(tmp_path: Path, key: SigningKey) -> Path:
    return signed_folder(tmp_path / "kept", key, demo=recipe(), flash=OTHER)


def index_of(folder: Path, key: SigningKey) -> RecipeIndex:
    place = Place(str(folder), {}, folder)
    return trusted(read_index(place), place, named=key.print, known=None, again=("x",))


def fetched(folder: Path, key: SigningKey, name: str = "demo") -> bytes:
    entry = next(each for each in index_of(folder, key).recipes if each.name == name)
    return fetch(Place(str(folder), {}, folder), entry)


def test_a_recipe_comes_as_it_was_signed(folder: Path, key: SigningKey) -> None:
    """And its index says what it is of."""
    assert fetched(folder, key) == dump(recipe()).encode()
    demo, flash = index_of(folder, key).recipes
    assert (demo.project, demo.version, demo.archs, demo.host_arch) == ("demo", "2.8", ("sm_90",), "x86_64")
    assert flash.size_bytes == (folder / "flash.toml").stat().st_size


# -- what is refused ---------------------------------------------------------------------------------------


def test_an_altered_index_is_refused(folder: Path, key: SigningKey) -> None:
    """By one character, whichever it is of."""
    content = (folder / INDEX).read_bytes()
    for at in range(len(content)):
        (folder / INDEX).write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(RecipeError, match="does not fit its index"):
            index_of(folder, key)


@pytest.mark.parametrize("change", [lambda old: old + b"#", lambda old: old[:-1], lambda old: old.replace(b"9", b"8")])
def test_an_altered_recipe_is_refused(folder: Path, key: SigningKey, change: Any) -> None:
    """Longer, cut off, or of the same length."""
    path = folder / "demo.toml"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(RecipeError, match=r"demo\.toml is not what was signed"):
        fetched(folder, key)
    assert fetched(folder, key, "flash") == dump(OTHER).encode()


def test_another_key_is_refused_until_it_is_named(folder: Path, key: SigningKey, tmp_path: Path) -> None:
    """No key at all: the fingerprint and the command; another than the named or the remembered one: both."""
    place = Place(str(folder), {}, folder)
    found = read_index(place)
    with pytest.raises(RecipeError, match="which you have not said to trust") as first:
        trusted(found, place, named="", known=None, again=("kept", "my demo"))
    assert first.value.hint.endswith(f"builddoctor recipe pull kept 'my demo' --key {key.print}")
    known = PullSource(where=str(folder), key=key.print)
    assert trusted(found, place, named="", known=known, again=()).recipes
    other = new_key(tmp_path / "other")
    signed_folder(folder, other, demo=recipe())
    found = read_index(place)
    for named, before, said in (("", known, "trusted there until now"), (key.print, None, "named")):
        with pytest.raises(RecipeError, match=f"the key {said}") as refused:
            trusted(found, place, named=named, known=before, again=("kept",))
        assert key.print in str(refused.value)
        assert other.print in str(refused.value)
    assert trusted(found, place, named=other.print, known=known, again=()).recipes


def test_nothing_of_an_index_is_read_before_its_key_is_trusted(folder: Path, key: SigningKey) -> None:
    """What a stranger signed is not even parsed."""
    sign_bytes(folder, key, b"[" * 100_000)
    place = Place(str(folder), {}, folder)
    found = read_index(place)
    with pytest.raises(RecipeError, match="not said to trust"):
        trusted(found, place, named="", known=None, again=())
    with pytest.raises(RecipeError, match=r"index\.json: "):
        trusted(found, place, named=key.print, known=None, again=())


@pytest.mark.parametrize(
    "name", ["../demo", "..", "a..b", "/etc/passwd", "sub/demo", "", ".demo", "-demo", "a\nb", "a b", "x" * 101, "ä"]
)
def test_a_name_that_leads_out_of_its_folder_is_refused(folder: Path, key: SigningKey, name: str) -> None:
    """Though the key that signed it is trusted; and nobody can push one."""
    sign_index(folder, key, [{**entries_of(folder)[0], "name": name}])
    with pytest.raises(RecipeError, match=r"index\.json: .*name"):
        index_of(folder, key)
    with pytest.raises(RecipeError, match="is no name for others"):
        entry_of(name, b"", recipe())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size_bytes": LARGEST_FILE + 1}, "size_bytes"),
        ({"size_bytes": -1}, "size_bytes"),
        ({"sha256": "0" * 63}, "sha256"),
        ({"sha256": "A" * 64}, "sha256"),
        ({"archs": ["$(reboot)"]}, "archs"),
        ({"machine": "two\nlines"}, "machine"),
        ({"url": "https://elsewhere.example"}, "url"),
        ({"project": 7}, "project"),
    ],
)
def test_an_entry_that_is_none_is_refused(folder: Path, key: SigningKey, change: dict[str, Any], said: str) -> None:
    sign_index(folder, key, [{**entries_of(folder)[0], **change}])
    with pytest.raises(RecipeError, match=said) as refused:
        index_of(folder, key)
    assert str(refused.value).isprintable()


def test_an_index_is_bounded_and_of_this_version(folder: Path, key: SigningKey) -> None:
    """Too many entries, one twice, a newer form, too many bytes; no form at all."""
    entries = entries_of(folder)
    many = [{**entries[0], "name": f"r{number}"} for number in range(MOST_RECIPES + 1)]
    for listed, changed, said in (
        (many, {}, "recipes"),
        ([entries[0], entries[0]], {}, "demo is in it twice"),
        (entries, {"schema": 2}, "schema"),
        (entries, {"more": 1}, "more"),
    ):
        sign_index(folder, key, listed, **changed)
        with pytest.raises(RecipeError, match=said):
            index_of(folder, key)
    sign_bytes(folder, key, b" " * (LARGEST_INDEX + 1))
    with pytest.raises(RecipeError, match="it is larger than 1048576 bytes"):
        index_of(folder, key)
    sign_bytes(folder, key, b"")
    with pytest.raises(RecipeError, match=r"index\.json: "):
        index_of(folder, key)


def test_a_recipe_larger_than_any_is_refused_whatever_its_index_says(folder: Path, key: SigningKey) -> None:
    """No more of it is read than that."""
    with (folder / "demo.toml").open("wb") as file:
        file.truncate(LARGEST_FILE + 10)
    with pytest.raises(RecipeError, match=f"larger than {LARGEST_FILE} bytes"):
        fetched(folder, key)


def test_what_is_signed_and_no_recipe_is_refused(folder: Path, key: SigningKey) -> None:
    """Also one that sets what no recipe may."""
    good = dump(recipe())
    evil = good.replace("[[units]]", '[[environment]]\nname = "LD_PRELOAD"\nvalue = "x"\n\n[[units]]', 1)
    for text, said in (("schema = 2\n", "project"), ("\0", r"demo\.toml"), (evil, "a recipe may not set LD_PRELOAD")):
        content = text.encode()
        (folder / "demo.toml").write_bytes(content)
        entry = msgspec.to_builtins(entry_of("demo", content, recipe()))
        sign_index(folder, key, [entry])
        with pytest.raises(RecipeError, match=said):
            fetched(folder, key)


def test_only_plain_files_are_read(folder: Path, key: SigningKey) -> None:
    """A pipe would never answer."""
    (folder / "demo.toml").unlink()
    os.mkfifo(folder / "demo.toml")
    with pytest.raises(RecipeError, match="no plain file"):
        fetched(folder, key)
    (folder / SIGNATURE).unlink()
    with pytest.raises(RecipeError, match="No such file") as refused:
        index_of(folder, key)
    assert "without a signature" in refused.value.hint


# -- places, keys and names as they are typed --------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("http://example.org/recipes", RecipeError),
        ("ftp://example.org/recipes", RecipeError),
        ("https://", RecipeError),
        ("https://example.org/recipes?key=1", UsageError),
        ("https://example.org/recipes#top", UsageError),
        ("kept/demo.toml", UsageError),
        ("", UsageError),
        ("  ", UsageError),
    ],
)
def test_what_is_no_place_is_refused_before_it_is_asked(where: str, error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        Place(where, {}, tmp_path)


def test_a_place_is_the_same_however_it_is_typed(tmp_path: Path) -> None:
    """Below a folder, as an address of files, with the index's own name; a password is not kept."""
    for where in ("kept", "./kept/", f"{tmp_path}/kept", f"file://{tmp_path}/kept", "kept/index.json"):
        assert Place(where, {}, tmp_path).shown == f"{tmp_path}/kept"
    for where in ("https://example.org/r", "https://example.org/r/", "https://example.org/r/index.json"):
        assert Place(where, {}, tmp_path).shown == "https://example.org/r"
    assert Place("https://me:secret@example.org/r", {}, tmp_path).shown == "https://example.org/r"


def test_each_place_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Also where their names come out alike; below the user's."""
    env = {"BUILDDOCTOR_DATA_DIR": str(tmp_path)}
    wheres = ("https://example.org/a/b", "https://example.org/a-b", "https://a.example.org/b", "a/b", "/", "..")
    folders = {pulled_folder(Place(where, env, tmp_path), env).folder for where in wheres}
    assert len(folders) == len(wheres)
    assert {folder.parent for folder in folders} == {tmp_path / "recipes" / "pulled"}
    assert not [folder.name for folder in folders if "/" in folder.name or folder.name.startswith(".")]


def test_a_key_is_named_by_fingerprint_line_or_file(key: SigningKey, tmp_path: Path) -> None:
    """What cannot be one says what could."""
    public = Path(f"{key.path}.pub")
    for text in (key.print, f" {key.print}\n", str(public), public.read_text()):
        assert key_named(text, tmp_path) == key.print
    (tmp_path / "rsa.pub").write_text("ssh-rsa AAAAB3NzaC1yc2E= me\n")
    for text, said in (
        (str(key.path), "is a private key"),
        ("rsa.pub", "no public key of the kind ssh-ed25519"),
        (key.print[:-1], "neither a fingerprint nor a file"),
        ("MD5:aa:bb", "neither a fingerprint nor a file"),
        ("", "neither a fingerprint nor a file"),
    ):
        with pytest.raises(UsageError, match=said):
            key_named(text, tmp_path)


def test_recipes_are_chosen_by_their_name_or_their_projects(folder: Path, key: SigningKey) -> None:
    """Spelled as packages may be; each once; a name that is none suggests another."""
    index, place = index_of(folder, key), Place(str(folder), {}, folder)

    def names(*wanted: str) -> list[str]:
        return [each.name for each in choose(index, wanted, place)]

    assert names() == ["demo", "flash"]
    assert names("Flash_Attn", "flash") == ["flash"]
    for wanted, hint in (
        ("flash-atn", "`flash-attn`"),
        ("flas", "`flash-attn`"),
        ("zzz", "--dry-run"),
        ("", "--dry-run"),
    ):
        with pytest.raises(RecipeError) as refused:
            names(wanted)
        assert hint in refused.value.hint


def test_no_more_is_pulled_at_once_than_a_disk_expects(folder: Path, key: SigningKey) -> None:
    """By what the index says; named ones still come."""
    entry = {**entries_of(folder)[0], "size_bytes": LARGEST_FILE}
    sign_index(folder, key, [{**entry, "name": f"r{number}", "project": f"p{number}"} for number in range(17)])
    index, place = index_of(folder, key), Place(str(folder), {}, folder)
    with pytest.raises(RecipeError, match="17 recipes of more than 256 MiB"):
        choose(index, (), place)
    assert len(choose(index, ("p1", "p2"), place)) == 2


# -- an index that is renewed ------------------------------------------------------------------------------


def test_an_index_is_renewed_by_its_own_key_alone(folder: Path, key: SigningKey, tmp_path: Path) -> None:
    """And never where somebody has changed it: a new signature would vouch for that."""
    place = Place(str(folder), {}, folder)
    assert [each.name for each in index_there(place, key).recipes] == ["demo", "flash"]
    other = new_key(tmp_path / "other")
    with pytest.raises(RecipeError, match="has an index signed by"):
        index_there(place, other)
    (folder / INDEX).write_bytes((folder / INDEX).read_bytes() + b" ")
    with pytest.raises(RecipeError, match="does not fit its index") as refused:
        index_there(place, key)
    assert f"rm -f {folder}/index.json {folder}/index.json.sig" in refused.value.hint
    (folder / INDEX).unlink()
    with pytest.raises(RecipeError, match=r"index\.json"):
        index_there(place, key)
    assert index_there(Place("new", {}, tmp_path), key).recipes == ()


def test_recipes_that_are_gone_leave_the_index_and_changed_ones_are_refused(folder: Path, key: SigningKey) -> None:
    """Unless the changed one is what is pushed."""
    old = index_of(folder, key)
    (folder / "flash.toml").unlink()
    new = entry_of("more", b"x", OTHER)
    index, gone = extended(old, [new], folder)
    assert [each.name for each in index.recipes] == ["demo", "more"]
    assert gone == ("flash",)
    (folder / "demo.toml").write_text("changed")
    with pytest.raises(RecipeError, match="is not what was signed") as refused:
        extended(old, [new], folder)
    assert refused.value.hint.endswith(f"builddoctor recipe push {folder} {folder}/demo.toml")
    changed = entry_of("demo", b"changed", recipe())
    assert extended(old, [changed], folder)[0].recipes == (changed,)
