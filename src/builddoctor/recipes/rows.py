"""Measured phases as rows, and a file of them: the digest that a recipe can be worked out from again.

Covers: the row, the CSV file (the same rows give the same bytes; lines with ``# key: value`` above the head say where
the figures come from). Does *not* cover: what a recipe makes of them (``recipes.from_rows``), or where they come from
(``recipes.from_trace``).
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from builddoctor.errors import RecipeError
from builddoctor.model.phase import PhaseKind
from builddoctor.recipes.from_rows import recipe_of_rows
from builddoctor.recipes.measured import MeasuredPhase
from builddoctor.units import one_line

__all__ = ["MeasuredPhase", "Remark", "Rows", "parse_rows", "read_rows", "recipe_of_rows", "rows_text", "write_rows"]

COLUMNS = (
    "place",
    "output",
    "target",
    "options",
    "source_digest",
    "archs",
    "after_all",
    "kind",
    "tool",
    "arch",
    "input_mib",
    "peak_mib",
    "cpu_s",
    "run",
)

MOST_BYTES = 64 * 1024 * 1024
"""No digest comes near: a build of a hundred thousand phases has 20 MiB."""

_REMARK = re.compile(r"#\s*(?P<key>[a-z][a-z_ ]*):\s*(?P<value>.*)")


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """One line above the rows."""

    key: str
    value: str


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """What a file of rows holds."""

    phases: tuple[MeasuredPhase, ...]
    remarks: tuple[Remark, ...] = ()

    def remark(self, key: str) -> str:
        """Its value; empty where it is not there."""
        return next((remark.value for remark in self.remarks if remark.key == key), "")


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row as the file has it."""

    place: str
    output: str = ""
    target: str = ""
    options: str = ""
    source_digest: str = ""
    archs: str = ""
    after_all: str = ""
    kind: PhaseKind
    tool: str = ""
    arch: str = ""
    input_mib: float = 0.0
    peak_mib: float
    cpu_s: float
    run: int = 1


def rows_text(phases: Iterable[MeasuredPhase], remarks: Sequence[Remark] = ()) -> str:
    """The file's text, in the order given. Figures are rounded to what the measuring is worth."""
    text = io.StringIO()
    for remark in remarks:
        text.write(f"# {remark.key}: {one_line(remark.value)}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for phase in phases:
        writer.writerow(
            [
                *(phase.place, phase.output, phase.target, phase.options, phase.source_digest, " ".join(phase.archs)),
                *("yes" if phase.after_all else "", phase.kind.value, phase.tool, phase.arch),
                *(_figure(phase.input_mib, 3), _figure(phase.peak_mib, 1), _figure(phase.cpu_s, 3), phase.run),
            ]
        )
    return text.getvalue()


def write_rows(path: Path, phases: Iterable[MeasuredPhase], remarks: Sequence[Remark] = ()) -> None:
    """Raises OSError."""
    path.write_text(rows_text(phases, remarks), encoding="utf-8", newline="")


def read_rows(path: Path) -> Rows:
    """Raises RecipeError for a file that is none of ours, with the line."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise RecipeError(f"{path} is too long for a digest of phases: more than {MOST_BYTES // 1024**2} MiB")
        return parse_rows(content.decode(), path.name)
    except OSError as error:
        raise RecipeError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is no text") from error


def parse_rows(text: str, name: str) -> Rows:
    """``name``: of the file, for messages. Raises RecipeError."""
    remarks: list[Remark] = []
    lines = text.split("\n")
    above = 0
    while above < len(lines) and lines[above].startswith("#"):
        if match := _REMARK.fullmatch(lines[above]):
            remarks.append(Remark(key=match["key"].strip(), value=match["value"].strip()))
        above += 1
    reader = csv.reader(lines[above:], strict=True)
    phases: list[MeasuredPhase] = []
    try:
        head = next(reader, [])
        if unknown := sorted(set(head) - set(COLUMNS)) or sorted({"place", "kind", "peak_mib", "cpu_s"} - set(head)):
            raise RecipeError(
                f"{name}:{above + 1}: not the columns of measured phases: {', '.join(map(repr, unknown[:5]))}",
                hint=f"the first line without # is: {','.join(COLUMNS)}",
            )
        phases.extend(_phase(dict(zip(head, cells, strict=True))) for cells in reader if cells)
    except (ValueError, csv.Error) as error:
        # msgspec's errors are ValueErrors.
        raise RecipeError(f"{name}:{above + reader.line_num}: {error}") from error
    return Rows(phases=tuple(phases), remarks=tuple(remarks))


def _phase(cells: dict[str, str]) -> MeasuredPhase:
    line = msgspec.convert(cells, _Line, strict=False)
    figures = (line.input_mib, line.peak_mib, line.cpu_s)
    if not all(math.isfinite(figure) and figure >= 0 for figure in figures):
        raise ValueError(f"figures that cannot be: {', '.join(map(str, figures))}")
    return MeasuredPhase(
        place=line.place,
        output=line.output,
        target=line.target,
        options=line.options,
        source_digest=line.source_digest,
        archs=tuple(line.archs.split()),
        after_all=line.after_all == "yes",
        kind=line.kind,
        tool=line.tool,
        arch=line.arch,
        input_mib=line.input_mib,
        peak_mib=line.peak_mib,
        cpu_s=line.cpu_s,
        run=line.run,
    )


def _figure(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") or "0"
