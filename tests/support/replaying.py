"""Replays of recorded builds: stand-ins for the compilers, real gates, a real supervisor, a real memory cgroup.

Covers: compiling the stand-ins (stand_in.c) with the host's compiler, a toolkit and a g++ made of them, the build
folder, running it under builddoctor (support/magnified.py), and what came of it, counted up to full size.
Does *not* cover: what is replayed (``support.replay_files``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from builddoctor.core.request import RunRequest
from builddoctor.core.units import MIB
from builddoctor.runtime.sampler import Rules
from builddoctor.simulate.workload import Workload
from support.magnified import Scale
from support.memcg import MemoryCgroup, memory_cgroup
from support.program import Program
from support.replay_files import Replay, replayed

SOURCE = Path(__file__).with_name("stand_in.c")
MAGNIFIED = Path(__file__).with_name("magnified.py")


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """One replayed build. Summary and trace are in recorded MiB and seconds."""

    returncode: int
    output: str
    kernel_kills: int
    """counted by the kernel at the cgroup of the build"""
    highest_mib: float
    """most that the cgroup held, page cache and all; counted up"""
    summary: dict[str, Any]


class StandIns:
    """A CUDA toolkit and a g++ of stand-ins in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.toolkit, self.path = folder / "cuda", folder / "tools"
        made = folder / "stand_in"
        for each in (self.toolkit / "bin", self.toolkit / "nvvm" / "bin", self.path):
            each.mkdir(parents=True)
        subprocess.run(["cc", "-O2", "-o", str(made), str(SOURCE)], check=True)
        # Each is told by its name what it is; what is found behind a symbolic link would be told another.
        for name in ("bin/nvcc", "bin/cudafe++", "bin/ptxas", "bin/nvlink", "nvvm/bin/cicc"):
            os.link(made, self.toolkit / name)
        for name in ("g++", "cc1plus", "collect2"):
            os.link(made, self.path / name)


class Replays:
    """Builds in one folder, one after the other, with one history: the second is warm."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        self.program = Program(folder)
        self.scale = scale
        self.stand_ins = StandIns(folder)
        self.program.env["PATH"] = f"{self.stand_ins.path}:{self.program.env['PATH']}"

    def write(self, replay: Replay) -> Path:
        """The build folder, nothing of it built."""
        folder = self.program.folder / "build"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for each in replay.inputs:
            with (folder / each.name).open("w") as file:
                file.write(each.text)
                file.truncate(max(each.size_bytes, file.tell()))
        (folder / "build.ninja").write_text(replay.ninja)
        return folder

    def argv(self, *command: str, cores: int, cwd: Path, rules: Rules | None = None) -> list[str]:
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
    ) -> Replayed:
        """One build from nothing. ``limit_mib``: as recorded, before scaling."""
        folder = self.write(replayed(workload, self.scale, growth=growth, busy=busy))
        self.program.trace_file.unlink(missing_ok=True)
        self.program.summary_file.unlink(missing_ok=True)
        with memory_cgroup(int(limit_mib * self.scale.memory * MIB)) as group:
            done = group.run(self.argv(*command, cores=cores, cwd=folder), env=self.program.env, cwd=folder)
            return self._came_of_it(done, group)

    def _came_of_it(self, done: subprocess.CompletedProcess[str], group: MemoryCgroup) -> Replayed:
        summary: Mapping[str, Any] = self.program.summary() if self.program.summary_file.exists() else {}
        return Replayed(
            returncode=done.returncode,
            output=done.stdout + done.stderr,
            kernel_kills=group.kernel_kills,
            highest_mib=group.peak_mib / self.scale.memory,
            summary=dict(summary),
        )
