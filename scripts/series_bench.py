"""The example with real nvcc, many builds in a row, in a memory cgroup of 1.15 times its largest phase.

Cold and warm in turn, and between them ninja alone with each fixed ``-j`` that survives: machines get slower and faster
in half an hour. A build in which the kernel killed anything has not survived.
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


def as_installed(cache: Path) -> dict[str, str]:
    """An environment in which Python keeps what it compiled, as pip leaves a package."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**env, "PYTHONPYCACHEPREFIX": str(cache / "compiled")}


def supervised(folder: Path, group: MemoryCgroup, state: Path) -> tuple[float, int, dict[str, object]]:
    """Seconds, kernel kills and the summary of one build with builddoctor."""
    build, summary, before = configured(folder), folder / "summary.json", group.kernel_kills
    env = {**as_installed(folder.parent), "XDG_STATE_HOME": str(state), "XDG_DATA_HOME": str(state)}
    began = time.monotonic()
    group.run([*BUILDER, "run", "--summary", str(summary), "--", "ninja", "-C", str(build)], env=env)
    took_s = time.monotonic() - began
    return took_s, group.kernel_kills - before, json.loads(summary.read_text())


STATIC_EVERY = 5
"""rounds: one cold build and one warm"""


def series(builds: int, most_jobs: int = 3) -> list[str]:
    """Lines of a report."""
    limit_mib = SHARE * LARGEST_MIB
    lines = [f"A cgroup of {limit_mib:.0f} MiB, {SHARE} times the largest phase ({LARGEST_MIB} MiB).\n"]
    lines += ["| build | wall s | kernel kills | result | redone |", "| --- | --- | --- | --- | --- |"]
    survived: dict[int, list[float]] = {jobs: [] for jobs in range(1, most_jobs + 1)}
    times: dict[str, list[float]] = {"cold": [], "warm": []}

    def say(row: str) -> None:
        lines.append(row)
        print(row, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as name, memory_cgroup(int(limit_mib * 1024**2)) as group:
        folder = copied(Path(name) / "example")
        subprocess.run([*BUILDER, "run", "--", "true"], env=as_installed(Path(name)), check=True, capture_output=True)

        def static() -> None:
            for jobs in list(survived):
                took_s, kills, code = fixed(folder, group, jobs)
                say(f"| ninja -j{jobs} | {took_s:.1f} | {kills} | {'ok' if code == 0 else 'failed'} | - |")
                survived[jobs].append(took_s)
                if code or kills:
                    del survived[jobs]

        for number in range(1, builds + 1):
            if number % STATIC_EVERY == 1:
                static()
            for kind in times:
                state = Path(name) / ("warm" if kind == "warm" else f"cold-{number}")
                if kind == "warm" and number == 1:
                    shutil.copytree(Path(name) / "cold-1", state)
                took_s, kills, summary = supervised(folder, group, state)
                times[kind].append(took_s)
                say(f"| {kind} {number} | {took_s:.1f} | {kills} | {summary['result']} | {summary['requeued']} |")
        static()
    best_s = min(map(statistics.median, survived.values()), default=float("nan"))
    for kind, took in times.items():
        middle_s = statistics.median(took)
        ratio = best_s / middle_s
        lines.append(f"\n{kind}: median {middle_s:.1f} s, {ratio:.2f} times as fast as the best -j that survives.")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--builds", type=int, default=20)
    print("\n".join(series(parser.parse_args().builds)))
