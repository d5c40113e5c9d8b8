"""What one build may promise beside others."""

from __future__ import annotations

from typing import Any

import msgspec

from builddoctor.scheduler.sharing import (
    CLAIM_SLACK_MIB,
    LAPSED_S,
    MOST_MIB,
    PATIENCE_S,
    SILENT_S,
    BuildRecord,
    Own,
    Peer,
    Peers,
    Service,
    Share,
    SharedLevel,
    gives_way,
)

ME = "5" * 16
POOL_MIB = 8000.0
LEVEL = SharedLevel(source="/proc/meminfo", scope="host", free_mib=POOL_MIB)


def build(number: int, **values: Any) -> BuildRecord:
    """Another build under the machine's memory; below 5 it goes first of two that were served alike."""
    return BuildRecord(**{"build_id": f"{number:x}" * 16, "scopes": ("host",), **values})


def lease(
    share: Share, own: Own, *peers: BuildRecord, levels: tuple[SharedLevel, ...] = (LEVEL,), now_s: float = 0.0
) -> float:
    """One look, with nobody in between."""
    others = [Peer(record=peer) for peer in peers]
    share.propose(own, levels, others, now_s)
    share.settle(others)
    return share.lease_mib


def test_alone_a_build_has_everything() -> None:
    """No record, no deduction; a build that has fallen silent is none."""
    share = Share(ME)
    assert lease(share, Own(wants_mib=100.0)) == MOST_MIB
    share.propose(Own(), [LEVEL], [Peer(record=build(1, lease_mib=MOST_MIB), silent=True)], 0.1)
    assert share.lease_mib == MOST_MIB


def test_a_newcomer_waits_until_who_was_alone_has_seen_it() -> None:
    """Until then everything is the other's; seen, what is more than the other's part comes back."""
    share = Share(ME)
    wanting = Own(wants_mib=6000.0)
    assert lease(share, wanting, build(1, lease_mib=MOST_MIB, wants_mib=6000.0)) == 0
    assert lease(share, wanting, build(1, lease_mib=4000.0, wants_mib=6000.0), now_s=0.1) == 4000


def test_who_was_alone_makes_room_at_once() -> None:
    """It leases its part from then on, whatever has been promised: that keeps its record, and nothing is ended."""
    share = Share(ME)
    lease(share, Own(wants_mib=7000.0, committed_mib=7000.0))
    assert lease(share, Own(wants_mib=9000.0, committed_mib=7000.0), build(1, wants_mib=8000.0), now_s=0.1) == 4000
    assert share.record().lease_mib == 7000


def test_no_more_is_said_to_be_promised_than_was_leased() -> None:
    """Bounds of phases that peak one after the other add up to more; what phases really hold is told in any case."""
    share = Share(ME)
    peer = build(1, wants_mib=8000.0)
    assert lease(share, Own(wants_mib=5000.0), peer) == 4000
    lease(share, Own(wants_mib=6000.0, committed_mib=5500.0, running=2), peer, now_s=0.1)
    assert share.record().lease_mib == 4000
    lease(share, Own(wants_mib=6000.0, committed_mib=5500.0, use_mib=4500.0, running=2), peer, now_s=0.2)
    assert share.record().lease_mib == 4500
    over = Own(wants_mib=6000.0, committed_mib=5500.0, use_mib=4500.0, over_mib=10.0, running=2)
    lease(share, over, peer, now_s=0.3)
    assert share.record().lease_mib == 5500, "nobody knows where a phase ends that outgrew its bounds"


def test_a_promise_is_the_others_though_nobody_holds_it_yet() -> None:
    """Free memory alone would be promised twice."""
    peer = build(1, lease_mib=5000.0, wants_mib=5000.0, use_mib=100.0)
    level = msgspec.structs.replace(LEVEL, free_mib=POOL_MIB - 100)
    assert lease(Share(ME), Own(wants_mib=9000.0), peer, levels=(level,)) == 3000


def test_builds_in_cgroups_of_their_own_share_only_what_lies_over_both() -> None:
    """A peer's promise counts at the machine's memory and not at a limit that it does not live under."""
    peer = build(1, lease_mib=6500.0, wants_mib=6500.0)
    mine = SharedLevel(source="/one/memory.max", scope="cgroup:1:7", free_mib=4000.0)
    lonely = build(1, scopes=("cgroup:1:8",), lease_mib=6500.0)
    own = Own(wants_mib=4000.0)
    assert lease(Share(ME), own, peer, levels=(mine, LEVEL)) == 1500
    assert lease(Share(ME), own, lonely, levels=(mine, LEVEL)) == MOST_MIB


def test_who_wants_less_than_his_part_leaves_the_rest() -> None:
    """Two builds, one wants 1000 of its 4000: the other has 7000; three share what is left alike."""
    own = Own(wants_mib=9000.0)
    assert lease(Share(ME), own, build(1, wants_mib=1000.0, lease_mib=1000.0)) == 7000
    three = [build(1, wants_mib=90000.0, lease_mib=3000.0), build(2, wants_mib=2000.0, lease_mib=2000.0)]
    assert lease(Share(ME), own, *three) == 3000


