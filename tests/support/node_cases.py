"""How much memory a process gets on some nodes of a machine, measured, against what builddoctor says there.

Covers: nothing set, ``numactl --membind``, ``cpuset.mems`` of a cgroup v2, a memory cgroup on a machine with many
nodes; NVIDIA's driver files faked by mounts in a namespace; the table of ``docs/results/truth.md``::

    PYTHONPATH=tests python -m support.node_cases [CASE...]

For machines of ours with NUMA nodes (``scripts/vm grace``): the kernel's own kill ends what takes memory, and nothing
but that process is to die. Needs root. Does *not* cover: page cache and the like (``support.truth``).
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from builddoctor.scheduler.budget import allowance
from builddoctor.system.root import parse_list
from support.memcg import MIB, here, memory_cgroup
from support.program import clean_environment
from support.reading import asking, reading_of
from support.truth import HOG, LESS_MIB
from unit.numa_trees import gpus

ALL_MIB = 1 << 20
"""More than any machine of ours has."""

DRIVER = "/proc/driver"
ADDRESSES = ("0008:01:00.0", "0009:01:00.0", "0018:01:00.0", "0019:01:00.0")

LAY_OVER = 'from=$0; for to in $1; do mount --bind "$from$to" "$to" || exit 1; done; shift; exec "$@"'
"""Folders and files of ``from`` over those of the same name, in a mount namespace of its own."""


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One case, asked and measured. Sizes in MiB."""

    case: str
    limit_mib: float
    said_mib: float
    budget_mib: float
    truth_mib: float
    unseen_mib: float
    """on the CPUs' own lists: free, in no figure that can be read often, and given out before anything is killed"""
    kind: str
    source: str

    @property
    def too_high(self) -> bool:
        return self.said_mib > self.truth_mib

    @property
    def too_low(self) -> bool:
        return self.said_mib < self.truth_mib - max(LESS_MIB, 0.1 * self.truth_mib) - self.unseen_mib


class Ways(msgspec.Struct, frozen=True):
    """What a command's words begin with, to run in the case."""

    asking: Sequence[str] = ()
    taking: Sequence[str] = ()
    nodes: str = "0-1023"
    """those that count in the case"""


Enter = Callable[[contextlib.ExitStack], Ways]


def _nothing(_: contextlib.ExitStack) -> Ways:
    return Ways()


def _membind(nodes: str) -> Enter:
    bound = ("numactl", f"--membind={nodes}")
    return lambda _: Ways(bound, bound, nodes)


def _beside_gpus(stack: contextlib.ExitStack) -> Ways:
    """The kernel would go on into the GPUs' nodes: what is right is what a process gets on the others."""
    seeing = stack.enter_context(laid_over(gpus("NVIDIA GB200", ADDRESSES), DRIVER))
    return Ways(seeing, ("numactl", "--membind=0,1"), "0,1")


def _cpuset(nodes: str) -> Enter:
    def enter(stack: contextlib.ExitStack) -> Ways:
        group = stack.enter_context(memory_cgroup(2**62))
        (group.folder.parent / "cgroup.subtree_control").write_text("+cpuset")
        (group.folder / "cpuset.mems").write_text(nodes)
        return Ways(group.wrapped(()), group.wrapped(()), nodes)

    return enter


def _limited(limit_mib: int) -> Enter:
    def enter(stack: contextlib.ExitStack) -> Ways:
        group = stack.enter_context(memory_cgroup(limit_mib * MIB))
        group.no_swap()
        return Ways(group.wrapped(()), group.wrapped(()), "")

    return enter


CASES: Mapping[str, Enter] = {
    "nothing set": _nothing,
    "numactl --membind=0": _membind("0"),
    "numactl --membind=0,1": _membind("0,1"),
    "numactl --membind=5, without CPUs": _membind("5"),
    "cpuset.mems 0-1": _cpuset("0-1"),
    "cpuset.mems 0-7": _cpuset("0-7"),
    "nothing set, nodes 2-33 are GPUs' (faked driver files)": _beside_gpus,
    "memory.max 512 MiB": _limited(512),
}

