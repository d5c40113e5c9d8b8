"""Signals to this process, whenever they come."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from builddoctor.gates.own_signals import end_in_order, heed_as_usual, held_back


@pytest.fixture(autouse=True)
def _as_usual() -> Iterator[None]:
    yield
    heed_as_usual()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_one_that_comes_too_early_is_heeded_afterwards(number: signal.Signals) -> None:
    """Between a folder that is made, and that somebody knows that it has to be removed."""
    end_in_order()
    done = []

    def make() -> None:
        with held_back():
            signal.raise_signal(number)
            done.append("made and noted")

    with pytest.raises((SystemExit, KeyboardInterrupt)) as raised:
        make()
    assert done
    if number != signal.SIGINT:
        assert isinstance(raised.value, SystemExit)
        assert raised.value.code == 128 + number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_again_it_goes_on_tidying_up(number: signal.Signals) -> None:
    end_in_order()
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        signal.raise_signal(number)
    signal.raise_signal(number)
    signal.raise_signal(signal.SIGHUP)
