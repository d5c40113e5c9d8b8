"""How a build is named on the command line, the same for every command that takes one.

``b49d07``, its id, as ``trace list`` shows it, or the beginning of that; ``demo``, the newest build of a project, by
the name in ``trace list`` and ``history show``; ``path/to/demo``, the newest in or below a folder; ``last``, the newest
of all. ``~1`` behind one of the last three is the build before that one. And the file of any trace.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from builddoctor.core.errors import TraceError
from builddoctor.core.events import Header
from builddoctor.recipes.match import squeezed
from builddoctor.runtime.folders import traces_folder
from builddoctor.trace.reader import TraceReader

BUILD_HELP = (
    "A build: its id, its project or folder (the newest there), `last`, or a trace file. `last~1`: the one before."
)
BuildArgument = Annotated[str, typer.Argument(metavar="BUILD", help=BUILD_HELP)]

_EARLIER = re.compile(r"(.+)~(\d{1,6})")


def find_trace(name: str) -> Path:
    """The trace of the build of this name. Raises TraceError when there is none, or more than one."""
    path = Path(name)
    if path.exists() and not path.is_dir():
        return path
    traces = sorted(traces_folder(os.environ).glob("*.jsonl"), reverse=True)
    by_id = [trace for trace in traces if name and _id(trace).startswith(name)]
    if len(by_id) > 1:
        raise _unknown(f"{len(by_id)} traces begin with {name!r}")
    if by_id:
        return by_id[0]
    earlier = _EARLIER.fullmatch(name)
    whose, before = (earlier[1], int(earlier[2])) if earlier else (name, 0)
    theirs = iter(traces) if whose == "last" else (trace for trace in traces if _is_of(trace, whose))
    found = next(islice(theirs, before, None), None)
    if found is None:
        raise _unknown(f"no trace of a build in {name}" if os.path.isdir(whose) else f"no trace {name!r}")
    return found


def name_of(trace: Path) -> str:
    """What ``find_trace`` finds it by: its id, or its file where that lies elsewhere."""
    return _id(trace) if trace.parent == traces_folder(os.environ) else str(trace)


def _id(trace: Path) -> str:
    return trace.stem.rpartition("-")[2]


def project_built(trace: Path) -> str:
    """The project of a build, as its trace has it; empty where that cannot be read."""
    header = _header(trace)
    return header.project if header is not None else ""


def _is_of(trace: Path, whose: str) -> bool:
    header = _header(trace) if whose else None
    if header is None:
        return False
    inside = os.path.isdir(whose) and Path(header.cwd).is_relative_to(os.path.realpath(whose))
    return inside or squeezed(header.project) == squeezed(whose) != ""


def _header(trace: Path) -> Header | None:
    try:
        first = next(iter(TraceReader(trace)), None)
    except TraceError:
        return None
    return first if isinstance(first, Header) else None


def _unknown(message: str) -> TraceError:
    return TraceError(message, hint="`builddoctor trace list` lists the traces")
