"""What the supervisor itself costs: sampling, answering gates, and memory after many phases. For ``scripts/bench``.

The sampler is the real one, in a session of its own, over real processes. Gates and phases go through a real
``builddoctor run``, whose build command is ``gate_clients.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from builddoctor.core.events import Status
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.gates.protocol import Asked
from builddoctor.runtime.sampler import Rules, collector_held_back
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.root import SystemRoot, monotonic, page_size
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.state import BuildState
from builddoctor.trace.writer import TraceWriter
from support.schedulers import scheduler_of
from unit.runtime.sessions import build_of

ROOT = Path(__file__).resolve().parents[1]
CLIENTS = ROOT / "scripts" / "gate_clients.py"

PROCESSES = 600
TOUCHED_MIB = 2
MOVING = 60
MOVED_MIB = 24
GROUP_MIB = 6144
PERIOD_S = 0.1
REST_S = Rules().rest_s
WINDOWS, WINDOW_S = 3, 10.0

CHILDREN = """
import mmap, os, signal, sys, time
count, moving, touched, moved = map(int, sys.argv[1:])
def memory(size):
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area[::4096] = b"x" * (size // 4096)
    return area
pids = []
for number in range(count):
    pid = os.fork()
    if pid == 0:
        os.close(0), os.close(1)
        kept = memory(touched << 20)
        while number < moving:
            more = memory(moved << 20)
            time.sleep(0.5)
            more.close()
            time.sleep(0.5)
        signal.pause()
    pids.append(pid)
print(os.getpid(), *pids, flush=True)
sys.stdin.read()
for pid in pids:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""


def sampler() -> list[str]:
    """Real processes, the real sampler ten times a second."""
    rows = []
    for moving in (0, MOVING):
        with _children(moving) as (parent, pids, where):
            shares = asyncio.run(_sample(parent, pids))
        figures = " | ".join(f"{100 * share:.2f} %" for share in shares)
        rows.append(f"| {moving} | {figures} | **{100 * statistics.median(shares):.2f} %** |")
        print(rows[-1], file=sys.stderr, flush=True)
    windows = " | ".join(f"window {number + 1}" for number in range(WINDOWS))
    return [
        f"{PROCESSES} processes that hold {TOUCHED_MIB} MiB of their own ({where}), each the tool of a running phase;",
        f"{1 / PERIOD_S:.0f} samples a second for {WINDOW_S:.0f} s a window, in the event loop, with limits, scheduler",
        "and trace. Processor time of all threads as a share of one core (target: below 2 %). *moving*: so many of",
        f"them take and give back {MOVED_MIB} MiB each second; the others rest, and are looked at each {REST_S:g} s,",
        f"or each {2 * REST_S:g} s after five seconds of it.\n",
        f"| moving | {windows} | median |",
        "|" + " --- |" * (WINDOWS + 2),
        *rows,
    ]


@contextlib.contextmanager
def _children(moving: int) -> Iterator[tuple[int, list[int], str]]:
    """Processes that hold memory, in a memory cgroup where one can be made: their parent, they, and where."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.capabilities import has_memcg
    from support.memcg import memory_cgroup

    argv = [sys.executable, "-IS", "-c", CHILDREN, *map(str, (PROCESSES, moving, TOUCHED_MIB, MOVED_MIB))]
    with contextlib.ExitStack() as stack:
        where = "without a limit"
        if has_memcg():
            group = stack.enter_context(memory_cgroup(GROUP_MIB << 20))
            argv, where = group.wrapped(argv), f"in a cgroup of {GROUP_MIB} MiB"
        process = stack.enter_context(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        parent, *pids = map(int, process.stdout.readline().split())
        try:
            yield parent, pids, where
        finally:
            process.stdin.close()
            process.wait()


async def _sample(parent: int, pids: list[int]) -> list[float]:
    root = SystemRoot()
    sensor = MemorySensor(root, env=os.environ)
    with tempfile.TemporaryDirectory() as name:
        trace = TraceWriter(Path(name) / "trace")
        scheduler = scheduler_of(LearningEstimator(), slots=len(pids), budget_mib=1e9)
        built = build_of(
            scheduler,
            root,
            Path(name),
            clock=monotonic,
            sensor=sensor,
            observers=(trace.write, BuildState(rows=False).apply),
        )
        session = built.session
        for pid in pids:
            asked = Asked(
                gate_pid=parent, parent_pid=0, unit_id="", tool="cicc", cwd="/", sizes="", redoable=True, argv=()
            )
            live = session.take_up(asked, trusted=True)
            session.announce(live)
            live.tool_started(pid, root, built.processes, page_size())
            assert live.tool_pid == pid, "not watched"
        looks = 0

        async def watch() -> None:
            nonlocal looks
            with collector_held_back():
                while True:
                    session.look()
                    looks += 1
                    await asyncio.sleep(PERIOD_S)

        running = asyncio.create_task(watch())
        await asyncio.sleep(2.0)
        shares = []
        for _ in range(WINDOWS):
            spent_s, before = time.process_time(), looks
            await asyncio.sleep(WINDOW_S)
            each_s = (time.process_time() - spent_s) / (looks - before)
            shares.append(each_s / PERIOD_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert not built.notes, built.notes
        assert sum(live.rss_mib >= TOUCHED_MIB for live in built.phases.values()) == len(pids), "not all were read"
        for live in built.phases.values():
            live.tool_gone()
        trace.close()
    return shares


WAITING = 1000
ASKED = 4000
CORES = 144


def gates() -> list[str]:
    """Answers to phases that can start at once, without and beside gates that wait for memory."""
    with tempfile.TemporaryDirectory() as name:
        found, _ = _supervised(Path(name), "wait", WAITING, ASKED, cores=CORES)
        ticks = [each.waiting for each in TraceReader(Path(name) / "trace.jsonl") if isinstance(each, Status)]
    rows = []
    for waiting, key in (("bare", "bare"), ("0", "alone"), (str(found["waiting"]), "beside")):
        took = sorted(found[key]["took_ms"])
        figures = [*(took[int(share * len(took))] for share in (0.5, 0.9, 0.99)), took[-1], found[key]["spent_ms"]]
        rows.append(f"| {waiting} | {len(took)} | " + " | ".join(f"{each:.2f}" for each in figures) + " |")
    return [
        "From connecting to the answer, in milliseconds, for phases that can start at once (target: p99 at most 5 ms",
        f"with {WAITING} waiting). A real `builddoctor run --cores {CORES}`; 100 phases run beside, a client of a few",
        "processes speaks for all gates, 100 phases a second, each with a tool. *own*: the supervisor's processor time",
        f"a phase, from question to end, sampling included. By the trace, {max(ticks)} waited at most. *bare*: the",
        "machine's part: the same questions to a server in Python that says yes and does nothing else.\n",
        "| waiting | asked | p50 | p90 | p99 | longest | own |",
        "|" + " --- |" * 7,
        *rows,
        f"\nThe supervisor then holds {found['memory']['VmRSS']:.1f} MiB.",
    ]


def soak(phases: int) -> list[str]:
    """Many phases through one build."""
    with tempfile.TemporaryDirectory() as name:
        rows, summary = _supervised(Path(name), "soak", phases, 4, cores=4)
        sizes = {file.name: file.stat().st_size / 1024**2 for file in Path(name).rglob("*") if file.is_file()}
    lines = [
        f"{summary['phases']} phases of {summary['units']} units through a real `builddoctor run`, with its trace",
        f"({sizes['trace.jsonl']:.0f} MiB at the end) and history ({sizes['history.sqlite']:.1f} MiB); a client speaks",
        "for the gates, each tool is a real process. Resident memory of the supervisor (target: at most 120 MB), its",
        "processor time and the build's time a phase. No phase stays behind: what grows is Python's table of interned",
        "words, which doubles now and then, and what the estimator knows, which is bounded.\n",
        "| phases | MiB | KiB more a phase | ms of processor a phase | ms a phase |",
        "|" + " --- |" * 5,
        f"| 0 | {rows[0]['VmRSS']:.1f} | | | |",
    ]
    for before, now in itertools.pairwise(rows):
        grown, spent, passed = (
            scale * (now[name] - before[name]) / (now["phases"] - before["phases"])
            for name, scale in (("VmRSS", 1024), ("cpu_s", 1000), ("at_s", 1000))
        )
        lines.append(f"| {now['phases']} | {now['VmRSS']:.1f} | {grown:.2f} | {spent:.2f} | {passed:.2f} |")
    most_mb = max(row["VmHWM"] for row in rows) * 1024**2 / 1e6
    return [*lines, f"\nAt most **{most_mb:.1f} MB** at any time."]


def _supervised(folder: Path, role: str, *numbers: int, cores: int):
    """Run the clients under builddoctor; gives what they found, and the summary."""
    out, summary = folder / "found.json", folder / "summary.json"
    folders = {"BUILDDOCTOR_CACHE_DIR": str(folder / "cache"), "BUILDDOCTOR_STATE_DIR": str(folder / "state")}
    options = ["--no-doctor", "--cores", str(cores), "--trace", str(folder / "trace.jsonl"), "--summary", str(summary)]
    command = [sys.executable, str(CLIENTS), role, str(out), *map(str, numbers)]
    subprocess.run(
        [sys.executable, "-m", "builddoctor", "run", *options, "--", *command],
        check=True,
        env={**os.environ, **folders},
        stderr=subprocess.DEVNULL,
    )
    return json.loads(out.read_text()), json.loads(summary.read_text())
