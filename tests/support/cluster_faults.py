"""Builds on a cluster of real nodes, each of which is hit by one fault at a random moment: what became of it.

Covers: a small project for the real nvcc and gcc; a meeting point and two nodes, each in a memory cgroup, with a
network and a disk (tmpfs) of its own; the faults; whether the objects are those of a plain build, and what is left
running on the nodes. Needs root, memory cgroups v1 or v2, network namespaces and nvcc.
Does *not* cover: counting it up (``scripts/faults``).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import psutil

from builddoctor.cluster.keys import make_keys
from builddoctor.core.events import Admit, PhaseEnded, Requeue
from builddoctor.trace.reader import TraceReader
from support.bridge import HERE, Bridge
from support.capabilities import find_nvcc
from support.memcg import MIB, MemoryCgroup
from support.nodes import Meeting
from support.objects import objects_of
from support.program import PATIENCE_S, Program
from support.rogue_node import BEFORE, WRONG, rogue

NODES = 2
NODE_MIB = 1024
HERE_MIB = 1024
DISK_MIB = 400
UNITS = 4
MOST_SENT = 4
LONGEST_S = 2.0
"""The moment: so long after one of the first phases was sent."""
LEFT_S = 30.0
"""After the build nothing may run on a node for longer."""
HANGS_S = 240.0
SILENT_S = 10.0
EXCHANGED = "another toolkit's cicc, since it joined"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One build, and one fault."""

    fault: str
    number: int
    seed: int
    how: str
    """what of the fault was drawn"""
    node: int
    after: int
    """phases were sent before it, and a moment passed"""
    away: int
    """phases in that moment on the node, or on all where it hits all"""
    wall_s: float
    code: int | None
    """None: it had to be ended"""
    equal: bool
    sentence: str
    """what a build says that fails"""
    redone: tuple[str, ...]
    """why phases ran again"""
    sent: int
    left: int
    """processes on nodes that still ran LEFT_S after the build"""
    left_s: float
    """until nothing did"""
    kernel_kills: int
    trouble: str = ""
    """what must not be"""

    @property
    def good(self) -> bool:
        """It completes with the right objects, or says why not; nothing is left."""
        ended = self.equal if self.code == 0 else self.code is not None and bool(self.sentence)
        return ended and not self.left and not self.trouble


@contextlib.contextmanager
def site_in(folder: Path) -> Iterator[Site]:
    """All of it, ended afterwards."""
    with contextlib.ExitStack() as stack:
        yield Site(folder, stack)


