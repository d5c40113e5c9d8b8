"""What the doctor says: one check, and all of them.

Does *not* cover: making them (``doctor``) or showing them (``render.checks``).
"""

from __future__ import annotations

from enum import Enum

import msgspec


class Status(str, Enum):
    """How a check came out, in rising order of trouble."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"

    @property
    def rank(self) -> int:
        return list(Status).index(self)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the doctor's page."""

    name: str
    """stable, for scripts: ``memory-limit``, ``nvcc-arch`` …"""
    topic: str
    """the heading it stands under: ``memory``, ``disk``, ``nvcc``, ``source`` …"""
    status: Status
    text: str
    """what was found and why it matters, in one line"""
    hint: str = ""
    """the next step: a command that can be pasted, where there is one"""
    fix: str = ""
    """name of the fix that ``doctor --fix`` offers for it; empty where a person has to decide"""
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
