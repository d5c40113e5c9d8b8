"""Recipes and the history as pages (their commands: ``cli/test_recipe.py``)."""

from __future__ import annotations

from builddoctor.core.past import PastPhase, PastUnit, Seen, UnitKey
from builddoctor.core.phase import PhaseKind
from builddoctor.ui.recipe_page import RecipeRow, list_rows, past_rows, project_rows
from support.pages import plain


def test_names_from_other_peoples_projects_cannot_move_the_cursor() -> None:
    """A history holds what sources and projects are called."""
    key = UnitKey(project="demo", place="src/\x1b[2Ja.cu")
    seen = (Seen(input_mib=1.0, peak_mib=900.0, wall_s=3.0),)
    phases = (PastPhase(kind=PhaseKind.CICC, arch="sm_90\r", tool="cicc", seen=seen),)
    shown = past_rows([PastUnit(key=key, phases=phases)], width=100)
    shown += project_rows([("evil\x1b]0;x\x07\n", 1, 0.0)])
    assert all(each.isprintable() for line in plain(shown) for each in line)


def test_a_list_of_recipes_says_what_is_wrong_with_one() -> None:
    """Below its line; names are whole where nothing is there to fit them into."""
    rows = [
        RecipeRow(name="n" * 99, origin="yours", path="a", units=3, largest_mib=2048.0, runs=1, provenance="measured"),
        RecipeRow(name="bad", origin="yours", path="b", problem="line 3: no such key"),
    ]
    head, first, second, problem = plain(list_rows(rows, width=80))
    assert head.split() == ["recipe", "units", "largest", "core", "time", "figures", "from"]
    assert (len(first), first.index("measured, 1 run")) == (80, second.index("cannot be read"))
    assert problem == "  line 3: no such key"
    assert "n" * 99 in plain(list_rows(rows, width=80, whole=True))[1]
    assert plain(list_rows([], width=80)) == ["no recipes there"]


def test_a_history_has_the_largest_units_first() -> None:
    """With the largest phase, and the time of one build."""
    units = [
        PastUnit(
            key=UnitKey(project="demo", place=place),
            phases=(
                PastPhase(
                    kind=PhaseKind.CICC,
                    arch="sm_90",
                    tool="cicc",
                    seen=(Seen(input_mib=1.0, peak_mib=peak, wall_s=3.0),),
                ),
            ),
        )
        for place, peak in (("a.cu", 100.0), ("b.cu", 900.0))
    ]
    rows = plain(past_rows(units, width=80))
    assert [row.split()[-3:] for row in rows[1:]] == [["b.cu", "cicc", "sm_90"], ["a.cu", "cicc", "sm_90"]]
    assert plain(past_rows([], width=80)) == ["nothing of that project"]
