"""Builds of random processes without gates, their memory and their ends: what the pauses promise."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.events import Continue, ContinueReason, Pause, UngatedProcess, UngatedSeen
from builddoctor.scheduler.ungated import LEAST_MIB, LEAST_STOPPED_S, UngatedPauses

PERIOD_S = 0.25


@dataclass
class Compiler:
    """Grows to its peak at its rate, then works on; all only while it runs."""

    pid: int
    peak_mib: float
    rate_mib_s: float
    works_s: float
    ran_s: float = 0.0
    stopped: bool = False
    stopped_at_s: float = 0.0

    @property
    def rss_mib(self) -> float:
        return min(self.peak_mib, self.rate_mib_s * self.ran_s)

    @property
    def ended(self) -> bool:
        return self.ran_s >= self.peak_mib / self.rate_mib_s + self.works_s

    def shown(self) -> UngatedProcess:
        return UngatedProcess(
            pid=self.pid,
            start_ticks=self.pid,
            name="rustc",
            rss_mib=self.rss_mib,
            cpu_s=self.ran_s,
            stopped=self.stopped,
        )


def _seen(processes: list[UngatedProcess], now_s: float, phases_cpu_s: float = 0.0) -> UngatedSeen:
    """A look at all of them."""
    return UngatedSeen(
        at_s=now_s,
        processes=tuple(processes),
        phases_cpu_s=phases_cpu_s,
        headroom_mib=0.0,
        reserve_mib=0.0,
        phases_mib=0.0,
    )


COMPILERS = st.lists(
    st.tuples(st.floats(1, 3000), st.floats(50, 2000), st.floats(0, 20)),
    min_size=1,
    max_size=12,
)


@given(COMPILERS, st.integers(1, 12), st.floats(50, 6000), st.lists(st.floats(-3000, 3000), max_size=30), st.booleans())
def test_a_build_always_completes(
    sizes: list[tuple[float, float, float]], jobs: int, limit_mib: float, others_mib: list[float], phases: bool
) -> None:
    """Something always runs, what is stopped goes on, and not by turns; whatever else takes or gives memory."""
    todo = [Compiler(pid, *size) for pid, size in enumerate(sizes, 1)]
    open_: list[Compiler] = []
    pauser = UngatedPauses()
    now_s, looks = 0.0, 0
    while todo or open_:
        while todo and len(open_) < jobs:
            open_.append(todo.pop(0))
        seen = [each.shown() for each in open_ if each.rss_mib >= LEAST_MIB]
        other_mib = others_mib[looks] if looks < len(others_mib) else 0.0
        free_mib = limit_mib - other_mib - sum(each.rss_mib for each in open_)
        # Phases with gates that make progress for as long as others take memory.
        cpu_s = now_s + 1 if phases and looks < len(others_mib) else 0.0
        for action in pauser.look(_seen(seen, now_s, cpu_s), free_mib=free_mib):
            compiler = next(each for each in open_ if each.pid == action.process.pid)
            if isinstance(action, Pause):
                assert not compiler.stopped
                compiler.stopped, compiler.stopped_at_s = True, now_s
            else:
                assert isinstance(action, Continue)
                assert compiler.stopped
                early = now_s - compiler.stopped_at_s < LEAST_STOPPED_S
                assert not early or action.reason is ContinueReason.NOTHING_MOVES
                compiler.stopped = False
        assert {each.pid for each in open_ if each.stopped} == {pid for _, pid in pauser.paused}
        assert cpu_s or any(not each.stopped for each in open_), "all are stopped, and nothing runs"
        for each in open_:
            if not each.stopped:
                each.ran_s += PERIOD_S
        open_ = [each for each in open_ if not each.ended]
        now_s, looks = now_s + PERIOD_S, looks + 1
        assert now_s < 40_000, "it does not get on"
    pauser.look(_seen([], now_s), free_mib=0.0)
    assert not pauser.paused
    assert pauser.need_mib == 0


LOOKS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(1, 6), st.floats(64, 4000), st.floats(0, 9), st.booleans()), max_size=6),
        st.floats(-1000, 9000),
        st.floats(0, 400),
        st.sampled_from([0.0, 0.0, 1.0, 2.0]),
        st.booleans(),
    ),
    max_size=25,
)


@given(LOOKS)
def test_whatever_is_seen_one_that_can_run_does_and_the_same_again_gives_the_same(
    looks: list[tuple[list[tuple[int, float, float, bool]], float, float, float, bool]],
) -> None:
    """Numbers that come and go, stop and go on as somebody else wants them to, signals that are refused."""
    first, second = UngatedPauses(), UngatedPauses()
    now_s = 0.0
    for rows, free_mib, passed_s, phases_cpu_s, refuse in looks:
        now_s += passed_s
        seen = [
            UngatedProcess(pid=pid, start_ticks=pid, name="ld", rss_mib=rss, cpu_s=cpu_s, stopped=stopped)
            for pid, rss, cpu_s, stopped in {row[0]: row for row in rows}.values()
        ]
        ours_before = first.paused
        actions = first.look(_seen(seen, now_s, phases_cpu_s), free_mib=free_mib)
        assert second.look(_seen(seen, now_s, phases_cpu_s), free_mib=free_mib) == actions
        able = {each.key for each in seen if not each.stopped or each.key in ours_before}
        assert phases_cpu_s or not able or able - first.paused, "all are stopped"
        assert first.paused <= {each.key for each in seen}
        assert first.need_mib >= 0
        if refuse:
            for action in actions:
                first.refused(action.process)
                second.refused(action.process)
