"""What is built: a path, a name, or a name with its sources elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.errors import ProjectNotFoundError, UsageError
from builddoctor.projects.choose import choose


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """TransformerEngine's, with its package of that name."""
    folder = tmp_path / "TE"
    (folder / "transformer_engine" / "common").mkdir(parents=True)
    (folder / "transformer_engine" / "common" / "CMakeLists.txt").write_text("")
    (folder / "setup.py").write_text("")
    return folder


def test_a_name_inside_its_own_checkout_is_that_checkout(checkout: Path) -> None:
    """Not the package's folder of the same name."""
    choice = choose("transformer_engine", checkout)
    assert (choice.folder, choice.known and choice.known.name) == (checkout, "transformer_engine")


def test_a_name_elsewhere_is_fetched(tmp_path: Path) -> None:
    """From the package index where its sources can be built, else from its repository; a version stays as typed."""
    flash = choose("Flash-Attn", tmp_path, version="2.8.3").wanted
    assert flash is not None
    assert (flash.package, flash.version, flash.place) == ("flash-attn", "2.8.3", "")
    engine = choose("te", tmp_path, offline=True).wanted
    assert engine is not None
    assert (engine.package, engine.repository.endswith("TransformerEngine"), engine.offline) == ("", True, True)


def test_a_path_goes_before_a_name(tmp_path: Path, checkout: Path) -> None:
    """A folder that is something else under a known name is fetched all the same: it is not that project."""
    assert choose(str(checkout), tmp_path).folder == checkout
    (tmp_path / "xformers").mkdir()
    assert choose("xformers", tmp_path).wanted is not None
    assert choose("./xformers", tmp_path).folder == Path("./xformers")


def test_sources_may_be_named(tmp_path: Path, checkout: Path) -> None:
    """A folder, an archive, an address; the project's name tells how they are built."""
    assert choose("te", tmp_path, source=str(checkout)).folder == checkout
    archive = tmp_path / "te.tar.gz"
    archive.write_bytes(b"")
    wanted = choose("te", tmp_path, source="te.tar.gz").wanted
    assert wanted is not None
    assert wanted.place == str(archive)
    for address in ("https://host/te.git", "git@host:te.git", "git+https://host/te.git@v2.8"):
        found = choose("mine", tmp_path, source=address)
        assert found.wanted is not None
        assert (found.wanted.place, found.known) == (address, None)


def test_any_package_of_the_index_may_be_named(tmp_path: Path) -> None:
    """Its source is got as that of a known project is, also where that one comes from its repository otherwise."""
    for named, package in (("mine", "lightgbm"), ("te", "transformer-engine-torch")):
        wanted = choose(named, tmp_path, source=f"pypi:{package}", version="4.6").wanted
        assert wanted is not None
        assert (wanted.package, wanted.place, wanted.version) == (package, "", "4.6")
    with pytest.raises(UsageError, match="names no package"):
        choose("mine", tmp_path, source="pypi:")


@pytest.mark.parametrize(
    ("named", "more", "message", "hint"),
    [
        ("flash-atn", {}, "no such path: flash-atn", "did you mean `builddoctor build flash_attn`"),
        ("zzz", {}, "no such path", "transformer_engine"),
        ("flash-attn==2.8.3", {}, "a version is named as an option", "`builddoctor build flash_attn --version 2.8.3`"),
        (" ", {}, "empty", "builddoctor build ."),
        ("te", {"source": "missing"}, "no sources at missing", "an archive"),
    ],
)
def test_what_is_not_there_is_said_with_the_next_step(
    tmp_path: Path, named: str, more: dict[str, str], message: str, hint: str
) -> None:
    """The nearest name, or all of them."""
    with pytest.raises((ProjectNotFoundError, UsageError), match=message) as error:
        choose(named, tmp_path, **more)
    assert hint in error.value.hint


def test_a_version_of_a_folder_is_refused(tmp_path: Path, checkout: Path) -> None:
    """Nobody's checkout is changed behind their back."""
    for named, source in ((str(checkout), ""), ("te", str(checkout))):
        with pytest.raises(UsageError, match=r"as (it is|they are)") as error:
            choose(named, tmp_path, source=source, version="2.8")
        assert "git -C" in error.value.hint