class Site:
    """All of it, for any number of builds."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        """``stack`` ends it."""
        self.folder = folder
        self.project = folder / "project"
        self.keys = folder / "keys"
        nvcc = find_nvcc()
        assert nvcc is not None, "no nvcc"
        self.toolkit = nvcc.resolve().parents[1]
        self._number = 0
        self._write_project()
        make_keys(self.keys)

        self._plain = self._built_plainly()
        self.bridge = stack.enter_context(contextlib.closing(Bridge()))
        self._here = self.bridge.add(limit_bytes=HERE_MIB * MIB)
        self.nodes = [SiteNode(self, number, stack) for number in range(NODES)]
        self.meeting: Meeting | None = None
        stack.callback(self._end_meeting)
        # Without a fault: afterwards it is known how long phases take.
        first = self.build(None)
        assert first.good, first
        assert first.sent, "nothing was sent to a node"

    def _write_project(self) -> None:
        self.project.mkdir()
        lines = [
            "rule cuda\n  command = nvcc -arch=sm_90 -O2 -std=c++17 -c $in -o $out",
            "rule cxx\n  command = g++ -O2 -c $in -o $out",
        ]
        for number in range(UNITS):
            (self.project / f"unit{number}.cu").write_text(kernels(number, count=3))
            lines.append(f"build out/unit{number}.o: cuda unit{number}.cu")
        (self.project / "host.cpp").write_text(HOST)
        lines.append("build out/host.o: cxx host.cpp")
        (self.project / "build.ninja").write_text("\n".join(lines) + "\n")

    def _built_plainly(self) -> dict[str, bytes]:
        env = Program(self.folder).env
        subprocess.run(["ninja", "-C", str(self.project)], env=env, check=True, capture_output=True)
        objects = objects_of(self.project)
        assert len(objects) == UNITS + 1
        return objects

    def ready(self) -> Meeting:
        """The meeting point, and all nodes in it."""
        if self.meeting is not None and self.meeting.server.poll() is not None:
            self._end_meeting()
        if self.meeting is None:
            self._number += 1
            folder = self.folder / f"meeting{self._number}"
            self.meeting = Meeting(folder, keys=self.keys, host=HERE, prefix=self._here.entered)
        for node in self.nodes:
            node.start(self.meeting)
        return self.meeting

    def _end_meeting(self) -> None:
        if self.meeting is not None:
            for node in self.nodes:
                node.end()
            self.meeting.close()
            self.meeting = None

    def build(self, fault: Fault | None, *, number: int = 0, seed: int = 0) -> Row:
        """One build, hit by the fault, if any."""
        draw = random.Random(f"{seed}-{fault.name if fault else ''}-{number}")
        node = self.nodes[draw.randrange(NODES)]
        if fault is not None and fault.prepare is not None:
            fault.prepare(self, node, draw)
        meeting = self.ready()
        shutil.rmtree(self.project / "out", ignore_errors=True)
        program = self._program()
        words = [*meeting.for_builds, "--cores", "1", "--toolkit", str(self.toolkit), "--no-doctor"]
        argv = program.supervised("ninja", "-k0", "-C", str(self.project), options=words)
        kills = self._kernel_kills()
        log = program.folder / "output.txt"
        began_s = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self._here.prefix, *argv],
                cwd=self.project,
                env=program.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        with _ended_with(process):
            away, how, after = 0, "", draw.randint(1, MOST_SENT)
            sent_to = self._await_sent(program, process, after if fault is not None else 1)
            if fault is not None:
                if fault.prepare is None:
                    node = next((each for each in self.nodes if each.name == sent_to), node)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(draw.uniform(0.0, LONGEST_S))
                away = self._away(program, node.name if fault.of_a_node else "")
                how = fault.strike(self, node, draw)
            code = self._ended(process)
        wall_s = time.monotonic() - began_s
        equal = objects_of(self.project) == self._plain
        left, left_s = self._left()
        if fault is not None:
            fault.mend(self, node)
        return self._row(
            program, fault, code, number=number, seed=seed, how=how, node=self.nodes.index(node),
            after=after, away=away, wall_s=round(wall_s, 2), equal=equal, left=left,
            left_s=round(left_s, 1), kernel_kills=self._kernel_kills() - kills,
        )  # fmt: skip

    def _program(self) -> Program:
        self._number += 1
        folder = self.folder / "runs" / str(self._number)
        folder.mkdir(parents=True)
        program = Program(folder)
        # One overlay and one history for all.
        for name in ("CACHE", "DATA"):
            program.env[f"BUILDDOCTOR_{name}_DIR"] = str(self.folder / name.lower())
        return program

    def _await_sent(self, program: Program, process: subprocess.Popen[bytes], count: int) -> str:
        """Until so many phases were sent; gives the node of the last one."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and process.poll() is None:
            sent = [each.node for each in _records(program) if isinstance(each, Admit) and each.node]
            if len(sent) >= count:
                return sent[count - 1]
            time.sleep(0.05)
        return ""

    @staticmethod
    def _away(program: Program, node: str) -> int:
        there: set[int] = set()
        for each in _records(program):
            if isinstance(each, Admit) and (each.node == node if node else each.node):
                there.add(each.phase_id)
            elif isinstance(each, PhaseEnded):
                there.discard(each.phase_id)
        return len(there)

    @staticmethod
    def _ended(process: subprocess.Popen[bytes]) -> int | None:
        try:
            return process.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return None

    def _left(self) -> tuple[int, float]:
        began_s = time.monotonic()
        while True:
            left = sum(len(node.left()) for node in self.nodes)
            if not left or time.monotonic() - began_s > LEFT_S:
                return left, time.monotonic() - began_s
            time.sleep(0.1)

    def _kernel_kills(self) -> int:
        machines = (self._here, *(node.machine for node in self.nodes))
        return sum(each.group.kernel_kills for each in machines if each.group is not None)

    def _row(self, program: Program, fault: Fault | None, code: int | None, **drawn) -> Row:
        output = (program.folder / "output.txt").read_text(errors="replace")
        records = _records(program)
        ends = {each.phase_id: each for each in records if isinstance(each, PhaseEnded)}
        last: dict[int, PhaseEnded] = {}
        redone = []
        for each in records:
            if isinstance(each, PhaseEnded):
                last[each.phase_id] = each
            elif isinstance(each, Requeue):
                redone.append(last[each.phase_id].outcome.value)
        trouble = []
        if "Traceback" in output:
            trouble.append("a traceback")
        if code is None:
            trouble.append(f"it did not end within {HANGS_S:.0f} s")
        if code == 0 and not drawn["equal"]:
            trouble.append("other objects")
        if list((self.project / "out").glob(".*.new")):
            trouble.append("a part of a file")
        try:
            program.check_traces()
        except Exception as error:  # noqa: BLE001 - whatever it is, the run is not as it should be
            trouble.append(f"the trace: {type(error).__name__} {error}"[:200])
        said = [line for line in output.splitlines() if line.startswith("builddoctor: ")]
        return Row(
            fault=fault.name if fault else "none",
            code=code,
            sentence="" if code == 0 or not said else said[-1],
            redone=tuple(redone),
            sent=sum(bool(each.node) for each in ends.values()),
            trouble="; ".join(trouble),
            **drawn,
        )


