"""Two builds side by side: what grew, what slowed, and what is only noise."""

from __future__ import annotations

import pytest

from builddoctor.trace.compare import compare
from builddoctor.trace.report import TraceReport
from support import trace_events as tr
from unit.small_traces import admitted, asked, ended, read


def build(peaks: dict[str, float], walls: dict[str, float] | None = None, **fields: object) -> TraceReport:
    """Units with one phase each."""
    records: list[tr.Events] = []
    for number, (name, peak_mib) in enumerate(peaks.items(), 1):
        wall_s = (walls or {}).get(name, 20.0)
        records += [
            tr.unit_began(at_s=1.0, unit_id=f"u{number}", source=f"/src/{name}", output=f"{name}.o", argv_digest="d"),
            asked(number, unit_id=f"u{number}"),
            admitted(number),
            ended(number, peak_mib=peak_mib, wall_s=wall_s),
        ]
    return read(*records, **{"trace_id": "one", **fields})


NAMES = [f"k{number}.cu" for number in range(12)]
PEAKS = {name: 1000.0 + 10 * number for number, name in enumerate(NAMES)}


def test_a_unit_that_grew_stands_out_and_comes_first() -> None:
    """The others are the same: nothing is said of them."""
    told = compare(build(PEAKS), build({**PEAKS, "k7.cu": 1500.0}))
    assert told.units[0].unit == "k7.cu"
    assert [pair.unit for pair in told.units if pair.peak_mib.significant] == ["k7.cu"]
    assert told.units[0].peak_mib.share == pytest.approx(1500 / 1070 - 1)
    assert not any(pair.wall_s.significant for pair in told.units)


def test_on_a_machine_that_is_slower_as_a_whole_no_unit_has_slowed() -> None:
    """The median says how the machines differ; one that slowed beyond that stands out."""
    walls = {name: 20.0 + number for number, name in enumerate(NAMES)}
    slower = {name: 1.3 * wall_s for name, wall_s in walls.items()}
    told = compare(build(PEAKS, walls), build(PEAKS, {**slower, "k3.cu": 60.0}))
    assert told.wall_ratio == pytest.approx(1.3)
    assert [pair.unit for pair in told.units if pair.wall_s.significant] == ["k3.cu"]


def test_where_all_units_vary_a_change_must_be_larger_than_that() -> None:
    """What is significant in a quiet build is noise in another."""
    walls = dict.fromkeys(NAMES, 20.0)
    noisy = {name: 20.0 * (1.3 if number % 2 else 0.75) for number, name in enumerate(NAMES)}
    told = compare(build(PEAKS, walls), build(PEAKS, {**noisy, "k3.cu": 32.0}))
    assert not any(pair.wall_s.significant for pair in told.units)
    assert told.wall_spread > 0.2
    quiet = compare(build(PEAKS, walls), build(PEAKS, {**walls, "k3.cu": 32.0}))
    assert [pair.unit for pair in quiet.units if pair.wall_s.significant] == ["k3.cu"]


@pytest.mark.parametrize(("after", "significant"), [(1100.0, False), (1200.0, True), (1010.0, False)])
def test_with_few_units_a_fixed_share_decides(after: float, significant: bool) -> None:
    """Three units have no spread to speak of."""
    few = {"a.cu": 1000.0, "b.cu": 500.0, "c.cu": 700.0}
    told = compare(build(few), build({**few, "a.cu": after}))
    (pair,) = [pair for pair in told.units if pair.unit == "a.cu"]
    assert pair.peak_mib.significant is significant


def test_units_are_matched_below_the_folder_of_their_build() -> None:
    """The same checkout elsewhere; what only one of them has is named."""
    other = read(
        tr.unit_began(at_s=1.0, unit_id="x", source="/home/me/k0.cu"),
        tr.unit_began(at_s=1.1, unit_id="y", source="/home/me/new.cu"),
        cwd="/home/me",
        trace_id="two",
    )
    told = compare(build({"k0.cu": 100.0, "old.cu": 100.0}), other)
    assert [pair.unit for pair in told.units] == ["k0.cu"]
    assert (told.only_before, told.only_after) == (["old.cu"], ["new.cu"])
    assert (told.before, told.after) == ("one", "two")


def test_a_source_that_is_compiled_twice_is_two_units() -> None:
    """For another architecture, say: told apart by what is made."""
    twice = [
        tr.unit_began(at_s=float(number), unit_id=f"u{number}", source="/src/a.cu", output=output)
        for number, output in enumerate(["one.o", "two.o", "two.o", "two.o"])
    ]
    told = compare(read(*twice), read(*twice))
    assert sorted(pair.unit for pair in told.units) == ["a.cu", "a.cu -> two.o", "a.cu -> two.o #2", "a.cu -> two.o #3"]


def test_what_differs_around_the_builds_is_named() -> None:
    """Toolchain, machine, command; nothing where all is the same."""
    told = compare(build(PEAKS, nvcc="12.8.61", cores=8), build(PEAKS, nvcc="13.0.88", cores=8, caps=["MAX_JOBS=2"]))
    assert [(each.what, each.before, each.after) for each in told.differences] == [
        ("nvcc", "12.8.61", "13.0.88"),
        ("caps", "none", "MAX_JOBS=2"),
    ]
    assert compare(build(PEAKS), build(PEAKS)).differences == []


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.0), (0.0, 900.0), (900.0, 0.0)])
def test_units_without_figures_are_compared_too(before: float, after: float) -> None:
    """Cut-off traces have such."""
    told = compare(build({"a.cu": before}), build({"a.cu": after}))
    assert told.units[0].peak_mib.significant is (before != after)