def test_while_nobody_is_short_each_has_room_to_spare() -> None:
    """Up to its equal part, so that what asks between two looks need not wait; not while another lacks something."""
    content = build(1, wants_mib=500.0, lease_mib=500.0)
    assert lease(Share(ME), Own(wants_mib=100.0), content) == 4000
    short = build(1, wants_mib=7900.0, lease_mib=500.0)
    assert lease(Share(ME), Own(wants_mib=100.0), short) == 100


def test_a_claim_of_who_goes_first_is_left_free() -> None:
    """A build of which nothing runs needs more than its part: those who were served longer keep it free."""
    starving = build(1, claim_mib=5000.0, wants_mib=5000.0)
    share = Share(ME)
    lease(share, Own(wants_mib=9000.0, running=1))
    busy = Own(wants_mib=9000.0, committed_mib=6000.0, running=1)
    assert lease(share, busy, starving, now_s=1.0) == 3000 - CLAIM_SLACK_MIB
    assert lease(share, Own(), starving, now_s=1.1) == 3000 - CLAIM_SLACK_MIB, "it may want it again in a moment"
    assert lease(share, Own(), starving, now_s=1.5) == 0


def test_a_claim_of_who_was_served_longer_is_not() -> None:
    """The other has its part, and keeps it."""
    starving = build(6, claim_mib=5000.0, wants_mib=5000.0, served_s=10.0)
    assert lease(Share(ME), Own(wants_mib=9000.0, committed_mib=3000.0, running=1), starving) == 4000


def test_two_giants_take_turns() -> None:
    """Neither fits beside the other: the one served less starts when the other has promised nothing, and only then."""
    own = Own(first_mib=9000.0, wants_mib=8000.0)
    waits = build(6, claim_mib=9000.0, wants_mib=8000.0)
    assert lease(Share(ME), own, waits) == 9000
    assert lease(Share(ME), own, msgspec.structs.replace(waits, build_id="1" * 16)) == 0
    assert lease(Share(ME), own, build(6, lease_mib=9000.0, wants_mib=9000.0, running=1)) < 9000


def test_a_first_phase_that_needs_everything_leaves_ones_own_small_ones_what_is_free() -> None:
    """Its part of the lease is there while it waits: the scheduler fills it with what fits."""
    own = Own(first_mib=7000.0, wants_mib=8000.0)
    assert lease(Share(ME), own, build(1, lease_mib=4000.0, wants_mib=8000.0, running=1)) == 4000


def test_of_two_who_wish_at_the_same_moment_who_was_served_longer_takes_it_back() -> None:
    """Each sees the other's wish, neither takes it; at the next look the other does."""
    own = Own(wants_mib=4000.0)
    one, two = Share("1" * 16), Share("2" * 16)
    level = msgspec.structs.replace(LEVEL, free_mib=5000.0)
    third = build(3, lease_mib=1000.0, wants_mib=1000.0)
    for share in (one, two):
        share.propose(own, [level], [Peer(record=third)], 0.0)
        assert share.wish_mib == 4000

    def seen(share: Share) -> list[Peer]:
        record = msgspec.structs.replace(share.record(), scopes=("host",))
        return [Peer(record=record), Peer(record=third)]

    by_one, by_two = seen(two), seen(one)
    one.settle(by_one)
    two.settle(by_two)
    assert (one.lease_mib, two.lease_mib) == (0.0, 0.0)
    assert (one.wish_mib, two.wish_mib) == (4000.0, 0.0)
    one.propose(own, [level], seen(two), 0.1)
    one.settle(seen(two))
    assert one.lease_mib == 2000, "its equal part, now that it knows of the other"


def test_a_lease_that_does_not_fit_any_more_is_lowered() -> None:
    """While it was stopped or starved another has taken it: nothing starts on it."""
    share = Share(ME)
    own = Own(wants_mib=4000.0)
    assert lease(share, own, build(1)) == 4000
    assert lease(share, own, build(1, lease_mib=7000.0, wants_mib=7000.0), now_s=0.1) == 1000


def test_who_has_not_looked_for_a_while_has_no_lease() -> None:
    """It was taken for silent: what it has promised stands, the rest is asked for again."""
    share = Share(ME)
    own = Own(wants_mib=3000.0, committed_mib=500.0)
    assert lease(share, own, build(1)) >= 3000
    share.propose(own, [LEVEL], [Peer(record=build(1, lease_mib=MOST_MIB))], LAPSED_S + 0.1)
    assert share.lease_mib == 500


def test_a_phase_that_has_ended_is_not_counted_twice() -> None:
    """It is out of headroom before its build says so: what seems to be free then is not believed at the first look."""
    share = Share(ME)
    own = Own(wants_mib=9000.0)
    holds = build(1, lease_mib=4000.0, use_mib=4000.0, wants_mib=4000.0)
    before = msgspec.structs.replace(LEVEL, free_mib=POOL_MIB - 4000)
    lease(share, Own(), holds, levels=(before,))
    assert lease(share, own, holds, levels=(LEVEL,), now_s=0.1) == 4000


