"""Compilers that take memory without end, each in a build of its own: ``run`` is the whole of it, in one memory cgroup
with a process that is none of the builds'; ``hogs.py NUMBER MIB_PER_S CGROUP`` is the command of one build.

Each hog has the company of another phase; the one that started first is the hog every second time. A hog takes memory
at its first run only: its second, which builddoctor starts once the other phase has ended, is over at once. Builds know
nothing of each other: what a hog took would be remembered, and expected of the next.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from builddoctor.core.events import Kill, PhaseAsked, PhaseEnded, PhaseStarted
from builddoctor.core.units import MIB
from support.memcg import MemoryCgroup, memory_cgroup
from support.program import Program
from support.replaying import StandIns

BYSTANDER_MIB = 300
OTHER_MIB = 200
ENDLESS_S = 1000
PATIENCE_S = 60.0


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One hog. ``stopped``: all is as it should be; ``trouble`` says what is not."""

    number: int
    hog_first: bool
    stopped: bool
    trouble: str
    held_mib: float
    least_free_mib: float
    mib_s: float = 0.0
    """growth from its start to its end; 0 where it waited in between"""


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the build itself saw of a round."""

    hog_first: bool
    same_other: bool
    """the other phase kept its process until it was told to end"""
    statuses: tuple[int, int]
    most_bytes: int


# -- outside ---------------------------------------------------------------------------------------------------------


def run(folder: Path, *, times: int, rate_mib_s: float, limit_mib: float) -> Iterator[Round]:
    """``times`` hogs, one after the other, in a cgroup of ``limit_mib``; what became of each."""
    stand_ins = StandIns(folder)
    with memory_cgroup(int(limit_mib * MIB)) as group:
        beside = _bystander(group, stand_ins, folder)
        try:
            for number in range(times):
                kills = group.kernel_kills
                program, done = _build(folder / f"build{number}", stand_ins, group, number, rate_mib_s)
                faults = []
                if group.kernel_kills != kills:
                    faults.append(f"the kernel killed {group.kernel_kills - kills}")
                if beside.poll() is not None or _resident_mib(beside.pid) < BYSTANDER_MIB:
                    faults.append("the process beside the build is not as before")
                if done.returncode != 0:
                    faults.append(f"the build ended with {done.returncode}")
                yield _judged(program, number, limit_mib, faults)
        finally:
            (folder / "end").touch()
            beside.wait()


def _build(
    folder: Path, stand_ins: StandIns, group: MemoryCgroup, number: int, rate_mib_s: float
) -> tuple[Program, subprocess.CompletedProcess[str]]:
    folder.mkdir()
    program = Program(folder)
    # One overlay for all; history and trace are the build's own.
    program.env["BUILDDOCTOR_CACHE_DIR"] = str(folder.parent / "cache")
    program.env["PATH"] = f"{stand_ins.path}:{program.env['PATH']}"
    program.env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    options = ["--cores", "4", "--no-doctor", "--toolkit", str(stand_ins.toolkit)]
    words = [sys.executable, __file__, str(number), str(rate_mib_s), str(group.folder)]
    return program, group.run(program.supervised(*words, options=options), cwd=folder, env=program.env)


def _bystander(group: MemoryCgroup, stand_ins: StandIns, folder: Path) -> subprocess.Popen[bytes]:
    """A process of somebody else's that holds memory in the same cgroup."""
    (folder / "beside.ii").write_text(f"to 0 {1024 * (BYSTANDER_MIB + 1)}\nonce beside\nuntil end\n")
    process = subprocess.Popen(group.wrapped([str(stand_ins.path / "cc1plus"), "beside.ii"]), cwd=folder)
    _await_file(folder / "beside")
    return process


def _judged(program: Program, number: int, limit_mib: float, faults: list[str]) -> Round:
    told_file = program.folder / "told"
    if not told_file.exists():
        trouble = "; ".join([*faults, "the round did not come to its end"])
        return Round(
            number=number, hog_first=bool(number % 2), stopped=False, trouble=trouble, held_mib=0.0, least_free_mib=0.0
        )
    told = msgspec.json.decode(told_file.read_bytes(), type=_Told)
    trace = program.records()
    of_source = {each.phase.source: each.phase.phase_id for each in trace if isinstance(each, PhaseAsked)}
    ends: dict[int, list[PhaseEnded]] = {each: [] for each in of_source.values()}
    begins: dict[int, float] = {}
    for record in trace:
        if isinstance(record, PhaseEnded):
            ends[record.phase_id].append(record)
        elif isinstance(record, PhaseStarted):
            begins.setdefault(record.phase_id, record.at_s)
    hog, other = of_source["hog.cu"], of_source["other.cu"]
    for what, phase_id, right in (("hog", hog, ["killed-by-us", "ok"]), ("other phase", other, ["ok"])):
        outcomes = [end.outcome for end in ends[phase_id]]
        if outcomes != right:
            faults.append(f"the {what} ended as {', '.join(outcomes)}")
    if not told.same_other:
        faults.append("the other phase lost its process")
    if told.statuses != (0, 0):
        faults.append(f"the compilers ended with {told.statuses}")
    first = ends[hog][0]
    kills = [each.at_s for each in trace if isinstance(each, Kill) and each.phase_id == hog]
    return Round(
        number=number,
        hog_first=told.hog_first,
        stopped=not faults,
        trouble="; ".join(faults),
        held_mib=first.peak_mib,
        least_free_mib=limit_mib - told.most_bytes / MIB,
        mib_s=0.0 if told.hog_first or not kills else first.peak_mib / (kills[0] - begins[hog]),
    )


def _resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


# -- the build's command ---------------------------------------------------------------------------------------------


def build(number: int, rate_mib_s: float, group: MemoryCgroup) -> int:
    """In the build's folder, under builddoctor: ``nvcc`` is a gate."""
    hog_first = number % 2 == 1
    hogging, holding, go, done = (Path(name) for name in ("hogging", "holding", "go", "done"))
    endless = f"once {hogging}\nuntil {go}\nto {1000 * ENDLESS_S} {1024 * ENDLESS_S * rate_mib_s:.0f}\n"
    _unit("hog", "cudafe++", endless)
    _unit("other", "cicc", f"to 0 {1024 * OTHER_MIB}\nonce {holding}\nuntil {done}\n")
    order = [("hog", hogging), ("other", holding)]
    nvccs = {}
    group.forget_peak()
    for name, mark in order if hog_first else reversed(order):
        nvccs[name] = subprocess.Popen(["nvcc", "-c", f"{name}.cu", "-o", f"{name}.o"])
        _await_file(mark)
    hog = os.pidfd_open(int(hogging.read_text()))
    other = os.pidfd_open(int(holding.read_text()))
    go.touch()
    select.select([hog], [], [], PATIENCE_S)
    same_other = not select.select([other], [], [], 0)[0]
    most_bytes = int(group.peak_mib * MIB)
    done.touch()
    statuses = (nvccs["hog"].wait(), nvccs["other"].wait())
    told = _Told(hog_first=hog_first, same_other=same_other, statuses=statuses, most_bytes=most_bytes)
    Path("told").write_bytes(msgspec.json.encode(told))
    return 0


def _unit(name: str, program: str, instructions: str) -> None:
    Path(f"{name}.ii").write_text(instructions)
    Path(f"{name}.cu").write_text(f"{program} --orig_src_path_name {name}.cu -o {name}.out {name}.ii\n")


def _await_file(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.002)


if __name__ == "__main__":
    sys.exit(build(int(sys.argv[1]), float(sys.argv[2]), MemoryCgroup(Path(sys.argv[3]))))
