"""Measured phases as rows: the file, and the recipe that is worked out from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.errors import RecipeError
from builddoctor.core.recipe import Fingerprint, Origin, RecipeProject
from builddoctor.recipes.measured_phases import recipe_of_rows
from support.measured_rows import Remark, parse_rows, read_rows, rows_text, write_rows
from unit.recipe_builds import row

PROJECT = RecipeProject(name="demo")
MEASURED = Origin(provenance="measured")


def test_rows_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    """All columns and the remarks, names with commas, quotes and blanks among them."""
    rows = (
        row(
            place='a "b", c.cu',
            target="obj/a b.o",
            options="0badcafe",
            source_digest="feedbeef",
            archs=("sm_90", "sm_100"),
        ),
        row("link", 512.5, place="link x", after_all=True, archs=(), run=3, input_mib=0.125, cpu_s=0.001),
    )
    remarks = (Remark(key="project", value="demo"), Remark(key="machine", value="2 cores, 24 GiB: x86_64"))
    write_rows(tmp_path / "rows.csv", rows, remarks)
    read = read_rows(tmp_path / "rows.csv")
    assert read.phases == rows
    assert read.remarks == remarks
    assert read.remark("machine") == "2 cores, 24 GiB: x86_64"
    assert read.remark("nothing") == ""


def test_the_same_rows_give_the_same_text() -> None:
    """Figures are rounded to what the measuring is worth, without needless digits."""
    text = rows_text([row(peak_mib=100.04, cpu_s=2.0, input_mib=0.0004)])
    assert text.splitlines()[-1] == "a.cu,a.cu.o,,,,sm_90,,cicc,cicc,,0,100,2,,1"
    assert text == rows_text(parse_rows(text, "x").phases)


def test_a_remark_cannot_begin_a_line_of_its_own() -> None:
    """Whatever is in its value."""
    text = rows_text([], [Remark(key="how", value="so\nplace,kind\rand so")])
    assert text.splitlines()[0] == "# how: so place,kind and so"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not the columns of measured phases: 'cpu_s', 'kind', 'peak_mib', 'place'"),
        ("# a: b\nplace,kind,peak_mib,cpu_s,colour\n", "x.csv:2: not the columns of measured phases: 'colour'"),
        ("place,kind,peak_mib,cpu_s\na.cu,cicc,nan,1\n", "x.csv:2: figures that cannot be"),
        ("place,kind,peak_mib,cpu_s\na.cu,cicc,-1,1\n", "x.csv:2: figures that cannot be"),
        ("place,kind,peak_mib,cpu_s\na.cu,cicc,1,inf\n", "x.csv:2: figures that cannot be"),
        ("place,kind,peak_mib,cpu_s\na.cu,cicc,much,1\n", "x.csv:2: Expected `float`"),
        ("# x\n# y\nplace,kind,peak_mib,cpu_s\na.cu,magic,1,1\n", "x.csv:4: Invalid enum value 'magic'"),
        ("place,kind,peak_mib,cpu_s\na.cu,cicc,1\n", "x.csv:2: "),
        ('place,kind,peak_mib,cpu_s\n"a.cu,cicc,1,1\n', "x.csv:3: unexpected end"),
    ],
)
def test_a_file_that_is_none_of_ours_is_refused_with_its_line(text: str, said: str) -> None:
    """Columns, figures, kinds, quotes."""
    with pytest.raises(RecipeError) as refused:
        parse_rows(text, "x.csv")
    assert said in str(refused.value)


def test_a_file_that_is_not_there_or_no_text_is_an_error_of_recipes(tmp_path: Path) -> None:
    """With the file's name."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("nothing", "binary", "."):
        with pytest.raises(RecipeError, match=name):
            read_rows(tmp_path / name)


def test_three_runs_give_their_median_and_their_high() -> None:
    """And how often a phase was measured, where that is not as often as the build."""
    rows = [
        row(peak_mib=peak, cpu_s=time, run=run) for run, (peak, time) in enumerate([(100, 3), (140, 1), (110, 2)], 1)
    ]
    rows.append(row("ptxas", 50, run=2))
    recipe = recipe_of_rows(rows, project=PROJECT, origin=MEASURED)
    assert recipe.origin.runs == 3
    cicc, ptxas = recipe.units[0].phases
    assert (cicc.peak_mib, cicc.high_mib, cicc.cpu_s, cicc.high_s, cicc.runs) == (110, 140, 2, 3, 0)
    assert (ptxas.peak_mib, ptxas.high_mib, ptxas.cpu_s, ptxas.high_s, ptxas.runs) == (50, 0, 1, 0, 1)


