"""Replays of recorded builds: stand-ins for the compilers, real gates, a real supervisor, a real memory cgroup.

Covers: compiling the stand-ins (stand_in.c) with the host's compiler, a toolkit and a g++ made of them, the build
folder, running it under builddoctor (support/magnified.py), and what came of it, counted up to full size.
Does *not* cover: what is replayed (``support.replay_files``).
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from builddoctor.cluster.node_program import NodeSettings
from builddoctor.core.request import RunRequest
from builddoctor.core.units import MIB
from builddoctor.runtime.sampler import Rules
from builddoctor.simulate.workload import Workload
from support.magnified import Scale
from support.memcg import MemoryCgroup, memory_cgroup
from support.nodes import Meeting
from support.program import Program
from support.replay_files import Replay, replayed

SOURCE = Path(__file__).with_name("stand_in.c")
MAGNIFIED = Path(__file__).with_name("magnified.py")
MAGNIFIED_NODE = Path(__file__).with_name("magnified_node.py")
INSIDE_GCC = "x86_64-replay-linux/13"
"""As the stand-in for g++ has it."""

HEADERS = ("algorithm", "chrono", "filesystem", "functional", "iostream", "map", "memory", "random", "regex", "thread")


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """One replayed build. Summary and trace are in recorded MiB and seconds."""

    returncode: int
    output: str
    kernel_kills: int
    """counted by the kernel at the cgroup of the build"""
    highest_mib: float
    """most that the cgroup held, page cache and all; counted up"""
    node_kernel_kills: int = 0
    """of all nodes"""
    summary: dict[str, Any]


class StandIns:
    """A CUDA toolkit and a g++ of stand-ins in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.toolkit, self.path = folder / "cuda", folder / "tools"
        made = folder / "stand_in"
        for each in (self.toolkit / "bin", self.toolkit / "nvvm" / "bin", self.path):
            each.mkdir(parents=True)
        subprocess.run(["cc", "-O2", "-o", str(made), str(SOURCE)], check=True)
        # Each is told by its name what it is; what is found behind a symbolic link would be told another. Nodes know
        # them by their bytes: no two are the same.
        paths = [self.toolkit / f"bin/{name}" for name in ("nvcc", "cudafe++", "ptxas", "nvlink")]
        paths += [self.toolkit / "nvvm/bin/cicc", *(self.path / name for name in ("g++", "cc1plus", "collect2"))]
        for path in paths:
            path.write_bytes(made.read_bytes() + path.name.encode())
            path.chmod(0o755)


