"""How many examples hypothesis draws, and which, by the tier that runs: ``@examples(2000)`` instead of ``@settings``.

Covers: one profile a tier. The first two tiers draw the same examples at every run. The nightly draws new ones; those
that fail are kept in ``.hypothesis/`` and come first the next time.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

TIERS = ("fast", "all", "nightly")

USUAL = 100
"""Examples of a test that names no number, and in the first tier of one that names a larger one up to ten times it."""

NIGHTLY = 2000
"""Examples of every test in the nightly, at least."""


def use_tier(tier: str) -> None:
    """Makes the tier's profile the default of all tests that are imported from now on."""
    for name in TIERS:
        settings.register_profile(
            name,
            deadline=None,
            max_examples=NIGHTLY if name == "nightly" else USUAL,
            derandomize=name != "nightly",
            database=DirectoryBasedExampleDatabase(".hypothesis/examples") if name == "nightly" else None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile(tier)
    if tier != "nightly":
        providers._get_local_constants = no_literals


literals_of_sources = providers._get_local_constants


def no_literals() -> Constants:
    """In place of ``literals_of_sources``.

    Hypothesis also draws the literals of the local modules that are imported: a new constant in one of them, or one
    more module, would change what every test draws. There is no setting for it.
    """
    return Constants()


def examples(count: int, *, nightly: int = NIGHTLY, **more: Any) -> settings:
    """``count`` examples in the nightly, a quarter in ``--all`` and a tenth in the first tier, where that is still
    ``USUAL`` or more.

    ``nightly``: where an example starts processes and thousands would take hours; ``more``: other settings.
    """
    shares = {"fast": 10, "all": 4}
    share = shares.get(settings.get_current_profile_name())
    drawn = max(count, nightly) if share is None else min(count, max(USUAL, count // share))
    return settings(max_examples=drawn, **more)
