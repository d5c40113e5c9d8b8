"""What hypothesis draws: the same at every run of the first two tiers, whatever is imported; something new nightly."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal.cache import LRUCache
from hypothesis.internal.conjecture import providers

from support.examples import literals_of_sources, no_literals

Drawn = tuple[int, str]

NUMBER, TEXT = 987_654_321_123, "a literal of the source"


def drawn(how: settings) -> list[Drawn]:
    """All that this test draws."""
    found: list[Drawn] = []

    @settings(how, max_examples=300, database=None)
    @given(st.integers(), st.text())
    def draws(number: int, text: str) -> None:
        found.append((number, text))

    draws()
    return found


@pytest.fixture
def module_with_literals(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of ours, as hypothesis sees it, that was not imported before."""
    path = tmp_path_factory.mktemp("source") / "new_module.py"
    path.write_text(f"NUMBER = {NUMBER}\nTEXT = {TEXT!r}\n")
    spec = importlib.util.spec_from_file_location("new_module", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "new_module", module)
    spec.loader.exec_module(module)
    # Hypothesis knows a module that it has read by its id, which may be that of one that is gone.
    monkeypatch.setattr(providers, "_seen_modules", set())
    monkeypatch.setattr(providers, "_sys_modules_len", None)


@pytest.fixture
def before() -> dict[str, list[Drawn]]:
    """Drawn before there was that module."""
    return {tier: drawn(settings.get_profile(tier)) for tier in ("fast", "all")}


def test_literals_of_the_sources_are_not_drawn(
    before: dict[str, list[Drawn]], module_with_literals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hypothesis itself they might be: it knows those of the new module."""
    monkeypatch.setattr(providers, "CONSTANTS_CACHE", LRUCache(1024))
    assert NUMBER in literals_of_sources().integers
    for tier, earlier in before.items():
        assert drawn(settings.get_profile(tier)) == earlier


def test_the_tiers_that_run_on_every_change_draw_no_literals() -> None:
    """The nightly does: they are good guesses."""
    nightly = settings.get_current_profile_name() == "nightly"
    assert providers._get_local_constants is (literals_of_sources if nightly else no_literals)


def test_the_nightly_draws_new_examples_and_keeps_those_that_fail() -> None:
    """At least 2,000 of each test."""
    nightly = settings.get_profile("nightly")
    assert (nightly.derandomize, nightly.max_examples) == (False, 2000)
    assert isinstance(nightly.database, DirectoryBasedExampleDatabase)
