"""Machines and their CUDA toolkits as pages: named machines, this one as it was found, nodes, toolkits, installations.

Text may come from a file of unknown origin: nothing in it reaches the terminal as a control sequence.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rich.text import Text

from builddoctor.core.cluster import ClusterNode
from builddoctor.core.limits import MemoryLevel
from builddoctor.core.machine import Machine, NumaNode, Place
from builddoctor.core.units import format_mib, one_line
from builddoctor.machines.named import NominalMachine
from builddoctor.toolkits.install import InstallPlan
from builddoctor.toolkits.listing import FoundToolkit
from builddoctor.ui.layout import Column, labelled, plural, table

LABEL = 16
WIDTH = 112


def profile_rows(machines: Sequence[NominalMachine]) -> list[Text]:
    """One line a machine: name, cores, memory, what is left for compilers, architecture, GPUs."""
    columns = [Column("name"), Column("cores"), Column("memory", right=True), Column("for builds", right=True)]
    rows = [
        (
            each.name,
            _cores(each),
            format_mib(each.memory_mib),
            format_mib(each.budget_mib),
            each.architecture,
            each.gpus,
        )
        for each in machines
    ]
    return table([*columns, Column("arch"), Column("GPUs")], rows)


def node_rows(nodes: Sequence[ClusterNode]) -> list[Text]:
    """One line a node; a sentence where there is none."""
    if not nodes:
        return [Text("no nodes: `builddoctor worker ADDRESS` on another machine makes it one")]
    columns = [Column("host"), Column("cores", right=True), Column("for builds", right=True), Column("arch")]
    rows = [
        (
            one_line(each.host),
            str(each.cores),
            format_mib(each.budget_mib),
            one_line(each.machine),
            one_line(each.builddoctor),
            one_line(each.address),
        )
        for each in nodes
    ]
    return table([*columns, Column("builddoctor"), Column("address")], rows)


def profile_page(machine: NominalMachine) -> list[Text]:
    """All figures of a named machine with their sources."""
    lines = [Text(one_line(f"{machine.name}: {machine.title}"), style="bold"), Text()]
    lines += _row("cores", f"{_cores(machine)}, {machine.architecture}")
    lines += _row(
        "memory", f"{format_mib(machine.memory_mib)}, {format_mib(machine.memory_mib / machine.cores)} a core"
    )
    if machine.page_kib:
        lines += _row("page size", f"{machine.page_kib} KiB")
    lines += _row("GPUs", machine.gpus or "none")
    if machine.hbm_mib_as_numa:
        lines += _row("GPU memory", f"{format_mib(machine.hbm_mib_as_numa)} as NUMA nodes in NUMA mode; not counted")
    lines += _row("for builds", f"{format_mib(machine.budget_mib)}, nominal: {_how(machine)}")
    for note in machine.notes:
        lines += _row("note", note)
    lines += [Text(), Text("sources", style="bold")]
    for source in machine.sources:
        said = one_line(f"{', '.join(source.figures)}: {source.says}")
        lines += map(Text, textwrap.wrap(said, WIDTH, initial_indent="  ", subsequent_indent="    "))
        # An address is not broken: it is there to be pasted.
        lines.append(Text(f"    {one_line(source.where)}"))
    return lines if machine.sources else [*lines, Text("  none")]


def machine_page(machine: Machine) -> list[Text]:
    """A machine as it was found: what a build may have there, and what decides that."""
    place = machine.platform
    what = f"{machine.name}: {place.architecture or 'unknown architecture'}, Linux {place.kernel}".rstrip()
    lines = [Text(one_line(what), style="bold"), Text()]
    lines += _row("cores", f"{machine.cores} ({machine.cores_source})")
    lines += _row("memory", f"{format_mib(machine.limit_mib)}; {format_mib(machine.headroom_mib)} of it free now")
    lines += _row("limited by", machine.limited_by)
    lines += _row("for builds", f"{format_mib(machine.budget_mib)} now ({format_mib(machine.reserve_mib)} stays free)")
    lines += _row("page size", f"{place.page_kib} KiB")
    lines += _row("GPUs", ", ".join(place.gpus) or "none seen")
    for label, text in _surroundings(machine):
        lines += _row(label, text)
    for level in machine.levels:
        lines += _row("level", _level(level))
    for node in machine.numa.nodes if len(machine.numa.nodes) > 1 else ():
        lines += _row("NUMA node", _node(node))
    for cap in machine.process_caps:
        lines += _row(
            "process cap", f"{cap.name} {format_mib(cap.limit_mib)}: a process that wants more gets no memory"
        )
    for folder in machine.places:
        lines += _row(folder.role, _place(folder))
    for what in machine.unread:
        lines += _row("could not read", what)
    return lines


def _row(label: str, text: str) -> list[Text]:
    return labelled(label, text or "-", WIDTH, cells=LABEL)


def _cores(machine: NominalMachine) -> str:
    if machine.cores_are == "cores":
        return f"{machine.cores}"
    return plural(machine.cores, "thread")


def _how(machine: NominalMachine) -> str:
    system = machine.limit_mib - machine.headroom_mib
    return f"less {format_mib(system)} for the system and {format_mib(machine.reserve_mib)} that stay free"


def _surroundings(machine: Machine) -> Iterable[tuple[str, str]]:
    """What kind of place this is, as far as it is out of the ordinary."""
    place = machine.platform
    if place.unified_memory:
        yield "unified memory", f"{place.unified_memory}: CPU and GPU share it; running out freezes the machine"
    if place.container or place.kubernetes or place.lxcfs:
        kind = place.container or "yes"
        yield "container", kind + (", Kubernetes" if place.kubernetes else "") + (", lxcfs" if place.lxcfs else "")
    if place.wsl:
        kind = (
            "a virtual machine: it has what Windows gives it" if place.wsl_version != 1 else "1: Windows's own memory"
        )
        yield "WSL", kind
    if place.ci:
        yield "CI", place.ci + (": the agent lives in the same memory" if machine.surroundings.ci_runner else "")
    if place.notebook:
        yield "notebook", place.notebook
    if place.scheduler:
        yield "scheduler", place.scheduler
    if machine.numa.coherent_mode:
        yield "GPU memory", f"mode {machine.numa.coherent_mode}"
    if machine.numa.policy:
        yield "memory policy", machine.numa.policy
    if machine.host.swap_total_mib:
        yield "swap", f"{format_mib(machine.host.swap_total_mib)}, counted as none"


def _level(level: MemoryLevel) -> str:
    note = f"; {level.note}" if level.note else ""
    return (
        f"{level.kind}: {format_mib(level.headroom_mib)} of {format_mib(level.limit_mib)} free, {level.source}, "
        f"{level.confidence} confidence{note}"
    )


def _node(node: NumaNode) -> str:
    allowed = "" if node.allowed else ", not for this process"
    cpus = f"{node.cpus} CPUs" if node.cpus else "no CPUs"
    free = f"{format_mib(node.available_mib)} of {format_mib(node.total_mib)} free"
    return f"{node.node}: {node.kind}, {cpus}, {free}{allowed}"


def _place(place: Place) -> str:
    size = f"{format_mib(place.free_mib)} free" if place.free_mib is not None else "free space unknown"
    memory = ", in memory: what is written there takes memory" if place.in_memory else ""
    return f"{place.path}: {size}, {place.filesystem or 'unknown file system'}{memory}" + (
        "" if place.writable else ", not writable"
    )


def toolkit_rows(found: Sequence[FoundToolkit], *, here: str) -> list[Text]:
    """One line each: version, kind, path, what it lacks. ``here``: this machine's processor."""
    if not found:
        return [Text("no CUDA toolkit on this machine")]
    rows: list[tuple[str, str, str]] = []
    for each in found:
        other = f" ({each.arch})" if each.arch != here else ""
        rows.append((each.version or "?", each.kind, f"{each.path}{other}"))
        if each.problem:
            rows.append(("", "", f"cannot be used: {each.problem}"))
        elif each.lacks:
            rows.append(("", "", f"without {', '.join(each.lacks)}"))
    return table([Column("version"), Column("kind"), Column("path")], rows)


def plan_rows(plan: InstallPlan) -> list[Text]:
    """Packages, sizes, place."""
    rows = [f"CUDA {plan.release} for {plan.arch} in {plan.folder}"]
    rows += [f"  {one.requirement}{'   in the cache' if one.cached else ''}" for one in plan.packages]
    free = f", {format_mib(plan.free_mib)} free there" if plan.free_mib is not None else ""
    rows.append(f"about {format_mib(plan.fetch_mib)} to fetch, {format_mib(plan.disk_mib)} on disk{free}")
    return [Text(one_line(row)) for row in rows]
