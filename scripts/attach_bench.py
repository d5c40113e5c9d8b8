"""``builddoctor attach`` beside builds that know nothing of it: the example, plain ninja.

What it says against what came: units done against ninja's own log, time left against the end of the last unit, the
processor time that it takes; kernel kills with ``--guard`` and without, in pairs, in a cgroup that is too small.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from series_bench import configured, copied

from builddoctor.core.events import Status, UnitBegan, UnitEnded
from builddoctor.toolchain.ninja_log import NinjaLog
from builddoctor.trace.reader import TraceReader
from support.memcg import MemoryCgroup, memory_cgroup

ROOMY_MIB, TIGHT_MIB = 7168, 2816
JOBS = 4
BUILDER = [sys.executable, "-m", "builddoctor"]


def attach(runs: int, pairs: int) -> list[str]:
    """Lines of the result."""
    with tempfile.TemporaryDirectory() as name:
        source = copied(Path(name) / "example")
        return [*_watched(source, runs), *_guarded(source, pairs)]


def _attached(
    source: Path, group: MemoryCgroup, flags: Sequence[str], words: Sequence[str]
) -> tuple[Path, Path, float, float]:
    """A plain build, attached to from the start: its folder, the trace, and processor and wall time of ours."""
    build = configured(source)
    trace = source / "attach.jsonl"
    plain = subprocess.Popen(group.wrapped(["ninja", "-C", str(build), *words]), stdout=subprocess.DEVNULL)
    began = time.monotonic()
    ours = subprocess.Popen(
        [*BUILDER, "attach", str(plain.pid), "--trace", str(trace), *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, _, usage = os.wait4(ours.pid, 0)
    took_s = time.monotonic() - began
    plain.wait()
    return build, trace, usage.ru_utime + usage.ru_stime, took_s


def _watched(source: Path, runs: int) -> list[str]:
    lines = [
        f"Beside `ninja -j{JOBS}` in {ROOMY_MIB} MiB. A look is one second's; units are right where they are as many",
        "as ninja's log had by then; time left is right where the last unit ended within the range that was said.\n",
        "| run | looks | units right | off at most | looks with time left | within its range | of a core |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    with memory_cgroup(ROOMY_MIB * 1024 * 1024) as group:
        for run in range(runs):
            build, trace, cpu_s, took_s = _attached(source, group, (), [f"-j{JOBS}"])
            ends = sorted(done.end_s for done in NinjaLog(build / ".ninja_log").new() if done.output.endswith(".o"))
            looks, exact, off, told, within = 0, 0, 0, 0, 0
            counted, units = set(), 0
            for event in TraceReader(trace):
                if isinstance(event, UnitBegan) and event.unit.counted:
                    counted.add(event.unit.unit_id)
                elif isinstance(event, UnitEnded):
                    units += event.unit_id in counted
                elif isinstance(event, Status):
                    looks += 1
                    wrong = abs(units - sum(end_s <= event.at_s - 0.02 for end_s in ends))
                    exact, off = exact + (wrong == 0), max(off, wrong)
                    if event.left_s is not None:
                        told += 1
                        # The last unit may have ended since ninja's log was read.
                        within += event.left_s[0] <= max(0.0, ends[-1] - event.at_s) <= event.left_s[1]
            share = 100 * cpu_s / took_s
            lines.append(f"| {run + 1} | {looks} | {exact} | {off} | {told} | {within} | {share:.2f} % |")
    return lines


def _guarded(source: Path, pairs: int) -> list[str]:
    lines = [
        f"\n`ninja -j{JOBS} -k 0` in {TIGHT_MIB} MiB, where four of its compilers do not fit: attached to without and",
        "with `--guard`, in turn.\n",
        "| pair | kernel kills without | with | objects made without | with | seconds without | with |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    sums = [0, 0]
    with memory_cgroup(TIGHT_MIB * 1024 * 1024) as group:
        for pair in range(pairs):
            found = {}
            for guard in (False, True) if pair % 2 == 0 else (True, False):
                before, began = group.kernel_kills, time.monotonic()
                build, _, _, _ = _attached(source, group, ["--guard"] if guard else [], [f"-j{JOBS}", "-k", "0"])
                made = len(list(build.glob("CMakeFiles/*.dir/**/*.o")))
                found[guard] = (group.kernel_kills - before, made, time.monotonic() - began)
            for guard in (False, True):
                sums[guard] += found[guard][0]
            cells = (f"{found[False][index]:.0f} | {found[True][index]:.0f}" for index in range(3))
            lines.append(f"| {pair + 1} | {' | '.join(cells)} |")
    return [*lines, f"\nKernel kills in all: {sums[0]} without, {sums[1]} with."]
