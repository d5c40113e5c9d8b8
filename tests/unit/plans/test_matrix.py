"""A matrix of builds: which cells its axes make, as real release workflows have them, and what they take."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from builddoctor.core.errors import UsageError
from builddoctor.core.phase import PhaseKind
from builddoctor.core.plan import AROUND_S
from builddoctor.core.recipe import Fingerprint, Recipe
from builddoctor.plans.inputs import ChosenRecipe
from builddoctor.plans.matrix import MOST_CELLS, Planned, plan_cells, read_cells, together
from builddoctor.plans.planner import around_s
from builddoctor.recipes.match import Distance
from unit.recipes_made import host, phase, recipe, unit

FLASH_ATTENTION = (
    "python=3.7,3.8,3.9,3.10,3.11",
    "torch=1.12.1,1.13.1,2.0.1,2.1.1,2.2.0.dev20231130",
    "cuda=11.8.0,12.2.2",
    "cxx11-abi=FALSE,TRUE",
)
"""Of its release workflow at the end of 2023."""

ITS_EXCLUDES = (
    "torch=1.12.1,python=3.11",
    "torch=2.0.1,python=3.7",
    "torch=2.1.1,python=3.7",
    "torch=2.2.0.dev20231130,python=3.7",
)

BITSANDBYTES = "arch=75;80;90,60;70;75;80;86;89;90,70;75;80;86;89;90;100;120,75;80;86;89;90;100;120"
"""What its release workflow compiles for with CUDA 11.8 to 13.0: a wheel for several, each value a set of them."""


def kernels() -> Recipe:
    return recipe(
        unit(
            "a.cu",
            phase(200.0, 2.0, PhaseKind.CUDAFE),
            phase(100.0, 1.0, PhaseKind.PREPROCESS),
            phase(1000.0, 10.0, PhaseKind.CICC, "sm_90"),
            phase(400.0, 7.0, PhaseKind.PTXAS, "sm_90"),
            archs=("sm_90",),
        ),
        fingerprint=Fingerprint(archs=("sm_90",)),
    )


def planned(axes: Sequence[str], *, time_limit_s: float = 0.0, of: Recipe | None = None) -> tuple[Planned, ...]:
    made = of or kernels()

    def choose(archs: Sequence[str]) -> ChosenRecipe:
        return ChosenRecipe(
            name="r", origin="", recipe=made, distance=Distance(value=0.0, words=()), archs=tuple(archs)
        )

    return plan_cells(read_cells(axes), host(1, 16384.0), choose=choose, time_limit_s=time_limit_s)


def test_every_axis_multiplies_the_cells() -> None:
    """In the order of the axes, the last one first, as the same list of jobs each time; named as wheels are tagged."""
    cells = read_cells(["arch=sm_90,h100,10.0", "python=3.9,3.13t"])
    assert [cell.name for cell in cells] == ["sm_90-cp39", "sm_90-cp313t", "sm_100-cp39", "sm_100-cp313t"]
    assert [cell.archs for cell in cells] == [("sm_90",)] * 2 + [("sm_100",)] * 2


def test_one_wheel_may_be_for_several_architectures() -> None:
    """Separated as CMake and torch separate them."""
    cells = read_cells([BITSANDBYTES])
    assert [len(cell.archs) for cell in cells] == [3, 7, 8, 7]
    assert cells[0].name == "sm_75+80+90"


def test_what_excludes_say_is_left_out() -> None:
    """As GitHub counts them: of 100 each of these takes out four."""
    assert len(read_cells(FLASH_ATTENTION)) == 100
    cells = read_cells(FLASH_ATTENTION, ITS_EXCLUDES)
    assert len(cells) == 84
    assert not [cell for cell in cells if (cell.value("torch"), cell.value("python")) == ("1.12.1", "3.11")]
    assert cells[0].name == "cp37-torch1.12.1-cuda11.8.0-cxx11-abiFALSE"


def test_an_exclude_of_nothing_is_refused() -> None:
    """The same workflow excludes CUDA 12.2.0 of a matrix that has 12.2.2: GitHub says nothing, and builds them."""
    with pytest.raises(UsageError, match=r"cuda=12\.2\.0: the matrix has no such cell") as refused:
        read_cells(FLASH_ATTENTION, ["torch=1.12.1,cuda=12.2.0"])
    assert refused.value.hint == "the matrix has cuda=11.8.0,12.2.2"
    with pytest.raises(UsageError) as refused:
        read_cells(["python=3.11"], ["cuda=12"])
    assert refused.value.hint == "the matrix has the axes python"
    with pytest.raises(UsageError) as refused:
        read_cells(["python=3.11,3.12,3.13"], ["python=3.11,3.12"])
    assert refused.value.hint == "--exclude python=3.11 --exclude python=3.12"


def test_an_exclude_means_the_same_architecture() -> None:
    assert [cell.name for cell in read_cells(["arch=sm_90,sm_100"], ["arch=9.0"])] == ["sm_100"]


@pytest.mark.parametrize("value", ["native", "sm_9x"])
def test_an_architecture_is_corrected_where_it_was_typed(value: str) -> None:
    with pytest.raises(UsageError, match="not a device architecture") as refused:
        read_cells([f"arch={value}"])
    assert refused.value.hint == "--matrix arch=sm_90,sm_100"


@pytest.mark.parametrize(
    "axes",
    [
        ["python"],
        ["python="],
        ["python=3.11,"],
        ["=3.11"],
        ["python=cp311"],
        ["python=3"],
        ["arch=sm_1"],
        ["Cuda=13"],
        ["cuda=../13"],
        ["cuda=13.0;rm"],
        ["cuda=$HOME"],
        ["cuda=a\nb"],
        [f"cuda={','.join(map(str, range(MOST_CELLS + 1)))}"],
        ["x=1-y2,1", "y=2,2-y2"],
        ["a-b=1", "a_b=2"],
        [f"{name * 20}={'9' * 40}" for name in "abcd"],
    ],
)
def test_what_is_no_matrix_is_refused(axes: list[str]) -> None:
    with pytest.raises(UsageError):
        read_cells(axes)


def test_architectures_are_said_once() -> None:
    """For all cells, or by an axis."""
    assert {cell.archs for cell in read_cells(["python=3.11,3.12"], archs=("sm_90",))} == {("sm_90",)}
    with pytest.raises(UsageError):
        read_cells(["arch=sm_100"], archs=("sm_90",))
    with pytest.raises(UsageError, match="nothing is left"):
        read_cells(["python=3.11"], ["python=3.11"])


def test_a_wheel_for_more_architectures_takes_longer() -> None:
    """One that the recipe lacks costs what its most demanding one does; the front end runs once. On one core: 2 s, and
    18 s for each."""
    one, three = planned(["arch=90,80;90;100"])
    assert one.plan.makespan_s == pytest.approx(20.0, abs=1.0)
    assert three.plan.makespan_s == pytest.approx(56.0, abs=2.0)
    assert three.plan.makespan_range_s.high > 3 * 20.0
    assert any("sm_100" in words for words in three.plan.differs)
    table = together((one, three))
    assert (table.longest, table.makespan_s) == (three.cell.name, three.plan.makespan_s)
    assert table.work_s == pytest.approx(one.plan.makespan_s + three.plan.makespan_s, abs=0.2)
    hours = [each.memory_mib / 1024 * each.makespan_s / 3600 for each in table.cells]
    assert table.memory_time_gib_h == pytest.approx(sum(hours), abs=0.01)
    assert table.memory_mib == max(each.memory_mib for each in table.cells) >= table.cells[1].peak_mib


def test_another_python_costs_the_same_and_that_is_said() -> None:
    first, second = planned(["python=3.11,3.12"])
    assert first.plan is second.plan
    assert any("each python" in note for note in together((first, second)).notes)


def test_jobs_with_a_time_limit_are_counted() -> None:
    """Twelve units of 100 s on one core, and an upper end 15 % later: in jobs of 20 minutes, of which 15 are for
    compilers, seven of them fit into each. With 45 minutes all do. One that is longer than a job never ends."""
    made = recipe(*(unit(f"{at}.cu", phase(100.0, 100.0)) for at in range(12)))
    counts = []
    for minutes in (60, 20, 2):
        (cell,) = planned(["python=3.12"], time_limit_s=60.0 * minutes, of=made)
        assert cell.plan.makespan_range_s.high == pytest.approx(1.15 * cell.plan.makespan_s, rel=0.02)
        counts.append(cell.plan.attempts)
    assert counts == [1, 2, None]


def test_of_a_job_a_share_is_not_for_compilers() -> None:
    assert (around_s(60.0), around_s(4 * 3600.0), around_s(24 * 3600.0)) == (15.0, AROUND_S, AROUND_S)


def test_what_does_not_fit_is_a_cells_own() -> None:
    made = recipe(unit("big.cu", phase(1e6, 9.0)), unit("small.cu", phase(10.0, 9.0)))
    table = together(planned(["python=3.12"], of=made))
    assert table.cells[0].too_big == ("big.cu: 976.6 GiB",)
