"""The collector of cycles passes over what was there when a build started."""

from __future__ import annotations

import contextlib
import gc

from builddoctor.supervise.collecting import start_left_alone


class _Node:
    def __init__(self) -> None:
        self.itself = self


def test_what_was_there_is_left_alone_and_given_back() -> None:
    """Frozen within, and nothing after it, even when the build fails."""
    before = gc.get_freeze_count()
    with contextlib.suppress(RuntimeError), start_left_alone():
        assert gc.get_freeze_count() > before
        raise RuntimeError
    assert gc.get_freeze_count() == 0


def test_cycles_made_later_are_collected() -> None:
    """A supervisor of 50,000 phases does not grow for it."""
    with start_left_alone():
        gc.collect()
        for _ in range(100):
            _Node()
        assert gc.collect() >= 100
