"""No phase starves: one that needs most of the memory starts, however many small ones keep asking."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.events import Admit, MemorySampled, PhaseAsked, PhaseEnded, TimePassed
from builddoctor.core.past import Course
from builddoctor.core.phase import Estimate, ExpectedPhase, Outcome, Phase, PhaseKind
from builddoctor.scheduler.scheduler import DRAIN_AFTER_S
from support.examples import examples
from support.schedulers import handle, scheduler_of

BUDGET_MIB = 1000.0
TICK_S = 1.0


class Told:
    """Sizes and times of phases as they are; ``input_mib`` is the size, ``source`` the time."""

    pace = 1.0

    def know(self, unit_id: str, **_: object) -> None:
        """Units have no past."""

    def forget(self, unit_id: str) -> None:
        """Nothing is kept."""

    def estimate(self, phase: Phase) -> Estimate:
        return Estimate(peak_mib=phase.input_mib, spread_mib=0.0, source="told")

    def observe(self, phase: Phase, *, outcome: Outcome, peak_mib: float, wall_s: float) -> None:
        pass

    def raise_after_kill(self, phase: Phase, *, peak_mib: float, reserved_mib: float) -> Estimate:
        raise AssertionError("nothing is killed here")

    def remaining_s(self, phase: Phase, *, keep: bool = True) -> float:
        return float(phase.source)

    def least_s(self, phase: Phase) -> float:
        return float(phase.source)

    def wall_s(self, phase: Phase) -> float:
        return float(phase.source)

    def course(self, phase: Phase) -> Course:
        return ()

    def outlook(self, unit_id: str, phase: Phase | None) -> list[ExpectedPhase]:
        return []


@examples(2000)
@given(
    slots=st.integers(2, 8),
    giant_mib=st.floats(600, 1000),
    longer_s=st.floats(0.0, 60),
    small_mib=st.floats(100, 600),
    small_s=st.floats(0.5, 30),
    asking=st.integers(2, 12),
)
def test_a_giant_starts_beside_a_stream_of_small_phases(
    slots: int, giant_mib: float, longer_s: float, small_mib: float, small_s: float, asking: int
) -> None:
    """Small ones ask again as soon as they end; it is no less urgent, and so many seconds later it runs.

    It takes no less memory than they do, either, which counts beside time.
    """
    giant_s = small_s + longer_s
    scheduler = scheduler_of(Told(), slots=slots, budget_mib=BUDGET_MIB)
    now_s, last_id, giant = 0.0, 0, 0
    ends: list[tuple[float, int]] = []
    took_s: dict[int, float] = {}
    admitted_s: float | None = None

    def ask(mib: float, wall_s: float) -> int:
        nonlocal last_id
        last_id += 1
        took_s[last_id] = wall_s
        source = repr(wall_s)
        phase = Phase(phase_id=last_id, unit_id=f"u{last_id}", kind=PhaseKind.HOST, source=source, input_mib=mib)
        feed(PhaseAsked(phase=phase))
        return last_id

    def feed(event: PhaseAsked | PhaseEnded | MemorySampled | TimePassed) -> None:
        nonlocal admitted_s
        for action in handle(scheduler, event, now_s):
            if isinstance(action, Admit):
                heapq.heappush(ends, (now_s + took_s[action.phase_id], action.phase_id))
                if giant and action.phase_id == giant:
                    admitted_s = now_s
        scheduler.check()

    for _ in range(asking):
        ask(small_mib, small_s)
    giant = last_id + 1
    ask(giant_mib, giant_s)
    # Memory drains when it has waited for 20 s and for as long as all that waits takes; then the last small ones end.
    bound_s = 2 * (DRAIN_AFTER_S + (asking * small_s + giant_s) + small_s) + 5.0
    next_tick_s = TICK_S
    while admitted_s is None:
        assert now_s <= bound_s, f"it still waits after {now_s:.0f} s"
        assert ends, "nothing runs"
        if ends[0][0] <= next_tick_s:
            now_s, phase_id = heapq.heappop(ends)
            feed(PhaseEnded(phase_id=phase_id, outcome=Outcome.OK, peak_mib=small_mib, wall_s=took_s[phase_id]))
            ask(small_mib, small_s)
        else:
            now_s = next_tick_s
            next_tick_s += TICK_S
            feed(TimePassed())
