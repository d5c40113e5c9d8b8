"""A matrix of builds as a page: a line a cell, and what all of them take together.

Names come from recipes and the command line: no control character in them gets through.
Does *not* cover: working it out (``plans.matrix``), or one build's plan (``ui.plan_page``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from builddoctor.core.plan import MatrixCell, MatrixPlan
from builddoctor.core.units import format_clock, format_mib, one_line, shell_word
from builddoctor.ui.layout import Column, Signs, labelled, plural, table
from builddoctor.ui.plan_page import LABEL, LEAST_WIDTH, MOST_WIDTH, Row, hazard_rows


def matrix_page(
    matrix: MatrixPlan,
    *,
    width: int,
    signs: Signs,
    trust: str = "",
    typed: Sequence[str] = (),
) -> list[Text]:
    """All of it. ``trust``: what the first recipe's distance means, in words. ``typed``: what was asked for, in words
    that make a job of it."""
    width = max(LEAST_WIDTH, min(width, MOST_WIDTH))
    title = f"{f'{matrix.project} {matrix.version}'.rstrip()}: {plural(len(matrix.cells), 'build')} on {matrix.machine}"
    lines = [Text(signs.words(one_line(title)), style="bold"), Text("")]
    for label, text, style in _what(matrix, trust):
        lines += labelled(label, signs.words(one_line(text)), width, style, cells=LABEL - 1, indent=0)
    lines += [Text(""), *_cells(matrix, width, signs), Text("")]
    for label, text, style in (
        *_all(matrix),
        *hazard_rows(matrix.hazards),
        *(("note", note, "") for note in matrix.notes),
    ):
        lines += labelled(label, signs.words(one_line(text)), width, style, cells=LABEL - 1, indent=0)
    if any(cell.too_big for cell in matrix.cells):
        # No job is made of what does not fit.
        return lines
    # The figures above are those of builds under builddoctor: of stages the job would ask for more.
    words = ["builddoctor", "recipe", "render", *typed, "--to", "slurm", "--with-builddoctor"]
    return [*lines, Text(""), Text(f"{'next':<{LABEL}}{' '.join(shell_word(each) for each in words)}")]


def _what(matrix: MatrixPlan, trust: str) -> Iterator[Row]:
    kind = f"{matrix.host_arch}, " if matrix.host_arch else ""
    memory = f"{format_mib(matrix.memory_limit_mib)}: {format_mib(matrix.budget_mib)} of it for compilers"
    yield "machine", f"each on {kind}{plural(matrix.cores, 'core')}, {memory}", ""
    for recipe in dict.fromkeys(cell.recipe for cell in matrix.cells):
        sets = dict.fromkeys(cell.differs for cell in matrix.cells if cell.recipe == recipe and cell.differs)
        yield "recipe", recipe, ""
        for first in list(sets)[:1]:
            more = f"; and {plural(len(sets) - 1, 'other set')} of architectures" if len(sets) > 1 else ""
            yield "", f"{'; '.join(first)}{more}{f': {trust}' if trust else ''}", "yellow"
    for cell in matrix.cells:
        if cell.too_big:
            yield "too big", f"{cell.name}: {cell.too_big[0]}: does not fit here, even alone", "bold red"


def _cells(matrix: MatrixPlan, width: int, signs: Signs) -> list[Text]:
    columns = [Column("build", name=True), *(Column(head, right=True) for head in ("memory", "peak", "time", "likely"))]
    if matrix.time_limit_s:
        columns.append(Column(f"jobs of {format_clock(matrix.time_limit_s)}", right=True))
    rows = []
    for cell in matrix.cells:
        time = cell.makespan_range_s
        row = [
            signs.words(cell.name),
            format_mib(cell.memory_mib),
            format_mib(cell.peak_mib),
            format_clock(cell.makespan_s),
            f"{format_clock(time.low)} to {format_clock(time.high)}",
        ]
        rows.append([*row, *([_attempts(cell)] if matrix.time_limit_s else [])])
    return table(columns, rows, width=width)


def _attempts(cell: MatrixCell) -> str:
    return str(cell.attempts) if cell.attempts is not None else "never ends"


def _all(matrix: MatrixPlan) -> Iterator[Row]:
    alone = format_clock(matrix.work_s)
    yield (
        "longest",
        f"{matrix.longest}: {format_clock(matrix.makespan_s)}; all of them on one such machine: {alone}",
        "bold",
    )
    yield (
        "memory",
        f"{format_mib(matrix.memory_mib)} for the largest; memory times time {matrix.memory_time_gib_h:.1f} GiB h",
        "",
    )
    never = [cell for cell in matrix.cells if matrix.time_limit_s and cell.attempts is None]
    if never:
        unit = max(never, key=lambda cell: cell.longest_unit_s)
        takes = format_clock(unit.longest_unit_s)
        yield (
            "",
            f"{unit.longest_unit} may take longer than a job has for compilers ({takes} at best): it needs more time",
            "red",
        )
