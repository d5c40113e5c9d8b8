"""The picture of memory as a file of its own: PNG for a report or a chat, SVG for a document.

The same colours, patterns and marks as on the page. Needs matplotlib, an extra (`pictures`).
"""

from __future__ import annotations

import io
import logging
import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from builddoctor.core.errors import ExtraMissingError
from builddoctor.core.phase import kind_words
from builddoctor.core.units import format_clock, format_mib, one_line
from builddoctor.trace.picture import GROUPS, Mark, Picture
from builddoctor.ui.page.payload import top_mib
from builddoctor.ui.page.words import Words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Kind = Literal["png", "svg"]

COLOURS = ("#0072b2", "#e69f00", "#d55e00", "#009e73", "#cc79a7", "#8a8f94")
PATTERNS = ("", "//", "xx", "..", "\\\\", "--")
SIZE_INCHES = (11.0, 5.2)
PIXELS_PER_INCH = 150
LONGEST_LINE = 110


def drawn(picture: Picture, words: Words, kind: Kind) -> bytes:
    """The file's bytes. Raises ExtraMissingError where matplotlib is missing."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, MultipleLocator
    except ImportError as error:
        raise ExtraMissingError(
            f"drawing a {kind} needs matplotlib, which is not installed",
            hint="`python -m pip install matplotlib`",
        ) from error
    # Names of files are no formulas; the same trace gives the same file; text stays text.
    settings = {"text.parse_math": False, "svg.hashsalt": "builddoctor", "svg.fonttype": "none", "hatch.linewidth": 0.6}
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with rc_context(settings), warnings.catch_warnings():
        # A name may have signs that no font has: they are boxes then.
        warnings.simplefilter("ignore")
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        axes = figure.subplots()
        _memory(axes, picture)
        _lines(axes, picture)
        _marks(axes, picture)
        axes.set_title(_cut(f"{words.label}: {words.headline}"), loc="left", fontsize=11, fontweight="bold")
        axes.set_ylabel("Memory, GiB")
        whole_s = max(1.0, 1.01 * picture.last_at_s)
        axes.set_xlim(0, whole_s)
        axes.xaxis.set_major_locator(MultipleLocator(_step_s(whole_s)))
        axes.set_ylim(0, top_mib(picture) / 1024)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_clock(value)))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=9, frameon=False, fontsize=9)
        file = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": "builddoctor"}
        figure.savefig(file, format=kind, dpi=PIXELS_PER_INCH, metadata=metadata)
    return file.getvalue()


def _memory(axes: Axes, picture: Picture) -> None:
    moments = picture.moments
    times = [each.at_s for each in moments]
    floor = [0.0] * len(moments)
    for at, group in enumerate(GROUPS):
        roof = [low + each.held_mib[at] / 1024 for low, each in zip(floor, moments, strict=True)]
        if roof != floor:
            axes.fill_between(
                times,
                floor,
                roof,
                step="post",
                facecolor=COLOURS[at],
                hatch=PATTERNS[at],
                edgecolor="#1b1e2266",
                linewidth=0,
                label=group,
            )
        floor = roof


def _lines(axes: Axes, picture: Picture) -> None:
    moments = picture.moments
    times = [each.at_s for each in moments]
    budget = [each.budget_mib / 1024 for each in moments]
    axes.fill_between(
        times,
        budget,
        [max(each.room_mib, each.budget_mib) / 1024 for each in moments],
        step="post",
        facecolor="none",
        edgecolor="#b9bec3",
        hatch="///",
        linewidth=0,
        label="reserve",
    )
    axes.step(times, budget, where="post", color="#1b1e22", linestyle="--", linewidth=1.4, label="budget")
    limit = [each.limit_mib / 1024 for each in moments]
    axes.step(times, limit, where="post", color="#a3211b", linewidth=1.8, label="limit")


def _marks(axes: Axes, picture: Picture) -> None:
    kills = [mark for mark in picture.marks if mark.kind in ("kill", "ended")]
    if kills:
        axes.plot(
            [mark.at_s for mark in kills],
            [mark.total_mib / 1024 for mark in kills],
            linestyle="none",
            marker="X",
            markersize=9,
            color="#a3211b",
            markeredgecolor="white",
            label="killed",
            zorder=5,
        )
    for mark in _apart(kills, 0.1 * picture.last_at_s):
        axes.annotate(
            "killed" if mark.kind == "kill" else "ended",
            (mark.at_s, mark.total_mib / 1024),
            xytext=(0, 8),
            textcoords="offset points",
            ha="center",
            color="#a3211b",
            fontsize=9,
        )
    fullest = max(picture.moments, key=lambda each: each.total_mib, default=None)
    if fullest is None or not fullest.holders:
        return
    run = picture.runs[fullest.holders[0][0]]
    left = fullest.at_s > 0.5 * picture.last_at_s
    what = f"peak {format_mib(fullest.total_mib)}: {kind_words(run.kind, run.arch)}"
    axes.annotate(
        _cut(f"{what} of {run.source.rpartition('/')[2]} {format_mib(fullest.holders[0][1])}"),
        (fullest.at_s, fullest.total_mib / 1024),
        xytext=(-30 if left else 30, 16),
        textcoords="offset points",
        ha="right" if left else "left",
        fontsize=9,
        arrowprops={"arrowstyle": "->"},
        bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": "#d9dcdf"},
        zorder=6,
    )
    if picture.summary is None:
        axes.axvline(picture.last_at_s, color="#7a4d00", linestyle=":", linewidth=2, label="the trace stops here")


def _step_s(whole_s: float) -> float:
    """Between two figures on the axis of time: a step that people count in, and a dozen at most."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 86400)
    return next((step for step in steps if whole_s / step <= 12), whole_s / 6)


def _apart(marks: list[Mark], least_s: float) -> list[Mark]:
    """Those that have room for words."""
    return marks[:1] + [after for before, after in pairwise(marks) if after.at_s - before.at_s >= least_s]


def _cut(text: str) -> str:
    clean = one_line(text)
    return clean if len(clean) <= LONGEST_LINE else clean[: LONGEST_LINE - 1] + "…"
