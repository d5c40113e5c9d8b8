"""What a store of phases costs and spares: builds of the example without one, with an empty and with a warm one."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from builddoctor.cluster.keys import make_keys
from support.nodes import Meeting
from support.objects import objects_of

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "attention_kernels"


class Took(msgspec.Struct, frozen=True, kw_only=True):
    """One build."""

    wall_s: float
    cpu_s: float
    """of all that it started"""
    phases: int
    stored: int
    equal: bool
    """its objects are those of the build without a store"""


def store() -> list[str]:
    """Walls and processor times in one run, and whether the objects are the same bytes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "example"
        shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("build", "dist"))
        builds = _Builds(folder, source)
        ours, both = ["--store", str(folder / "store")], ["--store", str(folder / "both")]
        rows = [
            ("no store", builds.build("plain", "90", [])),
            ("an empty store: all is kept", builds.build("empty", "90", ours)),
            ("again, another build folder", builds.build("warm", "90", ours)),
        ]
        builds.build("both", "90;100", both)
        rows.append(("sm_90, where sm_90 and sm_100 were built", builds.build("subset", "90", both)))
        make_keys(folder / "keys")
        meeting = Meeting(folder / "meeting", keys=folder / "keys", serve=["--store", str(folder / "offered")])
        try:
            address = meeting.await_line("serve", "--store ").rpartition("--store ")[2].strip("`")
            elsewhere = ["--store", address, *meeting.options]
            rows.append(("an empty one over TLS on the loopback", builds.build("tls-empty", "90", elsewhere)))
            rows.append(("again, over TLS on the loopback", builds.build("tls-warm", "90", elsewhere)))
        finally:
            meeting.close()
        size_mib = sum(path.stat().st_size for path in (folder / "store").rglob("*") if path.is_file()) / 2**20
    first = rows[0][1]
    lines = [
        "The example for sm_90, memory unlimited, one build after the other. *Processor*: of all that it starts.\n",
        "| build | wall s | of no store | processor s | of no store | phases | from the store | objects equal |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for title, took in rows:
        wall, cpu = took.wall_s / first.wall_s, took.cpu_s / first.cpu_s
        times = f"{took.wall_s:.1f} | {wall:.0%} | {took.cpu_s:.1f} | {cpu:.0%}"
        lines.append(f"| {title} | {times} | {took.phases} | {took.stored} | {'yes' if took.equal else 'NO'} |")
    return [*lines, f"\nThe store holds {size_mib:.1f} MiB. Target: a second build in at most 20 % of the time."]


class _Builds:
    def __init__(self, folder: Path, source: Path) -> None:
        self._folder, self._source = folder, source

    def build(self, name: str, archs: str, options: list[str]) -> Took:
        build, summary = self._source / name, self._folder / "summary.json"
        configure = [
            "cmake",
            "-S",
            str(self._source),
            "-B",
            str(build),
            "-G",
            "Ninja",
            f"-DCMAKE_CUDA_ARCHITECTURES={archs}",
        ]
        subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
        command = [
            sys.executable,
            "-m",
            "builddoctor",
            "run",
            "--summary",
            str(summary),
            *options,
            "--",
            "ninja",
            "-C",
            str(build),
        ]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        told = json.loads(summary.read_text())
        print(f"{name}: {wall_s:.1f} s", file=sys.stderr, flush=True)
        return Took(
            wall_s=wall_s,
            cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            phases=told["phases"],
            stored=told["stored"],
            equal=objects_of(build) == objects_of(self._source / "plain"),
        )
