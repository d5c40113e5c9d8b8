"""The page's data: columns, so that two hours of a large build fit into little. Pure.

Shapes: a list a column, all columns of ``runs`` and of ``moments`` of one length each. Sizes are MiB, times seconds,
rounded to what a picture shows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from builddoctor.core.phase import STORE
from builddoctor.core.units import one_line
from builddoctor.trace.picture import GROUPS, Picture, Run

CSS_OF = {"cudafe++": "cudafe"}

OUTCOME_WORDS = {
    "ok": "ended well",
    "failed": "failed by itself",
    "killed-by-kernel": "killed by the kernel for memory",
    "killed-by-us": "ended by builddoctor",
    "killed-outside": "killed from outside",
    "killed-there": "too large for the machine that it was sent to",
    "node-lost": "lost with the machine that it was sent to",
    "withdrawn": "withdrawn with the build",
    "": "still ran when the trace stopped",
}
BAD_OUTCOMES = ("failed", "killed-by-kernel", "killed-by-us", "killed-outside", "killed-there", "node-lost", "")

ROOM_ABOVE = 1.12
FAR_LIMIT = 2.5
"""A limit more than this many peaks away would press the picture flat."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    css: str


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    unit: list[int]
    kind: list[str]
    arch: list[str]
    group: list[int]
    lane: list[int]
    start: list[float]
    end: list[float]
    peak: list[float]
    peak_s: list[float]
    estimate: list[float]
    reserve: list[float]
    waited: list[float]
    waited_for: list[str]
    outcome: list[int]
    attempt: list[int]
    place: list[str]
    """in words; empty for this machine"""


class Moments(msgspec.Struct, frozen=True, kw_only=True):
    at_s: list[float]
    held: list[list[float]]
    """by group"""
    holders: list[list[tuple[int, float]]]
    """run and its MiB, largest first"""
    budget: list[int]
    limit: list[int]
    room: list[int]
    running: list[int]
    waiting: list[int]
    threads: list[float]


class PageMark(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    kind: str
    text: str
    total: int


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """What the page's program reads."""

    groups: list[Group]
    units: list[str]
    runs: Runs
    moments: Moments
    marks: list[PageMark]
    outcomes: list[str]
    bad: list[int]
    open: int
    """the outcome of what still ran"""
    lanes: int
    end_s: float
    torn: bool
    peak: int
    """index of the fullest moment"""
    top_gib: float
    """upper end of the picture of memory"""


class Units(msgspec.Struct, frozen=True, kw_only=True):
    """Which run belongs to which unit; names without the folder that all share."""

    names: list[str]
    of_run: list[int]


def units_of(picture: Picture) -> Units:
    """Units in the order in which they first ran."""
    place: dict[str, int] = {}
    sources: list[str] = []
    of_run = []
    for run in picture.runs:
        key = run.unit_id or f"{run.source} {run.phase_id}"
        if key not in place:
            place[key] = len(sources)
            sources.append(one_line(run.source) or run.kind)
        of_run.append(place[key])
    return Units(names=short_names(sources), of_run=of_run)


def short_names(names: Sequence[str]) -> list[str]:
    """Without the folder that most of them share, and as given where that leaves too little."""
    absolute = sorted({os.path.dirname(name) for name in names if name.startswith("/")})
    if not absolute:
        return list(names)
    shared = os.path.commonpath(absolute)
    if shared in ("", "/"):
        return list(names)
    return [name.removeprefix(shared + "/") for name in names]


def place_of(run: Run) -> str:
    """Where it ran, in words; empty for this machine."""
    if not run.node:
        return ""
    return "from the store" if run.node == STORE else f"on {one_line(run.node)}"


def payload(picture: Picture, units: Units) -> Payload:
    """All columns."""
    moments = picture.moments
    outcomes = list(OUTCOME_WORDS)
    known = {outcome: index for index, outcome in enumerate(outcomes)}
    peak = max(range(len(moments)), key=lambda index: moments[index].total_mib, default=0)
    runs = picture.runs
    return Payload(
        groups=[Group(name=name, css=CSS_OF.get(name, name)) for name in GROUPS],
        units=units.names,
        runs=Runs(
            unit=units.of_run,
            kind=[one_line(run.kind) for run in runs],
            arch=[one_line(run.arch) for run in runs],
            group=[GROUPS.index(run.group) for run in runs],
            lane=[run.lane for run in runs],
            start=[round(run.start_s, 2) for run in runs],
            end=[round(run.end_s, 2) for run in runs],
            peak=[round(run.peak_mib, 1) for run in runs],
            peak_s=[round(run.peak_at_s, 2) for run in runs],
            estimate=[round(run.estimate_mib, 1) for run in runs],
            reserve=[round(run.reserve_mib, 1) for run in runs],
            waited=[round(run.waited_s, 1) for run in runs],
            waited_for=[one_line(run.waited_for) for run in runs],
            outcome=[known.get(run.outcome, known["failed"]) for run in runs],
            attempt=[run.attempt for run in runs],
            place=[place_of(run) for run in runs],
        ),
        moments=Moments(
            at_s=[round(each.at_s, 2) for each in moments],
            held=[[round(each.held_mib[group], 1) for each in moments] for group in range(len(GROUPS))],
            holders=[[(run, round(size, 1)) for run, size in each.holders if size >= 1.0] for each in moments],
            budget=[round(each.budget_mib) for each in moments],
            limit=[round(each.limit_mib) for each in moments],
            room=[round(max(each.room_mib, each.budget_mib)) for each in moments],
            running=[each.running for each in moments],
            waiting=[each.waiting for each in moments],
            threads=[round(each.threads, 1) for each in moments],
        ),
        marks=[
            PageMark(at_s=round(mark.at_s, 2), kind=mark.kind, text=one_line(mark.text), total=round(mark.total_mib))
            for mark in picture.marks
        ],
        outcomes=[OUTCOME_WORDS[outcome] for outcome in outcomes],
        bad=[known[outcome] for outcome in BAD_OUTCOMES],
        open=known[""],
        lanes=max(1, picture.lanes),
        end_s=round(picture.last_at_s, 2),
        torn=picture.summary is None,
        peak=peak,
        top_gib=round(top_mib(picture) / 1024, 2),
    )


def top_mib(picture: Picture) -> float:
    """Upper end of a picture of memory: the limit where it is near, else somewhat above what was held."""
    peak = max((each.total_mib for each in picture.moments), default=0.0)
    limit = max((each.limit_mib for each in picture.moments), default=picture.header.limit_mib)
    far = peak > 0 and limit > FAR_LIMIT * peak
    return max(1.0, 1.3 * peak if far else ROOM_ABOVE * max(peak, limit))


def encoded(data: Payload) -> str:
    """As JSON that can stand in a script element of any page, whatever names hold."""
    text = msgspec.json.encode(data).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def worst(runs: Sequence[Run]) -> Run:
    """The one with the largest peak."""
    return max(runs, key=lambda run: run.peak_mib)