WHOLE_MACHINE = "nothing set"
"""Takes all of the machine's memory: minutes, and as much of what runs the machine."""


def look(name: str) -> NodeRow:
    """Ask builddoctor in the case, then take memory there until the kernel kills."""
    with contextlib.ExitStack() as stack:
        ways = CASES[name](stack)
        asked = _run([*ways.asking, *asking()])
        assert asked.returncode == 0, asked.stderr
        reading, unseen_mib = reading_of(asked.stdout), on_cpus_lists_mib(parse_list(ways.nodes))
        kills = kernel_kills()
        took = _run([*ways.taking, sys.executable, "-c", HOG, str(ALL_MIB)])
        assert took.returncode == -signal.SIGKILL, took.stderr
        assert kernel_kills() == kills + 1, "something else was killed as well"
        allowed = allowance(reading, 0.0)
    return NodeRow(
        case=name,
        limit_mib=reading.tightest.limit_mib,
        said_mib=reading.tightest.headroom_mib,
        budget_mib=allowed.budget_mib,
        truth_mib=float(took.stdout.split()[-1]),
        unseen_mib=unseen_mib,
        kind=reading.tightest.kind,
        source=reading.tightest.source,
    )


def kernel_kills() -> int:
    """OOM kills since the machine started."""
    rows = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(rows["oom_kill"])


def on_cpus_lists_mib(nodes: Collection[int]) -> float:
    """Free pages that CPUs keep for themselves (pcp lists): each up to its share of the low watermark (Linux 6.1)."""
    pages, counts = 0, False
    for line in Path("/proc/zoneinfo").read_text().splitlines():
        words = line.split()
        if words[0] == "Node":
            counts = int(words[1].rstrip(",")) in nodes
        elif words[0] == "count:" and counts:
            pages += int(words[1])
    return pages * os.sysconf("SC_PAGESIZE") / MIB


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    env = clean_environment()
    return subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def laid_over(files: Mapping[str, str], *places: str) -> Iterator[Sequence[str]]:
    """What a command's words begin with to see these files: each of ``places`` (a folder or a file) is theirs alone."""
    with tempfile.TemporaryDirectory(prefix="bd-test-over-") as folder:
        for name, text in files.items():
            path = Path(folder + name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        yield ("unshare", "--mount", "/bin/sh", "-c", LAY_OVER, folder, " ".join(places))


def table(rows: Sequence[NodeRow]) -> Iterator[str]:
    yield "| case | limit, and whose | builddoctor says | a process gets | difference | on CPUs' lists | budget |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in rows:
        off = "too high" if row.too_high else "too low" if row.too_low else ""
        share = (row.said_mib - row.truth_mib) / row.truth_mib
        yield (
            f"| {row.case} | {row.limit_mib:.0f}, {row.kind} | {row.said_mib:.0f} | {row.truth_mib:.0f} | "
            f"{row.said_mib - row.truth_mib:+.0f} ({share:+.1%}) {off}".rstrip()
            + f" | {row.unseen_mib:.0f} | {row.budget_mib:.0f} |"
        )


def main(wanted: Sequence[str]) -> int:
    sys.stdout.write(
        f"Linux {platform.release()} ({platform.machine()}), pages of {os.sysconf('SC_PAGESIZE') // 1024} KiB, "
        f"memory cgroups v{here().version}; in MiB.\n\n"
    )
    rows = []
    for number, name in enumerate(CASES, 1):
        if not wanted or str(number) in wanted:
            rows.append(look(name))
            sys.stderr.write(f"{rows[-1]}\n")
    sys.stdout.write("".join(f"{line}\n" for line in table(rows)))
    return int(any(row.too_high or row.too_low for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
