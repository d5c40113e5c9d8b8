"""Shipped recipes, and the page of how much memory builds take, are what ``recipes/data`` says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_recipes_and_page_are_what_the_data_say() -> None:
    """All of them."""
    checked = subprocess.run(
        [sys.executable, "scripts/recipes", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
