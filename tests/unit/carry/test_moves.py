"""Folders that have moved, in text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.carry.moves import Moves

MOVES = Moves([("/src", "/new"), ("/home/a", "/home/b"), ("/home/a/x y", "/z z"), ("/", "/never")])


@pytest.mark.parametrize(
    ("text", "now"),
    [
        ("/src", "/new"),
        (
            "nvcc -I/src/include -isystem/src/sys -L/src -o a.o -c /src/a.cu",
            "nvcc -I/new/include -isystem/new/sys -L/new -o a.o -c /new/a.cu",
        ),
        ("CMAKE_HOME_DIRECTORY:INTERNAL=/src\n", "CMAKE_HOME_DIRECTORY:INTERNAL=/new\n"),
        ('-Wl,-rpath,/src/lib:/src -DROOT=\\"/src\\"', '-Wl,-rpath,/new/lib:/new -DROOT=\\"/new\\"'),
        ('set(X "/src;/home/a/c")', 'set(X "/new;/home/b/c")'),
        ("build a.o: CUDA /home/a/x$ y/a.cu", "build a.o: CUDA /z$ z/a.cu"),
        ("a.o: /home/a/x\\ y/a.cu", "a.o: /z\\ z/a.cu"),
        (
            "/opt/src /src-old /src.old /srcs ../src ~/src -I/opt/src x/src",
            "/opt/src /src-old /src.old /srcs ../src ~/src -I/opt/src x/src",
        ),
    ],
)
def test_a_path_that_has_moved_is_the_new_one(text: str, now: str) -> None:
    """Whole paths alone, the inner folder before the outer, as ninja and make write spaces."""
    assert MOVES(text.encode()).decode() == now


def test_objects_stay_as_they_are(tmp_path: Path) -> None:
    """Text is changed; what has a zero byte is no text."""
    (tmp_path / "a.o").write_bytes(b"\x7fELF\0 /src/a.cu")
    (tmp_path / "a.d").write_bytes(b"a.o: /src/a.cu")
    assert [MOVES.carry_out(tmp_path / name) for name in ("a.o", "a.d")] == [False, True]
    assert (tmp_path / "a.o").read_bytes() == b"\x7fELF\0 /src/a.cu"
    assert (tmp_path / "a.d").read_bytes() == b"a.o: /new/a.cu"


def test_what_has_not_moved_moves_nothing(tmp_path: Path) -> None:
    same = Moves([("/src", "/src"), (str(tmp_path), str(tmp_path))])
    assert not same
    assert same(os.fsencode(tmp_path)) == os.fsencode(tmp_path)
