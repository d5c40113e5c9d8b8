"""What is known of a build when a way out of its failure is looked for. Pure.

Covers: the facts themselves, the conditions that remedies name (``Need``), and how a known project spells jobs, threads
and architectures in its environment. Does *not* cover: the remedies (``diagnose.remedies``), finding the facts
(``diagnose.from_log``, ``diagnose.from_trace``), or what builddoctor exports to every build (``gates.knobs``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from builddoctor.core.project import KnownProject, Spelling, is_before
from builddoctor.core.word import Word
from builddoctor.diagnose.case_facts import Case
from builddoctor.projects.catalogue import shipped_projects


class GpuOomKind(Word):
    """What the numbers of a GPU's message mean."""

    CAPACITY = "capacity"
    FRAGMENTATION = "fragmentation"
    OTHER_PROCESS = "other-process"
    IMPOSSIBLE = "impossible"
    """one request is larger than the card"""
    SHARE = "share"
    """the program allows itself a part of the card only"""
    GRAPH_CAPTURE = "graph-capture"
    UNCLEAR = "unclear"
    """refused although enough was free"""


class RemedyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything may be left out: None and empty mean that it is not known. Sizes are MiB."""

    project: str = ""
    """its name in the catalogue of known projects, ``flash_attn``"""
    cwd: str = ""
    command: tuple[str, ...] = ()
    """the build's own, without builddoctor"""
    options: tuple[str, ...] = ()
    """of ``builddoctor run``, that it was given and should have again: ``("--arch", "sm_90")``"""
    supervised: bool = False
    """it ran under builddoctor: no more ran at once than fit"""

    tool: str = ""
    """the program that died: ``cc1plus``, ``cicc``, ``ld``"""
    source: str = ""
    """what it compiled"""
    arch: str = ""
    """the device architecture that it compiled for, ``sm_90``"""
    archs: tuple[str, ...] = ()
    """all of the build"""
    threads: int | None = None
    """nvcc's ``--threads``"""
    jobs: int | None = None
    """units that the build tool starts at once"""
    nvcc: str = ""
    """its version"""
    cuda: bool | None = None
    """False: nothing of CUDA is built, so nothing of nvcc's helps"""
    case: Case = Case()
    """what else the log says of versions and the system"""
    captured: tuple[tuple[str, str], ...] = ()
    """what the line that is the cause says: name and text"""
    std: str = ""
    """``c++20``, as the command line has it"""
    debug: bool | None = None
    """-g, -G or -lineinfo is on the command line"""

    peak_mib: float | None = None
    """what it held when it died; for a kill that is less than it needs"""
    limit_mib: float | None = None
    reserve_mib: float = 0.0
    """kept free of compilers below that limit"""
    limited_by: str = ""
    """the file, variable or flag that sets it, as a trace's header has it"""
    scheduler: str = ""
    """``slurm``, ``lsf``, ``pbs``"""
    unit_stops: str = ""
    """the systemd unit that a kernel kill ended as a whole"""
    container: str = ""
    """``docker``, ``podman``, ``kubernetes``"""
    process_limit: str = ""
    """the limit of a process that ran out, where it is none on memory: ``RLIMIT_CPU``, ``pids.max``"""
    process_limit_flag: str = ""
    """ulimit's letter for it, ``-t``; empty where ulimit cannot raise it"""

    tmpdir: str = ""
    tmp_in_memory: bool | None = None
    """TMPDIR's files take memory"""
    disk_folder: str = ""
    """one on a disk that could be TMPDIR"""
    pipes: bool | None = None
    """its compiler reads or writes a pipe, as with gcc's -pipe"""
    auto_remedied: bool = False
    """``--auto-remedy`` was tried already"""
    reproduce: str = ""
    """the command that makes a folder with the step that died, where the trace has what it takes"""

    gpu_kind: GpuOomKind | None = None
    gpu_library: str = ""
    """the library that printed it: ``PyTorch``, ``JAX``"""


# -- conditions --------------------------------------------------------------------------------------------------


class Need(Word):
    """A condition of a remedy."""

    UNSUPERVISED = "unsupervised"
    SUPERVISED = "supervised"
    THREADS = "threads"
    JOBS = "jobs"
    SEVERAL_ARCHS = "several-archs"
    TMP_IN_MEMORY = "tmp-in-memory"
    DEBUG = "debug"
    NEW_STANDARD = "new-standard"
    PIPES = "pipes"
    LIMIT = "limit"
    COMPONENTS = "components"
    HARMLESS = "harmless"
    """something can be done that leaves the binary as it is"""
    NOT_REMEDIED = "not-remedied"
    MEMORY_LIMIT = "memory-limit"
    """of a process: the limit that ran out is one on memory"""
    SHELL_LIMIT = "shell-limit"
    """another limit of a process ran out, which a shell can raise"""
    GROUP_LIMIT = "group-limit"
    """the same, and no shell can raise it"""
    REPRODUCIBLE = "reproducible"
    UNIT_STOPS = "unit-stops"
    CUDA = "cuda"
    FAST_COMPILE = "fast-compile"
    """nvcc has ``--Ofast-compile`` (release notes of CUDA 12.9), or its version is not known"""
    LIMIT_SET = "limit-set"
    """not only the machine's own memory: a limit is known, or something that sets one"""
    OWN_MACHINE = "own-machine"
    """no limit is known but the machine's, and no scheduler set it"""


