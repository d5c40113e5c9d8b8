"""What the doctor says: one check, and all of them.

Does *not* cover: making them (``doctor``) or showing them (``ui.doctor_page``).
"""

from __future__ import annotations

import msgspec

from builddoctor.core.word import Word


class Status(Word):
    """How a check came out, in rising order of trouble."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"

    @property
    def rank(self) -> int:
        return list(Status).index(self)


class FixName(Word):
    """A fix that ``doctor --fix`` offers."""

    NONE = ""
    """a person has to decide"""
    TMPDIR = "tmpdir"
    SUBMODULES = "submodules"


class Topic(Word):
    """The heading that a check stands under."""

    MEMORY = "memory"
    CORES = "cores"
    NEIGHBOURS = "neighbours"
    EVIDENCE = "evidence"
    DISK = "disk"
    NVCC = "nvcc"
    HOST_COMPILER = "host compiler"
    LIBRARIES = "libraries"
    CMAKE = "cmake"
    NINJA = "ninja"
    PYTHON = "python"
    TORCH = "torch"
    ENVIRONMENT = "environment"
    SOURCE = "source"

    def check(
        self,
        name: str,
        status: Status,
        text: str,
        hint: str = "",
        *,
        fix: FixName = FixName.NONE,
        stops: bool = False,
    ) -> Check:
        """One line under this heading. ``stops``: as a problem it stops a build; as anything else it never does."""
        stops_build = stops and status is Status.PROBLEM
        return Check(name=name, topic=self, status=status, text=text, hint=hint, fix=fix, stops_build=stops_build)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the doctor's page."""

    name: str
    """stable, for scripts: ``memory-limit``, ``nvcc-arch`` …"""
    topic: Topic
    status: Status
    text: str
    """what was found and why it matters, in one line"""
    hint: str = ""
    """the next step: a command that can be pasted, where there is one"""
    fix: FixName = FixName.NONE
    """the fix that ``doctor --fix`` offers for it"""
    stops_build: bool = False
    """a build now cannot succeed: ``build`` and ``run`` stop before they start anything"""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What ``builddoctor doctor --json`` prints."""

    schema: int = 1
    status: Status
    """the worst of all checks"""
    project: str = ""
    archs: tuple[str, ...] = ()
    cores: int
    limit_mib: float
    """the smallest limit of any level"""
    headroom_mib: float
    """what is free now at the level that leaves least, its reserve taken off"""
    budget_mib: float
    """headroom less the reserve: what compiler phases may hold together"""
    limited_by: str
    """the file, variable or flag of that level: not always the one of the smallest limit"""
    checks: tuple[Check, ...]
