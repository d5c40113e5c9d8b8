"""Machines as pages: the list of named ones, one of them, and this machine as it was found. Pure: data in, lines out.

Text may come from a file of somebody's: nothing in it reaches the terminal as a control sequence.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from builddoctor.model.limits import MemoryLevel
from builddoctor.model.machine import Machine, NumaNode, Place
from builddoctor.model.profile import NominalMachine
from builddoctor.units import format_mib, one_line

LABEL = 16
WIDTH = 110


def profile_rows(machines: Sequence[NominalMachine]) -> list[str]:
    """One line a machine: name, cores, memory, what is left for compilers, architecture, GPUs."""
    rows = [f"{'name':<27}{'cores':<13}{'memory':>10}{'for builds':>12}  {'arch':<9}GPUs"]
    rows += [
        f"{one_line(each.name):<27}{_cores(each):<13}{format_mib(each.memory_mib):>10}"
        f"{format_mib(each.budget_mib):>12}  {each.architecture:<9}{one_line(each.gpus)}".rstrip()
        for each in machines
    ]
    return rows


def profile_page(machine: NominalMachine) -> list[str]:
    """All figures of a named machine with their sources."""
    lines = [one_line(f"{machine.name}: {machine.title}"), ""]
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
    lines += ["", "sources"]
    for source in machine.sources:
        lines += textwrap.wrap(
            one_line(f"{', '.join(source.figures)}: {source.says}"),
            WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
        )
        # An address is not broken: it is there to be pasted.
        lines.append(f"    {one_line(source.where)}")
    return lines if machine.sources else [*lines, "  none"]


def machine_page(machine: Machine) -> list[str]:
    """A machine as it was found: what a build may have there, and what decides that."""
    place = machine.platform
    lines = [
        one_line(f"{machine.name}: {place.architecture or 'unknown architecture'}, Linux {place.kernel}".rstrip()),
        "",
    ]
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


def _row(label: str, text: str) -> list[str]:
    """``label   text``; what is too long goes on under the text."""
    indent = " " * (LABEL + 2)
    name = one_line(label)[: LABEL - 1]
    wrapped = textwrap.wrap(one_line(text), WIDTH - LABEL, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"  {name:<{LABEL}}{wrapped[0]}".rstrip(), *(f"{indent}{more}" for more in wrapped[1:])]


def _cores(machine: NominalMachine) -> str:
    if machine.cores_are == "cores":
        return f"{machine.cores}"
    return f"{machine.cores} threads" if machine.cores > 1 else "1 thread"


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
        yield "WSL", "a virtual machine: it has what Windows gives it"
    if place.ci:
        yield "CI", f"{place.ci}: the agent lives in the same memory"
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
