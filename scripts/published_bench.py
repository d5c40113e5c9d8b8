"""Sizing as published (``tests/support/published.py``) beside builddoctor, for the page ``limits``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from itertools import product

from builddoctor.simulate.result import Host, Result, Rules
from builddoctor.simulate.shipped import as_shipped, shipped_rules
from builddoctor.simulate.workload import Growth, Workload
from support.published import KsPlus, Sizey, Tovar, reserving
from support.workloads import disturbed, warm

TOVAR = {aim: partial(Tovar, aim) for aim in ("waste", "throughput")}
SIZEY = {
    f"{alpha:g}, {'mixed' if mixes else 'best'}, {offset}": partial(Sizey, alpha=alpha, mixes=mixes, offset=offset)
    for alpha, mixes, offset in product((0.0, 0.5), (False, True), ("dynamic", "median below"))
}
KS_PLUS = {
    f"{segments}, {early:g}, {high:g}": partial(KsPlus, segments=segments, early=early, high=high)
    for segments, early, high in product((4, 8), (0.7, 0.85), (1.1, 1.25))
}
COLUMNS = (
    "cores, GiB", "Tovar, cold", "warm", "Sizey, cold", "warm", "KS+, cold", "warm, by unit",
    "builddoctor, cold", "warm", "warm, no reserve",
)  # fmt: skip

EXPLAINED = [
    "Sizing as published: Tovar et al. (TPDS 2018), Sizey (arXiv 2407.16353) and KS+ (arXiv 2408.12290), written anew",
    "(what is theirs and what is not: `tests/support/published.py`). The whole limit is given out; what outgrows its",
    "allocation is ended and sized again. r: phases redone, whoever ended them. cold: learned within the build. warm:",
    "after one earlier build, its peaks and times up to 10 % off; for KS+ each phase of each unit is then a category.",
    "In brackets the setting that serves best, found by trying. Tovar: the aim. Sizey: alpha, all models mixed or the",
    "best alone, offset. KS+: segments, the factor of their ends, that of their peaks.",
]


def table(workload: Workload, growth: Growth, machines: Iterable[tuple[int, float]]) -> list[str]:
    """One row a machine."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + " --- |" * len(COLUMNS)]
    for cores, gib in machines:
        lines.append("| " + " | ".join(_row(workload, growth, cores, gib)) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def _row(workload: Workload, growth: Growth, cores: int, gib: float) -> list[str]:
    host = Host(cores=cores, limit_mib=gib * 1024)
    whole = Host(cores=cores, limit_mib=gib * 1024, own_budget_mib=gib * 1024)
    earlier = disturbed(workload, share=0.1, times=0.1, seed=1)
    theirs = Rules(growth=growth)
    ours = shipped_rules(host, growth)
    cells = [f"{cores}, {gib}"]
    for sizers in (TOVAR, SIZEY, KS_PLUS):
        for known in (None, earlier):
            by_unit = sizers is KS_PLUS and known is not None
            built = (
                (name, reserving(workload, sizer, host, theirs, earlier=known, by_unit=by_unit))
                for name, sizer in sizers.items()
            )
            done = [(result.makespan_s, name, result) for name, result in built if result.completed]
            cells.append(f"{_told(min(done)[2])} ({min(done)[1]})" if done else "failed")
    cells.append(_told(as_shipped(workload, host, rules=ours)))
    cells += [_told(as_shipped(workload, on, rules=ours, known=warm(earlier, growth=growth))) for on in (host, whole)]
    return cells


def _told(result: Result) -> str:
    words = [f"{result.makespan_s:.0f}" if result.completed else "failed"]
    words += [f"{result.kernel_kills} k"] * (result.kernel_kills > 0) + [f"{result.requeued} r"] * (result.requeued > 0)
    return ", ".join(words)
