"""A flag that looks like a saving and is none: `ld --no-map-whole-files`."""

from __future__ import annotations

from pathlib import Path

import pytest

FLAG = "no-map-whole-files"
HOME = Path(__file__).parents[2]


def emitters(folder: Path) -> list[str]:
    """Files that name the flag without a word about gold, the only linker that knows it."""
    texts = {path: path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}
    return [str(path) for path, text in texts.items() if FLAG in text and "gold" not in text.lower()]


@pytest.mark.trap(43)
@pytest.mark.parametrize("folder", ["src", "scripts", "examples", "recipes"])
def test_no_source_of_ours_emits_the_flag(folder: str) -> None:
    """GNU ld ignores it and lld refuses it: it is never given unless the linker is gold."""
    assert emitters(HOME / folder) == []


def test_the_flag_would_be_found(tmp_path: Path) -> None:
    """Without gold it is named; with it, it may stand."""
    (tmp_path / "bad.py").write_text(f'FLAGS = ["-Wl,--{FLAG}"]\n')
    (tmp_path / "good.py").write_text(f'FLAGS = ["-fuse-ld=gold", "-Wl,--{FLAG}"]\n')
    assert emitters(tmp_path) == [str(tmp_path / "bad.py")]
