"""What a plan predicted against what a build took: time and peak memory.

With traces: a recipe (``--recipe``, else one made from the first trace) planned for each trace's own cores, limit and
budget. Without: the example is built once without a limit for its recipe, and then cold with that recipe at three
limits, in memory cgroups (needs root). A plan is of compiling: configure steps before it are not counted, nor what pip
does around it; both times are shown.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from builddoctor.core.events import BuildEnded, Header, PhaseAsked, PhaseEnded, PhaseStarted, UnitBegan  # noqa: E402
from builddoctor.core.recipe import Recipe  # noqa: E402
from builddoctor.plans.inputs import PlanHost  # noqa: E402
from builddoctor.plans.planner import make_plan  # noqa: E402
from builddoctor.recipes.from_trace import recipe_from_traces  # noqa: E402
from builddoctor.recipes.recipe_file import read_recipe  # noqa: E402
from builddoctor.trace.reader import TraceReader  # noqa: E402

EXAMPLE = ROOT / "examples" / "attention_kernels"
LIMITS_MIB = (2600, 3072, 4096)
BUILDER = [sys.executable, "-m", "builddoctor"]
TIME_TARGET, PEAK_TARGET = 15.0, 10.0
"""percent"""

HEAD = (
    "| build | cores | limit MiB | redone | kernel kills | predicted s (likely) | compiled in s | off | wall s | "
    "predicted MiB (likely) | peak MiB | off |"
)


class Took(msgspec.Struct, frozen=True, kw_only=True):
    """One build, by its trace."""

    cores: int
    limit_mib: float
    budget_mib: float
    page_kib: int
    compiled_s: float
    """from the start of its first phase to the end of its last, configure steps left out"""
    wall_s: float
    peak_mib: float
    redone: int
    kernel_kills: int


def took(trace: Path) -> Took:
    """Raises ValueError for a build that did not complete."""
    header, summary = None, None
    counted: set[str] = set()
    phases: set[int] = set()
    starts: list[float] = []
    ends: list[float] = []
    for record in TraceReader(trace):
        if isinstance(record, Header):
            header = record
        elif isinstance(record, UnitBegan) and record.unit.counted:
            counted.add(record.unit.unit_id)
        elif isinstance(record, PhaseAsked) and record.phase.unit_id in counted:
            phases.add(record.phase.phase_id)
        elif isinstance(record, PhaseStarted) and record.phase_id in phases:
            starts.append(record.at_s)
        elif isinstance(record, PhaseEnded) and record.phase_id in phases:
            ends.append(record.at_s)
        elif isinstance(record, BuildEnded):
            summary = record.summary
    if header is None or summary is None or summary.result != "ok" or not ends:
        raise ValueError(f"{trace}: not the trace of a build that completed")
    return Took(
        cores=header.cores,
        limit_mib=summary.limit_mib,
        # As it was when the build began: a plan knows no more.
        budget_mib=header.budget_mib,
        page_kib=header.page_kib,
        compiled_s=max(ends) - min(starts),
        wall_s=summary.wall_s,
        peak_mib=summary.peak_mib,
        redone=summary.requeued,
        kernel_kills=summary.kernel_oom_kills,
    )


def compared(recipe: Recipe, traces: list[Path]) -> list[str]:
    lines = [HEAD, "|" + " --- |" * HEAD[1:-1].count("|") + " --- |"]
    times: list[float] = []
    peaks: list[float] = []
    for trace in traces:
        real = took(trace)
        host = PlanHost(
            name=trace.name,
            cores=real.cores,
            memory_mib=real.limit_mib,
            reserve_mib=real.limit_mib - real.budget_mib,
            budget_mib=real.budget_mib,
            page_kib=real.page_kib,
            contained=True,
            measured=True,
        )
        plan = make_plan(recipe, name="recipe", host=host)
        times.append(100 * (plan.makespan_s / real.compiled_s - 1))
        peaks.append(100 * (plan.peak_mib / real.peak_mib - 1))
        likely_s, likely_mib = plan.makespan_range_s, plan.peak_range_mib
        cells = (
            trace.stem,
            real.cores,
            f"{real.limit_mib:.0f}",
            real.redone,
            real.kernel_kills,
            f"{plan.makespan_s:.1f} ({likely_s.low:.0f} to {likely_s.high:.0f})",
            f"{real.compiled_s:.1f}",
            f"{times[-1]:+.0f} %",
            f"{real.wall_s:.1f}",
            f"{plan.peak_mib:.0f} ({likely_mib.low:.0f} to {likely_mib.high:.0f})",
            f"{real.peak_mib:.0f}",
            f"{peaks[-1]:+.0f} %",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
        print(lines[-1], file=sys.stderr, flush=True)
    lines.append(
        f"\nTime at most **{max(map(abs, times)):.0f} %** off (target: {TIME_TARGET:.0f} %), peak at most "
        f"**{max(map(abs, peaks)):.0f} %** (target: {PEAK_TARGET:.0f} %)."
    )
    return lines


def plan(recipe: Path | None, traces: list[Path]) -> list[str]:
    """Lines of a report."""
    if traces:
        made = read_recipe(recipe) if recipe is not None else recipe_from_traces(traces[:1]).recipe
        origin = f"`{recipe.name}`" if recipe is not None else f"made from `{traces[0].name}`"
        return [f"Recipe {origin}: {len(made.units)} units of {made.project.name}.\n", *compared(made, traces)]
    with tempfile.TemporaryDirectory() as name:
        return example(Path(name))


def example(folder: Path) -> list[str]:
    """The example, cold: without a limit for the recipe, then with the recipe at three limits."""
    from support.memcg import memory_cgroup

    source = folder / "example"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("build", "dist"))
    first = folder / "unlimited.jsonl"
    subprocess.run(build(source, first, ""), check=True, env=cold(folder, "0"), stdout=subprocess.DEVNULL)
    made = folder / "example.toml"
    subprocess.run([*BUILDER, "recipe", "from-trace", str(first), "-o", str(made)], check=True)
    traces = []
    for limit_mib in LIMITS_MIB:
        trace = folder / f"{limit_mib} MiB.jsonl"
        with memory_cgroup(limit_mib * 1024**2) as group:
            result = group.run(build(source, trace, str(made)), env=cold(folder, str(limit_mib)))
        if result.returncode:
            raise SystemExit(f"the example failed in {limit_mib} MiB: {result.stderr[-2000:]}")
        traces.append(trace)
    recipe = read_recipe(made)
    told = f"The example (sm_90, {len(recipe.units)} units): a recipe from a build without a limit, then a build with"
    return [f"{told} that recipe and no history in a memory cgroup of each size.\n", *compared(recipe, traces)]


def cold(folder: Path, name: str) -> dict[str, str]:
    """A history of its own, and so none."""
    state = str(folder / f"state-{name}")
    return {**os.environ, "BUILDDOCTOR_DATA_DIR": state, "XDG_DATA_HOME": state, "XDG_STATE_HOME": state}


def build(source: Path, trace: Path, recipe: str) -> list[str]:
    objects = source / "build"
    shutil.rmtree(objects, ignore_errors=True)
    command = ["cmake", "-S", str(source), "-B", str(objects), "-G", "Ninja", "-DCMAKE_CUDA_ARCHITECTURES=90"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with_recipe = ["--recipe", recipe] if recipe else ["--recipe", "none"]
    return [*BUILDER, "run", *with_recipe, "--trace", str(trace), "--", "ninja", "-C", str(objects)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path)
    parser.add_argument("--trace", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    print("\n".join(plan(arguments.recipe, arguments.trace)))
