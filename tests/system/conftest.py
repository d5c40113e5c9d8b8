"""What tests of phases on other machines begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builddoctor.cluster.keys import make_keys
from support.nodes import Meeting


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys")
    return tmp_path / "keys"


@pytest.fixture
def meeting(tmp_path: Path, keys: Path) -> Iterator[Meeting]:
    made = Meeting(tmp_path / "meeting", keys=keys)
    yield made
    made.close()
