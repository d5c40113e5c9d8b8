"""Two builds of the example at once under one memory limit, beside one alone: real nvcc, a real memory cgroup."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import series_bench

LIMIT_MIB = 3072


class Build(msgspec.Struct, frozen=True):
    """One build by builddoctor. ``wall_s`` from its start to its end."""

    wall_s: float
    result: str
    redone: int


def built(folder: Path, group: series_bench.MemoryCgroup, state: Path, ledger: Path) -> Build:
    """The configured example of ``folder`` with this history, sharing by this ledger."""
    summary = folder / "summary.json"
    env = {**os.environ, "BUILDDOCTOR_LEDGER_DIR": str(ledger)}
    env |= {"XDG_STATE_HOME": str(state), "XDG_DATA_HOME": str(state)}
    command = ["run", "--summary", str(summary), "--", "ninja", "-C", str(folder / "build")]
    began = time.monotonic()
    group.run([*series_bench.BUILDER, *command], env=env)
    told = json.loads(summary.read_text())
    return Build(time.monotonic() - began, told["result"], told["requeued"])


def sharing(rounds: int) -> list[str]:
    """Lines of a report."""
    lines = [
        f"The example, all for itself and twice at once, in a cgroup of {LIMIT_MIB} MiB. cold: nothing known before;",
        "warm: with the history of the lone cold build. *waits*: what it takes beyond its lone time, over that.",
        "Target: both complete, no kernel kills, and neither waits more than twice its lone time. Alone it keeps both",
        "cores busy for most of its time, so two cannot both be through much before twice that (waits 1.0).\n",
        "| history | alone s | two at once s | over alone | waits | kernel kills | results | redone |",
        "|" + " --- |" * 8,
    ]
    with tempfile.TemporaryDirectory() as name, series_bench.memory_cgroup(LIMIT_MIB * 1024**2) as group:
        place, ledger = Path(name), Path(name) / "ledger"
        folders = [series_bench.copied(place / each) for each in ("one", "two")]
        for number in range(rounds):
            for kind in ("cold", "warm"):
                known = [place / f"state-{number}-{each}" for each in range(3)]
                before = group.kernel_kills
                series_bench.configured(folders[0])
                alone = built(folders[0], group, known[0], ledger)
                for each in folders:
                    series_bench.configured(each)
                states = known[1:] if kind == "cold" else [known[0], known[0]]
                with ThreadPoolExecutor(2) as pool:
                    builds = [
                        pool.submit(built, folder, group, state, ledger)
                        for folder, state in zip(folders, states, strict=True)
                    ]
                    two = [each.result() for each in builds]
                lines.append(_row(kind, alone, two, group.kernel_kills - before))
                print(lines[-1], file=sys.stderr, flush=True)
    return lines


def _row(kind: str, alone: Build, two: list[Build], kills: int) -> str:
    times = " and ".join(f"{each.wall_s:.1f}" for each in two)
    ratios = " and ".join(f"{each.wall_s / alone.wall_s:.2f}" for each in two)
    waits = " and ".join(f"{each.wall_s / alone.wall_s - 1:.2f}" for each in two)
    results = ", ".join(each.result for each in (alone, *two))
    redone = ", ".join(str(each.redone) for each in (alone, *two))
    return f"| {kind} | {alone.wall_s:.1f} | {times} | {ratios} | {waits} | {kills} | {results} | {redone} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    print("\n".join(sharing(parser.parse_args().rounds)))
