"""Recipe files: written in one order, and renewed around what a person wrote."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builddoctor.core.errors import RecipeError
from builddoctor.core.phase import PhaseKind
from builddoctor.core.recipe import (
    Fingerprint,
    Hazard,
    Origin,
    PhaseFigures,
    Recipe,
    RecipeProject,
    RecipeUnit,
    Setting,
)
from builddoctor.recipes.recipe_file import parse_recipe
from builddoctor.recipes.recipe_text import dump, rounded, updated

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def phase(kind: PhaseKind = PhaseKind.CICC, *, peak_mib: float = 100.0, **fields: object) -> PhaseFigures:
    return msgspec.structs.replace(PhaseFigures(kind=kind, peak_mib=peak_mib, cpu_s=1.0), **fields)


def unit(place: str, *phases: PhaseFigures, **fields: object) -> RecipeUnit:
    return msgspec.structs.replace(RecipeUnit(place=place, phases=phases or (phase(),)), **fields)


def recipe(*units: RecipeUnit, **fields: object) -> Recipe:
    made = Recipe(schema=2, project=RecipeProject(name="gemm"), origin=Origin(provenance="measured"), units=units)
    return msgspec.structs.replace(made, **fields)


def test_a_recipe_is_written_in_the_models_order() -> None:
    """A header, then tables in the model's order, a phase a line; what is as by default is left out."""
    made = recipe(
        unit(
            "src/gemm.cu",
            phase(PhaseKind.CUDAFE, runs=2),
            phase(arch="sm_90", peak_mib=812.44),
            archs=("sm_80", "sm_90"),
        ),
        unit("link libgemm.so", phase(PhaseKind.LINK), after_all=True),
        project=RecipeProject(name="gemm", title='"GEMM"'),
        fingerprint=Fingerprint(nvcc="13.0.88"),
        environment=(Setting(name="MAX_JOBS", value="4"),),
    )
    text = dump(made)
    assert text.startswith("# A recipe of builddoctor")
    assert "`builddoctor recipe check FILE`" in text
    assert text[text.index("schema") :] == (
        'schema = 2\n\n[project]\nname = "gemm"\ntitle = "\\"GEMM\\""\n\n[fingerprint]\nnvcc = "13.0.88"\n\n'
        '[origin]\nprovenance = "measured"\n\n[[environment]]\nname = "MAX_JOBS"\nvalue = "4"\n\n'
        '[[units]]\nplace = "src/gemm.cu"\narchs = ["sm_80", "sm_90"]\nphases = [\n'
        '    { kind = "cudafe++", peak_mib = 100.0, cpu_s = 1.0, runs = 2 },\n'
        '    { kind = "cicc", arch = "sm_90", peak_mib = 812.4, cpu_s = 1.0 },\n]\n\n'
        '[[units]]\nplace = "link libgemm.so"\nafter_all = true\nphases = [\n'
        '    { kind = "link", peak_mib = 100.0, cpu_s = 1.0 },\n]\n'
    )
    assert dump(parse_recipe(text, "gemm.toml")) == text


def test_figures_are_rounded_to_what_was_measured() -> None:
    """MiB to a tenth, seconds and inputs to a thousandth; no sign on a zero; twice is as once."""
    odd = phase(peak_mib=-0.0, input_mib=1 / 3, cpu_s=2 / 3, high_s=1e6, high_mib=0.04)
    once = rounded(recipe(unit("a.cu", odd)))
    found = once.units[0].phases[0]
    assert (str(found.peak_mib), found.input_mib, found.cpu_s, found.high_s, found.high_mib) == (
        "0.0",
        0.333,
        0.667,
        1e6,
        0,
    )
    assert rounded(once) == once == parse_recipe(dump(once), "a")


def test_a_recipe_without_units_is_written_and_read() -> None:
    """The key is there, and empty."""
    assert parse_recipe(dump(recipe()), "a") == recipe()
    assert parse_recipe(updated(dump(recipe()), recipe(unit("a.cu"))), "a") == recipe(unit("a.cu"))
    assert parse_recipe(updated(dump(recipe(unit("a.cu"))), recipe()), "a") == recipe()


@pytest.mark.parametrize(
    "text", ["", 'a"b', "a\\b", "a\nb\t\r\x00\x1b\x7f", "ä𝄞", "'''", '"""', "# no comment", "]\n[[units]]"]
)
def test_any_text_comes_back_as_it_was(text: str) -> None:
    """Nothing in a text can end its quotes."""
    made = recipe(unit("a.cu"), origin=Origin(provenance="measured", how=text))
    assert msgspec.toml.decode(dump(made))["origin"] == {"provenance": "measured"} | ({"how": text} if text else {})


NOTED = """\
# Measured on the build machine.

schema = 2  # the first

# what it is
[project]
name = "gemm"      # as it is imported
version = "1.0"

[origin]
# three nights
provenance = "measured"
runs = 3  # of them

# heavy
[[units]]
output = "a.o"  # its output first
place = "src/a.cu"
phases = [
    # the front end
    { kind = "cudafe++", peak_mib = 10, cpu_s = 1 },  # small
    { kind = "cicc", arch = "sm_90", peak_mib = 800.0, cpu_s = 9.0 }, # large
    { kind = "ptxas", arch = "sm_90", peak_mib = 100.0, cpu_s = 9.0 },
    # and no more
]

# light

[[units]]
place = "src/b.cu"
phases = [{ kind = "cicc", peak_mib = 1, cpu_s = 1 }]

# the end
"""


