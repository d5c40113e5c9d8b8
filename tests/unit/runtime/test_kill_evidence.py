"""Each counted kill explains one death, and only in the cgroup where it was counted."""

from __future__ import annotations

from typing import Any

import pytest

from builddoctor.core.evidence import Evidence, GroupCounters, KillCause
from builddoctor.runtime.kill_evidence import AMPLE_RESERVES, LOOKS_KEPT, KillEvidence, compare
from builddoctor.trace.words import describe_cause
from unit.trees import OTHER, V1, V2, TextRoot, v1, v2

OURS, GATE, OTHER_GATE = 7, 12, 13

GROUP, PARENT = "/cg/pod/build", "/cg/pod"

BARE: dict[str, str] = {"/proc/self/cgroup": "0::/\n", "/proc/self/mountinfo": OTHER}
"""A machine without memory cgroups, which says so."""


class Machine(TextRoot):
    """A machine on which the kernel kills: counters of groups by path, and the machine's own."""

    def __init__(self, *, version: int, groups: dict[int, str], listed: bool = True) -> None:
        here = groups[OURS]
        super().__init__((v1 if version == 1 else v2)(here) | {"/proc/self/stat": f"{OURS} (python) S 1\n"})
        self.version = version
        self.kills = dict.fromkeys((*groups.values(), here), 0)
        self.on_host = 0
        for pid, path in groups.items():
            self.files[f"/proc/{pid}/cgroup"] = f"9:memory:{path}\n" if version == 1 else f"0::{path}\n"
            if listed:
                self.files[f"{self.folder(path)}/cgroup.procs"] = f"1\n{pid}\n"
        self.kill(None)

    def folder(self, path: str) -> str:
        return (V1 if self.version == 1 else V2) + path

    def kill(self, path: str | None, times: int = 1) -> None:
        """The kernel kills in this group; None: nobody yet."""
        for group in self.kills:
            counted = group == path or (self.version == 2 and path is not None and path.startswith(f"{group}/"))
            self.kills[group] += times * counted
            name = "memory.oom_control" if self.version == 1 else "memory.events"
            self.files[f"{self.folder(group)}/{name}"] = f"oom_kill {self.kills[group]}\n"
            self.files[f"{self.folder(group)}/memory.max"] = "max"
        self.kill_elsewhere(times if path is not None else 0)

    def kill_elsewhere(self, times: int = 1) -> None:
        self.on_host += times
        self.files["/proc/vmstat"] = f"oom_kill {self.on_host}\n"


@pytest.mark.parametrize("version", [1, 2])
def test_each_kill_explains_one_death(version: int) -> None:
    """Two die and one kill was counted: one of them was somebody else's."""
    machine = Machine(version=version, groups={OURS: "/a", GATE: "/a"})
    evidence = KillEvidence(machine)
    before = evidence.baseline(GATE)
    machine.kill("/a")
    assert evidence.claim(before).by_kernel
    assert evidence.claim(before) is KillCause.OUTSIDE
    machine.kill("/a")
    assert evidence.claim(before).by_kernel
    assert evidence.total() == 2


@pytest.mark.parametrize("version", [1, 2])
def test_a_kill_before_a_phase_began_does_not_explain_its_death(version: int) -> None:
    """The kernel ended something else in this group, and later somebody killed the phase by hand."""
    machine = Machine(version=version, groups={OURS: "/a", GATE: "/a"})
    evidence = KillEvidence(machine)
    machine.kill("/a")
    assert evidence.claim(evidence.baseline(GATE)) is KillCause.OUTSIDE
    assert evidence.total() == 1