OLD_STANDARDS = frozenset(("c++03", "c++98", "c++11", "c++14", "c++17", "gnu++11", "gnu++14", "gnu++17"))
GCC_OWN = frozenset(("cc1", "cc1plus", "lto1"))

_LACKS: dict[Need, Callable[[RemedyFacts], bool]] = {
    Need.UNSUPERVISED: lambda facts: facts.supervised,
    Need.SUPERVISED: lambda facts: not facts.supervised,
    Need.THREADS: lambda facts: facts.threads == 1 or len(facts.archs) == 1,
    Need.JOBS: lambda facts: facts.jobs == 1,
    Need.SEVERAL_ARCHS: lambda facts: len(facts.archs) == 1,
    Need.TMP_IN_MEMORY: lambda facts: not facts.tmp_in_memory,
    Need.DEBUG: lambda facts: not facts.debug,
    Need.NEW_STANDARD: lambda facts: facts.std in OLD_STANDARDS,
    Need.PIPES: lambda facts: facts.pipes is False,
    Need.LIMIT: lambda facts: facts.limit_mib is None,
    Need.COMPONENTS: lambda facts: not settings_of(facts.project).off,
    Need.HARMLESS: lambda facts: facts.tool not in GCC_OWN and not facts.tmp_in_memory,
    Need.NOT_REMEDIED: lambda facts: facts.auto_remedied,
    Need.MEMORY_LIMIT: lambda facts: bool(facts.process_limit),
    Need.SHELL_LIMIT: lambda facts: not facts.process_limit_flag,
    Need.GROUP_LIMIT: lambda facts: not facts.process_limit or bool(facts.process_limit_flag),
    Need.REPRODUCIBLE: lambda facts: not facts.reproduce,
    Need.CUDA: lambda facts: facts.cuda is False,
    Need.FAST_COMPILE: lambda facts: is_before(facts.nvcc, "12.9"),
    Need.OWN_MACHINE: lambda facts: facts.limit_mib is not None or bool(facts.scheduler or facts.container),
    Need.LIMIT_SET: lambda facts: (
        not facts.supervised and facts.limit_mib is None and not (facts.scheduler or facts.container)
    ),
    Need.UNIT_STOPS: lambda facts: not facts.unit_stops,
}
"""A condition to whether it is known not to hold. Those on debug information, on TMPDIR in memory and on other limits
have to be known to hold: without them a remedy is one for a few builds."""


def lacks(need: Need, facts: RemedyFacts) -> bool:
    """The condition is known not to hold."""
    return _LACKS[need](facts)


# -- the project's own settings ----------------------------------------------------------------------------------


class ProjectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One project's variables, CMake's settings left out. Empty where it has no such variable, or none is known."""

    name: str = ""
    """the catalogue's; empty for a project that is not known"""
    jobs: str = ""
    """the variable that says how many units are compiled at once"""
    threads: str = ""
    """nvcc's ``--threads``"""
    archs: str = ""
    """the variable with its device architectures"""
    arch_form: Spelling = "number"
    letters: bool = True
    separator: str = ";"
    off: str = ""
    """a setting that leaves a component out"""
    off_text: str = ""
    """which"""
    debug_off: str = ""
    """a setting that builds without debug information"""


def settings_of(project: str) -> ProjectSettings:
    """A project's settings, by its name or by the title of a build of it; empty ones for one that is not known."""
    known = _known(project)
    if known is None:
        return ProjectSettings()
    part = known.components[0] if known.components else None
    archs = known.archs if known.archs is not None and not known.archs.variable.startswith("-") else None
    return ProjectSettings(
        name=known.name,
        jobs=_variable(known.jobs[0].variable if known.jobs else ""),
        threads=_variable(known.threads.variable if known.threads is not None else ""),
        archs=archs.variable if archs is not None else "",
        arch_form=archs.spelling if archs is not None else "number",
        letters=archs.letters if archs is not None else True,
        separator=archs.separator if archs is not None else ";",
        off=_setting(part.off) if part is not None else "",
        off_text=part.what if part is not None else "",
        debug_off=known.debug_off,
    )


_ARCH = re.compile(r"\A(?:sm_|compute_)?(\d+)(\d)([af]?)\Z")


def arch_value(settings: ProjectSettings, archs: Sequence[str]) -> str:
    """``sm_90``, ``sm_100a`` as the project's own variable takes them; empty when one is no architecture."""
    found = [_ARCH.match(arch) for arch in archs]
    dot = "." if settings.arch_form == "dotted" else ""
    spelt = [f"{match[1]}{dot}{match[2]}{match[3] if settings.letters else ''}" for match in found if match is not None]
    return settings.separator.join(dict.fromkeys(spelt)) if len(spelt) == len(found) else ""


def _known(project: str) -> KnownProject | None:
    wanted = _plain(project.partition(" ")[0])
    for each in shipped_projects():
        if wanted in {_plain(name) for name in (each.name, *each.aliases)} or project.startswith(each.title):
            return each
    return None


def _plain(name: str) -> str:
    return re.sub(r"[-_.\s]+", "_", name.strip().lower())


def _variable(name: str) -> str:
    """CMake's settings are no variables, and what appends to nvcc's flags is everybody's."""
    return "" if name.startswith("-") or name == "NVCC_APPEND_FLAGS" else name


def _setting(off: str) -> str:
    """``CMAKE_ARGS`` is added to, and not replaced."""
    name, _, value = off.partition("=")
    return f'{name}="${name} {value}"' if name == "CMAKE_ARGS" else off
