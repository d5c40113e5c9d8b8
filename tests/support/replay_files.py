"""A recorded build as files that stand-ins for compilers follow: the same units and phases at a scale. Pure.

Covers: the text that each stand-in reads (what to hold, when), the command lines of the phases, and the ninja file.
Does *not* cover: the stand-ins, starting anything, or counting scaled memory and time up again for the supervisor
(``support.replaying``).

A stand-in's file is as large as the recorded input (all but its first bytes is a hole), since estimates read sizes.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from builddoctor.core.phase import PhaseKind
from builddoctor.core.units import MIB
from builddoctor.simulate.workload import PhaseWork, UnitWork, Workload
from support.magnified import Scale

SUFFIX = {PhaseKind.PTXAS: ".ptx", PhaseKind.LINK: ".o", PhaseKind.NVLINK: ".o"}
"""Of the input; preprocessed source otherwise."""

PROGRAM = {PhaseKind.PREPROCESS: "cc1plus", PhaseKind.HOST: "cc1plus", PhaseKind.LINK: "collect2"}
"""Where it is not called as the phase is."""

MOST_INPUT_BYTES = 64 * 1024 * MIB


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a stand-in reads."""

    name: str
    text: str
    size_bytes: int


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """All files of one replayed build, relative to its folder."""

    inputs: tuple[Input, ...]
    ninja: str


def replayed(
    workload: Workload, scale: Scale, *, growth: Literal["flat", "ramp"] = "ramp", busy: bool = False
) -> Replay:
    """``growth``: of phases without a recorded curve (as ``simulate.result.Rules``). ``busy``: phases take a core each
    while they run; they sleep otherwise, and any number of cores can be replayed on two."""
    inputs: list[Input] = []
    edges = [
        "rule unit\n  command = $driver $flags -c $in -o $out\n",
        "rule link\n  command = g++ -o $out $in -Wl,@$plan\n",
    ]
    outputs: list[str] = []
    for number, (unit, before) in enumerate(zip(workload.units, workload.preprocessed_by, strict=True)):
        lines = []
        for place, phase in enumerate(unit.phases):
            name = f"p{number}.{place}{SUFFIX.get(phase.kind, '.ii')}"
            text = instructions(phase, scale, growth=growth, busy=busy)
            if phase.kind is PhaseKind.HOST and before is not None:
                text = f"{preprocessing(before, scale)}{text}"
            inputs.append(Input(name=name, text=text, size_bytes=_input_bytes(phase)))
            lines.append(" ".join((PROGRAM.get(phase.kind, phase.kind.value), *_arguments(unit, phase, name))))
        cuda = any(phase.kind is PhaseKind.CUDAFE for phase in unit.phases) or bool(unit.archs)
        source = f"u{number}_{_file_name(unit.name)}" + ("" if unit.after_all else ".cu" if cuda else ".cpp")
        inputs.append(Input(name=source, text="\n".join((*lines, "")), size_bytes=0))
        output = f"u{number}.o"
        if unit.after_all:
            edges.append(f"build u{number}.so: link {' '.join(outputs)} | {source}\n  plan = {source}\n")
        else:
            flags = " ".join(f"-gencode=arch=compute_{each},code=sm_{each}" for each in _archs(unit))
            driver = "nvcc" if cuda else "g++"
            edges.append(f"build {output}: unit {source}\n  driver = {driver}\n  flags = {flags}\n")
            outputs.append(output)
    return Replay(inputs=tuple(inputs), ninja="\n".join(edges))


def instructions(
    phase: PhaseWork, scale: Scale, *, growth: Literal["flat", "ramp"] = "ramp", busy: bool = False
) -> str:
    """``to MS KIB`` lines: hold so much at that time, and a straight line in between; then the process ends."""
    curve = phase.curve or (((0.0, 1.0),) if growth == "flat" else ((1.0, 1.0),))
    took_ms, peak_kib = 1000 * phase.wall_s * scale.time, 1024 * phase.peak_mib * scale.memory
    # A recorded curve has a point where something changed; its highest is a little below the peak, which is of all
    # resident pages.
    lines = ["busy"] if busy else []
    held = 0.0
    for at, held in curve:
        lines.append(f"to {at * took_ms:.0f} {held * peak_kib:.0f}")
    if curve[-1][0] < 1.0:
        lines.append(f"to {took_ms:.0f} {held * peak_kib:.0f}")
    return "\n".join((*lines, ""))


def preprocessing(phase: PhaseWork, scale: Scale) -> str:
    """What it takes to make a source ready to be sent."""
    return f"first {1000 * phase.wall_s * scale.time:.0f} {1024 * phase.peak_mib * scale.memory:.0f}\n"


def _arguments(unit: UnitWork, phase: PhaseWork, name: str) -> list[str]:
    """As much of a real command line as gates and the supervisor read."""
    source = _file_name(unit.name)
    arch = phase.arch.removeprefix("sm_")
    if phase.kind is PhaseKind.CUDAFE:
        return ["--orig_src_path_name", source, "--gen_c_file_name", f"{name}.out", name]
    if phase.kind is PhaseKind.CICC:
        return ["--orig_src_path_name", source, "-arch", f"compute_{arch}", "-o", f"{name}.out", name]
    if phase.kind in (PhaseKind.PTXAS, PhaseKind.NVLINK):
        return ["-arch", f"sm_{arch}", "-o", f"{name}.out", name]
    if phase.kind is PhaseKind.LINK:
        return ["-o", f"{name}.out", name]
    return [*(["-E"] if phase.kind is PhaseKind.PREPROCESS else []), "-quiet", name, "-o", f"{name}.out"]


def _archs(unit: UnitWork) -> list[str]:
    return [arch.removeprefix("sm_") for arch in unit.archs]


def _input_bytes(phase: PhaseWork) -> int:
    size = phase.input_mib * MIB
    return int(min(max(size, 0.0), MOST_INPUT_BYTES)) if math.isfinite(size) else 0


def _file_name(name: str) -> str:
    """A unit's name as part of a file's: letters that no shell and no ninja file knows."""
    kept = (letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in name)
    return "".join(kept)[-60:]
