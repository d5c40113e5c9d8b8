"""Which running phase is ended."""

from __future__ import annotations

import pytest

from builddoctor.policy.victims import Candidate, choose


def candidate(phase_id: int, rss_mib: float, age_s: float) -> Candidate:
    return Candidate(phase_id=phase_id, rss_mib=rss_mib, age_s=age_s)


@pytest.mark.parametrize("candidates", [[], [candidate(1, 5000, 1)]])
def test_the_only_running_phase_is_never_ended(candidates: list[Candidate]) -> None:
    """With fewer than two there is no victim."""
    assert choose(candidates) is None


def test_the_oldest_is_spared_even_when_it_holds_most() -> None:
    """Its work would be lost, and somebody has to finish."""
    assert choose([candidate(1, 9000, 100), candidate(2, 10, 99)]) == candidate(2, 10, 99)


def test_of_two_of_one_age_the_first_admitted_is_spared() -> None:
    """The lower number counts as older."""
    assert choose([candidate(2, 100, 5), candidate(1, 900, 5)]) == candidate(2, 100, 5)


def test_the_one_that_frees_most_for_the_least_lost_work_is_ended() -> None:
    """Memory for each second of work decides among the others."""
    oldest, big_and_old, middling_and_young = candidate(1, 1, 500), candidate(2, 3000, 299), candidate(3, 400, 9)
    assert choose([oldest, big_and_old, middling_and_young]) == middling_and_young
    assert choose([oldest, big_and_old, candidate(3, 50, 9)]) == big_and_old


def test_one_that_may_be_a_runaway_is_ended_first_though_it_is_the_oldest() -> None:
    """Else all others would be ended for it, one by one; but the only running phase is never ended for memory."""
    suspect = Candidate(phase_id=1, rss_mib=9000, age_s=500, suspect=True)
    assert choose([suspect, candidate(2, 300, 5), candidate(3, 9500, 5)]) == suspect
    assert choose([suspect]) is None


def test_the_order_of_candidates_does_not_matter() -> None:
    """The same phases give the same victim, ties included."""
    candidates = [candidate(1, 100, 10), candidate(2, 100, 5), candidate(3, 100, 5)]
    assert choose(candidates) == choose(candidates[::-1]) == candidate(3, 100, 5)


def test_one_that_cannot_be_redone_counts_as_company() -> None:
    """`g++ -pipe` runs beside them: the youngest of the others goes, and the only other one, too. Never it itself."""
    piped = Candidate(phase_id=3, rss_mib=5000, age_s=3, redoable=False)
    old_piped = Candidate(phase_id=3, rss_mib=5000, age_s=300, redoable=False)
    assert choose([candidate(1, 900, 50), piped]) == candidate(1, 900, 50)
    assert choose([candidate(1, 900, 50), old_piped]) == candidate(1, 900, 50)
    assert choose([candidate(1, 900, 50), candidate(2, 300, 20), piped]) == candidate(2, 300, 20)
    assert choose([piped, Candidate(phase_id=4, rss_mib=1, age_s=1, redoable=False)]) is None
