"""The page of a plan: what it says, on any terminal."""

from __future__ import annotations

import msgspec
import pytest

from builddoctor.core.phase import PhaseKind
from builddoctor.core.plan import Plan, PlanNode
from builddoctor.machines.named import NominalMachine, load_machine
from builddoctor.plans.inputs import host_of_profile
from builddoctor.plans.planner import make_plan
from builddoctor.ui.layout import ASCII, UNICODE, Signs
from builddoctor.ui.plan_page import plan_page
from unit.recipes_made import engine, host, phase, recipe, unit


def page(plan: Plan, *, width: int = 100, signs: Signs = UNICODE, trust: str = "") -> str:
    return "\n".join(line.plain for line in plan_page(plan, width=width, signs=signs, trust=trust))


@pytest.fixture(scope="module")
def small() -> Plan:
    """Six units on two cores, of which two at once do not fit."""
    units = (unit(f"{at}.cu", phase(900.0 if at == 3 else 300.0, 20.0)) for at in range(6))
    return make_plan(recipe(*units), name="small", host=host(2, 1024.0))


@pytest.fixture(scope="module")
def gb200() -> Plan:
    machine = load_machine("gb200-node")
    assert isinstance(machine, NominalMachine)
    words = ("pages of 4 KiB, here 64",)
    return make_plan(engine(), name="te-gb200", host=host_of_profile(machine), differs=words, distance=0.24)


def test_the_page_answers_how_long_how_much_and_what_to_type(small: Plan) -> None:
    """Time and peak with their ranges, window, the pair without builddoctor, stages, and lines to paste."""
    text = page(small)
    assert "small 1.0 on a container" in text
    assert "likely" in text
    assert "window" in text
    assert "MAX_JOBS=1, NVCC_THREADS=1: 2:0" in text
    assert "solo" in text
    assert "light" in text
    assert "builddoctor build small --recipe small" in text
    assert "builddoctor recipe render small --to sh --cores 2 --memory 1GiB" in text


def test_a_gb200_page_reads_as_its_user_needs_it(gb200: Plan) -> None:
    """Window, stages, the runaway, memory that does not count, the allowance, and that nothing more would help."""
    text = " ".join(page(gb200).split())
    for words in (
        "transformer_engine 2.8 for sm_100 on gb200-node",
        "window 512",
        "stage jobs threads units largest peak time",
        "TransformerEngine#1996",
        "is not counted as host memory",
        "pages of 64 KiB, the recipe's were 4",
        "an allowance, not a measurement",
        "Neither memory nor cores decide",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("cores", "memory_mib", "said"),
    [
        (8, 1024.0, "memory holds it back: with twice the memory "),
        (1, 4096.0, "the number of cores holds it back: with twice the memory 2:0"),
        (8, 16384.0, "one unit holds it back: long.cu alone takes 1:00: more cores or memory buy little"),
    ],
)
def test_what_holds_a_build_back_is_said(cores: int, memory_mib: float, said: str) -> None:
    """With what twice of it would bring, as the table has it; one long unit takes its time whatever there is."""
    long_s = 60.0 if memory_mib > 8192 else 20.0
    units = (unit("long.cu", phase(600.0, long_s)), *(unit(f"{at}.cu", phase(600.0, 20.0)) for at in range(5)))
    plan = make_plan(recipe(*units), name="r", host=host(cores, memory_mib))
    assert said in " ".join(page(plan).split())


def test_the_recipes_distance_is_said_in_words(gb200: Plan) -> None:
    """With what it means for the figures."""
    assert "pages of 4 KiB, here 64: trusted less" in page(gb200, trust="trusted less")


