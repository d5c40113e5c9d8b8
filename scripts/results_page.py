"""Pages of docs/results: which machine measured, and what a person has written below the figures, which stays."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"

NOTES = "<!-- notes: begin -->"
"""What stands below it is not written by a bench."""


def machine(*more: str) -> str:
    """Cores, memory, kernel, ``more`` and Python."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.machine())
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024**3
    facts = [f"{os.cpu_count()} cores ({model})", f"{memory_gib:.0f} GiB", f"Linux {platform.release()}", *more]
    return ", ".join([*facts, f"Python {platform.python_version()}"])


def write_page(name: str, lines: Sequence[str]) -> None:
    """``docs/results/NAME.md``, with the notes that it has."""
    path = RESULTS / f"{name}.md"
    before = path.read_text() if path.exists() else ""
    notes = before.partition(NOTES)[2]
    path.write_text("\n".join(lines) + "\n" + (f"\n{NOTES}{notes}" if notes else ""))