@pytest.mark.parametrize("version", [1, 2])
def test_counters_are_shared_by_those_that_start_together(version: int) -> None:
    """A hundred a second: a kill between two of them, which the first explains, explains no second death."""
    machine = Machine(version=version, groups={OURS: "/a", GATE: "/a", OTHER_GATE: "/b"})
    evidence = KillEvidence(machine)
    first = evidence.baseline(GATE, now_s=1.0)
    machine.kill("/a")
    together = evidence.baseline(GATE, now_s=1.05)
    assert together is first
    assert evidence.claim(first).by_kernel
    assert evidence.claim(together) is KillCause.OUTSIDE
    for later in (evidence.baseline(GATE), evidence.baseline(GATE, now_s=1.2)):
        assert later is not first
        assert evidence.claim(later) is KillCause.OUTSIDE
    assert evidence.baseline(OTHER_GATE, now_s=1.21).place != first.place


@pytest.mark.parametrize("version", [1, 2])
def test_a_kill_that_was_counted_for_one_is_not_for_another_who_starts_next(version: int) -> None:
    """The other's counters are read anew, though only a moment has passed: it may fail by itself."""
    machine = Machine(version=version, groups={OURS: "/a", GATE: "/a"})
    evidence = KillEvidence(machine)
    first = evidence.baseline(GATE, now_s=1.0)
    machine.kill("/a", times=2)
    assert evidence.claim(first).by_kernel
    assert evidence.claim(evidence.baseline(GATE, now_s=1.05)) is KillCause.OUTSIDE


@pytest.mark.trap(21)
@pytest.mark.parametrize(("version", "ours"), [(1, 0), (2, 1)])
def test_a_kill_in_a_group_of_the_tools_own_is_found(version: int, ours: int) -> None:
    """A build that puts its compilers into groups below ours: v1 counts there alone, v2 at ours as well, once."""
    machine = Machine(version=version, groups={OURS: "/a", GATE: "/a/tool"})
    evidence = KillEvidence(machine)
    before = evidence.baseline(GATE)
    machine.kill("/a/tool")
    assert machine.kills == {"/a": ours, "/a/tool": 1}
    assert evidence.claim(before).by_kernel
    assert evidence.claim(before) is KillCause.OUTSIDE
    assert evidence.total() == 1


def test_a_tool_outside_of_our_group_is_counted_where_it_is() -> None:
    """Scopes of their own beside ours (systemd-run): each death is looked up in the victim's."""
    machine = Machine(version=2, groups={OURS: "/s/a", GATE: "/s/one", OTHER_GATE: "/s/two"})
    evidence = KillEvidence(machine)
    one, two = evidence.baseline(GATE), evidence.baseline(OTHER_GATE)
    machine.kill("/s/two")
    assert evidence.claim(one) is KillCause.OUTSIDE
    assert evidence.claim(two).by_kernel
    assert evidence.total() == 1


@pytest.mark.trap(24)
@pytest.mark.parametrize("version", [1, 2])
def test_a_kill_elsewhere_on_the_machine_is_not_ours(version: int) -> None:
    """Our own counter is there and did not rise: no verdict, however many died in other containers."""
    machine = Machine(version=version, groups={OURS: "/a", GATE: "/a"})
    evidence = KillEvidence(machine)
    before = evidence.baseline(GATE)
    machine.kill_elsewhere(5)
    assert evidence.claim(before) is KillCause.OUTSIDE
    assert evidence.total() == 0


def test_a_group_that_was_removed_leaves_the_machines_counter() -> None:
    """A scope ends with its last process, and its counter with it."""
    machine = Machine(version=1, groups={OURS: "/a", GATE: "/a/scope"})
    evidence = KillEvidence(machine)
    before = evidence.baseline(GATE)
    machine.kill("/a/scope")
    del machine.files[f"{V1}/a/scope/memory.oom_control"]
    assert evidence.claim(before) is KillCause.HOST
    assert evidence.claim(before) is KillCause.OUTSIDE
    assert evidence.total() == 1


