"""``--auto-remedy``: what leaves the binary as it is, applied by itself, and said so.

Covers: a cc1plus or cc1 that does not fit alone is started with earlier garbage collection, once; temporary files go to
a disk where TMPDIR is in memory. One thread for each unit that is opened after a kill is the governor's own rule
(``policy.opening``), with or without this.
Does *not* cover: remedies that change the binary: they are advised only (``diagnose.remedies``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from builddoctor.doctor.fixes import tmpdir_candidates
from builddoctor.doctor.tmpdirs import best
from builddoctor.errors import FolderNotWritableError
from builddoctor.intercept.gate_program import THRIFT, THRIFTY
from builddoctor.model.phase import PhaseKind
from builddoctor.policy.actions import Admit, GiveUp
from builddoctor.policy.estimator import Estimator
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.storage import read_place
from builddoctor.supervise.fixing import make_own
from builddoctor.supervise.folders import cache_folder
from builddoctor.supervise.phases import LivePhase, describe
from builddoctor.units import format_mib

REMEDIED = ("too-big",)
"""Verdicts that a thriftier compiler may turn: not what grows without end, not what cannot be run again."""


class Remedying:
    """Decides, for phases that do not fit, whether they are tried once more with less memory."""

    def __init__(self, tell: Callable[..., None], estimator: Estimator | None) -> None:
        self._tell = tell
        self._estimator = estimator
        self.remedied = 0
        """phases that it was tried with"""

    def admitted(self, live: LivePhase, action: Admit, *, budget_mib: float) -> None:
        """It is about to start for the first time: alone, and expected to need more than there is."""
        expected_mib = action.estimate.peak_mib
        if action.alone and expected_mib > budget_mib and self._apply(live):
            self._say(f"{format_mib(expected_mib)} are expected, {format_mib(budget_mib)} are there", live)

    def rescued(self, live: LivePhase, action: GiveUp) -> bool:
        """It is about to be given up: True where it is to be asked for once more instead."""
        if action.verdict not in REMEDIED or not live.phase.redoable or not self._apply(live):
            return False
        if self._estimator is not None:
            # It needs about what it was killed at: nothing is to be started beside it.
            self._estimator.raise_after_kill(live.phase, peak_mib=live.peak_mib, reserved_mib=0.0)
        self._say(f"killed at {format_mib(live.peak_mib)} alone", live)
        return True

    def _apply(self, live: LivePhase) -> bool:
        """False where there is nothing to add, or where it did not help."""
        if live.extra or live.phase.tool not in THRIFTY or live.phase.kind is PhaseKind.PREPROCESS:
            return False
        live.extra = THRIFT
        self.remedied += 1
        return True

    def _say(self, why: str, live: LivePhase) -> None:
        self._tell(
            f"tries {describe(live.phase)} with less memory: {why}; {live.phase.tool} gets {' '.join(THRIFT)}, "
            "which leaves its output as it is (`--auto-remedy`)",
            warning=True,
        )


def tmpdir_on_disk(env: Mapping[str, str], root: SystemRoot, *, build_folder: str) -> str:
    """A folder on a disk, made for this user alone, where TMPDIR is in memory; empty where it is not, or there is none.

    What is written to a tmpfs counts against the memory limit of whoever writes it, until it is deleted.
    """
    if not read_place(root, env.get("TMPDIR") or "/tmp", role="TMPDIR").in_memory:  # noqa: S108
        return ""
    guesses = tmpdir_candidates(env, user=os.geteuid(), build_folder=build_folder, cache=str(cache_folder(env)))
    places = []
    for role, path in guesses:
        above = read_place(root, Path(path).parent, role=role)
        if not above.missing or role == "cache":
            places.append(read_place(root, path, role=role))
    place = best(places, build_device=read_place(root, build_folder, role="build folder").device)
    if place is None:
        return ""
    try:
        Path(place.path).parent.mkdir(parents=True, exist_ok=True)
        make_own(Path(place.path))
    except (OSError, FolderNotWritableError):
        return ""
    return place.path
