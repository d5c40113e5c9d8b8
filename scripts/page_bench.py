"""How large the page of a long build is, how long it takes to make, and to open in a real browser."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

LIMIT_MB, LIMIT_S = 6, 3


def page(runs: int) -> list[str]:
    """5,000 phases over two hours, and the usual small build beside it."""
    from support.made_traces import Made, many_units, usual_units

    builds = {
        "5,000 phases, 2 h": Made(units=list(many_units(1000)), cores=4, limit_mib=12288, budget_mib=11264),
        "81 phases, 4 min": Made(units=usual_units()),
    }
    lines = [
        "| build | trace MB | page MB | made in s | of which what-if s | opened in s, median (most) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as name:
        for title, build in builds.items():
            lines.append(_row(Path(name), title, build, runs))
            print(lines[-1], file=sys.stderr, flush=True)
    return [
        *lines,
        f"\nTargets: at most {LIMIT_MB} MB, opened in {LIMIT_S} s. Opened: from the start of loading the file to the",
        "pictures being drawn, in Chromium without a GPU, a new browser each time; what can be read is there before.",
    ]


def _row(folder: Path, title: str, build, runs: int) -> str:
    from builddoctor.cli.trace_export import page_of
    from builddoctor.simulate.what_if import what_if
    from builddoctor.trace.analysis import take_picture
    from builddoctor.trace.reader import TraceReader
    from support.made_traces import write_trace

    trace, file = folder / "trace.jsonl", folder / "page.html"
    write_trace(trace, build)
    began = time.monotonic()
    file.write_text(page_of(trace), encoding="utf-8")
    made_s = time.monotonic() - began
    picture = take_picture(TraceReader(trace))
    began = time.monotonic()
    what_if(picture)
    what_if_s = time.monotonic() - began
    opened = [_opened_s(file) for _ in range(runs)]
    sizes = [each.stat().st_size / 1e6 for each in (trace, file)]
    return (
        f"| {title} | {sizes[0]:.1f} | {sizes[1]:.1f} | {made_s:.1f} | {what_if_s:.1f} | "
        f"{statistics.median(opened):.2f} ({max(opened):.2f}) |"
    )


def _opened_s(file: Path) -> float:
    from support.chromium import Chromium

    with tempfile.TemporaryDirectory() as name, Chromium(Path(name)) as browser:
        browser.size(1280)
        browser.open(file)
        return browser.js("return performance.getEntriesByName('drawn')[0].startTime") / 1000
