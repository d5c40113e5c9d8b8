"""Benches with real processes at a scale: replayed builds, runaways beside what only looks like one, fast hogs.

``scripts/bench replay|runaway|hog`` and ``scripts/replay``. Needs root and memory cgroups (v1) of its own.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "scripts")]

from cluster_bench import bound_with_ways_s  # noqa: E402

from builddoctor.core.events import BuildEvent, GiveUp, Kill, KillReason, PhaseAsked, PhaseEnded, PhaseStarted  # noqa: E402
from builddoctor.core.phase import Outcome, PhaseKind  # noqa: E402
from builddoctor.simulate.result import Host, Rules  # noqa: E402
from builddoctor.simulate.shipped import as_shipped, shipped_jobs  # noqa: E402
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload, lower_bound_s  # noqa: E402
from builddoctor.system.memory_sensor import HostSensor  # noqa: E402
from builddoctor.system.root import SystemRoot  # noqa: E402
from support import hogs, measured_builds  # noqa: E402
from support.magnified import Scale  # noqa: E402
from support.replaying import Replayed, Replays  # noqa: E402

Growth = Literal["flat", "ramp"]

USUAL = Scale(memory=0.2, time=0.25)

# -- replayed builds -----------------------------------------------------------------------------------------------

HEAD = (
    "| history | makespan s | took s | peak MiB | cgroup's highest MiB | kernel kills | our kills | redone | phases "
    "| jobs, mean and most |\n|" + " --- |" * 10
)

REPLAYS = ((72, 64.0), (72, 24.0), (72, 12.0), (16, 16.0), (8, 8.0))
"""Cores and GiB."""


def workload_of(data: Path) -> Workload:
    readers = {".jsonl": measured_builds.from_measurements, ".csv": measured_builds.from_digest}
    reader = readers.get(data.suffix, measured_builds.from_trace)
    if data.suffix == ".jsonl" and b'"header"' in data.open("rb").readline():
        reader = measured_builds.from_trace
    return reader(data)


def described(workload: Workload, *, cores: int, limit_mib: float, growth: Growth) -> str:
    """The workload, and what the simulator says of it."""
    host = Host(cores=cores, limit_mib=limit_mib)
    simulated = as_shipped(workload, host, rules=Rules(growth=growth, jobs=shipped_jobs(host)))
    held_share = 0.5 if growth == "ramp" else 1.0
    bound_s = lower_bound_s(workload, cores=cores, limit_mib=limit_mib, held_share=held_share)
    made = f"{simulated.makespan_s:.0f} s" if simulated.completed else "not to its end"
    return (
        f"{workload.name}, {cores} cores, {limit_mib / 1024:g} GiB, growth {growth}: simulated cold {made}; "
        f"no order is faster than {bound_s:.0f} s."
    )


def described_with_nodes(workload: Workload, *, cores: int, nodes: int) -> str:
    """The workload, and what is not to be beaten."""
    chain_s = max(unit.wall_s for unit in workload.units)
    bound_s = max(chain_s, bound_with_ways_s(workload, cores, nodes))
    return (
        f"{workload.name}, {1 + nodes} machines of {cores} cores: {workload.work_s:.0f} s of work, the longest unit "
        f"{chain_s:.0f} s; no order is faster than {bound_s:.0f} s."
    )


def sent(done: Replayed, replays: Replays) -> str:
    """What went to nodes."""
    ends = [each for each in replays.program.records() if isinstance(each, PhaseEnded) and each.node]
    back = [each for each in ends if each.outcome is Outcome.OK]
    ways_s = [each.transfer_s for each in back]
    return (
        f"on nodes: {len(back)} phases, {sum(each.wall_s for each in back):.0f} s of work, "
        f"{sum(each.sent_mib for each in ends):.0f} MiB sent; on the way, or waiting there, {sum(ways_s):.0f} s, "
        f"median {statistics.median(ways_s or [0.0]) * replays.scale.time:.2f} s a phase as it really is; lost "
        f"{len(ends) - len(back)}; kernel kills there {done.node_kernel_kills}"
    )


def builds(
    folder: Path,
    workload: Workload,
    scale: Scale,
    *,
    cores: int,
    limit_mib: float,
    growth: Growth,
    times: int,
    nodes: int = 0,
) -> Iterator[tuple[int, Replayed, Replays]]:
    """Replayed builds with one history; ``nodes``: other machines of the same size."""
    free_mib = HostSensor(SystemRoot()).facts().available_mib
    wanted_mib = (1 + nodes) * limit_mib * scale.memory
    if wanted_mib > free_mib - 1024:
        raise SystemExit(f"{wanted_mib:.0f} MiB are needed and {free_mib:.0f} are free: a smaller scale?")
    replays = Replays(folder, scale)
    for number in range(times):
        yield (
            number,
            replays.run(workload, cores=cores, limit_mib=limit_mib, growth=growth, nodes_mib=[limit_mib] * nodes),
            replays,
        )


def row(name: str, done: Replayed, scale: Scale) -> str:
    said = done.summary
    if not said:
        return f"| {name} | no summary: {done.output.strip().splitlines()[-1:]} |" + " |" * 8
    wall_s = said["wall_s"]
    return (
        f"| {name} | {wall_s:.0f}{'' if done.returncode == 0 else ' (failed)'} | {wall_s * scale.time:.1f} "
        f"| {said['peak_mib']:.0f} | {done.highest_mib:.0f} | {done.kernel_kills} | {said['killed']} "
        f"| {said['requeued']} | {said['phases']} | {said['effective_jobs_mean']:.1f}, {said['effective_jobs_max']} |"
    )


def replay(data: Path, scale: Scale = USUAL) -> list[str]:
    """Each of ``REPLAYS``, cold and warm, with memory that grows evenly."""
    workload = workload_of(data)
    head = (
        f"Memory at {scale.memory:g}, time at {scale.time:g}: stand-ins for the compilers that hold what was recorded "
        "and sleep; gates, supervisor, sampling, cgroup and kills are real. All figures but *took* are counted up to "
        "full size; so is what the supervisor and its gates take themselves."
    )
    lines = [head]
    for cores, gib in REPLAYS:
        lines += ["", described(workload, cores=cores, limit_mib=1024 * gib, growth="ramp") + "\n", HEAD]
        with tempfile.TemporaryDirectory() as name:
            for number, done, _ in builds(
                Path(name), workload, scale, cores=cores, limit_mib=1024 * gib, growth="ramp", times=2
            ):  # fmt: skip
                lines.append(row("cold" if number == 0 else "warm", done, scale))
                print(lines[-1], file=sys.stderr, flush=True)
    return lines


# -- runaways ------------------------------------------------------------------------------------------------------

SMALL = Scale(memory=1 / 32, time=1 / 10)

PLATEAUS = (
    # limit GiB, rise GiB/s, plateau s, beside another
    (32.0, 0.1, 120.0, False),
    (32.0, 0.2, 120.0, False),
    (64.0, 0.2, 120.0, True),
    (64.0, 1.0, 120.0, False),
    (128.0, 0.25, 120.0, True),
)
RUNAWAYS = (
    # limit GiB, growth GiB/s, beside another
    (8.0, 0.2, False),
    (16.0, 0.2, False),
    (24.0, 0.2, False),
    (32.0, 0.2, False),
    (64.0, 0.2, False),
    (64.0, 0.23, True),
    (128.0, 0.5, False),
    (128.0, 2.0, False),
)


BIG = """\
A phase that is big: it grows to 20 GiB, and works on with that for two minutes. It must end well, and nothing be said.