def test_what_does_not_fit_is_told_first(small: Plan) -> None:
    """And that no number of jobs helps."""
    big = make_plan(
        recipe(unit("big.cu", phase(9e5, 1.0)), unit("a.cu", phase(9.0, 1.0))), name="r", host=host(2, 999.0)
    )
    text = page(big)
    assert "too big" in text
    assert "big.cu: 878.9 GiB: does not fit here, even alone" in text
    assert "no number of jobs is safe without builddoctor" in text
    many = msgspec.structs.replace(big, too_big=tuple(f"{at}.cu: 9 GiB" for at in range(9)))
    assert "3 more units" in page(many)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal_but_those_to_paste(small: Plan, gb200: Plan, width: int) -> None:
    """From 40 cells on; a table keeps its columns down to 60."""
    for plan in (small, gb200):
        for line in plan_page(plan, width=width, signs=UNICODE):
            pasted = "builddoctor " in line.plain
            assert pasted or line.cell_len <= max(width, 60), line.plain


def test_plain_characters_do(small: Plan, gb200: Plan) -> None:
    """Where the terminal has no other."""
    for plan in (small, gb200):
        assert page(plan, signs=ASCII).isascii()


def test_the_table_and_the_picture_show_other_memory_and_cores(small: Plan) -> None:
    """A row for each memory, a column for each number of cores; what does not fit says so."""
    text = page(small)
    assert "1 cores" not in text
    assert "512 MiB" in text
    assert "does not fit" in text
    assert "time over memory" in text


def test_names_from_a_recipe_move_no_cursor() -> None:
    """A plan made by hand may hold anything."""
    made = make_plan(recipe(unit("a.cu", phase(100.0, 1.0))), name="r", host=host(1, 999.0))
    hostile = msgspec.structs.replace(
        made,
        project="a\x1b[2J",
        machine="\x9b31m",
        notes=("x\x1b]0;t\x07\n\ny",),
        recipe="$(reboot)\n",
        differs=("\x1b",),
    )
    text = page(hostile)
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "\x07" not in text
    assert "--recipe '$(reboot)" not in text
    assert "$'$(reboot)\\x0a'" in text


def test_an_empty_recipe_has_a_page() -> None:
    """Nothing to build is said without a picture."""
    assert "0" in page(make_plan(recipe(), name="r", host=host(2, 4096.0)))


@pytest.mark.parametrize(
    ("cores", "memory_mib", "nodes", "said"),
    [
        (
            1,
            4096.0,
            [PlanNode(cores=2, budget_mib=4096.0)],
            "1 node, 2 cores, at most 4.0 GiB for one phase: 1:01 instead of 2:39",
        ),
        (8, 16384.0, [PlanNode(cores=8, budget_mib=4096.0)], "They bring nothing: long.cu alone takes as long"),
        (2, 900.0, [PlanNode(cores=1, budget_mib=2048.0)] * 2, "with what does not fit here: long.cu"),
        (2, 900.0, [PlanNode(cores=1, budget_mib=999.0)], "something fits on none of them"),
    ],
)
def test_what_other_machines_bring_is_said(cores: int, memory_mib: float, nodes: list[PlanNode], said: str) -> None:
    """Time, or that it is nothing, or that the build needs them; or that they are not enough."""
    long = unit("long.cu", phase(1000.0 if memory_mib < 1000 else 600.0, 60.0))
    units = (long, *(unit(f"{at}.cu", phase(600.0, 20.0)) for at in range(5)))
    made = make_plan(recipe(*units), name="r", host=host(cores, memory_mib), nodes=nodes)
    assert said in " ".join(page(made).split())
    assert "cluster" not in page(make_plan(recipe(*units), name="r", host=host(cores, memory_mib)))


def test_preprocessing_stays_here() -> None:
    """However large a node is."""
    made = make_plan(
        recipe(unit("a.cu", phase(2000.0, 5.0, PhaseKind.PREPROCESS), phase(100.0, 5.0))),
        name="r",
        host=host(2, 900.0),
        nodes=[PlanNode(cores=8, budget_mib=9000.0)],
    )
    assert "something fits on none of them" in page(made)