def test_phases_of_one_kind_are_told_apart_by_the_size_of_their_input() -> None:
    """With ``--threads`` they come in another order in each build."""
    first = [row("preprocess", 19, input_mib=0.01), row("preprocess", 70, input_mib=0.5), row("cudafe++", 300)]
    second = [
        row("preprocess", 72, input_mib=0.5, run=2),
        row("cudafe++", 310, run=2),
        row("preprocess", 21, input_mib=0.01, run=2),
    ]
    (unit,) = recipe_of_rows([*first, *second], project=PROJECT, origin=MEASURED).units
    assert [(phase.kind.value, phase.peak_mib, phase.high_mib) for phase in unit.phases] == [
        ("preprocess", 20, 21),
        ("preprocess", 71, 72),
        ("cudafe++", 305, 310),
    ]


def test_phases_of_the_same_input_are_told_apart_by_their_order() -> None:
    """A source is preprocessed once for each architecture."""
    rows = [row("preprocess", 10.0 * n + run, input_mib=0.5, run=run) for run in (1, 2) for n in (1, 2, 3)]
    (unit,) = recipe_of_rows(rows, project=PROJECT, origin=MEASURED).units
    assert [phase.high_mib for phase in unit.phases] == [12, 22, 32]


def test_a_phase_that_one_build_had_not_stands_where_the_other_ran_it() -> None:
    """The nearest by input is the same; what is left over is new, after what it came after."""
    few = [row("preprocess", 71, input_mib=0.51), row("host", 200)]
    many = [row("preprocess", 19, input_mib=0.01, run=2), row("preprocess", 70, input_mib=0.5, run=2)]
    many += [row("cicc", 900, run=2), row("host", 210, run=2)]
    (unit,) = recipe_of_rows([*few, *many], project=PROJECT, origin=MEASURED).units
    assert [(phase.kind.value, phase.runs) for phase in unit.phases] == [
        ("preprocess", 1),
        ("preprocess", 0),
        ("cicc", 1),
        ("host", 0),
    ]


def test_two_objects_of_one_source_are_two_units_in_every_build() -> None:
    """The same file name in two folders of objects: there the target tells them apart, and only there."""
    rows = [
        row(target=f"{folder}/a.cu.o", peak_mib=peak, run=run)
        for run in (1, 2)
        for folder, peak in (("x", 10), ("y", 20))
    ]
    rows += [row(place="b.cu", target=target, run=run) for run, target in ((1, ""), (2, "x/b.cu.o"))]
    units = recipe_of_rows(rows, project=PROJECT, origin=MEASURED).units
    assert [(unit.place, unit.target, unit.phases[0].peak_mib) for unit in units] == [
        ("a.cu", "x/a.cu.o", 10),
        ("a.cu", "y/a.cu.o", 20),
        ("b.cu", "x/b.cu.o", 100),
    ]


def test_the_fingerprint_says_whether_any_source_or_option_is_another() -> None:
    """In any order of units; archs are those of all units where nobody says them."""
    a, b = row(options="aaaaaaaa", source_digest="11111111"), row(place="b.cu", options="bbbbbbbb", archs=("sm_100",))
    one = recipe_of_rows([a, b], project=PROJECT, origin=MEASURED).fingerprint
    other = recipe_of_rows([b, a], project=PROJECT, origin=MEASURED).fingerprint
    assert one == other
    assert one.archs == ("sm_100", "sm_90")
    changed = row(options="aaaaaaaa", source_digest="22222222")
    third = recipe_of_rows([changed, b], project=PROJECT, origin=MEASURED, fingerprint=Fingerprint(archs=("sm_90",)))
    assert third.fingerprint.source != one.source
    assert third.fingerprint.options == one.options
    assert third.fingerprint.archs == ("sm_90",)


def test_no_phases_are_no_recipe() -> None:
    """There is nothing to plan with."""
    with pytest.raises(RecipeError, match="no phase"):
        recipe_of_rows([], project=PROJECT, origin=MEASURED)