def test_who_waited_for_promises_that_nobody_takes_up_goes_on() -> None:
    """After a minute, if what is really free is enough; and not before one who goes first."""
    own, promised = Own(first_mib=3000.0, wants_mib=3000.0), build(6, lease_mib=8000.0, wants_mib=8000.0, running=1)
    share = Share(ME)
    looks = [number * 1.0 for number in range(int(PATIENCE_S) + 1)]
    assert all(lease(share, own, promised, now_s=now_s) == 0 for now_s in looks)
    first = build(1, claim_mib=100.0, wants_mib=100.0)
    assert lease(share, own, promised, first, now_s=PATIENCE_S + 1) == 0
    tight = msgspec.structs.replace(LEVEL, free_mib=2000.0)
    assert lease(share, own, promised, levels=(tight,), now_s=PATIENCE_S + 2) == 0
    assert lease(share, own, promised, now_s=PATIENCE_S + 3) == 3000
    lease(share, Own(committed_mib=3000.0, use_mib=100.0, running=1), promised, now_s=PATIENCE_S + 3.1)
    assert share.record().over_mib == 100, "it gives way first"


def test_memory_that_runs_out_under_two_last_phases_ends_one_of_them() -> None:
    """No build ends its only phase of itself; of two the one served longer does, and never both."""
    one = build(1, running=1, use_mib=500.0, yields_mib=500.0, served_s=3.0)
    two = msgspec.structs.replace(one, build_id="2" * 16, served_s=4.0)
    assert gives_way(two, [one])
    assert not gives_way(one, [two])
    assert not gives_way(two, [])
    assert not gives_way(msgspec.structs.replace(two, running=2), [one]), "the scheduler chooses among several"
    assert not gives_way(two, [msgspec.structs.replace(one, use_mib=1.0)])


def test_who_holds_more_than_was_promised_gives_way_before_who_was_served_longer() -> None:
    """The other's phase does what was expected of it."""
    over = build(1, running=1, use_mib=500.0, yields_mib=500.0, over_mib=10.0)
    good = build(2, running=1, use_mib=500.0, yields_mib=500.0, served_s=99.0)
    assert gives_way(over, [good])
    assert not gives_way(good, [over])


def test_one_end_is_waited_for() -> None:
    """Memory falls before the next phase is ended, whoever's it is; who cannot end his is passed over."""
    one = build(1, running=1, use_mib=500.0, yields_mib=500.0, served_s=9.0)
    other = build(2, running=1, use_mib=500.0, yields_mib=500.0)
    assert not gives_way(one, [other, build(3, ending=True)])
    assert not gives_way(msgspec.structs.replace(one, ending=True), [other])
    assert gives_way(other, [msgspec.structs.replace(one, yields_mib=0.0)])


def test_who_comes_back_has_no_lead() -> None:
    """A newcomer begins where the least served of the others stands; then seconds count while others are there."""
    service, old = Service(), build(2, served_s=500.0, running=1)
    assert service.look([old], running=False, wanting=True, now_s=0.0) == 500
    assert service.look([old], running=True, wanting=True, now_s=2.0) == 502
    assert service.look([], running=True, wanting=True, now_s=5.0) == 502


def test_who_says_nothing_is_silent_whatever_his_clock_says() -> None:
    """By a beat that stands still on our own clock, from when we first saw it; one word, and he is heard again."""
    peers, old = Peers(), build(1, beat=7, running=1)
    looks = 8
    for number in range(looks + 1):
        assert not peers.look([old], 1e6 + SILENT_S * number / looks)[0].silent
    assert peers.look([old], 1e6 + SILENT_S + 0.1)[0].silent
    assert not peers.look([msgspec.structs.replace(old, beat=8)], 1e6 + SILENT_S + 0.2)[0].silent


def test_a_machine_that_stood_still_silences_nobody() -> None:
    """A guest that was frozen for a minute: who looks first has not heard the others, nor could he."""
    peers, old = Peers(), build(1, beat=7, running=1)
    peers.look([old], 0.0)
    assert not peers.look([old], 60.0)[0].silent
    assert not peers.look([msgspec.structs.replace(old, beat=8)], 60.1)[0].silent
    for number in range(4):
        silent = peers.look([msgspec.structs.replace(old, beat=8)], 61.0 + number)[0].silent
    assert silent


def test_phases_between_two_looks_are_not_missed() -> None:
    """A build that runs nothing now may have run something since."""
    peers = Peers()
    assert not peers.look([build(1, beat=1)], 0.0)[0].active
    assert peers.look([build(1, beat=9, changes=2)], 0.1)[0].active
    assert not peers.look([build(1, beat=10, changes=2)], 0.2)[0].active
