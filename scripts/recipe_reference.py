"""docs/reference/recipe.md, from the model."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable

import msgspec

from builddoctor.core import recipe as model
from builddoctor.recipes.allowed_variables import allowed_names

TABLES = (
    ("[project]", model.RecipeProject),
    ("[fingerprint]", model.Fingerprint),
    ("[origin]", model.Origin),
    ("[[environment]]", model.Setting),
    ("[[hazards]]", model.Hazard),
    ("[[units]]", model.RecipeUnit),
    ("phases", model.PhaseFigures),
)

KINDS = (
    *("Place", "Word", "Line", "Digest", "Day", "Arch", "VariableName", "VariableValue"),
    *("Mib", "CoreSeconds", "Runs"),
)
"""Kinds of values that the model has a name for."""

EXAMPLE = """\
schema = 2

[project]
name = "example"
version = "1.0"

[fingerprint]
archs = ["sm_90"]
nvcc = "13.0.88"
host_compiler = "12.2.0"
host_arch = "x86_64"

[origin]
provenance = "measured"
how = "three builds, one after the other"
runs = 3

[[environment]]
name = "MAX_JOBS"
value = "4"
why = "measured so"

[[units]]
place = "src/gemm.cu"
output = "gemm.cu.o"
archs = ["sm_90"]
phases = [
    { kind = "cudafe++", tool = "cudafe++", peak_mib = 412.3, cpu_s = 2.104 },
    { kind = "cicc", tool = "cicc", arch = "sm_90", input_mib = 3.4, peak_mib = 812.4, high_mib = 815.0, cpu_s = 9.1 },
    { kind = "ptxas", tool = "ptxas", arch = "sm_90", peak_mib = 94.1, cpu_s = 1.2 },
    { kind = "host", tool = "cc1plus", peak_mib = 530.7, cpu_s = 3.91, runs = 2 },
]
"""
"""Figures in it are made up: it shows the form. A test parses it as it stands on the page."""

INTRO = f"""\
# Recipes

A recipe holds what one project's build takes, unit by unit: measured once, used wherever the same is built. It is a
TOML file and data only: no command, no absolute path. `builddoctor recipe from-trace` makes one of a build's trace,
`recipe check FILE` says whether one is right, `recipe render` and `plan` work with it.

Sizes are MiB, times are seconds of one core. What is left out is as its default; keys marked \\* must be there. A key
that is not below is refused, and so is a file of more than {model.LARGEST_FILE // 1024**2} MiB, {model.MOST_UNITS:,}
units, or {model.MOST_PHASES:,} phases of a unit. Line ends may be Windows'.
[recipe.schema.json](recipe.schema.json) is the same for editors and programs.

```toml
{EXAMPLE}```

The figures of this example are made up; it shows the form.
"""

Docs = Callable[[type], list[tuple[str, str, str]]]
Table = Callable[[tuple[str, ...], list[tuple[str, ...]]], str]


def recipe_page(note: str, field_docs: Docs, table: Table) -> str:
    """Every table with its keys, the kinds of values, and the variables that may be set."""
    page = note + INTRO + "\n## At the top\n\n" + table(("key", "value", "meaning"), [top_row(field_docs)])
    for header, struct in TABLES:
        rows = key_rows(struct, field_docs)
        page += f"\n## `{header}`\n\n{(struct.__doc__ or '').strip()}\n\n" + table(("key", "value", "meaning"), rows)
    kinds = [kind_row(name) for name in KINDS]
    page += "\n## Kinds of values\n\n" + table(("kind", "what it is", "such as"), kinds)
    names = ", ".join(f"`{name}`" for name in allowed_names())
    return page + (
        "\n## Variables\n\nA recipe may set these and no others: how much is built, for what, and how many at once. "
        f"None names a program, a folder, a library or further arguments.\n\n{names}\n"
    )


def top_row(field_docs: Docs) -> tuple[str, ...]:
    name, kind, text = field_docs(model.Recipe)[0]
    return (f"`{name}` \\*", kind_words(kind), text)


def kind_row(name: str) -> tuple[str, ...]:
    about = typing.get_args(getattr(model, name))[1]
    return (f"`{name}`", about.description, f"`{about.examples[0]}`" if about.examples else "")


def key_rows(struct: type[msgspec.Struct], field_docs: Docs) -> list[tuple[str, ...]]:
    needed = {field.name for field in msgspec.structs.fields(struct) if field.required}
    return [
        (f"`{name}`" + " \\*" * (name in needed), kind_words(kind), text) for name, kind, text in field_docs(struct)
    ]


def kind_words(annotation: str) -> str:
    """A type as a person reads it: ``tuple[Arch, ...]`` is ``list of Arch``."""
    if found := re.search(r"tuple\[(\w+), \.\.\.\]", annotation):
        inner = found[1]
        return "list of tables, as below" if inner == "PhaseFigures" else f"list of `{inner}`"
    name = annotation.removesuffix(" | None")
    if name in ("Provenance", "HazardKind"):
        return words_of(typing.get_args(getattr(model, name)))
    if name == "PhaseKind":
        return words_of([each.value for each in model.PhaseKind])
    if name.startswith("Literal["):
        return f"`{name.removeprefix('Literal[').rstrip(']')}`"
    if found := re.search(r"ge=(\d+), le=(\d+)", name):
        return f"a whole number, from {int(found[1]):,} to {int(found[2]):,}"
    return "`true` or `false`" if name == "bool" else f"`{name}`"


def words_of(choices: typing.Iterable[str]) -> str:
    return ", ".join(f'`"{each}"`' for each in choices)
