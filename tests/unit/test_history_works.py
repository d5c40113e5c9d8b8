"""What a project's units took in all, as the history knows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.model.past import FinishedPhase, FinishedUnit, Seen, UnitKey
from builddoctor.model.phase import PhaseKind
from unit.test_history import KEY, finished, key, opened


def test_the_work_of_a_projects_units_is_added_up(tmp_path: Path) -> None:
    """Of the latest way each was built; a phase that runs several times in a build counts as often."""
    history = opened(tmp_path / "h")

    def built(unit: UnitKey, walls_s: list[float], ended_at: float) -> FinishedUnit:
        seen = [Seen(input_mib=1.0, peak_mib=50.0, wall_s=each) for each in walls_s]
        phases = [FinishedPhase(kind=PhaseKind.CICC, arch="sm_90", tool="cicc", seen=each) for each in seen]
        host = Seen(input_mib=1.0, peak_mib=50.0, wall_s=5.0)
        last = FinishedPhase(kind=PhaseKind.HOST, arch="", tool="cc1plus", seen=host)
        return FinishedUnit(key=unit, phases=(*phases, last), ended_at=ended_at)

    history.record([built(KEY, [1.0, 3.0], 10.0), built(key(project="other"), [9.0], 30.0)])
    history.record([built(KEY, [2.0, 4.0], 20.0)])
    assert history.works(KEY.project) == {(KEY.place, KEY.output): 10.0}
    history.record([built(key(nvcc="13.1.0"), [20.0], 40.0), built(key(output="b.o"), [7.0], 40.0)])
    assert history.works(KEY.project) == {(KEY.place, KEY.output): 25.0, (KEY.place, "b.o"): 12.0}
    assert history.works("nothing") == {}


def test_the_work_of_links_and_of_half_built_units_is_not_counted(tmp_path: Path) -> None:
    """Nobody counts a link among the units to come; a unit that failed in its host compile took less than it takes."""
    history = opened(tmp_path / "h")
    whole = finished(unit=key(output="a.o"))
    linking = FinishedUnit(key=key(place="link lib.so", output="lib.so", archs=()), phases=whole.phases, ended_at=1.0)
    host = FinishedPhase(
        kind=PhaseKind.HOST, arch="", tool="cc1plus", seen=Seen(input_mib=1.0, peak_mib=50.0, wall_s=2.0)
    )
    history.record([whole, linking])
    assert history.works(KEY.project) == {}
    history.record([FinishedUnit(key=key(output="a.o"), phases=(*whole.phases, host), ended_at=2.0)])
    assert list(history.works(KEY.project)) == [(KEY.place, "a.o")]


@pytest.mark.parametrize(
    ("archs", "fits"),
    [((), True), (KEY.archs, True), ((*KEY.archs, "sm_120"), False), (("sm_120",), False)],
)
def test_the_work_for_other_architectures_is_another(tmp_path: Path, archs: tuple[str, ...], fits: bool) -> None:
    """Yesterday for one, today for two."""
    history = opened(tmp_path / "h")
    host = FinishedPhase(
        kind=PhaseKind.HOST, arch="", tool="cc1plus", seen=Seen(input_mib=1.0, peak_mib=50.0, wall_s=2.0)
    )
    history.record([FinishedUnit(key=KEY, phases=(host,), ended_at=1.0)])
    assert bool(history.works(KEY.project, archs)) == fits
