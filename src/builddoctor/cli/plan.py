"""``builddoctor plan PROJECT|RECIPE``: what a build would take, here or on a machine that is not there yet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.text import Text

from builddoctor.cli import options
from builddoctor.cli.options import archs_of, native_archs
from builddoctor.cli.output import JsonOption, json_text, page_signs, page_width, print_answer, print_notes, write_file
from builddoctor.cluster.addresses import checked_address
from builddoctor.cluster.fleet import read_fleet
from builddoctor.core.errors import ClusterError, UsageError
from builddoctor.core.plan import MatrixPlan, Plan, PlanNode
from builddoctor.core.units import escaped, parse_size_mib, parse_span_s
from builddoctor.doctor.examine import current_folder
from builddoctor.plans.inputs import ChosenRecipe, PlanHost, choose_for_plan, choose_host, figures_only
from builddoctor.plans.matrix import plan_cells, read_cells, together
from builddoctor.plans.planner import plan_chosen
from builddoctor.system.root import SystemRoot
from builddoctor.ui.layout import UNICODE, Signs
from builddoctor.ui.matrix_page import matrix_page
from builddoctor.ui.plan_page import plan_page

FILE_WIDTH = 100


Machine = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="MACHINE|FILE",
        show_default=False,
        help="A machine of `machine list`, e.g. gb200-node, or a file of `machine probe -o`.  [default: this one]",
    ),
]
PlanCores = Annotated[
    int, typer.Option("--cores", metavar="N", show_default=False, help="Cores of a container.  [default: all]")
]
PlanMemory = Annotated[
    str, typer.Option("--memory", metavar="SIZE", show_default=False, help="Memory limit of a container, e.g. 24GiB.")
]


def plan(
    what: Annotated[
        str,
        typer.Argument(
            metavar="PROJECT|RECIPE", help="A project by name or folder, or a recipe by name, file or address."
        ),
    ],
    arch: options.Archs = "",
    on: Machine = "",
    cores: PlanCores = 0,
    memory: PlanMemory = "",
    version: Annotated[
        str, typer.Option("--version", metavar="V", show_default=False, help="The project's version.")
    ] = "",
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster",
            metavar="ADDRESS|KIND:…",
            show_default=False,
            help="What other machines would bring, as `run` takes them: e.g. slurm:nodes=4,cores=8,memory=32GiB.",
        ),
    ] = "",
    keys: options.KeysOption = "",
    by_arch: Annotated[bool, typer.Option("--by-arch", help="Stages for each set of architectures.")] = False,
    time: options.TimeLimit = "",
    matrix: options.Matrix = None,
    exclude: options.Exclude = None,
    json: JsonOption = False,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", show_default=False, help="Write it to this file.")
    ] = "",
) -> None:
    """Predict a build: time, peak memory, stages, and the effect of more memory or cores. Starts nothing.

    \b
    Examples:
      builddoctor plan transformer_engine --arch gb200 --on gb200-node
      builddoctor plan . --cores 8 --memory 32GiB   # would it fit into that container?
      builddoctor plan vllm --cluster slurm:nodes=4   # what would four more machines like this one bring?
      builddoctor plan vllm --matrix arch=sm_90,sm_100 --matrix python=3.11,3.12 --time 4h   # a release of wheels
    """
    if not what.strip():
        raise UsageError("the name of the project is empty", hint="builddoctor plan .")
    if cores < 0:
        raise UsageError(f"--cores {cores}: at least 1", hint="--cores 8")
    env = os.environ
    memory_mib = parse_size_mib(memory) if memory else 0.0
    archs = tuple(dict.fromkeys(each.sm for each in archs_of(arch, env)))
    host = choose_host(SystemRoot(), env, on=on, cores=cores, memory_mib=memory_mib)
    limit_s = parse_span_s(time) if time else 0.0

    def choose(wanted: Sequence[str]) -> ChosenRecipe:
        return choose_for_plan(what, host, archs=wanted, version=version, env=env, here=current_folder() or Path("/"))

    if exclude and not matrix:
        raise UsageError("--exclude takes cells out of a matrix", hint="--matrix python=3.11,3.12")
    if matrix:
        if cluster or by_arch:
            raise UsageError("a matrix is planned without --cluster and --by-arch", hint="plan one of its cells")
        cells = read_cells(matrix, exclude or (), archs=archs, native=native_archs(matrix, env))
        planned = plan_cells(cells, host, choose=choose, time_limit_s=limit_s)
        table = together(planned, time_limit_s=limit_s)
        typed = [what]
        for option, texts in (
            ("--matrix", matrix),
            ("--exclude", exclude or []),
            ("--arch", [arch]),
            ("--version", [version]),
            ("--on", [on]),
            ("--cores", [str(cores)] if cores else []),
            ("--memory", [memory]),
            ("--time", [time]),
        ):
            typed += [word for text in texts if text for word in (option, text)]
        page = partial(matrix_page, table, trust=planned[0].chosen.distance.trust, typed=typed)
        _show(table, page, json=json, output=output)
        return
    chosen = choose(archs)
    nodes = _nodes(cluster, keys, host) if cluster else ()
    made = plan_chosen(chosen, host, by_arch=by_arch, nodes=nodes, time_limit_s=limit_s)
    _show(made, partial(plan_page, made, trust=chosen.distance.trust), json=json, output=output)


def _nodes(cluster: str, keys: str, like: PlanHost) -> tuple[PlanNode, ...]:
    """Those that are there, or that a build would start. Raises UsageError, ClusterError, ExtraMissingError."""
    if (fleet := read_fleet(cluster)) is not None:
        # Where nothing is said they are like this one, or have a share of it.
        shares = fleet.nodes + 1 if fleet.kind == "local" else 1
        cores, memory_mib = fleet.cores or max(1, like.cores // shares), fleet.memory_mib or like.memory_mib / shares
        each = figures_only(cores=cores, memory_mib=memory_mib, like=like)
        return (PlanNode(cores=each.cores, budget_mib=round(each.budget_mib, 1)),) * fleet.nodes
    address, folder = checked_address(cluster), options.with_cluster(keys)
    from builddoctor.cluster.client import nodes_of

    facts = nodes_of(address, folder).values()
    if not facts:
        raise ClusterError(f"no node is at {cluster}", hint=f"`builddoctor worker {cluster}` on each of them")
    return tuple(PlanNode(cores=each.cores, budget_mib=each.budget_mib) for each in facts)


class _Page(Protocol):
    def __call__(self, *, width: int, signs: Signs) -> list[Text]: ...


def _show(made: Plan | MatrixPlan, page: _Page, *, json: bool, output: str) -> None:
    if output:
        lines = page(width=FILE_WIDTH, signs=UNICODE)
        text = json_text(made, pretty=True) if json else "\n".join(line.plain.rstrip() for line in lines)
        write_file(Path(output), (text + "\n").encode("utf-8", "backslashreplace"))
        print_notes([f"builddoctor: wrote {escaped(output)}"])
    else:
        print_answer(made, lambda: page(width=page_width(), signs=page_signs()), json=json)