| limit GiB | growth GiB/s | beside another | came to | peak GiB | kernel kills | called a runaway |
| --- | --- | --- | --- | --- | --- | --- |"""

ENDLESS = """
A front end that grows without end. Target: named within 90 s, or at the limit where that comes first. Beside another it
is ended and named first, and given up when its second run, alone, does the same.

| limit GiB | growth GiB/s | beside another | limit reached s | first ended s | by | held GiB | named s | given up s | \
verdict | kernel kills |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def _unit(name: str, kind: PhaseKind, *, peak_mib: float, wall_s: float, curve: tuple[tuple[float, float], ...] = ()):
    phase = PhaseWork(
        kind=kind, arch="sm_100", input_mib=4.0, peak_mib=peak_mib, wall_s=wall_s, tool=kind.value, curve=curve
    )
    return UnitWork(name=name, source=name, archs=("sm_100",), phases=(phase,))


def _company(wall_s: float) -> UnitWork:
    return _unit("other", PhaseKind.CICC, peak_mib=300.0, wall_s=wall_s)


def runaway() -> list[str]:
    """Production's own rules, on a build that is counted up to full size."""
    head = (
        f"Real processes that take a core each and grow, memory at 1/{1 / SMALL.memory:.0f} and time at "
        f"1/{1 / SMALL.time:.0f}, counted up to full size; real cgroup, real kills, thresholds as shipped. Beside "
        "another: a small phase runs as well.\n"
    )
    lines = [head, BIG]
    for limit_gib, rate, rest_s, company in PLATEAUS:
        rise_s = 20.0 / rate
        wall_s = rise_s + rest_s
        units = [_unit("big", PhaseKind.CICC, peak_mib=20 * 1024.0, wall_s=wall_s, curve=((rise_s / wall_s, 1.0),))]
        done, _ = _grown([_company(wall_s), *units] if company else units, limit_gib)
        said = done.summary
        lines.append(
            f"| {limit_gib:.0f} | {rate:g} | {'yes' if company else 'no'} | exit {done.returncode} "
            f"| {said['peak_mib'] / 1024:.1f} | {done.kernel_kills} | {'**yes**' if said['runaways'] else 'no'} |"
        )
        print(lines[-1], file=sys.stderr, flush=True)
    lines.append(ENDLESS)
    for limit_gib, rate, company in RUNAWAYS:
        lines.append(_runaway_row(limit_gib, rate, company=company))
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def _runaway_row(limit_gib: float, rate: float, *, company: bool) -> str:
    endless_s = 3600.0
    units = [_unit("endless", PhaseKind.CUDAFE, peak_mib=rate * 1024 * endless_s, wall_s=endless_s)]
    # The other one is done when the verdict is due, or the second try, alone, would wait for it.
    done, trace = _grown([_company(150.0), *units] if company else units, limit_gib)
    asked = next(each for each in trace if isinstance(each, PhaseAsked) and each.phase.kind == "cudafe++")
    mine = [each for each in trace if getattr(each, "phase_id", None) == asked.phase.phase_id]
    start_s = next(each.at_s for each in mine if isinstance(each, PhaseStarted))
    ends = [each for each in mine if isinstance(each, PhaseEnded)]
    given_up = [each for each in mine if isinstance(each, GiveUp)]
    ended = [each for each in trace if isinstance(each, Kill) and each.reason is KillReason.RUNAWAY]
    named = [*ended, *(each for each in given_up if each.verdict == "runaway")]
    return (
        f"| {limit_gib:.0f} | {rate:g} | {'yes' if company else 'no'} | {limit_gib / rate:.0f} "
        f"| {ends[0].at_s - start_s:.0f} | {ends[0].outcome.value} | {ends[0].peak_mib / 1024:.1f} "
        f"| {named[0].at_s - start_s:.0f} | {given_up[0].at_s - start_s:.0f} | {given_up[0].verdict.value} "
        f"| {done.kernel_kills} |"
        if named and given_up and ends
        else f"| {limit_gib:.0f} | {rate:g} | | | | | | never | | | {done.kernel_kills} |"
    )