class Replays:
    """Builds in one folder, one after the other, with one history: the second is warm."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        self.program = Program(folder)
        self.scale = scale
        self.stand_ins = StandIns(folder)
        self.program.env["PATH"] = f"{self.stand_ins.path}:{self.program.env['PATH']}"

    def write(self, replay: Replay, *, filled: bool = False) -> Path:
        """The build folder, nothing of it built. ``filled``: what a recorded input held beyond our first bytes is some
        preprocessed source, as well compressed as such is; a hole otherwise."""
        folder = self.program.folder / "build"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for each in replay.inputs:
            with (folder / each.name).open("w") as file:
                file.write(each.text)
                if filled and each.size_bytes > file.tell():
                    # No stand-in reads on after a zero.
                    file.write("\0" + _source(each.size_bytes)[: each.size_bytes - file.tell() - 1])
                file.truncate(max(each.size_bytes, file.tell()))
        (folder / "build.ninja").write_text(replay.ninja)
        return folder

    def argv(self, *command: str, cores: int, cwd: Path, rules: Rules | None = None, cluster: str = "") -> list[str]:
        """builddoctor over a command, as large as what it replays."""
        request = RunRequest(
            command=command,
            cwd=str(cwd),
            title="replay",
            toolkit=str(self.stand_ins.toolkit),
            cores=cores,
            doctor=False,
            trace=str(self.program.trace_file),
            summary=str(self.program.summary_file),
            cluster=cluster,
        )
        words = [msgspec.json.encode(each).decode() for each in (self.scale, request, rules or Rules())]
        return [sys.executable, str(MAGNIFIED), *words]

    def run(
        self,
        workload: Workload,
        *,
        cores: int,
        limit_mib: float,
        growth: Literal["flat", "ramp"] = "ramp",
        busy: bool = False,
        command: tuple[str, ...] = ("ninja",),
        nodes_mib: Sequence[float] = (),
    ) -> Replayed:
        """One build from nothing. ``limit_mib``: as recorded, before scaling; ``nodes_mib``: as much, of other machines
        with as many cores."""
        folder = self.write(replayed(workload, self.scale, growth=growth, busy=busy), filled=bool(nodes_mib))
        self.program.trace_file.unlink(missing_ok=True)
        self.program.summary_file.unlink(missing_ok=True)
        with contextlib.ExitStack() as stack:
            group, *groups = (
                stack.enter_context(memory_cgroup(int(each * self.scale.memory * MIB)))
                for each in (limit_mib, *nodes_mib)
            )
            cluster = stack.enter_context(contextlib.closing(self._nodes(groups, cores))).address if groups else ""
            argv = self.argv(*command, cores=cores, cwd=folder, cluster=cluster)
            done = group.run(argv, env=self.program.env, cwd=folder)
            return self._came_of_it(done, group, groups)

    def _nodes(self, groups: Sequence[MemoryCgroup], cores: int) -> Meeting:
        """Workers on the loopback, each in its cgroup and as large as it would be."""
        folder = self.program.folder / "meeting"
        shutil.rmtree(folder, ignore_errors=True)
        meeting = Meeting(folder)
        toolkit = self.stand_ins.toolkit
        cuda = [(name, toolkit / place) for name, place in (("cudafe++", "bin/cudafe++"), ("ptxas", "bin/ptxas"))]
        settings = NodeSettings(
            address=meeting.address,
            keys="",
            cores=cores,
            cuda=tuple((name, str(path)) for name, path in (*cuda, ("cicc", toolkit / "nvvm/bin/cicc"))),
            host=((f"{INSIDE_GCC}/cc1plus", str(self.stand_ins.path / "cc1plus")),),
        )
        scale, as_json = (msgspec.json.encode(each).decode() for each in (self.scale, settings))
        for number, group in enumerate(groups):
            program = Program(folder / f"node{number}")
            program.folder.mkdir()
            program.env["PATH"] = self.program.env["PATH"]
            request = RunRequest(
                command=(sys.executable, str(MAGNIFIED_NODE), scale, as_json),
                cwd=str(program.folder),
                title=f"node {number}",
                toolkit=str(toolkit),
                cores=cores,
                doctor=False,
                need_toolkit=True,
                trace=str(program.trace_file),
            )
            program.env["PYTHONPATH"] = str(Path(__file__).parents[1])
            words = [scale, msgspec.json.encode(request).decode(), "{}"]
            meeting.start(f"node{number}", program, [sys.executable, str(MAGNIFIED), *words], prefix=group.wrapped([]))
            meeting.await_line(f"node{number}", "serves ")
        return meeting

    def _came_of_it(
        self, done: subprocess.CompletedProcess[str], group: MemoryCgroup, others: Sequence[MemoryCgroup]
    ) -> Replayed:
        summary: Mapping[str, Any] = self.program.summary() if self.program.summary_file.exists() else {}
        return Replayed(
            returncode=done.returncode,
            output=done.stdout + done.stderr,
            kernel_kills=group.kernel_kills,
            highest_mib=group.peak_mib / self.scale.memory,
            node_kernel_kills=sum(each.kernel_kills for each in others),
            summary=dict(summary),
        )


def _source(least_bytes: int) -> str:
    """Preprocessed C++ of this machine, again and again: farther apart than zstd looks back."""
    once = _preprocessed()
    return once * (least_bytes // len(once) + 1)


@functools.cache
def _preprocessed() -> str:
    lines = "".join(f"#include <{name}>\n" for name in HEADERS)
    argv = ["c++", "-std=c++17", "-E", "-x", "c++", "-"]
    said = subprocess.run(argv, input=lines, check=True, capture_output=True, text=True).stdout
    return "".join(letter for letter in said if letter.isascii())
