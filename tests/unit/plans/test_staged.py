"""Stages of a few units that can be worked out by hand, and of very many."""

from __future__ import annotations

from builddoctor.plans.staged import Piece, StageUnit, split


def units(*pairs: tuple[float, float]) -> list[StageUnit]:
    return [StageUnit(unit_id=f"u{at}", peak_mib=peak, work_s=time_s) for at, (peak, time_s) in enumerate(pairs)]


def shapes(pieces: tuple[Piece, ...]) -> list[tuple[str, int, int]]:
    return [(piece.weight, piece.jobs, len(piece.unit_ids)) for piece in pieces]


def test_one_large_unit_does_not_slow_the_small_ones_down() -> None:
    """One unit of 900 MiB, twenty of 200, 1000 MiB and 4 cores: the small ones four at once, the large one alone."""
    made = split(units((900.0, 10.0), *[(200.0, 10.0)] * 20), budget_mib=1000.0, cores=4)
    assert shapes(made.pieces) == [("light", 4, 20), ("solo", 1, 1)]
    assert sum(piece.least_s for piece in made.pieces) == 60.0


def test_what_lies_between_is_heavy_and_then_medium() -> None:
    """Units of four sizes: alone, two, three and eight at once."""
    made = split(
        units(*[(900.0, 9.0)] * 4, *[(480.0, 9.0)] * 20, *[(300.0, 9.0)] * 60, *[(110.0, 9.0)] * 80),
        budget_mib=1000.0,
        cores=8,
    )
    assert shapes(made.pieces) == [("light", 8, 80), ("medium", 3, 60), ("heavy", 2, 20), ("solo", 1, 4)]


def test_one_stage_where_all_fit_together() -> None:
    """No further run of Ninja where one number of jobs is best."""
    assert shapes(split(units(*[(100.0, 5.0)] * 9), budget_mib=1000.0, cores=4).pieces) == [("light", 4, 9)]


def test_a_stage_that_gains_next_to_nothing_is_not_made() -> None:
    """A unit of a millisecond is no reason for another run of Ninja."""
    made = split(units((990.0, 0.001), *[(490.0, 100.0)] * 8), budget_mib=1000.0, cores=2)
    assert len(made.pieces) == 2
    almost = split(units((501.0, 400.0), (500.0, 400.0)), budget_mib=1000.9, cores=2)
    assert shapes(almost.pieces) == [("solo", 1, 2)]


def test_longest_units_of_a_stage_come_first() -> None:
    """So that none of them is left over at the end."""
    made = split(units((100.0, 1.0), (100.0, 9.0), (100.0, 5.0)), budget_mib=1000.0, cores=2)
    assert made.pieces[0].unit_ids == ("u1", "u2", "u0")


def test_architectures_are_split_apart_on_demand() -> None:
    """Each set of architectures has its own stages."""
    found = [
        StageUnit(unit_id="a", peak_mib=10.0, work_s=1.0, archs=("sm_90",)),
        StageUnit(unit_id="b", peak_mib=10.0, work_s=1.0, archs=("sm_100",)),
        StageUnit(unit_id="c", peak_mib=10.0, work_s=1.0),
    ]
    made = split(found, budget_mib=100.0, cores=2, by_arch=True)
    assert [(piece.archs, piece.unit_ids) for piece in made.pieces] == [
        ((), ("c",)),
        (("sm_100",), ("b",)),
        (("sm_90",), ("a",)),
    ]


def test_nothing_gives_nothing() -> None:
    """No units, no stages; no memory, all too big."""
    assert split([], budget_mib=1000.0, cores=4).pieces == ()
    made = split(units((10.0, 1.0)), budget_mib=0.0, cores=1)
    assert (made.pieces, made.too_big) == ((), ("u0",))


def test_twenty_thousand_units_are_split_as_few_are() -> None:
    """Of many units only some boundaries are looked at; those between two sizes are among them."""
    made = split(units(*[(900.0, 1.0)] * 5, *[(10.0, 1.0)] * 19_995), budget_mib=1000.0, cores=16)
    assert shapes(made.pieces) == [("light", 16, 19_995), ("solo", 1, 5)]
