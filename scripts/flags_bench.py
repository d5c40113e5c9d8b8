"""What compiler flags buy: memory, processor time and object size of real units with and without each.

From ``diagnose/flag_effects.csv``, which ``scripts/flags`` measures. Covers: a table for each flag, of the
programs that it is for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from builddoctor.diagnose.flag_effects import (
    FRONT_END,
    NO_LINE_INFO,
    NONE,
    OBJTEMP,
    TWO_ARCHS,
    TWO_AT_ONCE,
    UNIT,
    Effect,
    effects,
    flag_rows,
)

TITLES: Sequence[tuple[str, str, tuple[str, ...]]] = (
    ("-Xptxas -O1", "`-Xptxas -O1`: ptxas optimises less", ("ptxas",)),
    ("-Xcicc -O1", "`-Xcicc -O1`: cicc optimises less", ("cicc", "ptxas")),
    ("--Ofast-compile=min", "`--Ofast-compile=min`: less optimised, the least of its levels", ("cicc", "ptxas")),
    (FRONT_END, "`-fdevice-syntax-only`: cicc's front end alone", ("cicc",)),
    ("--split-compile 2", "`--split-compile 2`: two threads in cicc and ptxas", ("cicc", "ptxas")),
    (NO_LINE_INFO, "Without `-lineinfo`", ("cicc", "ptxas")),
    ("ggc", "gcc's garbage collection earlier (`ggc-min-expand=10`, `ggc-min-heapsize=32768`)", ("cc1plus",)),
)

OF_UNITS = (
    (TWO_ARCHS, "Two architectures in place of one"),
    (TWO_AT_ONCE, "Two architectures at once (`--threads 2`), in place of one after the other"),
    ("--split-compile 2", "`--split-compile 2`: the whole unit"),
    (OBJTEMP, "`-objtemp`: the whole unit"),
)
"""What is compared by all that ran at one moment, and by the time from the first process to the last."""

ABOUT = """\
compiled once with each flag behind the project's own (`scripts/flags`).
MiB are of the largest process of a program, times of the processor. *Object*: of the whole unit.
Tables of whole units: MiB of all its processes at one moment, *time* from the first process to the last on two
cores, all rows of such a unit measured on one machine (2 cores, AMD EPYC), one after the other."""


def unit_name(effect: Effect) -> str:
    plain = effect.plain
    return f"{plain.project} {plain.version}, `{os.path.basename(plain.place)}`, {plain.arch}"


def row(effect: Effect) -> str:
    plain, changed = effect.plain, effect.changed
    if changed.error:
        how = "does not compile" if " error " in changed.error else changed.error
        return f"| {unit_name(effect)} | {plain.tool} | {plain.peak_mib:.0f} | {how} | | | |"
    times = f"{changed.cpu_s / plain.cpu_s:.2f}" if plain.cpu_s else ""
    return (
        f"| {unit_name(effect)} | {plain.tool} | {plain.peak_mib:.0f} | {changed.peak_mib:.0f} "
        f"| {changed.peak_mib / plain.peak_mib:.2f} | {times} | {changed.object_kib / plain.object_kib:.2f} |"
    )


def unit_row(effect: Effect) -> str:
    plain, changed = effect.plain, effect.changed
    return (
        f"| {unit_name(effect)} | {plain.peak_mib:.0f} | {changed.peak_mib:.0f} "
        f"| {changed.peak_mib / plain.peak_mib:.2f} | {changed.wall_s / plain.wall_s:.2f} "
        f"| {changed.cpu_s / plain.cpu_s:.2f} | {changed.object_kib / plain.object_kib:.2f} |"
    )


def flags() -> list[str]:
    """Lines of a report."""
    rows = flag_rows()
    versions = sorted({each.nvcc for each in rows})
    projects = {each.project for each in rows}
    about = f"One or two units of each of {len(projects)} projects, nvcc {', '.join(versions)}, gcc 12.2, one arch"
    lines = [f"{about}; {ABOUT}"]
    for flag, title, tools in TITLES:
        before, after = ("with it", "without") if flag == NO_LINE_INFO else ("without", "with it")
        lines += [
            f"\n## {title}\n",
            f"| unit | program | MiB {before} | MiB {after} | memory, times | processor time, times | object, times |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *(row(each) for each in effects(flag) if each.plain.tool in tools),
        ]
    for flag, title in OF_UNITS:
        lines += [
            f"\n## {title}\n",
            "| unit | MiB before | MiB after | memory, times | time, times | processor time, times | object, times |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *(unit_row(each) for each in effects(flag) if each.plain.tool == UNIT),
        ]
    beside = {each.unit: each.temporary_mib for each in rows if each.flag == OBJTEMP}
    lines += [
        "\n## Temporary files\n",
        "Most that lay in TMPDIR while the unit was compiled, as the project has it, and with `-objtemp`.\n",
        "| unit | MiB | MiB with `-objtemp` |",
        "| --- | --- | --- |",
    ]
    seen: set[tuple[str, str, str]] = set()
    for each in rows:
        if each.flag == NONE and each.unit not in seen:
            seen.add(each.unit)
            there = f"{beside[each.unit]:.0f}" if each.unit in beside else ""
            lines.append(f"| {unit_name(Effect(each, each))} | {each.temporary_mib:.0f} | {there} |")
    return lines
