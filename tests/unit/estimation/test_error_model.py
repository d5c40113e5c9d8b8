"""How wrong guesses of one sort have been."""

from __future__ import annotations

import math

import pytest

from builddoctor.estimation.error_model import LARGEST_RESIDUAL, Book

PRIOR = (-0.5, 0.0, 0.5)


def test_a_new_book_says_what_the_prior_says() -> None:
    """The middle residual, and the outermost as the bound."""
    assert Book(PRIOR, prior_weight=1.0).spread(()) == (0.0, 0.5)


def test_what_was_seen_replaces_the_prior() -> None:
    """A hundred phases at 0.3 leave nothing of the prior in median or bound."""
    book = Book(PRIOR, prior_weight=1.0)
    for _ in range(100):
        book.add((), 0.3)
    assert book.spread(()) == (0.3, 0.3)


def test_one_outlier_does_not_move_the_median() -> None:
    """It may move the bound."""
    book = Book((0.0,), prior_weight=1.0)
    for residual in (0.0, 0.01, -0.01, 0.02, 4.0):
        book.add((), residual)
    median, bound = book.spread(())
    assert abs(median) < 0.02
    assert bound == 4.0


def test_phases_alike_count_most() -> None:
    """Where nearby phases lie high and distant ones low, the guess goes by its neighbours."""
    book = Book((0.0,), prior_weight=1.0, bandwidth=(0.1,))
    for _ in range(10):
        book.add((1.0,), 1.0)
        book.add((3.0,), -1.0)
    assert book.spread((1.0,))[0] == 1.0
    assert book.spread((3.0,))[0] == -1.0


def test_distance_widens_the_prior_on_both_sides() -> None:
    """The middle stays where it is."""
    median, bound = Book(PRIOR, prior_weight=1.0).spread((), widen=0.2)
    assert median == 0.0
    assert bound == pytest.approx(0.7)


def test_an_answer_is_kept_until_the_book_has_grown() -> None:
    """Ten residuals more than ten are noticed, whatever was answered before."""
    book = Book((0.0,), prior_weight=1.0)
    for _ in range(10):
        book.add((), 0.0)
    assert book.spread(())[0] == 0.0
    for _ in range(20):
        book.add((), 1.0)
    assert book.spread(())[0] == 1.0


@pytest.mark.parametrize("residual", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_passed_over(residual: float) -> None:
    """Neither counted nor kept."""
    book = Book(PRIOR, prior_weight=1.0)
    book.add((), residual)
    book.add((math.nan,), 0.1)
    assert book.count == 0


def test_a_faulty_figure_counts_as_far_off_and_no_further() -> None:
    """Residuals are bounded, so that one that is a fault cannot make a bound absurd."""
    book = Book((0.0,), prior_weight=0.1)
    book.add((), 1e6)
    assert book.spread(()) == (LARGEST_RESIDUAL, LARGEST_RESIDUAL)
