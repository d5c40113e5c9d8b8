"""Files of a source tree in any shape: nothing raises, and nothing leads out of the tree."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from builddoctor.projects.catalogue import find_known, nearest_project, recognise
from builddoctor.projects.git_checkout import parse_gitmodules
from builddoctor.projects.metadata import read_pyproject
from builddoctor.projects.source_tree import examine_source, first_naming

PIECES = (
    '[submodule "a"]', "path = ", "url=", "../", "/", "a/b", "\n", '"', "'", "#", "[build-system]", "requires = [", "]",
    "build-backend=", "# ninja log v", "7", "\x1b", "CMAKE_HOME_DIRECTORY:INTERNAL=", "CMAKE_MAKE_PROGRAM:FILEPATH=",
    "\0",
    "import torch", "cmake_minimum_required(VERSION 3.", "git", "submodule", "update", " ", "\\", "é", "...", "name = ",
)  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=40).map("".join)
NAMES = st.sampled_from(
    (
        ".gitmodules",
        "setup.py",
        "pyproject.toml",
        "CMakeLists.txt",
        "build/CMakeCache.txt",
        "build/.ninja_log",
        "x/y.cmake",
    )
)


@given(TEXTS)
def test_a_submodule_never_lies_outside(text: str) -> None:
    """Whatever .gitmodules says: its paths are looked up below the checkout."""
    for path, _ in parse_gitmodules(text):
        assert not path.startswith("/")
        assert ".." not in path.split("/")
        assert path.isprintable()


@given(TEXTS, st.text(min_size=1, max_size=20))
def test_patterns_take_any_text(text: str, name: str) -> None:
    """Names come from files too, and end up in patterns."""
    read_pyproject(text)
    first_naming({"": text}, {"": [name]})
    assert first_naming({"": f'"{name}/x"'}, {"": [name]}) or not name.strip("/") or "/" in name
    find_known(name)
    nearest_project(name)


@given(st.dictionaries(NAMES, st.one_of(TEXTS.map(str.encode), st.binary(max_size=200)), max_size=7))
def test_any_tree_can_be_examined(files: dict[str, bytes]) -> None:
    """Truncated, binary, absurd: an answer, and no exception."""
    with tempfile.TemporaryDirectory() as place:
        for name, content in files.items():
            path = Path(place, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        source = examine_source(Path(place), {})
        recognise(Path(place))
        assert source.python == bool({"setup.py", "pyproject.toml"} & set(files))
        assert source.unread == ()
