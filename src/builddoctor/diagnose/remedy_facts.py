"""What is known of a build when somebody looks for a way out, and the conditions that remedies name. Pure.

Does *not* cover: the remedies (``remedies.toml``), or finding any of it out.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from builddoctor.diagnose.project_settings import settings_of
from builddoctor.model.verdict import VerdictName


class RemedyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything may be left out: None and empty mean that nobody knows. Sizes are MiB."""

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
    gcc: str = ""
    """the host compiler's version"""
    std: str = ""
    """``c++20``, as the command line has it"""
    debug: bool | None = None
    """-g, -G or -lineinfo is on the command line"""
    host_arch: str = ""
    """``x86_64``, ``aarch64``"""

    peak_mib: float | None = None
    """what it held when it died; for a kill that is less than it needs"""
    limit_mib: float | None = None
    reserve_mib: float = 0.0
    """kept free of compilers below that limit"""
    limited_by: str = ""
    """the file, variable or flag that sets it, as a trace's header has it"""
    scheduler: str = ""
    """``slurm``, ``lsf``, ``pbs``"""
    container: str = ""
    """``docker``, ``podman``, ``kubernetes``"""

    tmpdir: str = ""
    tmp_in_memory: bool | None = None
    """TMPDIR's files take memory"""
    disk_folder: str = ""
    """one on a disk that could be TMPDIR"""
    pipes: bool | None = None
    """its compiler reads or writes a pipe, as with gcc's -pipe"""
    remedied: tuple[str, ...] = ()
    """names of remedies that were tried already"""


OLD_STANDARDS = frozenset(("c++03", "c++98", "c++11", "c++14", "c++17", "gnu++11", "gnu++14", "gnu++17"))
GCC_OWN = frozenset(("cc1", "cc1plus", "lto1"))

_LACKS: dict[str, Callable[[RemedyFacts], bool]] = {
    "unsupervised": lambda facts: facts.supervised,
    "supervised": lambda facts: not facts.supervised,
    "threads": lambda facts: facts.threads == 1 or len(facts.archs) == 1,
    "jobs": lambda facts: facts.jobs == 1,
    "several-archs": lambda facts: len(facts.archs) == 1,
    "tmp-in-memory": lambda facts: not facts.tmp_in_memory,
    "debug": lambda facts: not facts.debug,
    "new-standard": lambda facts: facts.std in OLD_STANDARDS,
    "pipes": lambda facts: facts.pipes is False,
    "limit": lambda facts: facts.limit_mib is None,
    "components": lambda facts: not settings_of(facts.project).off,
    "harmless": lambda facts: facts.tool not in GCC_OWN and not facts.tmp_in_memory,
}
"""A condition to whether it is known not to hold. ``debug`` and ``tmp-in-memory`` have to be known to hold: without
them a remedy is one for a few builds."""


def known_from_verdict(verdict: VerdictName, facts: RemedyFacts) -> RemedyFacts:
    """The facts, and what the verdict says itself."""
    return msgspec.structs.replace(facts, tmp_in_memory=True) if verdict == "tmpfs" else facts


def lacks(need: str, facts: RemedyFacts) -> bool:
    """The condition is known not to hold. KeyError for one that there is not: the file is wrong."""
    return _LACKS[need](facts)
