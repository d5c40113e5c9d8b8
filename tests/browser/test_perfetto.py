"""The export opened in the real Perfetto: its trace processor takes all of it, without an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from browser.conftest import BUILDS, made
from builddoctor.trace.exports.perfetto import perfetto_json
from builddoctor.trace.reader import TraceReader
from support.chromium import Chromium
from support.made_traces import write_trace
from support.perfetto import opened

pytestmark = pytest.mark.needs_chromium

ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
SLICES = "select count(*) from slice join thread_track on slice.track_id = thread_track.id"
LANES = "select count(distinct track_id) from slice join thread_track on slice.track_id = thread_track.id"
WAITS = "select count(*) from slice where track_id not in (select id from thread_track)"
COUNTERS = "select count(*) from counter"
FLOWS = "select count(*) from flow"
LINKED = """
select count(*) from flow
join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id where a.ts <= b.ts
"""


@pytest.mark.parametrize("build", BUILDS)
def test_perfetto_takes_every_event(build: str, browser: Chromium, tmp_path: Path) -> None:
    """As many slices, samples of counters and flows as were written; none out of order, none lost."""
    exported = b"".join(perfetto_json(TraceReader(write_trace(tmp_path / "trace.jsonl", made(build)))))
    events = json.loads(exported)["traceEvents"]

    def written(letter: str) -> list[dict]:
        return [event for event in events if event["ph"] == letter]

    with opened(browser, exported) as perfetto:
        found = perfetto.ask(ERRORS, SLICES, LANES, WAITS, COUNTERS, FLOWS, LINKED)
    errors, *counts = found
    slices, lanes, waits, counters, flows, linked = (rows[0][0] for rows in counts)
    assert errors == []
    assert slices == len(written("X"))
    assert lanes == len({(event["pid"], event["tid"]) for event in written("X")})
    assert waits == len(written("b")) + len(written("i"))
    assert counters == sum(len(event["args"]) for event in written("C"))
    assert flows == linked == len(written("s")) > 0
