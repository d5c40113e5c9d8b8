"""``builddoctor watch [TRACE]``: follow a build that runs elsewhere, by its trace."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from builddoctor.cli.last_words import last_words
from builddoctor.cli.output import print_notes
from builddoctor.cli.trace import find_trace
from builddoctor.render.closing import closing
from builddoctor.supervise.watching import watch_build


def watch(
    trace: Annotated[
        str, typer.Argument(metavar="[TRACE]", help="A trace file, its id as `trace list` shows it, or `last`.")
    ] = "last",
) -> int:
    """Follow a running build from another terminal: the same board, until the build ends.

    Its exit code is the build's; `q` only quits watching, with 0. The build is not touched.
    """
    path = find_trace(trace)
    watched = watch_build(path, os.environ)
    following = watched.following
    if following.summary is None or following.header is None:
        return 0
    title = following.header.title or " ".join(following.header.command)
    summary = following.summary
    last = last_words(str(path)) if summary.result == "failed" else []
    print_notes(closing(summary, title=title, blame=following.blame, peak_mib=following.blame_mib, last=last))
    return summary.exit_code
