"""A trace as the writer would write it of a very long build, and how long questions about it take."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builddoctor.core.events import (
    TRACE_SCHEMA,
    BuildEnded,
    BuildEvent,
    BuildResult,
    Header,
    MemorySampled,
    PhaseStarted,
    Status,
    Summary,
    UnitEnded,
)
from support import trace_events as tr

KINDS = ("preprocess", "cudafe++", "cicc", "ptxas", "host")
LANES = 64
STEP_S = 0.1
WRITE_LINES = 50_000


def long_build(phases: int, samples: int) -> Iterator[BuildEvent]:
    """``phases`` phases, ``LANES`` at a time, with ``samples`` points of memory curves, and a tick a second."""
    chance = random.Random(7)
    yield Header(
        at_s=0.0,
        schema=TRACE_SCHEMA,
        builddoctor="0.1.0",
        trace_id="bench1",
        started_at="2025-01-01T00:00:00+00:00",
        command=["ninja"],
        cwd="/src/big",
        title="big",
        archs=["sm_90"],
        cores=LANES,
        window=2 * LANES,
        budget_mib=2.0e5,
        limit_mib=2.2e5,
        limited_by="/sys/fs/cgroup/memory.max",
        page_kib=4,
    )
    each = samples // phases
    at_s = next_tick_s = 0.0
    for first in range(0, phases, LANES):
        batch = range(first, min(phases, first + LANES))
        for phase in batch:
            yield from _begin(phase, round(at_s, 4), len(batch))
        for step in range(each):
            at_s += STEP_S
            held = tuple((phase, round(20.0 * step + 300 * chance.random(), 1)) for phase in batch)
            held_mib = sum(rss_mib for _, rss_mib in held)
            yield MemorySampled(
                at_s=round(at_s, 4),
                rss_mib=held,
                held_mib=round(held_mib, 1),
                headroom_mib=round(2.1e5 - held_mib, 1),
                budget_mib=2.0e5,
                reserve_mib=2000.0,
            )
            if at_s >= next_tick_s:
                next_tick_s = at_s + 1
                yield _tick(round(at_s, 4), 20.0 * step * len(batch), len(batch))
        for phase in batch:
            yield tr.phase_ended(
                at_s=round(at_s, 4),
                phase_id=phase,
                outcome="ok",
                exit_code=0,
                peak_mib=round(20.0 * each + phase % 300, 1),
                wall_s=round(each * STEP_S, 3),
                cpu_s=round(each * STEP_S, 3),
            )
            if phase % len(KINDS) == len(KINDS) - 1:
                yield UnitEnded(at_s=round(at_s, 4), unit_id=f"u{phase // len(KINDS)}")
    yield BuildEnded(at_s=round(at_s, 4), summary=_summary(phases, at_s))


def _begin(phase: int, at_s: float, running: int) -> Iterator[BuildEvent]:
    unit, kind = phase // len(KINDS), KINDS[phase % len(KINDS)]
    source = f"/src/big/kernels/part{unit // 100}/kernel_{unit}.cu"
    if kind == KINDS[0]:
        yield tr.unit_began(at_s, f"u{unit}", source, archs=["sm_90"])
    yield from tr.phase_asked(
        at_s=at_s,
        phase_id=phase,
        unit_id=f"u{unit}",
        kind=kind,
        tool=kind,
        source=source,
        arch="sm_90" if kind in ("cicc", "ptxas") else "",
        input_mib=1.5,
        argv_digest="0123456789abcdef",
        estimate_mib=1500.0,
        reserve_mib=1800.0,
        estimate_source="prior: input size",
    )
    yield tr.admitted(at_s, phase, 1800.0, waited_s=0.3, running=running)
    yield PhaseStarted(at_s=at_s, phase_id=phase, pid=1000 + phase)


def _tick(at_s: float, ours_mib: float, running: int) -> Status:
    return Status(
        at_s=at_s,
        budget_mib=2.0e5,
        limit_mib=2.2e5,
        headroom_mib=2.1e5 - ours_mib,
        ours_mib=ours_mib,
        running=running,
        waiting=3,
        open_units=running,
        oom_kills=0,
    )


def _summary(phases: int, wall_s: float) -> Summary:
    return Summary(
        result=BuildResult.OK,
        exit_code=0,
        wall_s=wall_s,
        cpu_s=1e5,
        budget_mib=2.0e5,
        limit_mib=2.2e5,
        peak_mib=1.3e5,
        kernel_oom_kills=0,
        requeued=0,
        killed=0,
        units=phases // len(KINDS),
        phases=phases,
        effective_jobs_mean=LANES,
        effective_jobs_max=LANES,
        gate_overhead_s=100.0,
        gate_peak_mib=9.0,
        gates=phases,
        trace="big.jsonl",
    )


def write_long_trace(path: Path, phases: int, samples: int, *, torn: bool = False) -> None:
    """``torn``: without its end, in the middle of a line."""
    encode = msgspec.json.Encoder().encode
    lines: list[bytes] = []
    with path.open("wb") as file:
        for record in long_build(phases, samples):
            lines.append(encode(record) + b"\n")
            if len(lines) >= WRITE_LINES:
                file.write(b"".join(lines))
                lines.clear()
        file.write(b"".join(lines))
        if torn:
            file.truncate(int(0.999 * file.tell()))


def trace(phases: int, samples: int, runs: int) -> list[str]:
    """Wall and processor time and memory of each question, the median of ``runs``; the file is in the page cache."""
    lines = ["| trace | question | wall s | processor s | peak MiB |", "| --- | --- | --- | --- | --- |"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        traces = folder / "state" / "traces"
        traces.mkdir(parents=True)
        env = {**os.environ, "BUILDDOCTOR_STATE_DIR": str(folder / "state")}
        for torn in (False, True):
            path = folder / "big.jsonl"
            write_long_trace(path, phases, samples, torn=torn)
            what = f"{phases} phases, {samples} samples, {path.stat().st_size / 1e6:.0f} MB" + (
                ", torn" if torn else ""
            )
            for question in (["show"], ["show", "--json"], ["units"], ["units", "--json"]):
                figures = sorted(_asked([question[0], str(path), *question[1:]], env) for _ in range(runs))
                lines.append(_row(what, " ".join(question), figures[len(figures) // 2]))
        small = folder / "small.jsonl"
        write_long_trace(small, 300, 3000)
        for number in range(500):
            os.link(small, traces / f"20250101-000000.{number:03}-{number:06x}.jsonl")
        figures = sorted(_asked(["list"], env) for _ in range(runs))
        lines.append(_row("500 traces", "list", figures[len(figures) // 2]))
    return lines


def _row(what: str, question: str, figures: tuple[float, float, float]) -> str:
    wall_s, cpu_s, peak_mib = figures
    return f"| {what} | `trace {question}` | {wall_s:.2f} | {cpu_s:.2f} | {peak_mib:.0f} |"


def _asked(arguments: list[str], env: dict[str, str]) -> tuple[float, float, float]:
    """Wall seconds, processor seconds, peak MiB of one question."""
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "builddoctor", "trace", *arguments], env=env, stdout=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"trace {' '.join(arguments)} gave {process.returncode}")
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
