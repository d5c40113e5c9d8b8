"""Reads Chrome trace events as strictly as their format says, and as ui.perfetto.dev's importer does.

Rules, from the Trace Event Format and from what Perfetto says it takes: one JSON object; every event has its letter's
fields; slices of one thread nest or are apart, and ours are apart; flow events lie in a slice, a start before its end;
counters are numbers; asynchronous events come in pairs. Events need not be in order: readers sort them by time and,
at equal times, by their order in the file.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from typing import Any

FIELDS = {
    "X": {"ts", "dur", "pid", "tid", "name", "cat", "args"},
    "C": {"ts", "pid", "name", "args"},
    "M": {"ts", "pid", "name", "args"},
    "i": {"ts", "pid", "tid", "name", "s"},
    "s": {"ts", "pid", "tid", "name", "cat", "id"},
    "f": {"ts", "pid", "tid", "name", "cat", "id", "bp"},
    "b": {"ts", "pid", "name", "cat", "id"},
    "e": {"ts", "pid", "name", "cat", "id"},
}

Event = dict[str, Any]


def checked(document: bytes | str) -> list[Event]:
    """The events in the order in which a reader sees them, all rules checked."""
    whole = json.loads(document, parse_constant=_no_number)
    assert set(whole) <= {"traceEvents", "displayTimeUnit", "otherData"}
    events: list[Event] = whole["traceEvents"]
    for event in events:
        _check_fields(event)
    ordered = sorted(events, key=lambda event: event["ts"])
    _check_slices(ordered)
    _check_flows(ordered)
    _check_pairs(ordered)
    return ordered


def slices(events: list[Event]) -> list[Event]:
    return [event for event in events if event["ph"] == "X"]


def _no_number(word: str) -> float:
    raise AssertionError(f"{word} is no JSON")


def _check_fields(event: Event) -> None:
    letter = event["ph"]
    assert letter in FIELDS, event
    missing = FIELDS[letter] - set(event)
    assert not missing, (missing, event)
    for name in ("ts", "dur", "pid", "tid", "id"):
        if name in event:
            assert isinstance(event[name], int), event
            assert 0 <= event[name] < 2**53, event
    assert event["name"].isprintable(), event
    if letter == "C":
        assert event["args"], event
        assert all(isinstance(value, int | float) and math.isfinite(value) for value in event["args"].values()), event
    if letter == "i":
        assert event["s"] in ("g", "p", "t")
    for value in (event.get("args") or {}).values():
        assert isinstance(value, str | int | float), event
        assert not isinstance(value, str) or value.isprintable(), event


def _check_slices(ordered: list[Event]) -> None:
    free_from: dict[tuple[int, int], int] = defaultdict(int)
    for event in slices(ordered):
        lane = (event["pid"], event["tid"])
        assert event["ts"] >= free_from[lane], f"overlaps: {event}"
        free_from[lane] = event["ts"] + event["dur"]
    named = {(event["pid"], event["tid"]) for event in ordered if event["name"] == "thread_name"}
    assert set(free_from) <= named


def _check_flows(ordered: list[Event]) -> None:
    begun: dict[int, int] = {}
    topmost: dict[tuple[int, int], Event] = {}
    for event in ordered:
        lane = (event["pid"], event.get("tid", 0))
        if event["ph"] == "X":
            topmost[lane] = event
        elif event["ph"] in ("s", "f"):
            # Perfetto takes the slice that began last in the thread.
            around = topmost.get(lane)
            assert around is not None, f"no slice around {event}"
            assert around["ts"] <= event["ts"] <= around["ts"] + around["dur"], (event, around)
            if event["ph"] == "s":
                assert event["id"] not in begun
                begun[event["id"]] = event["ts"]
            else:
                assert event["bp"] == "e"
                assert begun.pop(event["id"]) <= event["ts"]
    assert not begun, "flows without an end"


def _check_pairs(ordered: list[Event]) -> None:
    open_ones: Counter[tuple[int, str, int, str]] = Counter()
    for event in ordered:
        if event["ph"] in ("b", "e"):
            key = (event["pid"], event["cat"], event["id"], event["name"])
            open_ones[key] += 1 if event["ph"] == "b" else -1
            assert open_ones[key] in (0, 1), event
    assert not +open_ones, "waits without an end"
