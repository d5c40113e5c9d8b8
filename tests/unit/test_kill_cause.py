"""Who killed it, from two readings of the counters."""

from __future__ import annotations

from typing import Any

import pytest

from builddoctor.model.evidence import Evidence, GroupCounters, KillCause
from builddoctor.policy.kill_cause import compare, describe

OURS, PARENT = "/cg/pod/build", "/cg/pod"


def reading(
    *, kills: int | None = 0, oom: int | None = 0, hits: int | None = 0, parent_oom: int | None = 0, **fields: Any
) -> Evidence:
    """A v2 group and its parent, all counters at these figures."""
    level = GroupCounters(directory=OURS, oom=oom, max=hits, oom_kill=kills)
    parent = GroupCounters(directory=PARENT, oom=parent_oom, max=hits, oom_kill=0)
    return Evidence(**{"own": level, "proven": True, "levels": (level, parent), "host_oom_kill": 5, **fields})


def without_own(**fields: Any) -> Evidence:
    """Only the machine's counter can be read."""
    return Evidence(**{"host_oom_kill": 5, **fields})


def test_a_kill_at_our_own_limit_is_the_cgroups() -> None:
    """The group's limit was reached, and the kernel counted a kill there."""
    assert compare(reading(), reading(kills=1, oom=1, hits=9, host_oom_kill=6)) is KillCause.CGROUP


def test_a_kill_at_a_visible_ancestors_limit_is_the_cgroups() -> None:
    """The ancestor looked for a victim and found it in our group."""
    assert compare(reading(), reading(kills=1, parent_oom=1)) is KillCause.CGROUP


@pytest.mark.trap(26)
@pytest.mark.parametrize("hits", [0, 9])
def test_a_kill_without_any_visible_limit_is_a_hidden_ancestors(hits: int) -> None:
    """oom_kill +1 while no level that we see looked for a victim: somebody above, or the whole machine.

    ``max`` rises for page cache too, and says nothing where ``oom`` can be read.
    """
    cause = compare(reading(), reading(kills=1, hits=hits, host_oom_kill=6))
    assert cause is KillCause.ANCESTOR
    assert "hidden ancestor" in describe(cause)


def test_on_v1_the_limit_that_was_reached_is_told_by_its_failcnt() -> None:
    """v1 has no count of searches; a counted kill and a failed charge at a visible level are that level's."""
    before = reading(oom=None, parent_oom=None, hits=7)
    assert compare(before, reading(oom=None, parent_oom=None, hits=8, kills=1)) is KillCause.CGROUP
    assert compare(before, reading(oom=None, parent_oom=None, hits=7, kills=1)) is KillCause.ANCESTOR


@pytest.mark.trap(25)
def test_failed_charges_alone_are_no_evidence() -> None:
    """A group full of page cache fails thousands of charges and kills nobody."""
    before, after = reading(oom=None, parent_oom=None, hits=3), reading(oom=None, parent_oom=None, hits=1186)
    assert compare(before, after) is KillCause.OUTSIDE


@pytest.mark.trap(24)
def test_a_kill_in_another_container_is_not_ours() -> None:
    """The machine's counter rose and ours, which would have, did not: somebody killed our process by hand."""
    assert compare(reading(), reading(host_oom_kill=6)) is KillCause.OUTSIDE


@pytest.mark.trap(24)
def test_with_plenty_of_memory_the_machines_counter_is_not_ours_either() -> None:
    """No counter of our own: a rise on the machine counts, unless there was far too much memory free for it."""
    before, after = without_own(), without_own(host_oom_kill=6)
    assert compare(before, after) is KillCause.HOST
    assert compare(before, after, ample=True) is KillCause.OUTSIDE


def test_plenty_of_memory_does_not_speak_against_a_counter_of_our_own() -> None:
    """A hidden limit can be reached while all that is visible is free."""
    assert compare(reading(), reading(kills=1), ample=True) is KillCause.ANCESTOR


def test_a_group_that_may_not_be_ours_does_not_speak_against_the_machines_counter() -> None:
    """Its counter did not rise; but without proof that the process was in it, that says nothing."""
    before, after = reading(proven=False), reading(proven=False, host_oom_kill=6)
    assert compare(before, after) is KillCause.HOST


@pytest.mark.trap(23)
def test_a_kill_without_any_counter_is_somebody_elses() -> None:
    """kill -9 by hand: nothing was counted."""
    assert compare(reading(), reading()) is KillCause.OUTSIDE
    assert compare(without_own(), without_own()) is KillCause.OUTSIDE


@pytest.mark.trap(27)
@pytest.mark.parametrize("before", [0, 4])
def test_a_mark_of_systemd_oomd_is_enough(before: int) -> None:
    """oomd leaves no kernel counter: only its mark on the cgroup rose."""
    cause = compare(reading(oomd_kill=before), reading(oomd_kill=before + 3))
    assert (cause, describe(cause)) == (KillCause.OOMD, "systemd-oomd")


def test_an_old_mark_of_systemd_oomd_is_none() -> None:
    """What it killed before is not what died now."""
    assert compare(reading(oomd_kill=4), reading(oomd_kill=4)) is KillCause.OUTSIDE


@pytest.mark.parametrize(("before", "after"), [(None, None), (5, None), (None, 5)])
def test_without_any_counter_nothing_is_known(before: int | None, after: int | None) -> None:
    """Unreadable is not the same as zero."""
    assert compare(without_own(host_oom_kill=before), without_own(host_oom_kill=after)) is KillCause.UNKNOWN


def test_a_counter_that_fell_is_no_kill() -> None:
    """The group was removed and made anew under its old name."""
    assert compare(reading(kills=3), reading(kills=1)) is KillCause.OUTSIDE


@pytest.mark.parametrize("cause", list(KillCause))
def test_every_cause_has_words(cause: KillCause) -> None:
    """For the line that says why a phase is redone; only the kernel's own name the kernel."""
    assert ("the kernel" in describe(cause)) == cause.by_kernel