def test_new_figures_leave_comments_and_order_as_they_are() -> None:
    """A larger peak, and nothing else of the file changes."""
    old = parse_recipe(NOTED, "noted.toml")
    first = old.units[0]
    figures = tuple(msgspec.structs.replace(each, peak_mib=each.peak_mib + 5) for each in first.phases)
    new = msgspec.structs.replace(old, units=(msgspec.structs.replace(first, phases=figures), old.units[1]))
    text = updated(NOTED, new)
    expected = NOTED
    for before, after in [
        ("peak_mib = 10, cpu_s = 1 }", "peak_mib = 15.0, cpu_s = 1.0 }"),
        ("peak_mib = 800.0", "peak_mib = 805.0"),
        ("peak_mib = 100.0", "peak_mib = 105.0"),
    ]:
        expected = expected.replace(before, after)
    assert text == expected
    assert parse_recipe(text, "noted.toml") == new


def test_nothing_new_leaves_the_file_as_it_is() -> None:
    """Byte for byte."""
    assert updated(NOTED, parse_recipe(NOTED, "noted.toml")) == NOTED


def test_units_that_come_go_and_move_take_their_comments_along() -> None:
    """Comments stand in front of the unit that they are of, wherever it is; keys that stay keep theirs."""
    old = parse_recipe(NOTED, "noted.toml")
    heavy, light = old.units
    new = msgspec.structs.replace(
        old,
        project=msgspec.structs.replace(old.project, version="", title="GEMM"),
        origin=msgspec.structs.replace(old.origin, runs=4),
        hazards=(Hazard(kind="runaway", text="cudafe++ grows"),),
        units=(light, unit("src/c.cu"), msgspec.structs.replace(heavy, archs=("sm_90",), phases=heavy.phases[1:])),
    )
    text = updated(NOTED, new)
    assert parse_recipe(text, "noted.toml") == new
    for line in (
        "schema = 2  # the first\n",
        'name = "gemm"      # as it is imported\ntitle = "GEMM"\n',
        "# three nights\n",
        "runs = 4  # of them\n",
        '# light\n\n[[units]]\nplace = "src/b.cu"\n',
        '# heavy\n[[units]]\noutput = "a.o"  # its output first\n',
        "cpu_s = 9.0 }, # large\n",
    ):
        assert line in text
    assert "version" not in text
    assert "# small" not in text
    assert text.endswith("\n# the end\n")
    assert text.index("[[hazards]]") < text.index("# light") < text.index("src/c.cu") < text.index("# heavy")


INLINE = """\
units = [{ place = "a.cu", phases = [] }]
schema = 2
project.name = "x"
origin = { provenance = "measured" }
"""

TABLES_OF_PHASES = """\
schema = 2
[project]
name = "x"
[origin]
provenance = "measured"
[[units]]
place = "a.cu"
[[units.phases]]
kind = "cicc"
peak_mib = 1
cpu_s = 1
"""


@pytest.mark.parametrize("text", [INLINE, TABLES_OF_PHASES])
def test_a_file_of_an_unusual_form_is_written_anew_below_its_comments(text: str) -> None:
    """Inline units and tables of phases are TOML too; what is at the top stays."""
    new = recipe(unit("a.cu"))
    result = updated(f"# Mine.\n{text}", new)
    assert result.startswith("# Mine.\n\nschema = 2\n")
    assert parse_recipe(result, "a") == new


def test_what_is_no_recipe_is_not_renewed() -> None:
    """It is refused under the name of its file."""
    with pytest.raises(RecipeError, match=r"^mine.toml:1: `schema` is missing"):
        updated("x = 1", recipe(), "mine.toml")


def test_windows_line_ends_and_a_mark_are_read() -> None:
    """The renewed file has neither."""
    old = parse_recipe(NOTED, "noted.toml")
    new = msgspec.structs.replace(old, units=old.units[:1])
    assert updated("\ufeff" + NOTED.replace("\n", "\r\n"), new) == updated(NOTED, new)


def test_the_example_of_the_reference_page_is_a_recipe() -> None:
    """Whoever copies it has a recipe that is right."""
    page = (REFERENCE / "recipe.md").read_text()
    example = page.split("```toml\n")[1].split("```")[0]
    found = parse_recipe(example, "recipe.md")
    assert found.units[0].phases[1].high_mib == 815.0


def test_the_schema_names_every_key_of_the_reference_page() -> None:
    """Both are made of the model."""
    schema = msgspec.json.decode((REFERENCE / "recipe.schema.json").read_bytes())
    page = (REFERENCE / "recipe.md").read_text()
    for name, each in schema["$defs"].items():
        for key in each.get("properties", {}) if name != "Recipe" else ():
            assert f"| `{key}`" in page, (name, key)
