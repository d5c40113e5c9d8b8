"""``builddoctor explain FILE|-``: why something failed, from its log, a kernel log, a traceback, or a trace."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from builddoctor.cli.log_input import STDIN, LogInput
from builddoctor.cli.output import json_text, page_width, print_data, print_notes
from builddoctor.cli.trace import find_trace, judge_now, print_lines
from builddoctor.diagnose.explaining import Explained, Explainer
from builddoctor.errors import TextError, TraceError
from builddoctor.model.verdict import Fix, Verdict
from builddoctor.render.verdict import explain_page
from builddoctor.trace.analysis import read_build
from builddoctor.units import MIB, escaped

PATIENCE_S = 2.0
"""of silence on a terminal, while a long log is read"""

TRACE_BEGINS = (b'{"t":"header"', b'{"t": "header"')


class ExplainedFile(msgspec.Struct, frozen=True, kw_only=True):
    """What ``explain --json`` prints. ``verdict``, ``confidence``, ``evidence`` and ``fixes`` are relied upon."""

    verdict: str | None
    """null where nothing has to be explained"""
    confidence: str
    evidence: list[str]
    fixes: list[Fix]
    died: str
    why: str
    cause: str
    lines: int
    """of the text; 0 for a trace"""
    file: str


def explain(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-",
            help="A log of a build or a training, a kernel log, a traceback; .gz, .bz2, .xz as they are. `-` reads "
            "stdin. Or a trace: its file, its id, `last`.",
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what failed and why, from any text: verdict, evidence, and ways out, cheapest first."""
    told = _trace(file) or _text(file)
    if json:
        print_data(json_text(_shown(file, told), pretty=True))
    else:
        name = "stdin" if file == STDIN else escaped(file)
        print_lines(explain_page(name, told.verdict, lines=told.lines, width=page_width()))


def _trace(file: str) -> Explained | None:
    """A trace by its id, where no file has that name."""
    if file == STDIN or Path(file).exists() or os.sep in file:
        return None
    try:
        return Explained(verdict=_judged(find_trace(file)), lines=0)
    except TraceError:
        # Neither: what is said is about the file.
        return None


def _judged(path: Path) -> Verdict:
    return judge_now(read_build(path), path)


def _text(file: str) -> Explained:
    with closing(LogInput(file)) as log:
        if log.first.startswith(TRACE_BEGINS):
            if file == STDIN:
                raise TextError(
                    "stdin is a trace of builddoctor, and no log", hint="builddoctor explain FILE   takes one"
                )
            return Explained(verdict=_judged(Path(file)), lines=0)
        explainer = Explainer()
        for chunk in _with_progress(log, file):
            explainer.feed(chunk)
        if log.cut_off:
            print_notes([f"builddoctor: {file} is cut off or torn: what could be unpacked of it was read"])
    return explainer.finish()


def _with_progress(chunks: Iterable[bytes], file: str) -> Iterator[bytes]:
    """The same chunks; on a terminal a note now and then where it takes long. Nothing where stderr is no terminal."""
    begun = told = time.monotonic()
    read = 0
    shown = sys.stderr.isatty() and file != STDIN
    for chunk in chunks:
        yield chunk
        read += len(chunk)
        now = time.monotonic()
        if shown and now - told > PATIENCE_S:
            told = now
            print_notes([f"builddoctor: {read / MIB:.0f} MiB read in {now - begun:.0f} s"])


def _shown(file: str, told: Explained) -> ExplainedFile:
    verdict = told.verdict
    return ExplainedFile(
        verdict=verdict.verdict,
        confidence=verdict.confidence,
        evidence=verdict.evidence,
        fixes=verdict.fixes,
        died=verdict.died,
        why=verdict.why,
        cause=verdict.cause,
        lines=told.lines,
        file=file,
    )