class SiteNode:
    """One node: its cgroup, its disk, its toolkit, and the worker, as long as it lives."""

    def __init__(self, site: Site, number: int, stack: contextlib.ExitStack) -> None:
        """``stack`` takes it away."""
        self._site = site
        self._number = number
        self.name = f"node{number}"
        self.folder = site.folder / f"node{number}"
        self.disk = self.folder / "disk"
        self.toolkit = self.folder / "cuda"
        self.process: subprocess.Popen[bytes] | None = None
        self._idle: set[int] = set()
        self._starts = 0
        self.given_up = False
        """the cluster may have, while it could not be reached"""
        self.rogue: list[str] = []
        """what makes the next worker a rogue"""
        self.disk.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "bd-disk", str(self.disk)], check=True)
        stack.callback(lambda: subprocess.run(["umount", "--lazy", str(self.disk)], check=True))
        self.machine = site.bridge.add(limit_bytes=NODE_MIB * MIB)
        real = self._site.toolkit
        self.toolkit.mkdir()
        for each in real.iterdir():
            if each.name in ("bin", "nvvm"):
                shutil.copytree(each, self.toolkit / each.name, symlinks=True)
            else:
                (self.toolkit / each.name).symlink_to(each)

    def start(self, meeting: Meeting) -> None:
        """Its worker, if there is none."""
        if self.process is not None and self.process.poll() is None:
            return
        self._starts += 1
        place = ["env", f"TMPDIR={self.disk}"]
        named = ["unshare", "--uts", "sh", "-c", f'hostname {self.name} && exec "$@"', "sh"]
        prefix = [*self.machine.prefix, *named, *place, *self.rogue]
        words = ["--toolkit", str(self.toolkit), "--cores", "1"]
        self.process = meeting.worker(f"node{self._number}-{self._starts}", *words, prefix=prefix)
        self._idle = set(self.group.members())

    def end(self) -> None:
        """It is told to end, and waited for."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
            self.process.wait(PATIENCE_S)
            self.process = None

    @property
    def group(self) -> MemoryCgroup:
        assert self.machine.group is not None, "it was made with a limit"
        return self.machine.group

    def left(self) -> list[int]:
        """What runs there and would not, did nobody build."""
        lives = self.process is not None and self.process.poll() is None
        return [pid for pid in self.group.members() if not (lives and pid in self._idle) and _runs(pid)]

    def kill(self, draw: random.Random) -> str:
        """The supervisor, or the program that it supervises."""
        assert self.process is not None
        tree = {each.pid: each for each in psutil.Process(self.process.pid).children(recursive=True)}
        inner = [pid for pid, each in tree.items() if "builddoctor.cluster.node_program" in _words(each)]
        what, pid = draw.choice(
            [("its supervisor", self.process.pid), *(("its Dask worker", pid) for pid in inner[:1])]
        )
        os.kill(pid, signal.SIGKILL)
        return what


class Fault(msgspec.Struct, frozen=True):
    """What happens to a node, or to all."""

    name: str
    strike: Callable[[Site, SiteNode, random.Random], str]
    prepare: Callable[[Site, SiteNode, random.Random], None] | None = None
    """of the node that it will hit; else it hits the one that was sent a phase last"""
    mend: Callable[[Site, SiteNode], None] = lambda site, node: None
    of_a_node: bool = True


def _kill(site: Site, node: SiteNode, draw: random.Random) -> str:
    return node.kill(draw)


def _cut(site: Site, node: SiteNode, draw: random.Random) -> str:
    for_s = draw.choice((draw.uniform(0.2, 5.0), draw.uniform(5.0, 25.0)))
    node.given_up = for_s > SILENT_S
    site.bridge.cut(node.machine)
    # It is back before it is asked what is left there.
    time.sleep(for_s)
    site.bridge.plug_in(node.machine)
    return f"for {for_s:.1f} s"


def _reconnected(site: Site, node: SiteNode) -> None:
    if node.given_up:
        # It ends by itself, or is about to.
        node.end()


def _lower(site: Site, node: SiteNode, draw: random.Random) -> str:
    held_mib = node.group.stat_mib("rss", "anon") + node.group.stat_mib("shmem", "shmem")
    to_mib = held_mib + draw.uniform(2, 50)
    while True:
        try:
            node.group.limit(int(to_mib) * MIB)
            break
        except OSError:
            # It holds more by now: cgroups v1 take no limit below that.
            to_mib += 20
    return f"to {to_mib:.0f} MiB"


def _raise(site: Site, node: SiteNode) -> None:
    node.group.limit(NODE_MIB * MIB)


def _fill(site: Site, node: SiteNode, draw: random.Random) -> str:
    free = draw.choice((0, draw.randrange(1 << 20), draw.randrange(16 << 20)))
    with (node.disk / "filler").open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            block = bytes(MIB)
            while file.write(block) == MIB:
                pass
        file.truncate(max(0, file.tell() - free))
    return f"to {free >> 10} KiB"


def _empty(site: Site, node: SiteNode) -> None:
    (node.disk / "filler").unlink(missing_ok=True)


def _unserve(site: Site, node: SiteNode, draw: random.Random) -> str:
    assert site.meeting is not None
    site.meeting.server.kill()
    return ""


def _be_rogue(site: Site, node: SiteNode, draw: random.Random) -> None:
    sign = node.folder / "sign"
    sign.unlink(missing_ok=True)
    kind = draw.choice([*WRONG, BEFORE, EXCHANGED])
    node.end()
    node.rogue = [] if kind == EXCHANGED else rogue(kind, sign)


def _answer_wrongly(site: Site, node: SiteNode, draw: random.Random) -> str:
    if node.rogue:
        (node.folder / "sign").touch()
        return node.rogue[-2]
    cicc = node.toolkit / "nvvm" / "bin" / "cicc"
    other = cicc.with_name("cicc.new")
    other.write_text(f'#!/bin/sh\n{site.toolkit}/nvvm/bin/cicc "$@" || exit\n{ANOTHER}')
    other.chmod(0o755)
    other.replace(cicc)
    return EXCHANGED


ANOTHER = 'for output; do :; done; echo "// another release" >> "$output"\n'


def _be_honest(site: Site, node: SiteNode) -> None:
    node.end()
    node.rogue = []
    real = site.toolkit / "nvvm" / "bin" / "cicc"
    shutil.copy2(real, node.toolkit / "nvvm" / "bin" / "cicc.new")
    (node.toolkit / "nvvm" / "bin" / "cicc.new").replace(node.toolkit / "nvvm" / "bin" / "cicc")


FAULTS: Mapping[str, Fault] = {
    each.name: each
    for each in (
        Fault("worker killed", _kill),
        Fault("network cut and back", _cut, mend=_reconnected),
        Fault("limit lowered", _lower, mend=_raise),
        Fault("disk full", _fill, mend=_empty),
        Fault("meeting point killed", _unserve, of_a_node=False),
        Fault("wrong answers", _answer_wrongly, prepare=_be_rogue, mend=_be_honest),
    )
}


def kernels(seed: int, *, count: int) -> str:
    """Source of CUDA kernels, of each of which cicc and ptxas have 0.6 s of work."""
    lines = [
        "template <int N> struct S { static __device__ float f(float x, const float* a)",
        "{ return S<N-1>::f(x*a[N]+a[N/2], a)+a[N]*x; } };",
        "template <> struct S<0> { static __device__ float f(float x, const float*) { return x; } };",
    ]
    for number in range(count):
        lines += [
            f"__global__ void kernel_{seed}_{number}(float* y, const float* a) {{",
            "  int i = blockIdx.x * blockDim.x + threadIdx.x; float r = y[i];",
            "#pragma unroll",
            f"  for (int j = 0; j < {40 + (number + seed) % 7}; j++) {{ r += S<{20 + number % 5}>::f(r, a + j);",
            f"    if (r > {number}.5f) r = y[i + j] - sinf(r); }}",
            "  y[i] = r;",
            "}",
        ]
    return "\n".join(lines) + "\n"


HOST = """
#include <vector>
int sum(const std::vector<int> &all) { int found = 0; for (int each : all) found += each; return found; }
"""


@contextlib.contextmanager
def _ended_with(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """It does not outlive what it is looked at for."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _records(program: Program) -> list:
    if not program.trace_file.exists() or not program.trace_file.stat().st_size:
        return []
    return list(TraceReader(program.trace_file))


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def _runs(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False
