"""The fullest moment of each span, however long a build is."""

from __future__ import annotations

from builddoctor.trace.spans import FIRST_S, Spans


def _fed(changes: list[tuple[float, float]], most: int = 1500) -> list[tuple[float, float]]:
    """Times and totals that are kept; the state is the total itself."""
    spans: Spans[float] = Spans(most)
    held = 0.0
    for at_s, total in changes:
        spans.advance(at_s, held, lambda: held)  # noqa: B023 - called at once
        held = total
        spans.offer(held, lambda: held)  # noqa: B023 - called at once
    return spans.kept(held, lambda: held)


def test_few_changes_are_all_kept() -> None:
    """With the time of each, and what lies between them carried on from span to span."""
    kept = _fed([(0.0, 1.0), (1.0, 5.0), (2.0, 2.0)])
    assert (1.0, 5.0) in kept
    assert kept[-1] == (2.0, 2.0)
    assert [at_s for at_s, _ in kept] == sorted(at_s for at_s, _ in kept)


def test_a_peak_between_two_looks_is_not_lost() -> None:
    """Within one span the fullest moment stands for it."""
    kept = _fed([(0.0, 1.0), (FIRST_S * 0.2, 9.0), (FIRST_S * 0.4, 2.0), (10.0, 2.0)])
    assert max(total for _, total in kept) == 9.0


def test_what_falls_is_seen_to_fall() -> None:
    """After a peak the next span begins with what was held over the border, not with the peak."""
    kept = _fed([(0.0, 9.0), (0.01, 1.0), (10.0, 1.0)])
    assert [total for at_s, total in kept if at_s > FIRST_S / 2] == [1.0] * (len(kept) - 1)


def test_their_number_is_bounded_and_the_peak_stays() -> None:
    """A hundred thousand changes over ten hours: at most twice the number that was asked for."""
    changes = [(0.36 * step, float(step % 97)) for step in range(100_000)]
    changes[54_321] = (0.36 * 54_321, 1000.0)
    kept = _fed(changes, most=200)
    assert len(kept) <= 2 * 200 + 3
    assert (0.36 * 54_321, 1000.0) in kept


def test_clocks_that_go_back_do_no_harm() -> None:
    """Times only go on; what is said to be earlier counts as now."""
    kept = _fed([(5.0, 1.0), (-1e9, 2.0), (6.0, 3.0), (1e9, 4.0)])
    assert [at_s for at_s, _ in kept] == sorted(at_s for at_s, _ in kept)
    assert kept[-1] == (1e9, 4.0)
