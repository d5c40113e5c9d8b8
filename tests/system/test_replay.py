"""Recorded builds with real processes at a scale: real gates, a real supervisor, real memory cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.events import PhaseEnded
from builddoctor.core.phase import PhaseKind
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload
from support import hogs
from support.magnified import Scale
from support.measured_builds import from_trace
from support.replaying import Replayed, Replays

pytestmark = pytest.mark.slow

FIFTH = Scale(memory=0.2, time=0.1)
SMALL = Scale(memory=1 / 32, time=1 / 20)


def unit(number: int, *, peak_mib: float, wall_s: float, kind: PhaseKind = PhaseKind.CICC) -> UnitWork:
    front = PhaseWork(kind=PhaseKind.CUDAFE, input_mib=1.0, peak_mib=100.0, wall_s=1.0)
    heavy = PhaseWork(kind=kind, arch="sm_100", input_mib=1.0, peak_mib=peak_mib, wall_s=wall_s)
    return UnitWork(name=f"unit{number}.cu", source=f"unit{number}.cu", archs=("sm_100",), phases=(front, heavy))


@pytest.mark.needs_memcg
def test_a_build_of_72_cores_is_replayed_within_its_limit(tmp_path: Path) -> None:
    """12 units of 1.5 GiB, 18 GiB if all ran at once, in 8 GiB: all complete, and the trace can be replayed again."""
    workload = Workload(name="w", units=tuple(unit(number, peak_mib=1536.0, wall_s=5.0) for number in range(12)))
    replays = Replays(tmp_path, FIFTH)
    done = replays.run(workload, cores=72, limit_mib=8192.0)
    assert done.returncode == 0, done.output
    assert (done.summary["units"], done.summary["phases"]) == (12, 24)
    assert 1536.0 < done.summary["peak_mib"] <= done.highest_mib <= 8192.0
    assert done.summary["limit_mib"] == pytest.approx(8192.0, abs=1.0)
    again = from_trace(replays.program.trace_file)
    assert len(again.units) == 12
    (heavy,) = {round(each.phases[1].peak_mib / 1536.0, 1) for each in again.units}
    assert heavy == 1.0
    # It rose, from little to its peak, as the stand-in was told to.
    curves = [[held for _, held in each.phases[1].curve] for each in again.units]
    assert all(held == sorted(held) and held[-1] <= 1.0 for held in curves if held)
    assert any(len(held) > 1 and held[0] < 0.5 < held[-1] for held in curves)


@pytest.mark.needs_memcg
def test_a_build_with_another_machine_is_replayed(tmp_path: Path) -> None:
    """What does not fit at 2 GiB runs on a node of 6 GiB: recorded sizes are sent, and its memory is counted up."""
    workload = Workload(name="w", units=tuple(unit(number, peak_mib=4096.0, wall_s=8.0) for number in range(2)))
    replays = Replays(tmp_path, FIFTH)
    done = replays.run(workload, cores=2, limit_mib=2048.0, nodes_mib=(6144.0,))
    assert done.returncode == 0, done.output
    assert done.node_kernel_kills == 0
    ends = [each for each in replays.program.records() if isinstance(each, PhaseEnded) and each.outcome == "ok"]
    large = [each for each in ends if each.peak_mib > 2048.0]
    assert len(large) == 2
    for each in large:
        assert each.node
        assert each.peak_mib == pytest.approx(4096.0, rel=0.1)
        # A MiB of preprocessed C++, compressed.
        assert 0.05 < each.sent_mib < 0.5


@pytest.mark.needs_memcg
def test_a_replay_that_is_killed_by_the_kernel_is_counted_by_it(tmp_path: Path) -> None:
    """One phase larger than the limit: the kernel ends it, and builddoctor says so."""
    workload = Workload(name="w", units=(unit(0, peak_mib=6000.0, wall_s=10.0),))
    done = Replays(tmp_path, FIFTH).run(workload, cores=8, limit_mib=3072.0)
    assert done.returncode != 0
    assert done.kernel_kills >= 1
    assert done.summary["kernel_oom_kills"] == done.kernel_kills
    assert done.summary["verdict"] == "too-big"


@pytest.mark.needs_memcg
@pytest.mark.trap(37)
@pytest.mark.parametrize("kind", [PhaseKind.CICC, PhaseKind.HOST])
def test_a_phase_that_comes_to_rest_at_20_gib_is_no_runaway(tmp_path: Path, kind: PhaseKind) -> None:
    """At 1/32, under production's own rules, keeping a core busy: it ends well, and nothing is said."""
    curve = ((0.5, 1.0),)
    big = PhaseWork(kind=kind, arch="sm_100", input_mib=4.0, peak_mib=20 * 1024.0, wall_s=200.0, curve=curve)
    units = (UnitWork(name="big.cu", source="big.cu", archs=("sm_100",), phases=(big,)),)
    replays = Replays(tmp_path, SMALL)
    done = replays.run(Workload(name="big", units=units), cores=4, limit_mib=32 * 1024.0, busy=True)
    assert done.returncode == 0, done.output
    assert (done.summary["runaways"], done.kernel_kills) == (0, 0)
    assert [each.outcome for each in replays.program.records() if isinstance(each, PhaseEnded)] == ["ok"]
    assert done.summary["peak_mib"] == pytest.approx(20 * 1024.0, rel=0.05)


