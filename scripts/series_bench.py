"""The example with real nvcc, many builds in a row, in a memory cgroup of 1.15 times its largest phase.

Beside them ninja alone with fixed ``-j``; a build in which the kernel killed anything has not survived. Those that
survive are built again between the others and at the end: machines get slower and faster in half an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.memcg import MemoryCgroup, memory_cgroup  # noqa: E402

EXAMPLE = ROOT / "examples" / "attention_kernels"
LARGEST_MIB = 2282
"""The host compile of attention_backward.cu, by the trace of a build in plenty of memory."""

SHARE = 1.15
BUILDER = [sys.executable, "-m", "builddoctor"]


def copied(folder: Path) -> Path:
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("build", "dist"))
    return folder


def configured(folder: Path) -> Path:
    build = folder / "build"
    shutil.rmtree(build, ignore_errors=True)
    command = ["cmake", "-S", str(folder), "-B", str(build), "-G", "Ninja", "-DCMAKE_CUDA_ARCHITECTURES=90"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return build


def fixed(folder: Path, group: MemoryCgroup, jobs: int) -> tuple[float, int, int]:
    """Seconds, kernel kills, exit status of ninja alone."""
    build, before, began = configured(folder), group.kernel_kills, time.monotonic()
    result = group.run(["ninja", "-C", str(build), f"-j{jobs}"])
    return time.monotonic() - began, group.kernel_kills - before, result.returncode


def supervised(folder: Path, group: MemoryCgroup, state: Path) -> tuple[float, int, dict[str, object]]:
    """Seconds, kernel kills and the summary of one build with builddoctor."""
    build, summary, before = configured(folder), folder / "summary.json", group.kernel_kills
    env = {**os.environ, "XDG_STATE_HOME": str(state), "XDG_DATA_HOME": str(state)}
    began = time.monotonic()
    group.run([*BUILDER, "run", "--summary", str(summary), "--", "ninja", "-C", str(build)], env=env)
    took_s = time.monotonic() - began
    return took_s, group.kernel_kills - before, json.loads(summary.read_text())


def series(builds: int, most_jobs: int = 3) -> list[str]:
    """Lines of a report."""
    limit_mib = SHARE * LARGEST_MIB
    lines = [f"A cgroup of {limit_mib:.0f} MiB, {SHARE} times the largest phase ({LARGEST_MIB} MiB).\n"]
    lines += ["| build | wall s | kernel kills | result | redone |", "| --- | --- | --- | --- | --- |"]
    survived: dict[int, list[float]] = {}
    medians: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, memory_cgroup(int(limit_mib * 1024**2)) as group:
        folder = copied(Path(name) / "example")

        def alone(jobs: int) -> None:
            took_s, kills, code = fixed(folder, group, jobs)
            lines.append(f"| ninja -j{jobs} | {took_s:.1f} | {kills} | {'ok' if code == 0 else 'failed'} | - |")
            print(lines[-1], file=sys.stderr, flush=True)
            survived.setdefault(jobs, []).append(took_s)
            if code or kills:
                del survived[jobs]

        for jobs in range(1, most_jobs + 1):
            alone(jobs)
        for kind in ("cold", "warm"):
            times: list[float] = []
            for number in range(1, builds + 1):
                state = Path(name) / ("warm" if kind == "warm" else f"cold-{number}")
                if kind == "warm" and number == 1:
                    shutil.copytree(Path(name) / "cold-1", state)
                took_s, kills, summary = supervised(folder, group, state)
                times.append(took_s)
                row = f"| {kind} {number} | {took_s:.1f} | {kills} | {summary['result']} | {summary['requeued']} |"
                lines.append(row)
                print(row, file=sys.stderr, flush=True)
            medians[kind] = statistics.median(times)
            for jobs in list(survived):
                alone(jobs)
    best_s = min(map(statistics.median, survived.values()), default=float("nan"))
    for kind, median_s in medians.items():
        ratio = best_s / median_s
        lines.append(f"\n{kind}: median {median_s:.1f} s, {ratio:.2f} times as fast as the best -j that survives.")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--builds", type=int, default=20)
    print("\n".join(series(parser.parse_args().builds)))
