"""Known bugs of compilers that cost people their memory or their day: a warning where everything about them fits.

Each entry is a public report, with its source. None is proof that this build will meet it, so none stops a build.
Does *not* cover: what a project needs in memory when nothing is wrong.
"""

from __future__ import annotations

import shlex

import msgspec

from builddoctor.core.check import Check, Status, Topic
from builddoctor.core.toolchain import Toolchain
from builddoctor.doctor.cuda_checks import install_hint
from builddoctor.projects.archs import Arch
from builddoctor.projects.nvcc_archs import Version, release, spelled


class Hazard(msgspec.Struct, frozen=True, kw_only=True):
    """One known bug, and the conditions under which it was met. A condition that is empty fits everything."""

    name: str
    tool: str
    """the program that misbehaves"""
    since: Version = ()
    """first nvcc that it was met with"""
    before: Version = ()
    """first nvcc without it, or the first without a report of it"""
    machine: str = ""
    """``aarch64`` or ``x86_64``"""
    archs: tuple[str, ...] = ()
    """architectures by their number, without ``a`` and ``f``; at least one has to be asked for"""
    projects: tuple[str, ...] = ()
    cpp: str = ""
    """language standard: ``c++20``"""
    conda_compiler: bool = False
    """only with a host compiler of conda's"""
    what: str
    sources: tuple[str, ...]
    advice: str = ""
    """the next step; empty: a newer toolkit"""


HAZARDS = (
    Hazard(
        name="cudafe-aarch64-sm100",
        tool="cudafe++",
        since=(12, 8),
        before=(12, 9),
        machine="aarch64",
        archs=("100",),
        what="ran away to 140 GiB a process, with one job too; cause unknown",
        sources=("TransformerEngine#1996",),
    ),
    Hazard(
        name="cudafe-cpp20",
        tool="cudafe++",
        before=(12, 7),
        cpp="c++20",
        what="takes all memory (on aarch64 it crashes) on templates that it reads well as C++17",
        sources=("CLI11#1378", "cms-sw/cmssw#43117"),
        advice="build with -std=c++17, or take a CUDA from 12.8 on",
    ),
    Hazard(
        name="cudafe-cpp20-cli11",
        tool="cudafe++",
        before=(12, 7),
        projects=("cli11",),
        what="takes all memory (on aarch64 it crashes) on CLI11.hpp with -std=c++20, and not with c++17",
        sources=("CLI11#1378",),
        advice="build with -std=c++17, or take a CUDA from 12.8 on",
    ),
    Hazard(
        name="cudafe-cpp20-cmssw",
        tool="cudafe++",
        before=(12, 4),
        projects=("cmssw",),
        what="was killed for its memory in C++20 builds; fixed in 12.4",
        sources=("cms-sw/cmssw#43117",),
    ),
    Hazard(
        name="cicc-sm120",
        tool="cicc",
        since=(12, 8),
        before=(12, 9),
        archs=("120",),
        what="took 46 GB for one unit of mfem (sm_90: nothing special), and more than 64 GB for risc0",
        sources=("mfem#5363", "risc0#3016"),
    ),
    Hazard(
        name="nvcc-threads-flash-attn",
        tool="cicc",
        since=(12, 8),
        before=(12, 9),
        projects=("flash_attn",),
        what="takes 3 to 5 GB for each thread of nvcc: jobs times NVCC_THREADS of these at once",
        sources=("flash-attention#2079",),
        advice="export NVCC_THREADS=1",
    ),
    Hazard(
        name="nvcc-crash-flash-attn-sm120",
        tool="nvcc",
        since=(12, 8),
        before=(13, 0),
        archs=("120",),
        projects=("flash_attn",),
        what="crashed on backward kernels (hdim128 and hdim256); that is no lack of memory",
        sources=("flash-attention#2361",),
    ),
    Hazard(
        name="cicc-hang-grace",
        tool="cicc",
        since=(12, 6),
        before=(12, 7),
        projects=("grace_tensorpotential", "lammps"),
        what="never ends on one unit, with little memory (flat at 204 MB); 12.8 takes five minutes",
        sources=("ICAMS/grace-tensorpotential#36",),
        advice='export NVCC_APPEND_FLAGS="$NVCC_APPEND_FLAGS -Xcicc -O1"',
    ),
    Hazard(
        name="conda-arm-neon",
        tool="nvcc",
        before=(12, 8),
        machine="aarch64",
        conda_compiler=True,
        what="cannot read arm_neon.h of conda's gcc",
        sources=("conda-forge/tensorflow-feedstock#426",),
        advice="conda install -y -c conda-forge 'cuda-nvcc>=12.8'",
    ),
)


def hazard_checks(
    toolchain: Toolchain,
    archs: tuple[Arch, ...],
    *,
    machine: str,
    project: str = "",
    cpp: str = "",
    conda_prefix: str = "",
    hazards: tuple[Hazard, ...] = HAZARDS,
) -> list[Check]:
    """A warning for each hazard of which every condition is known to hold; nothing without a toolkit.

    ``machine`` as uname says it; ``project`` by its import name; ``cpp``: ``c++20`` where the standard is known.
    """
    version = release(toolchain.toolkit.version) if toolchain.toolkit is not None else ()
    if not version:
        return []
    asked = {f"{arch.major}{arch.minor}" for arch in archs}
    wanted = project.lower().replace("-", "_")
    has_conda = bool(conda_prefix) and any(host.driver.startswith(f"{conda_prefix}/") for host in toolchain.hosts)
    return [
        _warning(hazard, toolchain, spelled(version))
        for hazard in hazards
        if hazard.since <= version
        and (not hazard.before or version < hazard.before)
        and hazard.machine in ("", machine)
        and (not hazard.archs or asked.intersection(hazard.archs))
        and (not hazard.projects or wanted in hazard.projects)
        and hazard.cpp in ("", cpp)
        and (has_conda or not hazard.conda_compiler)
    ]


def _warning(hazard: Hazard, toolchain: Toolchain, version: str) -> Check:
    tool = f"nvcc {version}" if hazard.tool == "nvcc" else f"{hazard.tool} of {version}"
    return Topic.NVCC.check(
        f"hazard-{hazard.name}",
        Status.WARNING,
        f"known hazard: {tool} {hazard.what} ({', '.join(hazard.sources)})",
        hazard.advice or _newer(hazard, toolchain),
    )


def _newer(hazard: Hazard, toolchain: Toolchain) -> str:
    fit = [place for place in toolchain.others if release(place.version) >= hazard.before]
    return f"--toolkit {shlex.quote(fit[0].folder)}" if fit else install_hint(hazard.before)