@pytest.mark.alone
@pytest.mark.needs_memcg
@pytest.mark.trap(36)
@pytest.mark.parametrize("limit_gib", [4.0, 64.0])
def test_a_front_end_that_grows_without_end_is_a_runaway_by_production_rules(tmp_path: Path, limit_gib: float) -> None:
    """0.23 GiB/s as in TransformerEngine#1996, at 1/32: ended by builddoctor in 64 GiB, by the kernel in 4; named."""
    endless_s = 3600.0
    front = PhaseWork(kind=PhaseKind.CUDAFE, input_mib=1.0, peak_mib=0.23 * 1024 * endless_s, wall_s=endless_s)
    units = (UnitWork(name="endless.cu", source="endless.cu", archs=("sm_100",), phases=(front,)),)
    # At ten times the pace a machine that stands still for a second is a rest of ten, after which a rise begins anew.

    def replayed(attempt: int) -> Replayed:
        folder = tmp_path / f"{attempt}"
        folder.mkdir()
        workload = Workload(name="endless", units=units)
        return Replays(folder, SMALL).run(workload, cores=4, limit_mib=1024 * limit_gib, busy=True)

    done = replayed(0)
    for attempt in (1, 2):
        if done.summary["verdict"] != "runaway":
            done = replayed(attempt)
    assert done.returncode != 0
    assert (done.summary["verdict"], done.summary["runaways"]) == ("runaway", 1), done.output
    assert done.summary["requeued"] <= 1
    assert done.kernel_kills == (0 if limit_gib > 32 else 1 + done.summary["requeued"])


@pytest.mark.alone
@pytest.mark.needs_memcg
@pytest.mark.trap(30)
def test_a_hog_of_2_gb_a_second_is_ended_and_nothing_else(tmp_path: Path) -> None:
    """Younger and older than the phase beside it; a process of somebody else's in the same cgroup goes on as it was."""
    stopped, troubles = set(), []
    # A machine that stands still for half a second lets the kernel be first; `scripts/bench hog` counts how often.
    for attempt in range(3):
        folder = tmp_path / f"{attempt}"
        folder.mkdir()
        for each in hogs.run(folder, times=2, rate_mib_s=1907.0, limit_mib=3072.0):
            troubles.append(each.trouble)
            if each.stopped:
                stopped.add(each.hog_first)
        if stopped == {False, True}:
            return
    raise AssertionError(troubles)
