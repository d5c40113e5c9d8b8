"""``builddoctor attach [PID]``: a board for a build that was started without us, with a verdict, and a guard if wanted.

Does *not* cover: looking at it (``attach``), showing it (``cli.following``).
"""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from builddoctor.attach.attached import Attached
from builddoctor.attach.find import find_build
from builddoctor.cli.following import Following
from builddoctor.cli.output import print_notes
from builddoctor.core.board import EventRow
from builddoctor.core.errors import UsageError
from builddoctor.core.events import BuildResult, Summary
from builddoctor.core.units import counted, format_clock, format_gib
from builddoctor.gates.stopping import why_not
from builddoctor.system.root import SystemRoot, monotonic


def attach(
    pid: Annotated[
        int | None, typer.Argument(metavar="PID", help="Any process of the build; without, the only build that runs.")
    ] = None,
    guard: Annotated[
        bool,
        typer.Option(
            "--guard", help="Stop compilers for a while when memory runs short, and let them go on. None is ended."
        ),
    ] = False,
    trace: Annotated[str, typer.Option("--trace", metavar="FILE", help="Where to write the trace.")] = "",
) -> int:
    """Show a build that was started without builddoctor: how far it is, whether it hangs, what threatens it.

    Without --guard the build is not touched. `q` or Ctrl-C leaves it alone again. The exit code is 1 where the build
    ended undone, as far as can be seen from outside.

    \b
    Examples:
      builddoctor attach                            # the only build that runs
      builddoctor attach 4711 --guard               # stop compilers for a while when memory runs short
    """
    top = find_build(SystemRoot(), pid)
    if top.supervised:
        raise UsageError(
            f"{top.title} (pid {top.pid}) runs under builddoctor already", hint="`builddoctor watch` shows its board"
        )
    if guard and (reason := why_not(top.pid)):
        raise UsageError(
            f"--guard could not stop the compilers of {top.title} (pid {top.pid}): {reason}",
            hint=f"as root: `builddoctor attach {top.pid} --guard`; without --guard it is shown all the same",
        )
    if not top.builds:
        print_notes([f"· {top.title} (pid {top.pid}) is no build tool, and compiles nothing yet: shown all the same"])
    attached = Attached(top, os.environ, guard=guard, trace=trace)
    summary: Summary | None = None
    try:
        summary = attached.end(left=asyncio.run(_shown(attached)))
    finally:
        if summary is None:
            attached.end(left=True)
    print_notes(_closing(summary, top.title, attached.state.planned, attached.undone))
    return summary.exit_code


async def _shown(attached: Attached) -> bool:
    """Until it ends; True where it was left."""

    async def look() -> bool:
        return attached.look()

    def fresh() -> list[EventRow]:
        rows, attached.fresh = attached.fresh, []
        return rows

    following = Following(
        os.environ, monotonic, look=look, state=attached.picture, fresh=fresh, every_s=lambda: attached.every_s
    )
    await following.show()
    return following.quit


def _closing(summary: Summary, title: str, planned: int | None, undone: int) -> list[str]:
    of = f"{planned - undone} of {planned}" if planned is not None and undone else str(summary.units)
    took = format_clock(summary.wall_s)
    if summary.result is BuildResult.INTERRUPTED:
        head = f"· {title} goes on; it has run for {took}"
    elif summary.result is BuildResult.OK:
        head = f"✓ {title} has ended after {took}; how, only what started it knows"
    elif summary.kernel_oom_kills:
        kills = counted(summary.kernel_oom_kills, "process")
        head = f"✗ {title} has ended after {took}: the kernel killed {kills} in its memory limit"
    else:
        head = f"✗ {title} has ended after {took}, with units undone"
    paused = f" · {counted(summary.paused, 'pause')}" if summary.paused else ""
    peak = f"peak {format_gib(summary.peak_mib)} of {format_gib(summary.limit_mib)} GiB, as far as seen"
    figures = f"  units {of} · {peak} · kernel kills {summary.kernel_oom_kills}{paused}"
    lines = [head, figures, f"  trace   {summary.trace}"]
    if summary.result is BuildResult.FAILED and summary.kernel_oom_kills:
        lines.append(
            "  next    builddoctor run -- THE SAME COMMAND, where no compiler starts before its memory is there"
        )
    return lines