def _grown(units: list[UnitWork], limit_gib: float) -> tuple[Replayed, list[BuildEvent]]:
    with tempfile.TemporaryDirectory() as name:
        replays = Replays(Path(name), SMALL)
        workload = Workload(name="growing", units=tuple(units))
        done = replays.run(workload, cores=4, limit_mib=1024 * limit_gib, busy=True)
        return done, replays.program.records()


TWO_GB_S = 2e9 / 2**20

# -- hogs ----------------------------------------------------------------------------------------------------------


def hog(times: int, rate_mib_s: float = TWO_GB_S, limit_mib: float = 3072.0) -> list[str]:
    """A build for each; each is judged by itself."""
    rounds: list[hogs.Round] = []
    with tempfile.TemporaryDirectory() as name:
        for each in hogs.run(Path(name), times=times, rate_mib_s=rate_mib_s, limit_mib=limit_mib):
            rounds.append(each)
            print(f"{each.number}: {each.trouble or 'stopped'} at {each.held_mib:.0f} MiB", file=sys.stderr, flush=True)
    stopped = sum(each.stopped for each in rounds)
    head = (
        f"{times} builds, one after the other, nothing known before, each with a compiler that takes "
        f"{rate_mib_s:.0f} MiB/s without end: in a memory cgroup of {limit_mib:.0f} MiB, beside another phase of the "
        f"build that holds {hogs.OTHER_MIB} MiB (every second time an older one, every second time a younger one) and "
        f"a process of {hogs.BYSTANDER_MIB} MiB that is none of the build's, the same for all. Stopped: builddoctor "
        "ended the hog and nothing else, the kernel killed nothing, the other phase and the process beside the build "
        "went on as they were, and the build came to its end well.\n"
    )
    lines = [
        head,
        f"**{stopped} of {times} stopped.**\n",
        "| | least | median | most |",
        "| --- | --- | --- | --- |",
        _spread("held when it was ended, MiB", [each.held_mib for each in rounds]),
        _spread("least that was free, MiB, page cache counted as used", [each.least_free_mib for each in rounds]),
        _spread("growth up to its end, MiB/s", [each.mib_s for each in rounds if each.mib_s]),
    ]
    lines += [
        f"\nBuild {each.number + 1} (hog {'older' if each.hog_first else 'younger'}): {each.trouble}."
        for each in rounds
        if not each.stopped
    ]
    return lines


def _spread(what: str, figures: list[float]) -> str:
    if not figures:
        return f"| {what} | | | |"
    return f"| {what} | {min(figures):.0f} | {statistics.median(figures):.0f} | {max(figures):.0f} |"
