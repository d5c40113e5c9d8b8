"""Pages of four builds, and a browser for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from builddoctor.cli.trace_export import page_of
from support.chromium import Chromium
from support.made_traces import Made, usual_units, write_trace

BUILDS = ("good", "oom", "runaway", "torn")


def made(name: str) -> Made:
    """A build that went well (with one kill on the way), that did not fit, that ran away, that was cut off."""
    if name == "good":
        return Made(units=usual_units(hadamard_cast_fusion={"cicc": "killed-once"}))
    if name == "oom":
        units = usual_units(cutlass_grouped_gemm={"cicc": "too-big"})
        return Made(units=units, limit_mib=4096, budget_mib=3686)
    if name == "runaway":
        units = [
            (
                source,
                [
                    msgspec.structs.replace(work, peak_mib=6900.0, wall_s=180.0) if work.fate == "runaway" else work
                    for work in phases
                ],
            )
            for source, phases in usual_units(gelu={"cudafe": "runaway"})
        ]
        return Made(units=units)
    return Made(units=usual_units(), stop_at_s=66.0)


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of each build."""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name in BUILDS:
        trace = write_trace(folder / f"{name}.jsonl", made(name))
        found[name] = folder / f"{name}.html"
        found[name].write_text(page_of(trace), encoding="utf-8")
    return found


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    """1280 pixels wide, light."""
    with Chromium(tmp_path) as chromium:
        chromium.size(1280)
        chromium.prefer("light")
        yield chromium
