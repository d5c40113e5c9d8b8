"""``builddoctor trace view``: the page of a trace, and a browser on it. Also what ``trace export`` needs of both."""

from __future__ import annotations

import os
import re
import socket
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from builddoctor.cli.output import print_data, print_notes
from builddoctor.cli.trace import TraceArgument, find_trace, judge_now
from builddoctor.errors import FolderNotWritableError
from builddoctor.intercept.browser import open_in_browser
from builddoctor.render.drawing import Kind, drawn
from builddoctor.render.page import page
from builddoctor.render.page.library import plotly
from builddoctor.render.page.words import words_of
from builddoctor.simulate.what_if import what_if
from builddoctor.supervise.folders import cache_folder
from builddoctor.trace.analysis import read_build
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.taking import take_picture
from builddoctor.units import escaped, printable

DRAWN_MOMENTS = 500
"""More than a drawing has dots to show."""


def view(
    trace: TraceArgument = "last",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="Write the page here, not into the cache.")
    ] = "",
    no_open: Annotated[bool, typer.Option("--no-open", help="Only write it; print its path.")] = False,
) -> None:
    """Make the page of a build, one HTML file that needs nothing else, and open it. Prints its path."""
    path = find_trace(trace)
    text = page_of(path)
    target = Path(output) if output else _page_file(path)
    write_file(target, text.encode("utf-8", "backslashreplace"), make_folder=not output)
    print_data(printable(str(target.absolute())))
    if not no_open and not open_in_browser(target, os.environ):
        name = escaped(f"{socket.gethostname()}:{target.absolute()}")
        print_notes([f"no browser to open here; on a machine with one: scp {name} . and open it"])


def page_of(path: Path) -> str:
    """The page of a trace. Raises TraceError when it is none."""
    report = read_build(path)
    picture = take_picture(TraceReader(path))
    return page(picture, words_of(report, judge_now(report, path)), what_if(picture), plotly())


def drawing_of(path: Path, kind: Kind) -> bytes:
    """The picture of memory of a trace. Raises TraceError when it is none, BuildDoctorError without matplotlib."""
    report = read_build(path)
    picture = take_picture(TraceReader(path), most_moments=DRAWN_MOMENTS)
    return drawn(picture, words_of(report, judge_now(report, path)), kind)


def write_file(target: Path, content: bytes, *, make_folder: bool = False, example: str = "page.html") -> None:
    """All of it or nothing. Raises FolderNotWritableError, whose hint names ``example``."""
    try:
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file():
            # A pipe or a device cannot be replaced.
            target.write_bytes(content)
            return
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".builddoctor-", delete=False) as file:
            try:
                file.write(content)
                file.flush()
                os.chmod(file.name, 0o666 & ~_umask())
                os.replace(file.name, target)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise FolderNotWritableError(
            f"cannot write {target}: {error.strerror}",
            hint=f"name a file in a folder that you may write: `-o {example}`",
        ) from error


def _page_file(trace: Path) -> Path:
    """In the cache, of one name for each trace: a second look replaces the first."""
    stem = re.sub(r"[^\w.-]", "_", trace.stem, flags=re.ASCII)[-80:] or "trace"
    return cache_folder(os.environ) / "pages" / f"{stem}.html"


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