@pytest.mark.parametrize("pid", [None, GATE])
def test_a_process_that_its_group_does_not_list_may_be_elsewhere(pid: int | None) -> None:
    """A gate in a pid namespace of its own, or gone: the machine's counter decides."""
    machine = Machine(version=1, groups={OURS: "/a", GATE: "/a"}, listed=False)
    evidence = KillEvidence(machine)
    before = evidence.baseline(pid)
    machine.kill_elsewhere()
    assert evidence.claim(before) is KillCause.HOST
    assert evidence.claim(before) is KillCause.OUTSIDE


@pytest.mark.trap(24)
def test_a_machine_with_plenty_of_memory_killed_for_somebody_else() -> None:
    """Without any cgroup: a rise counts unless five times the reserve was free all the while."""
    for headroom_mib, cause in ((AMPLE_RESERVES * 1000, KillCause.OUTSIDE), (4900.0, KillCause.HOST)):
        machine = TextRoot(BARE | {"/proc/vmstat": "oom_kill 3\n"})
        evidence = KillEvidence(machine)
        for free_mib in (9000.0, headroom_mib, 9000.0):
            evidence.looked(headroom_mib=free_mib, reserve_mib=1000.0)
        before = evidence.baseline(GATE)
        machine.files["/proc/vmstat"] = "oom_kill 4\n"
        assert evidence.claim(before) is cause


def test_memory_that_was_short_long_ago_does_not_count() -> None:
    """Only the last looks are kept."""
    machine = TextRoot(BARE | {"/proc/vmstat": "oom_kill 3\n"})
    evidence = KillEvidence(machine)
    evidence.looked(headroom_mib=0.0, reserve_mib=0.0)
    for _ in range(LOOKS_KEPT):
        evidence.looked(headroom_mib=9000.0, reserve_mib=1000.0)
    before = evidence.baseline(None)
    machine.files["/proc/vmstat"] = "oom_kill 4\n"
    assert evidence.claim(before) is KillCause.OUTSIDE


def test_free_memory_says_nothing_below_a_hidden_limit() -> None:
    """Our cgroup is on no mount: its limit may be reached while all that is visible is free."""
    machine = TextRoot(BARE | {"/proc/vmstat": "oom_kill 3\n", "/proc/self/cgroup": "9:memory:/hidden\n"})
    evidence = KillEvidence(machine)
    evidence.looked(headroom_mib=90_000.0, reserve_mib=1000.0)
    before = evidence.baseline(None)
    machine.files["/proc/vmstat"] = "oom_kill 4\n"
    assert evidence.claim(before) is KillCause.HOST


def test_free_memory_says_nothing_where_cgroups_cannot_be_read() -> None:
    """Unreadable is not the same as none: a limit may be there."""
    machine = TextRoot({"/proc/vmstat": "oom_kill 3\n"})
    evidence = KillEvidence(machine)
    evidence.looked(headroom_mib=90_000.0, reserve_mib=1000.0)
    before = evidence.baseline(None)
    machine.files["/proc/vmstat"] = "oom_kill 4\n"
    assert evidence.claim(before) is KillCause.HOST


def test_without_any_counter_there_is_no_claim() -> None:
    """Nothing can be read: unknown, and nothing counted."""
    evidence = KillEvidence(TextRoot({}))
    assert evidence.claim(None) is KillCause.UNKNOWN
    assert evidence.total() == 0


# -- the cause, from two readings of the counters ---------------------------------------------------------------


def reading(
    *, kills: int | None = 0, oom: int | None = 0, hits: int | None = 0, parent_oom: int | None = 0, **fields: Any
) -> Evidence:
    """A v2 group and its parent, all counters at these figures."""
    level = GroupCounters(directory=GROUP, oom=oom, max=hits, oom_kill=kills)
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
    assert "hidden ancestor" in describe_cause(cause)


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
    assert (cause, describe_cause(cause)) == (KillCause.OOMD, "systemd-oomd")


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
    assert ("the kernel" in describe_cause(cause)) == cause.by_kernel
