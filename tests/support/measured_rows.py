"""Files of measured phases (CSV), of which the recipes that ship are made.

Covers: reading and writing them; the same rows give the same bytes. Lines with ``# key: value`` above the head say
where the figures come from.
Does *not* cover: the recipe that they make (``recipes.measured_phases``).
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from builddoctor.core.errors import RecipeError
from builddoctor.core.units import one_line
from builddoctor.recipes.measured_phases import MeasuredPhase

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
    "course",
    "run",
)

MOST_BYTES = 64 * 1024 * 1024
"""A build of a hundred thousand phases has 20 MiB."""

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
        return next(iter(self.remarks_of(key)), "")

    def remarks_of(self, key: str) -> tuple[str, ...]:
        """All values of that name, in their order."""
        return tuple(remark.value for remark in self.remarks if remark.key == key)


def rows_text(phases: Iterable[MeasuredPhase], remarks: Sequence[Remark] = ()) -> str:
    """The file's text, in the order given. Figures are rounded to the precision of the measurement."""
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
                *(
                    _figure(phase.input_mib, 3),
                    _figure(phase.peak_mib, 1),
                    _figure(phase.cpu_s, 3),
                    phase.course,
                    phase.run,
                ),
            ]
        )
    return text.getvalue()


def write_rows(path: Path, phases: Iterable[MeasuredPhase], remarks: Sequence[Remark] = ()) -> None:
    """Raises OSError."""
    path.write_text(rows_text(phases, remarks), encoding="utf-8", newline="")


def read_rows(path: Path) -> Rows:
    """Raises RecipeError, with the line, for a file of another form."""
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
    shaped = {**cells, "archs": cells.get("archs", "").split(), "after_all": cells.get("after_all") == "yes"}
    phase = msgspec.convert(shaped, MeasuredPhase, strict=False)
    figures = (phase.input_mib, phase.peak_mib, phase.cpu_s)
    if not all(math.isfinite(figure) and figure >= 0 for figure in figures):
        raise ValueError(f"figures that cannot be: {', '.join(map(str, figures))}")
    return phase


def _figure(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") or "0"
