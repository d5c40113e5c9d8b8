"""Runaways made small: real compilers, a real build under a real limit, real C-Vise (``scripts/bench reduce``).

Needs root, memory cgroups, nvcc and C-Vise.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from support.memcg import memory_cgroup  # noqa: E402
from support.program import Program  # noqa: E402
from support.runaway_source import runaway_source  # noqa: E402

LIMIT_MIB = 2048
HEAD = (
    "| program | held at its end MiB | must go beyond MiB | lines before | bytes before | trials of the sweep | took s "
    "| ended by | lines after | bytes after | the result holds MiB | after s |\n|" + " --- |" * 12
)
BUILDS = (
    ("cudafe++", "plans.cu", ["nvcc", "-std=c++17", "-c", "plans.cu", "-o", "plans.o"]),
    ("cc1plus", "plans.cpp", ["g++", "-std=c++17", "-c", "plans.cpp", "-o", "plans.o"]),
)


def reduce(beyond: str, total: str) -> list[str]:
    """A table row for each compiler, and what is left of its input."""
    rows, texts = [], []
    for tool, name, command in BUILDS:
        with tempfile.TemporaryDirectory(prefix="bd-reduce-") as folder:
            row, text = _row(Path(folder), tool, name, command, beyond, total)
        rows.append(row)
        texts += ["", f"What is left for {tool}:", "", "```cpp", text.rstrip("\n"), "```"]
        print(row, file=sys.stderr, flush=True)
    source = runaway_source(cuda=True)
    return [
        f"A source of {source.count(chr(10))} lines of ordinary code that hides a recursion over lists of types",
        "(public reports of compilers that ran out of memory show this kind), built under a cgroup's limit of",
        f"{LIMIT_MIB // 1024} GiB; then, on the input that was kept, `builddoctor trace repro --reduce",
        f"--beyond {beyond} --time {total}`. Lines and bytes are of the preprocessed input.",
        "",
        HEAD,
        *rows,
        *texts,
    ]


def _row(folder: Path, tool: str, name: str, command: list[str], beyond: str, total: str) -> tuple[str, str]:
    program = Program(folder)
    (folder / name).write_text(runaway_source(cuda=name.endswith(".cu")))
    with memory_cgroup(LIMIT_MIB * 1024**2) as group:
        group.run(program.supervised(*command, options=["--no-doctor"]), env=program.env, cwd=folder)
    began_s = time.monotonic()
    words = ["trace", "repro", str(program.trace_file), "-o", "sent", "--reduce", "--beyond", beyond, "--time", total]
    done = subprocess.run(
        program.argv(*words, "--json"), cwd=folder, env=program.env, stdout=subprocess.PIPE, text=True, check=True
    )
    took_s = time.monotonic() - began_s
    said = json.loads(done.stdout)
    assert said["tool"].endswith(tool)
    assert said["input"] == "kept"
    small = said["reduced"]
    units = json.loads(program.run("trace", "units", str(program.trace_file), "--json").stdout)
    held_mib = max(phase["peak_mib"] for unit in units for phase in unit["phases"])
    cells = (
        tool,
        f"{held_mib:.0f}",
        f"{small['beyond_mib']:.0f}",
        f"{small['before_lines']:,}",
        f"{small['before_bytes']:,}",
        small["trials"],
        f"{took_s:.0f}",
        "itself" if small["ended"] == "done" else small["ended"],
        small["after_lines"],
        small["after_bytes"],
        f"{small['peak_mib']:.0f}{', and grows' if small['grows_on'] else ''}",
        f"{small['wall_s']:.1f}",
    )
    return f"| {' | '.join(map(str, cells))} |", (folder / "sent" / small["file"]).read_text()
